"""Options about what a network has learned before a run, as settings of the run. No torch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from smoothmix.config import FineTuning, RunConfig, require
from smoothmix.errors import UsageError
from smoothmix.methods.registry import METHODS
from smoothmix.runs import zoo
from smoothmix.runs.folder import RunFolder
from smoothmix.runs.options import RunOverrides

DEFAULT_DENOISER = "unet"
CLASSIFIER = "classifier"
"""The part of a `Denoised` network that training leaves alone."""


def with_classifier(overrides: RunOverrides) -> RunOverrides:
    """The overrides with what `--classifier` decides: the network, its weights and its data."""
    classifier = overrides.classifier
    if classifier is None:
        require(overrides.denoiser is None, "--denoiser goes with --classifier")
        return overrides
    method = overrides.method or "denoiser"
    require(
        METHODS[method].trains_denoiser,
        f"--classifier goes with --method denoiser: {method} trains a classifier itself",
    )
    for option in ("network", "freeze", "body_rate"):
        require(
            getattr(overrides, option) is None,
            f"--{option.replace('_', '-')} does not go with --classifier, which stays as it is",
        )
    overrides = replace(overrides, method=method, denoiser=overrides.denoiser or DEFAULT_DENOISER)
    folder = run_folder(classifier)
    if folder is None:
        return replace(overrides, network=classifier, weights=overrides.weights or own(classifier))
    require(overrides.weights is None, f"--weights does not go with {classifier}, a run")
    run = RunConfig.load(folder.config)
    require(not run.denoiser, f"{classifier} is a denoised classifier already")
    return replace(
        overrides,
        weights=classifier,
        data=overrides.data or run.data,
        network=run.network,
        normalisation=overrides.normalisation or run.normalisation,
    )


def own(network: str) -> str | None:
    """The name of the weights that a network brings along; None if it is made with fresh ones."""
    if network.startswith("hf:"):
        return network
    return None


def run_folder(name: str) -> RunFolder | None:
    """The run folder of that path or of `zoo:NAME`; None if it is no run."""
    folder = RunFolder(zoo.resolved(Path(name)))
    if folder.config.exists():
        return folder
    return None


def with_fine_tuning(run: RunConfig, overrides: RunOverrides) -> RunConfig:
    """The run with what the options say about the beginning of training."""
    if overrides.classifier is not None:
        tuning = FineTuning(weights=overrides.weights or "", freeze=(CLASSIFIER,))
        return replace(run, denoiser=overrides.denoiser or "", fine_tuning=tuning)
    _require_classifier(run)
    given = {}
    for name in ("weights", "freeze", "body_rate"):
        value = getattr(overrides, name)
        if value is not None:
            given[name] = value
    if overrides.weights is None and overrides.network is not None and own(overrides.network):
        given["weights"] = overrides.network
    if not given:
        return run
    require(not run.denoiser, "the classifier of a denoiser stays as it is")
    # The hash is that of other weights.
    tuning = replace(run.fine_tuning or FineTuning(), weights_sha256="", **given)
    return replace(run, fine_tuning=tuning)


def _require_classifier(run: RunConfig) -> None:
    """Refuse a method and a network that do not go together."""
    trains_denoiser = METHODS[run.method["name"]].trains_denoiser
    if trains_denoiser and not run.denoiser:
        raise UsageError(
            f"--method {run.method['name']} needs --classifier: a run folder, zoo:NAME or "
            "package.module:function"
        )
    if run.denoiser and not trains_denoiser:
        raise UsageError(f"{run.method['name']} trains no denoiser: use --method denoiser")

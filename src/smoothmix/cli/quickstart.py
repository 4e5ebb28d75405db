"""The command `quickstart`: the main job on embedded data, in a few minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from smoothmix.cli.output import say

PRESET = "quick/gaussian"


def quickstart(*, out: Path = Path("runs/quickstart"), fresh: Annotated[bool, Parameter(negative="")] = False) -> None:
    """Train a small network with noise on embedded digits, certify 50 images and show the result.

    Parameters
    ----------
    out
        Folder that keeps the runs.
    fresh
        Begin anew even if the runs are there already.
    """
    import shutil

    from smoothmix import data, presets
    from smoothmix.cli.certify import certify_with_progress, show_summary
    from smoothmix.cli.options import ImageOptions, NetworkOptions, TrainingOptions
    from smoothmix.cli.target import load_target
    from smoothmix.cli.train import train_with_progress
    from smoothmix.config import Certification, RunConfig
    from smoothmix.errors import UsageError
    from smoothmix.runs import RunFolder

    folder = RunFolder(out / PRESET.rpartition("/")[2])
    if fresh and folder.config.exists():
        shutil.rmtree(folder.path)
    config = presets.get(PRESET).config
    if folder.config.exists() and RunConfig.load(folder.config).recipe != config.recipe:
        raise UsageError(f"{folder.path}: holds a run with other settings; add --fresh to begin anew")
    say(f"Training a {config.network} with noise of deviation {config.sigma:g} on 4,000 embedded digits.")
    train_with_progress(config, folder.path, TrainingOptions(device="cpu"))
    say("\nCertifying 50 of its 1,000 test images with 10,000 noisy copies each.")
    file = certify_with_progress(
        load_target(folder.path, NetworkOptions(device="cpu")),
        data.load(config.data, "test"),
        Certification(sigma=config.sigma, n=10_000),
        folder.certificates,
        images=ImageOptions(skip=20),
    )
    show_summary(file)
    say(f"\nThe run is kept in {folder.path}. Now try:")
    say(f"  smoothmix certificates verify {folder.certificates}")
    say(f"  smoothmix certify {folder.path} --out all.tsv --n 1000")

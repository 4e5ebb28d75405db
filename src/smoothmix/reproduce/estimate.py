"""How long runs will take, measured on a few steps of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from smoothmix import data
from smoothmix.certificates import Certification
from smoothmix.certify.smoothed import Smoothed
from smoothmix.config import RunConfig
from smoothmix.inference.speed import Setup, measure
from smoothmix.reproduce.jobs import Job
from smoothmix.runs.load import build_network
from smoothmix.training.batches import Epoch
from smoothmix.training.run import make_method
from smoothmix.training.step import Stepper

MEASURED_STEPS = 3
"""Steps that are timed, after one that warms up."""


@dataclass(frozen=True)
class Estimate:
    """Seconds that training and certification will take."""

    training: float
    certification: float


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A job, and how much of it is left to do."""

    job: Job

    repeats: bool
    """Whether an earlier job of the plan is the same run."""

    images: int
    """Images to certify, in all."""

    certified: int
    """How many of them are certified already."""

    whole: Estimate
    """Seconds of the whole job, including what is done already."""

    @property
    def training(self) -> float:
        """Seconds of training that are left."""
        if self.job.trained or self.repeats:
            return 0.0
        return self.whole.training

    @property
    def certification(self) -> float:
        """Seconds of certification that are left."""
        if self.repeats:
            return 0.0
        left = max(0, self.images - self.certified)
        return self.whole.certification * left / self.images


def plan(
    jobs: Sequence[Job],
    certifications: Sequence[Certification],
    *,
    skip: int,
    maximum: int | None,
    data_dir: Path | None,
    device: torch.device,
    measuring: Callable[[str], None] = lambda name: None,
) -> list[Planned]:
    """What is left to do; `measuring` gets the name of each preset before its steps are timed."""
    estimates: dict[str, Estimate] = {}
    folders: set[Path] = set()
    planned: list[Planned] = []
    for job, certification in zip(jobs, certifications, strict=True):
        test = data.load(job.config.data, "test", data_dir=data_dir)
        images = min(-(-len(test) // skip), maximum or len(test))
        name = job.preset.name
        # The seeds of a preset take the same time.
        if name not in estimates:
            measuring(name)
            estimates[name] = estimate(
                job.config, certification, images=images, data_dir=data_dir, device=device
            )
        planned.append(
            Planned(
                job=job,
                repeats=job.folder.path in folders,
                images=images,
                certified=job.certified(certification, skip),
                whole=estimates[name],
            )
        )
        folders.add(job.folder.path)
    return planned


def estimate(
    config: RunConfig,
    certification: Certification,
    *,
    images: int,
    data_dir: Path | None,
    device: torch.device,
) -> Estimate:
    """What the run will take here, measured on a few training steps and a few draws."""
    train = data.load(
        config.data,
        config.train_split,
        data_dir=data_dir,
        allow_partial=True,
        preparation=config.preparation,
    )
    config = replace(config, num_classes=train.num_classes, image_shape=train.shape)
    with torch.random.fork_rng(devices=[]):
        model = build_network(config)
        training = _seconds_per_epoch(model, config, train, device) * config.recipe.epochs
        smoothed = Smoothed.for_certification(model, certification, num_classes=train.num_classes)
        (speed,) = measure(
            lambda setup: smoothed.open(train.shape, seed=certification.seed),
            train.shape,
            setups=[Setup("auto", certification.precision)],
            turns=3,
            seconds=0.2,
        )
    guarantee = certification.guarantee
    draws_per_image = guarantee.n0 + guarantee.max_draws
    return Estimate(training, draws_per_image * images / speed.rate)


def _seconds_per_epoch(
    model: nn.Module, config: RunConfig, train: data.Dataset, device: torch.device
) -> float:
    recipe = config.recipe
    method = make_method(config)
    stepper = Stepper(model, method, recipe, device)
    # Of the last epoch: a method that warms up or defers a term is slowest there.
    last = max(recipe.epochs - 1, 0)
    epoch = Epoch(train, method, recipe.seed, last, recipe.batch)
    stepper.set_epoch(last)
    seconds = []
    for number in range(min(MEASURED_STEPS + 1, len(epoch))):
        started = time.perf_counter()
        stepper.step(epoch[number])
        seconds.append(time.perf_counter() - started)
    # The first step warms up, unless it is the only one.
    measured = seconds[1:] or seconds
    return min(measured) * len(epoch)

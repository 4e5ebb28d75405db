"""How long runs will take, from a few steps of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn
from torch.optim import SGD

from smoothmix import data, methods
from smoothmix.certify.smoothed import Smoothed
from smoothmix.config import Certification, RunConfig
from smoothmix.inference.speed import Setup, measure
from smoothmix.reproduce.jobs import Job
from smoothmix.runs.load import build_network
from smoothmix.training.batches import Epoch

STEPS = 3


@dataclass(frozen=True)
class Estimate:
    """Seconds that training and certification will take."""

    training: float
    certification: float


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A job, and what is left of it."""

    job: Job

    repeats: bool
    """Whether an earlier job of the plan is the same run."""

    images: int
    """To be certified in all."""

    certified: int
    """Of these, how many are."""

    whole: Estimate
    """Seconds that all of it takes, also what is done."""

    @property
    def training(self) -> float:
        """Seconds of training that are left."""
        return 0.0 if self.job.trained or self.repeats else self.whole.training

    @property
    def certification(self) -> float:
        """Seconds of certification that are left."""
        return (
            0.0
            if self.repeats
            else self.whole.certification * max(0, self.images - self.certified) / self.images
        )


def plan(
    jobs: Sequence[Job],
    hows: Sequence[Certification],
    *,
    skip: int,
    maximum: int | None,
    data_dir: Path | None,
    device: torch.device,
    measuring: Callable[[str], None] = lambda name: None,
) -> list[Planned]:
    """What is left to be done; `measuring` hears the name of each preset before its steps are timed."""
    seen: dict[str, Estimate] = {}
    planned: list[Planned] = []
    for job, how in zip(jobs, hows, strict=True):
        test = data.load(job.config.data, "test", data_dir=data_dir)
        images = min(-(-len(test) // skip), maximum or len(test))
        name = job.preset.name
        if name not in seen:
            measuring(name)
            seen[name] = estimate(job.config, how, images=images, data_dir=data_dir, device=device)
        repeats = any(job.folder.path == earlier.job.folder.path for earlier in planned)
        certified = job.certified(how, skip)
        planned.append(
            Planned(job=job, repeats=repeats, images=images, certified=certified, whole=seen[name])
        )
    return planned


def estimate(
    config: RunConfig,
    how: Certification,
    *,
    images: int,
    data_dir: Path | None,
    device: torch.device,
) -> Estimate:
    """What the run will take here, measured on a few steps of its last epoch (the dearest) and a few draws."""
    train = data.load(config.data, config.train_split, data_dir=data_dir, allow_partial=True)
    config = replace(config, num_classes=train.num_classes, image_shape=train.shape)
    with torch.random.fork_rng(devices=[]):
        model = build_network(config).to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        training = _seconds_an_epoch(model, config, train, device) * config.recipe.epochs
        smoothed = Smoothed.for_certification(model, how, num_classes=train.num_classes)
        (speed,) = measure(
            lambda setup: smoothed.open(train.shape, seed=how.seed),
            train.shape,
            setups=[Setup("auto", how.precision)],
            turns=3,
            seconds=0.2,
        )
    return Estimate(training, (how.n0 + how.n) * images / speed.rate)


def _seconds_an_epoch(
    model: nn.Module, config: RunConfig, train: data.Dataset, device: torch.device
) -> float:
    settings, recipe = dict(config.method), config.recipe
    method = methods.make(settings.pop("name"), **settings)
    last = max(recipe.epochs - 1, 0)
    epoch = Epoch(train, method, recipe.seed, last, recipe.batch)
    optimiser = SGD(model.parameters(), lr=recipe.learning_rate)
    model.train()
    seconds = []
    for number in range(min(STEPS + 1, len(epoch))):
        started = time.perf_counter()
        step = epoch[number]
        x, y, noise, mix = (t.to(device) for t in (step.x, step.y, step.noise, step.mix))
        with torch.autocast(device.type, torch.bfloat16, enabled=recipe.precision == "bf16"):
            loss = method.loss(model, x, y, epoch=last, noise=noise, mix=mix)
        optimiser.zero_grad(set_to_none=True)
        loss.total.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        seconds.append(time.perf_counter() - started)
    return min(seconds[1:] or seconds) * len(epoch)  # the first pays for warming up

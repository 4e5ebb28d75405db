"""The classifier of a service: open, warm, with all that its answers tell about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, final

from torch import nn

from smoothmix.certificates import Certification
from smoothmix.certificates.settings import FileSettings, software_versions
from smoothmix.certify.resident import Resident
from smoothmix.certify.smoothed import Smoothed
from smoothmix.config import Preparation
from smoothmix.networks import state_hash
from smoothmix.networks.sources import source_hashes

BATCHES_PER_DEADLINE = 16
"""Batches that one thread must be able to draw within a deadline."""

LEAST_BATCH = 16
"""Smaller batches cost more time than they save."""

LOGGED_ROWS = 10_000
"""Rows of each file of a log; those of the last file are held in memory."""


@final
@dataclass(frozen=True, kw_only=True)
class Classifier:
    """A resident classifier, and what is known about it."""

    resident: Resident
    certification: Certification
    """With an anytime guarantee; each request has a seed of its own unless rows are logged."""
    name: str
    class_names: tuple[str, ...]
    trained_on: str = ""
    preparation: Preparation | None = None
    """How its run has resized and cropped image files."""
    weights: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels, height and width of the network's images."""
        return self.resident.shape

    def class_name(self, number: int) -> str:
        """The name of a class; its number where no name is known."""
        if number < len(self.class_names):
            return self.class_names[number]
        return str(number)

    def settings(self) -> dict[str, Any]:
        """What decides certificates, as answers and the page show it."""
        certification = self.certification
        guarantee = certification.guarantee
        return {
            "model": self.name,
            "model_hash": state_hash(self.model),
            "image": list(self.shape),
            "classes": [self.class_name(n) for n in range(self.resident.smoothed.num_classes)],
            "sigma": certification.sigma,
            "noise": certification.noise.name,
            "levels": certification.levels,
            "mode": guarantee.mode,
            "alpha": guarantee.alpha,
            "n0": guarantee.n0,
            "max_draws": guarantee.max_draws,
            "stopping": guarantee.description,
            "batch": certification.batch,
            "precision": certification.precision,
            "engine": self.resident.sampler.engine,
            "norm": "L2",
        }

    @property
    def model(self) -> nn.Module:
        """The network as its owner wrote it."""
        return self.resident.sampler.model

    def file_settings(self) -> FileSettings:
        """The settings of a certificate file for the images of requests."""
        sampler = self.resident.sampler
        return FileSettings(
            certification=self.certification,
            model=self.name,
            model_hash=state_hash(sampler.model),
            weights=self.weights,
            data="requests",
            split="served",
            data_hash="images are not kept",
            preparation=self.preparation,
            labels="none",
            num_classes=sampler.num_classes,
            images=LOGGED_ROWS,
            engine=sampler.engine,
            probe=sampler.probe,
            positions=self.resident.positions,
            noise_scheme=self.certification.noise.scheme,
            versions=software_versions(),
            sources=source_hashes(sampler.model),
            has_digests=True,
        )


@contextmanager
def open_classifier(
    smoothed: Smoothed, shape: Sequence[int], *, seconds: float, keep_batch: bool = False
) -> Iterator[Resident]:
    """The classifier, open, with batches that are short beside a deadline of so many seconds.

    The batch is halved until it is; `keep_batch` leaves it as it is.
    """
    with ExitStack() as opened:
        while True:
            with ExitStack() as attempt:
                resident = attempt.enter_context(smoothed.resident(shape))
                taken = resident.turns.seconds(smoothed.batch)
                short = taken <= seconds / BATCHES_PER_DEADLINE
                if short or keep_batch or smoothed.batch // 2 < LEAST_BATCH:
                    opened.push(attempt.pop_all())
                    break
            smoothed = replace(smoothed, batch=smoothed.batch // 2)
        yield resident

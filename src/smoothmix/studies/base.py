"""What every study gives, and what those of trained models share: votes and attacks by address. No torch at import."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smoothmix._io.text import counted
from smoothmix._process.progress import OnProgress, Progress
from smoothmix.config import Precision, require, require_precision, require_seed, require_sigma
from smoothmix.errors import UsageError
from smoothmix.studies.partial import Begun
from smoothmix.tables import Cell, Column, Grid, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor, nn

    from smoothmix.data import Dataset
    from smoothmix.inference.sampler import Sampler

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Study:
    """A measurement that can be shown anywhere: in the terminal, in files, on the report page."""

    name: str
    """Stem of its files, such as `confidence`."""
    title: str
    text: str
    """What was measured and what was seen, in two or three plain sentences."""
    grid: Grid
    """The numbers."""
    figure: Figure | None = None
    """None where matplotlib is missing."""
    record: Grid | None = None
    """What the numbers were computed from, a row for every image that was classified: no program need run again."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """A trained network, and the noise it is smoothed with."""

    name: str
    """What tables and legends call it."""
    network: nn.Module
    sigma: float
    num_classes: int

    def __post_init__(self) -> None:
        require_sigma(self.sigma)
        require(
            self.num_classes >= 2,
            f"{self.name}: num_classes must be at least 2, got {self.num_classes}",
        )


@dataclass(frozen=True, kw_only=True)
class Draws:
    """How votes are counted. Every number follows from these and the image's position: not from batch or order."""

    n: int = 1000
    """Noisy votes for each image that is classified. All points of one image see the same noise, so that what differs
    between them is the image."""
    seed: int = 0
    """Decides the noise of votes and attacks, which are independent of one another."""
    block: int = 256
    """Draws in one forward."""
    precision: Precision = "fp32"
    """Arithmetic of the network when it votes; attacks are computed in fp32."""

    def __post_init__(self) -> None:
        require(self.n >= 1, f"n must be at least 1, got {self.n}")
        require_seed(self.seed)
        require(self.block >= 1, f"the block must hold at least 1 draw, got {self.block}")
        require_precision(self.precision)


@dataclass(frozen=True, kw_only=True)
class Attack:
    """Normalised gradient ascent on the smoothed classifier, eq. (adv_step), with pixels kept in [0, 1]."""

    steps: int = 20
    epsilon: float | None = None
    """Largest L2 distance from the image; None: as far as the steps go."""
    step_size: float | None = None
    """L2 length of a step; by default 2 epsilon / steps, as in SmoothAdv."""
    copies: int = 16
    """Noises that smooth the classifier under attack, the same in all steps. Few are fitted instead of fooled."""

    def __post_init__(self) -> None:
        require(self.steps >= 1, f"the attack needs at least 1 step, got {self.steps}")
        require(
            self.copies >= 1, f"the attack needs at least 1 copy of the noise, got {self.copies}"
        )
        if self.epsilon is not None:
            require(
                0 <= self.epsilon < math.inf,
                f"eps must be a number of zero or more, got {self.epsilon:g}",
            )
        elif self.step_size is None:
            raise UsageError("an attack without a limit needs a step size")
        if self.step_size is not None:
            require(
                0 < self.step_size < math.inf,
                f"the step size must be a positive number, got {self.step_size:g}",
            )

    @property
    def length(self) -> float:
        """L2 length of one step."""
        return (
            self.step_size if self.step_size is not None else 2 * (self.epsilon or 0.0) / self.steps
        )

    def words(self, limit: str = "") -> str:
        """What it does, for people; `limit` instead of its own where that varies."""
        own = (
            f"steps of L2 length {self.length:g}"
            if self.epsilon is None
            else f"within L2 distance {self.epsilon:g}"
        )
        return f"{self.steps}-step PGD on the smoothed classifier with {self.copies} noises, {limit or own}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A model and an image: how it votes near the image, and what fools it."""

    model: Model
    image: Tensor
    index: int
    """Position of the image in the data set, which addresses its noise."""
    label: int
    draws: Draws
    sampler: Sampler

    def votes(self, point: Tensor) -> Ints:
        """Votes by class at the image or what became of it."""
        from smoothmix.noise.addresses import Domain

        return self.sampler.votes(point, self.index, Domain.STUDY, self.draws.n)

    def attacked(self, attack: Attack) -> Tensor:
        """The adversarial example that the attack ends in. The image is attacked alone: no other has a say in it."""
        import torch

        from smoothmix.attacks import (
            ball,
            clamp_pixels,
            l2_ascent,
            smoothed_cross_entropy,
            unit_l2,
        )
        from smoothmix.noise.addresses import Domain, DrawRange, standard_normal

        if attack.epsilon == 0:
            return self.image
        shape, device = tuple(self.image.shape), self.sampler.device
        draws = DrawRange(self.draws.seed, Domain.ATTACK, self.index, 0, attack.copies)
        noise = torch.from_numpy(standard_normal(draws, shape))
        x = self.image[None].to(device)
        # Pixels are clamped last: that brings every point nearer to x, so that it stays within the ball.
        limit = (ball(x, attack.epsilon),) if attack.epsilon is not None else ()
        *_, last = l2_ascent(
            self.model.network,
            x,
            noise[:, None].mul_(self.model.sigma).to(device),
            objective=smoothed_cross_entropy(torch.tensor([self.label], device=device)),
            steps=attack.steps,
            step_size=attack.length,
            constraints=(*limit, clamp_pixels),
            # Whole steps: a network that is very sure of itself has tiny gradients, and would seem robust for it.
            direction=unit_l2,
        )
        return last[0].to(self.image.device)


@contextmanager
def examining(model: Model, dataset: Dataset, draws: Draws) -> Iterator[Callable[[int], Case]]:
    """What gives the model's case of any image by its position in the data set."""
    from smoothmix.inference.guards import check_images
    from smoothmix.inference.sampler import Sampler

    sampler = Sampler(
        model=model.network,
        sigma=model.sigma,
        num_classes=model.num_classes,
        seed=draws.seed,
        block=draws.block,
        precision=draws.precision,
    )

    def case(index: int) -> Case:
        image, label = dataset.images([index])[0], int(dataset.labels[index])
        check_images(
            image[None]
        )  # what lies outside of [0, 1] is clamped away from the image, not towards it
        return Case(
            model=model, image=image, index=index, label=label, draws=draws, sampler=sampler
        )

    with sampler:
        yield case


def each_case(
    models: Sequence[Model],
    dataset: Dataset,
    indices: Sequence[int],
    draws: Draws,
    on_progress: OnProgress,
    measure: Callable[[Case], Floats],
    begun: Begun,
) -> Floats:
    """What is measured for each model and image, [models, images, ...]; what was begun already is taken from there."""
    every = [(model, index) for model in models for index in indices]
    found = {(model.name, index): begun.recall(model, index) for model, index in every}
    done = sum(numbers is not None for numbers in found.values())
    on_progress(Progress(done, len(every)))
    for model in models:
        with examining(model, dataset, draws) as case:
            for index in indices:
                if found[model.name, index] is None:
                    found[model.name, index] = numbers = measure(case(index))
                    begun.keep(model, index, numbers)
                    done += 1
                    on_progress(Progress(done, len(every)))
    whole = np.stack([numbers for numbers in found.values() if numbers is not None])
    return whole.reshape(len(models), len(indices), *whole.shape[1:])


def require_comparable(models: Sequence[Model], dataset: Dataset, indices: Sequence[int]) -> None:
    """Refuse models that cannot be asked about the same images, and images that are not there."""
    require(len(models) > 0, "a study needs at least one model")
    names, classes = [model.name for model in models], {model.num_classes for model in models}
    require(
        len(set(names)) == len(names), f"the models need different names, got {', '.join(names)}"
    )
    require(
        len(classes) == 1,
        "the models tell different numbers of classes apart: "
        + ", ".join(f"{model.name} {model.num_classes}" for model in models),
    )
    require(len(indices) > 0, "no images are left to study")
    require(len(set(indices)) == len(indices), "an image is asked for twice")
    wrong = next((i for i in indices if not 0 <= i < len(dataset)), None)
    require(
        wrong is None,
        f"{dataset.name} ({dataset.split}) has the images 0 to {len(dataset) - 1}, not {wrong}",
    )
    highest = int(dataset.labels[list(indices)].max())
    require(
        highest < models[0].num_classes,
        f"{dataset.name} has the label {highest}, where the models tell {models[0].num_classes} classes apart",
    )


def images_of(dataset: Dataset, indices: Sequence[int]) -> str:
    """How many images a study was made on, and of what."""
    return f"{counted(len(indices), 'image')} of {dataset.name} ({dataset.split})"


def distance(one: Tensor, other: Tensor) -> float:
    """L2 distance of two images."""
    return float((one - other).norm())


def off_class(votes: Ints, label: int) -> int:
    """The class other than the label with most votes."""
    return int(np.where(np.arange(len(votes)) == label, -1, votes).argmax())


def lost(votes: Ints, label: int) -> bool:
    """Whether another class has as many votes as the label, so that the smoothed classifier does not answer it."""
    return bool(votes[off_class(votes, label)] >= votes[label])


def noise_notes(models: Sequence[Model]) -> tuple[str, ...]:
    """A sentence where the models are smoothed with different noise."""
    if len({model.sigma for model in models}) == 1:
        return ()
    return (
        "the models differ in noise, and each is smoothed with its own: "
        + ", ".join(f"{model.name} {model.sigma:g}" for model in models),
    )


def plain_grid(title: str, names: Sequence[str], rows: Sequence[Sequence[object]]) -> Grid:
    """A table whose cells are written as they are."""
    lines = [Row(cells=tuple(Cell(str(value)) for value in row)) for row in rows]
    return Grid(
        title=title,
        columns=tuple(Column(name=name, key=name) for name in names),
        rows=tuple(lines),
    )

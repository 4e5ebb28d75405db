"""Options that several commands share, each explained once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from smoothmix.config import Engine, Precision, require
from smoothmix.errors import UsageError


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which network, and where it is run."""

    model: str | None = None
    """Your own network instead of a run: `package.module:function`, called without arguments; the current folder is
    importable."""

    weights: Path | None = None
    """Weights for --model: .safetensors, or .pt read without running code."""

    num_classes: int | None = None
    """Outputs of the network, if it has others than the data set has classes, or if there is no data set."""

    batch: int = 256
    """Draws in one forward. Rounding may depend on it; certificates record it."""

    device: str = "auto"
    """cpu, cuda, cuda:1, ...; auto takes a GPU if there is one."""

    def __post_init__(self) -> None:
        require(self.batch >= 1, f"batch must be at least 1, got {self.batch}")
        classes = self.num_classes
        require(classes is None or classes >= 2, f"num-classes must be at least 2, got {classes}")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class NetworkOptions(ModelOptions):
    """Which network, and how it is run."""

    sigma: float | None = None
    """Deviation of the noise for pixels in [0, 1]; by default that of the training."""

    precision: Precision = "fp32"
    """Arithmetic of the network: certify what will be deployed."""

    engine: Engine = "auto"
    """eager runs the network as it is written; auto fuses layers on a processor where that gives the same logits.
    Rounding may depend on it; certificates record it."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """Which images."""

    data: str | None = None
    """Data set; by default that of the training (`smoothmix data list`)."""

    data_dir: Path | None = None
    """Folder that holds it; by default $SMOOTHMIX_DATA or this user's cache."""

    split: str = "test"
    """Part of it."""

    skip: int = 1
    """Take every skip-th image: 0, skip, 2 skip, ..."""

    maximum: Annotated[int | None, Parameter(name="--max")] = None
    """Stop after so many images."""

    def __post_init__(self) -> None:
        require(self.skip >= 1, f"skip must be at least 1, got {self.skip}")
        require(
            self.maximum is None or self.maximum >= 1, f"max must be at least 1, got {self.maximum}"
        )


Numbers = Annotated[list[str] | None, Parameter(negative="", consume_multiple=True)]
"""Numbers as people type them: 0.25,0.5 or 0.25 0.5."""


def numbers(texts: Sequence[str] | None) -> tuple[float, ...]:
    """The numbers in what was typed.

    >>> numbers(["0.25,0.5", "1"])
    (0.25, 0.5, 1.0)
    """
    try:
        return tuple(
            float(text) for part in texts or () for text in part.split(",") if text.strip()
        )
    except ValueError:
        raise UsageError(
            f"numbers are written like 0.25,0.5, got {' '.join(texts or ())!r}"
        ) from None


def radii_of(texts: Sequence[str] | None) -> tuple[float, ...]:
    """The same for radii."""
    found = numbers(texts)
    require(
        all(math.isfinite(radius) and radius >= 0 for radius in found),
        f"radii must be zero or more, got {texts}",
    )
    return found


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AnytimeOptions:
    """When an image has had enough draws; all of it goes with --mode anytime."""

    radii: Numbers = None
    """Stop once each of these radii is certified or out of reach, such as --radii 0.25,0.5,1 (mode anytime)."""

    tolerance: float | None = None
    """Stop once the certified radius lies within this of what more draws could make of it (mode anytime)."""

    max_draws: int | None = None
    """Draws after which an image is given up, rounded up to whole batches; by default --n (mode anytime)."""

    seconds: float | None = None
    """Time for the whole run; images in work are left for the same command, with their draws (mode anytime)."""

    seconds_per_image: float | None = None
    """Time after which an image is given up as it stands (mode anytime)."""

    extend: Annotated[bool, Parameter(negative="")] = False
    """Draw further for the images of an anytime file that is there, by the rules given now."""

    @property
    def given(self) -> list[str]:
        """The options that were given."""
        return [
            f.name
            for f in fields(self)
            if getattr(self, f.name) is not None and getattr(self, f.name) is not False
        ]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Files:
    """Where a study puts its files."""

    out: Path = Path("studies")
    """Folder for the files."""

    format: Literal["pdf", "png", "svg"] = "pdf"
    """Of the figure (needs `pip install matplotlib`)."""

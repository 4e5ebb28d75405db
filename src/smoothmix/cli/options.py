"""Options that several commands share, each explained once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from smoothmix.config import Precision, require


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class NetworkOptions:
    """Which network, and how it is run."""

    model: str | None = None
    """Your own network instead of a run: `package.module:function`, called without arguments; the current folder is
    importable."""

    weights: Path | None = None
    """Weights for --model: .safetensors, or .pt read without running code."""

    num_classes: int | None = None
    """Outputs of the network, if it has others than the data set has classes."""

    sigma: float | None = None
    """Deviation of the noise for pixels in [0, 1]; by default that of the training."""

    batch: int = 256
    """Draws in one forward. It is recorded: rounding may depend on it."""

    device: str = "auto"
    """cpu, cuda, cuda:1, ...; auto takes a GPU if there is one."""

    precision: Precision = "fp32"
    """Arithmetic of the network: certify what will be deployed."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """Which images."""

    data: str | None = None
    """Data set; by default that of the training (`smoothmix data list`)."""

    data_dir: Path | None = None
    """Folder that holds it."""

    split: str = "test"
    """Part of it."""

    skip: int = 1
    """Take every skip-th image: 0, skip, 2 skip, ..."""

    maximum: Annotated[int | None, Parameter(name="--max")] = None
    """Stop after so many images."""

    def __post_init__(self) -> None:
        require(self.skip >= 1, f"skip must be at least 1, got {self.skip}")
        require(self.maximum is None or self.maximum >= 1, f"max must be at least 1, got {self.maximum}")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How training is run; nothing here changes what comes out."""

    data_dir: Path | None = None
    """Folder that holds the data set."""

    allow_partial: Annotated[bool, Parameter(negative="")] = False
    """Train on the parts of the data set that are there, and say so in the run."""

    device: str = "auto"
    """cpu, cuda, cuda:1, ...; auto takes a GPU if there is one."""

    workers: int | None = None
    """Processes that decode pictures; by default none for data in memory, one a core for folders."""

    checkpoint_minutes: float = 10.0
    """Save this often within an epoch, besides after each."""

    tensorboard: Annotated[bool, Parameter(negative="")] = False
    """Write TensorBoard events beside metrics.jsonl (needs `pip install smoothmix[tensorboard]`)."""

"""What is compared: paths with what their user states about them, also from a file of runs.

A Cohen-style log records neither its sigma nor n, alpha and its data set. Its path may tell the
sigma; everything else can be stated by `name@sigma=path`, by options, or in a small TOML file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from smoothmix._io.toml import from_table, read_toml
from smoothmix.config import require, require_alpha
from smoothmix.errors import UsageError

LARGEST_SIGMA = 10.0
"""A larger number in a path is not taken for a sigma: pixels lie in [0, 1]."""

SIGMA_IN_PATH = re.compile(r"(?<![a-z])(?:noise|sigma)[ _=-]?(\d*\.?\d+)", re.IGNORECASE)
"""The word, perhaps a sign between, and the number."""

RUNS = "run"
"""The name of the list in a file of runs."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A path, and what is stated about the file or log there."""

    path: str

    name: str = ""
    """The name in tables; empty for one that is made from the path."""

    sigma: float | None = None
    n: int | None = None
    alpha: float | None = None
    data: str = ""
    """The data set of a log, for its images."""

    method: str = ""
    """The training method of a log, such as gaussian."""

    baseline: bool = False
    """Whether the others at its sigma are compared with it."""

    def __post_init__(self) -> None:
        if self.sigma is not None:
            usable = math.isfinite(self.sigma) and self.sigma > 0
            require(usable, f"sigma must be positive, got {self.sigma}")
        if self.n is not None:
            require(self.n >= 1, f"n must be at least 1, got {self.n}")
        if self.alpha is not None:
            require_alpha(self.alpha)

    def or_else(self, *, n: int | None, alpha: float | None, data: str) -> Source:
        """The same with these facts where it states none."""
        return replace(
            self,
            n=self.n if self.n is not None else n,
            alpha=self.alpha if self.alpha is not None else alpha,
            data=self.data or data,
        )


def parse_source(text: str) -> Source:
    """The source that `path`, `name=path` or `name@sigma=path` names.

    >>> parse_source("cohen@0.5=logs/noise")
    Source(path='logs/noise', name='cohen', sigma=0.5, n=None, alpha=None, data='', method='', \
baseline=False)
    """
    name, path = split_name(text)
    called, at, number = name.rpartition("@")
    if not at:
        return Source(path=str(path), name=name)
    try:
        sigma = float(number)
    except ValueError:
        # Somebody's own name for a run may hold an @.
        return Source(path=str(path), name=name)
    return Source(path=str(path), name=called, sigma=sigma)


def split_name(source: str) -> tuple[str, Path]:
    """The name and the path in `name=path`; an empty name where there is only a path."""
    name, equals, path = source.partition("=")
    # A file may have an equals sign in its own name.
    if equals and not Path(source).exists():
        return name, Path(path)
    return "", Path(source)


def parse_sources(texts: Sequence[str]) -> list[Source]:
    """The sources that these arguments name; a file of runs stands for all of them."""
    sources = []
    for text in texts:
        if text.endswith(".toml"):
            sources += read_sources(Path(text))
        else:
            sources.append(parse_source(text))
    return sources


def read_sources(path: Path) -> list[Source]:
    """The runs that a TOML file lists as [[run]]; what stands above them holds for all.

    Paths are relative to the folder of the file.
    """
    tables = read_toml(path)
    if "certification" in tables or "recipe" in tables:
        raise UsageError(
            f"{path}: holds the settings of a run, not a list of runs; name its folder "
            "or certificate file instead"
        )
    runs = tables.pop(RUNS, [])
    if not isinstance(runs, list) or not runs:
        raise UsageError(
            f'{path}: lists no runs; a run is written as [[run]] with path = "...", and perhaps '
            "name, sigma, n, alpha, data, method and baseline"
        )
    sources = []
    for number, run in enumerate(runs, start=1):
        where = f"{path}, run {number}"
        require(isinstance(run, dict), f"{where}: must be a table")
        sources.append(_source({**tables, **run}, path.parent, where))
    return sources


def _source(table: dict[str, Any], folder: Path, where: str) -> Source:
    source = from_table(Source, table, where=where)
    # Models of the zoo are no files.
    if source.path.startswith("zoo:"):
        return source
    return replace(source, path=str(folder / source.path))


def sigma_in(path: Path) -> float | None:
    """The sigma in the name of a log or its folder, such as noise_0.50 or Sigma-0.5_1801.

    >>> sigma_in(Path("logs/cohen/noise_0.50_1801")), sigma_in(Path("noise_050"))
    (0.5, None)
    """
    found = SIGMA_IN_PATH.findall(str(path))
    # The nearest to the file: a folder may name the noise of training, which may be another.
    if not found or _is_ambiguous(found[-1]):
        return None
    sigma = float(found[-1])
    return sigma if sigma > 0 else None


def unread_sigma(path: Path) -> str:
    """The number in a path that may be a sigma but could mean several; empty if there is none.

    >>> unread_sigma(Path("noise_050"))
    '050'
    """
    found = SIGMA_IN_PATH.findall(str(path))
    if found and _is_ambiguous(found[-1]):
        return str(found[-1])
    return ""


def _is_ambiguous(number: str) -> bool:
    """Whether a number may be written without its point: 050 for 0.50."""
    has_leading_zero = len(number) > 1 and number.startswith("0") and "." not in number
    return has_leading_zero or float(number) > LARGEST_SIGMA


def without_sigma(part: str) -> str:
    """A part of a path without its sigma: the rest distinguishes runs.

    >>> without_sigma("noise_0.50_1801"), without_sigma("noise_0.50"), without_sigma("eps_512")
    ('1801', '', 'eps_512')
    """
    return SIGMA_IN_PATH.sub("", part).strip("_- ")

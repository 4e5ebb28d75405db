"""One certificate file as arrays, with what is known of how it was made."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from smoothmix import certificates
from smoothmix._io.files import read_limited
from smoothmix._io.text import counted
from smoothmix.analysis import intervals, metrics
from smoothmix.analysis.intervals import CONFIDENCE, Estimate
from smoothmix.analysis.remarks import remarks
from smoothmix.analysis.rounding import lower_end, paper_rounded
from smoothmix.certificates import Certificates, FileSettings
from smoothmix.config import RunConfig
from smoothmix.errors import CertificateError, UsageError, shown
from smoothmix.runs.folder import RunFolder
from smoothmix.stats.binomial import ABSTAIN

LARGEST_METRICS = 2**26
"""Bytes of metrics.jsonl: an epoch has 300."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
    """What certification found on each image, whoever wrote the file; never radii that were rounded up."""

    name: str
    """What tables and legends call it."""

    idx: Ints
    label: Ints
    predict: Ints
    """The certified class, or -1 for abstention."""

    radius: Floats
    """Certified radii; of a log that prints few digits, the lower ends of what was rounded."""

    file: Certificates
    """The rows behind the arrays, for their votes; none where a log without votes was read only for its arrays."""

    printed: Floats
    """The radii as they stand in the file."""

    probability: Floats
    """p_A, the selected class's share of the draws: of a log without votes, what the radius says it is at least.
    Not a number where nothing was drawn."""

    sigma: float | None = None
    config: RunConfig | None = None
    """The training, where the file lies in a run folder."""

    training: Sequence[Mapping[str, Any]] = ()
    """The lines of metrics.jsonl."""

    paper_rounding: bool = False
    """Whether radii were rounded to nearest as in the paper's logs."""

    notes: tuple[str, ...] = field(default=())
    """What a reader must know, such as a line that was cut."""

    def __len__(self) -> int:
        return len(self.idx)

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self.file.path

    @property
    def settings(self) -> FileSettings | None:
        """How it was made; None for logs of the field, which say nothing about themselves."""
        return self.file.settings

    @cached_property
    def correct(self) -> NDArray[np.bool_]:
        """Whether each image is certified as its label."""
        return np.asarray(self.predict == self.label)

    @cached_property
    def counted(self) -> Floats:
        """The radius of each image, 0 where it is wrong: what the ACR averages."""
        return self.radius * self.correct

    @property
    def skips_wrong(self) -> bool:
        """Whether wrong images were left without draws, so that nobody knows which of them would abstain."""
        return self.settings is not None and self.settings.certification.skip_wrong

    @property
    def method(self) -> str:
        """Name of the training method; empty where it is not recorded."""
        return str(self.config.method["name"]) if self.config else ""

    @property
    def largest_radius(self) -> float | None:
        """What the draws could certify at most: the cliff in every curve. None where they are not recorded."""
        return self.settings.largest_radius if self.settings else None

    @cached_property
    def at_the_limit(self) -> int:
        """How many images have the largest radius that the draws can certify; 0 where that is not known."""
        if self.largest_radius is None or self.paper_rounding:
            return 0
        return int(
            (self.counted >= self.largest_radius - 2e-6).sum()
        )  # files round down at six decimals

    def acr(self, *, confidence: float = CONFIDENCE) -> Estimate:
        """Average certified radius."""
        return intervals.mean(self.counted, confidence=confidence)

    def accuracy(self, at: Sequence[float], *, confidence: float = CONFIDENCE) -> list[Estimate]:
        """Certified accuracy at each radius; at 0, the share of images that are right and not abstained on."""
        counts = np.rint(self.accuracy_at(at) * len(self)).astype(int).tolist()
        return [intervals.share(count, len(self), confidence=confidence) for count in counts]

    def accuracy_at(self, at: Iterable[float]) -> Floats:
        """Certified accuracy at each radius, without intervals."""
        return metrics.certified_accuracy(self.radius, self.correct, at=at)

    def abstention(self, *, confidence: float = CONFIDENCE) -> Estimate | None:
        """Share of images without an answer; None where wrong images were skipped, and so not measured."""
        if self.skips_wrong:
            return None
        return intervals.share(
            int((self.predict == ABSTAIN).sum()), len(self), confidence=confidence
        )

    @cached_property
    def probability_told(self) -> Floats:
        """p_A of each image, 1 - 1/n where all n draws agree: fewer draws must not make a model look surer."""
        most = [1 - 1 / row.n if row.n else 1.0 for row in self.file.rows]
        return np.asarray(np.minimum(self.probability, most)) if most else self.probability

    def probabilities_at(self, at: Iterable[float]) -> Floats:
        """Share of images that are right with a p_A, as far as the draws tell, of at least x, for each x."""
        right = np.where(self.correct, np.nan_to_num(self.probability_told), 0.0)
        return metrics.share_at_least(right, at=at)

    def only(self, images: Ints) -> Measured:
        """The same file as if it held these images only, in their order."""
        order = np.argsort(self.idx)
        rows = order[np.searchsorted(self.idx, images, sorter=order)]
        names = ("idx", "label", "predict", "radius", "printed", "probability")
        file = replace(
            self.file, rows=tuple(self.file.rows[row] for row in rows) if self.file.rows else ()
        )
        return replace(self, file=file, **{name: getattr(self, name)[rows] for name in names})

    def as_in_the_paper(self) -> Measured:
        """The same file with radii rounded to nearest at three digits, as the paper's logs have them: not sound."""
        return replace(self, radius=paper_rounded(self.printed), paper_rounding=True)


def measure(source: Path | str, *, paper_rounding: bool = False) -> Measured:
    """What a certificate file, a run folder or a log of the field holds; `name=path` gives it a name."""
    name, path = split_name(str(source))
    file = certificates.read(path)
    if not file.rows:
        raise UsageError(f"{file.path}: has no certificates yet")
    _require_votes_to_agree(file)
    # Also certificates-alpha0.01.tsv, which was recomputed; a file of another name may be of another run.
    config, training = (
        _run(file.path.parent) if file.path.name.startswith("certificates") else (None, ())
    )
    if (
        config
        and file.settings
        and file.settings.model not in (config.network, f"zoo:{file.path.parent.name}")
    ):
        # Someone's own network was certified into a folder that holds another run.
        config, training = None, ()
    return from_file(
        file,
        name=name or _title(file, config),
        paper_rounding=paper_rounding,
        config=config,
        training=training,
    )


def _require_votes_to_agree(file: Certificates) -> None:
    """Refuse a file of ours that claims what its votes do not give: nothing could be said of it."""
    if file.settings is None:
        return
    problems = certificates.verify(file).problems
    if problems:
        more = f" (and {counted(len(problems) - 1, 'problem')} more)" if len(problems) > 1 else ""
        raise CertificateError(
            f"{file.path}: {problems[0]}{more}; `smoothmix certificates verify` tells all"
        )


def from_file(
    file: Certificates,
    *,
    name: str,
    paper_rounding: bool = False,
    sigma: float | None = None,
    config: RunConfig | None = None,
    training: Sequence[Mapping[str, Any]] = (),
) -> Measured:
    """The rows of a file as arrays."""
    rows, settings = file.rows, file.settings
    sigma = settings.certification.sigma if settings else sigma or sigma_in(file.path)
    printed = file.radius
    radius = printed if all(row.has_votes for row in rows) else lower_end(printed)
    measured = Measured(
        name=name,
        file=file,
        idx=np.array([row.idx for row in rows], dtype=np.int64),
        label=np.array([row.label for row in rows], dtype=np.int64),
        predict=np.array([row.predict for row in rows], dtype=np.int64),
        radius=radius,
        printed=printed,
        probability=_probabilities(file, radius, sigma),
        sigma=sigma,
        config=config,
        training=training,
        notes=tuple(remarks(file, sigma=sigma, paper_rounding=paper_rounding)),
    )
    return measured.as_in_the_paper() if paper_rounding else measured


def _probabilities(file: Certificates, radius: Floats, sigma: float | None) -> Floats:
    if any(row.has_votes for row in file.rows):
        pairs = [(row.counts or {}, row.selected, row.n) for row in file.rows]
        return np.array(
            [votes.get(chosen or 0, 0) / n if n else math.nan for votes, chosen, n in pairs]
        )
    if sigma is None:
        return np.full(len(radius), math.nan)
    return np.where(radius > 0, ndtr(radius / sigma), math.nan)


def sigma_in(path: Path) -> float | None:
    """The noise that the field writes into the names of its logs and folders: noise_0.50, noise_0.5_1801.

    >>> sigma_in(Path("logs/cohen/noise_0.50_1801")), sigma_in(Path("mine.tsv"))
    (0.5, None)
    """
    found = [float(text) for text in re.findall(r"(?:noise|sigma)_(\d+(?:\.\d+)?)", str(path))]
    return (
        found[-1] if found and found[-1] > 0 else None
    )  # the nearest to the file: a model may be certified at another


def split_name(source: str) -> tuple[str, Path]:
    """The name and the path in `name=path`; no name where there is only a path."""
    name, equals, path = source.partition("=")
    return (name, Path(path)) if equals and not Path(source).exists() else ("", Path(source))


def _title(file: Certificates, config: RunConfig | None) -> str:
    path = file.path
    inside = path.name.split(".")[0] == "certificates"
    if inside and config is None and file.settings and ":" in file.settings.model:
        return file.settings.model  # a network of someone's own: the folder may have any name
    return (path.parent.resolve().name if inside else path.name.removesuffix(".tsv")) or str(path)


def _run(folder: Path) -> tuple[RunConfig | None, list[dict[str, Any]]]:
    """The settings and the metrics of the training in a run folder, as far as they are there."""
    config, metrics_file = RunFolder(folder).config, RunFolder(folder).metrics
    try:
        text = read_limited(metrics_file, LARGEST_METRICS).decode() if metrics_file.exists() else ""
        training = [_epoch(line) for line in text.splitlines() if line.endswith("}")]
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{metrics_file}: cannot be read ({shown(error, 200)})") from error
    return (RunConfig.load(config) if config.exists() else None), training


def _epoch(text: str) -> dict[str, Any]:
    """One line of metrics.jsonl; ValueError where it says anything but numbers by name."""
    line: dict[str, Any] = json.loads(text)
    parts = line.get("parts", {}) if isinstance(line, dict) else None
    if not isinstance(parts, dict):
        raise ValueError("a line that is no epoch")
    for name, value in (*line.items(), *parts.items()):
        whole = isinstance(value, int) and abs(value) < 2**53
        if not (whole or isinstance(value, float) or (name == "parts" and value is parts)):
            raise ValueError(f"{name[:40]!r} is no number")
    if not isinstance(line.get("epoch", 0), int):
        raise ValueError("an epoch that is no whole number")
    return line


def unique_names(every: Sequence[Measured]) -> list[Measured]:
    """The same files under names that tell them apart: with their folders where two of one sigma are called alike."""
    keys = [(m.name, m.sigma) for m in every]
    named = [
        replace(m, name=f"{m.name} ({m.path.parent})") if keys.count((m.name, m.sigma)) > 1 else m
        for m in every
    ]
    keys = [(m.name, m.sigma) for m in named]
    earlier = [
        keys[:number].count(key) for number, key in enumerate(keys)
    ]  # the same file given twice
    return [
        replace(m, name=f"{m.name} {n + 1}") if n else m
        for m, n in zip(named, earlier, strict=True)
    ]

"""One certificate file as arrays, with what is known about how it was made."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothmix import certificates
from smoothmix._io.files import read_limited
from smoothmix._io.text import counted
from smoothmix.analysis import intervals, metrics
from smoothmix.analysis.draws import UNKNOWN, Draws, Origin, find_draws
from smoothmix.analysis.intervals import CONFIDENCE, Estimate
from smoothmix.analysis.remarks import has_all_votes, has_some_votes, remarks
from smoothmix.analysis.rounding import PAPER, Printing, coarsest, lower_end, printing_of
from smoothmix.analysis.sources import Source, parse_source, sigma_in
from smoothmix.certificates import Certificate, Certificates, FileSettings
from smoothmix.config import UNLABELLED, RunConfig
from smoothmix.errors import CertificateError, UsageError, shown
from smoothmix.noise import GAUSSIAN
from smoothmix.runs.folder import RunFolder
from smoothmix.stats.binomial import ABSTAIN

LARGEST_METRICS = 2**26
"""Bytes of metrics.jsonl, which has 300 per epoch."""

PRINTED_PRECISION = 2e-6
"""Radii in our files are rounded down at six decimals."""

NOTHING_STATED = Source(path="")

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Metrics = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
    """What certification found on each image, whoever wrote the file; no radius is rounded up."""

    name: str
    """The name in tables and legends."""

    source: Source = NOTHING_STATED
    """What its user stated about the file."""

    idx: Ints
    label: Ints
    predict: Ints
    """The certified class, or -1 for abstention."""

    radius: Floats
    """Certified radii; of a log that prints few digits, the lower ends of what was rounded."""

    file: Certificates
    """The rows behind the arrays, for their votes; empty if a log was read only for its arrays."""

    printed: Floats
    """The radii as printed in the file."""

    probability: Floats
    """p_A, the selected class's share of the votes. Of a log without votes, the lower bound that
    follows from the radius. NaN where no noise was drawn."""

    sigma: float | None = None

    draws: Draws = UNKNOWN
    """How many noise samples certified an image, with which alpha, and how that is known."""

    config: RunConfig | None = None
    """The training, where the file lies in a run folder."""

    training: Metrics = ()
    """The lines of metrics.jsonl."""

    printing: Printing | None = None
    """With how many digits a log prints its radii; None for files whose votes are on record."""

    paper_rounding: bool = False
    """Whether radii are those that a log prints, rounded to nearest."""

    notes: tuple[str, ...] = field(default=())
    """What a reader must know, such as a line that was cut."""

    def __len__(self) -> int:
        return len(self.idx)

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self.file.path

    @property
    def settings(self) -> FileSettings | None:
        """How the certificates were made; None for Cohen-style logs, which do not record it."""
        return self.file.settings

    @cached_property
    def correct(self) -> NDArray[np.bool_]:
        """Whether the certified class of each image is its label."""
        # -1 stands for abstention, and for a label that is not known.
        return np.asarray((self.predict == self.label) & (self.label != UNLABELLED))

    @cached_property
    def counted(self) -> Floats:
        """The radius of each image, 0 where it is misclassified: the ACR is the mean of these."""
        return self.radius * self.correct

    @property
    def skips_wrong(self) -> bool:
        """Whether misclassified images got no noise samples, so that abstention is not known."""
        return self.settings is not None and self.settings.certification.skip_wrong

    @property
    def method(self) -> str:
        """Name of the training method; empty where it is neither recorded nor stated."""
        if self.config is None:
            return self.source.method
        return str(self.config.method["name"])

    @property
    def largest_radius(self) -> float | None:
        """The largest radius that the noise samples can certify; None where it is not known."""
        if self.settings is not None:
            return self.settings.largest_radius
        if self.sigma is None or self.draws.guarantee is None:
            return None
        # Logs without settings are Cohen-style logs, whose noise is Gaussian.
        return self.draws.guarantee.largest_radius(GAUSSIAN, sigma=self.sigma)

    @cached_property
    def at_the_limit(self) -> int:
        """How many images have the largest possible radius; 0 where that is not known."""
        # A printed radius may lie on either side of the largest.
        if self.largest_radius is None or self.settings is None or self.paper_rounding:
            return 0
        return int((self.counted >= self.largest_radius - PRINTED_PRECISION).sum())

    @cached_property
    def images_key(self) -> tuple[bytes, bytes]:
        """The images and their labels in one order: equal for files of the same images."""
        order = np.argsort(self.idx)
        return self.idx[order].tobytes(), self.label[order].tobytes()

    def acr(self, *, confidence: float = CONFIDENCE) -> Estimate:
        """Average certified radius."""
        return intervals.mean(self.counted, confidence=confidence)

    def accuracy(self, at: Sequence[float], *, confidence: float = CONFIDENCE) -> list[Estimate]:
        """Certified accuracy at each radius.

        At radius 0 it is the share of images that are classified correctly without abstention.
        """
        counts = np.rint(self.accuracy_at(at) * len(self)).astype(int).tolist()
        return [intervals.share(count, len(self), confidence=confidence) for count in counts]

    def accuracy_at(self, at: Iterable[float]) -> Floats:
        """Certified accuracy at each radius, without intervals."""
        return metrics.certified_accuracy(self.radius, self.correct, at=at)

    def abstention(self, *, confidence: float = CONFIDENCE) -> Estimate | None:
        """Share of images without a prediction; None where misclassified images were skipped."""
        if self.skips_wrong:
            return None
        count = int((self.predict == ABSTAIN).sum())
        return intervals.share(count, len(self), confidence=confidence)

    @cached_property
    def capped_probability(self) -> Floats:
        """p_A of each image, at most 1 - 1/n.

        Otherwise fewer noise samples would make a model look more confident.
        """
        # A log that was read only for its arrays does not record n.
        if not self.file.rows:
            return self.probability
        largest = [1 - 1 / row.n if row.n else 1.0 for row in self.file.rows]
        return np.asarray(np.minimum(self.probability, largest))

    def probabilities_at(self, at: Iterable[float]) -> Floats:
        """Share of images classified correctly with a p_A of at least x, for each x."""
        of_correct = np.where(self.correct, np.nan_to_num(self.capped_probability), 0.0)
        return metrics.share_at_least(of_correct, at=at)

    def only(self, images: Ints) -> Measured:
        """The same file reduced to these images, in their order."""
        order = np.argsort(self.idx)
        rows = order[np.searchsorted(self.idx, images, sorter=order)]
        kept: tuple[Certificate, ...] = ()
        if self.file.rows:
            kept = tuple(self.file.rows[row] for row in rows)
        return replace(
            self,
            file=replace(self.file, rows=kept),
            idx=self.idx[rows],
            label=self.label[rows],
            predict=self.predict[rows],
            radius=self.radius[rows],
            printed=self.printed[rows],
            probability=self.probability[rows],
        )

    def as_in_the_paper(self) -> Measured:
        """The same file with radii as the paper's logs print them, which is not sound."""
        return self.as_printed(PAPER)

    def as_printed(self, printing: Printing) -> Measured:
        """The same file with radii as logs print them: its own, or rounded like `printing`."""
        radius = self.printed
        # To round what a log has rounded already would change its numbers.
        if self.printing is None:
            radius = printing.nearest(self.printed)
        return replace(self, radius=radius, paper_rounding=True)


def measure(source: Source | Path | str, *, paper_rounding: bool = False) -> Measured:
    """The content of a certificate file, a run folder or a Cohen-style log.

    `name=path` gives it a name, `name@sigma=path` a sigma as well.
    """
    if not isinstance(source, Source):
        source = parse_source(str(source))
    file = certificates.read(Path(source.path))
    if not file.rows:
        raise UsageError(f"{file.path}: has no certificates yet")
    if file.settings is not None and not file.settings.labelled:
        raise UsageError(
            f"{file.path}: its images have no labels, so nothing is known of accuracy; the page "
            "that `certify --images` wrote beside it shows what is certified"
        )
    _require_votes_to_agree(file)
    config, training = _training_of(file)
    return from_file(
        file,
        name=source.name or _default_name(file, config),
        source=source,
        paper_rounding=paper_rounding,
        config=config,
        training=training,
    )


def rounded_alike(every: Sequence[Measured]) -> list[Measured]:
    """The same files with radii as printed: those with votes are rounded like the logs beside them.

    This is the paper's way of counting, and not sound.
    """
    printing = coarsest(each.printing for each in every if each.printing)
    return [measured.as_printed(printing) for measured in every]


def _require_votes_to_agree(file: Certificates) -> None:
    """Refuse a file whose radii do not follow from its votes: no number of it can be trusted."""
    if file.settings is None:
        return
    problems = certificates.verify(file).problems
    if not problems:
        return
    more = ""
    if len(problems) > 1:
        more = f" (and {counted(len(problems) - 1, 'problem')} more)"
    raise CertificateError(
        f"{file.path}: {problems[0]}{more}; `smoothmix certificates verify` lists all"
    )


def _training_of(file: Certificates) -> tuple[RunConfig | None, Metrics]:
    """The training behind a certificate file, if it lies in the run folder of its network."""
    folder = file.path.parent
    # Also certificates-alpha0.01.tsv, which was recomputed. A file of another name may belong to
    # another run.
    if not file.path.name.startswith("certificates"):
        return None, ()
    config, training = _read_run(folder)
    if config and file.settings:
        # Someone's own network may have been certified into a folder that holds another run.
        own_network = file.settings.model not in (config.network, f"zoo:{folder.name}")
        if own_network:
            return None, ()
    return config, training


def from_file(
    file: Certificates,
    *,
    name: str,
    source: Source = NOTHING_STATED,
    paper_rounding: bool = False,
    config: RunConfig | None = None,
    training: Metrics = (),
) -> Measured:
    """The rows of a file as arrays."""
    rows = file.rows
    sigma = _sigma(file, source)
    printed = file.radius
    radius = printed
    printing = None
    # Only radii that come with their votes are known to be rounded down.
    if not has_all_votes(file):
        radius = lower_end(printed)
        printing = printing_of(printed)
    draws = _draws(file, source, sigma, printing or PAPER)
    notes = remarks(file, sigma=sigma, draws=draws, paper_rounding=paper_rounding)
    measured = Measured(
        name=name,
        source=source,
        file=file,
        idx=_integers(rows, "idx"),
        label=_integers(rows, "label"),
        predict=_integers(rows, "predict"),
        radius=radius,
        printed=printed,
        probability=_probabilities(file, radius, sigma),
        sigma=sigma,
        draws=draws,
        config=config,
        training=training,
        printing=printing,
        notes=tuple(notes),
    )
    if paper_rounding:
        return measured.as_in_the_paper()
    return measured


def _sigma(file: Certificates, source: Source) -> float | None:
    if file.settings is None:
        return source.sigma or sigma_in(file.path)
    recorded = file.settings.certification.sigma
    if source.sigma not in (None, recorded):
        raise UsageError(f"{file.path}: records sigma {recorded:g}, not {source.sigma:g}")
    return recorded


def _draws(file: Certificates, source: Source, sigma: float | None, printing: Printing) -> Draws:
    # What a file records is never replaced by what somebody states.
    if file.settings is not None:
        return Draws(guarantee=file.settings.guarantee, origin=Origin.RECORDED)
    return find_draws(file.radius, printing, sigma, n=source.n, alpha=source.alpha)


def _integers(rows: Sequence[Certificate], name: str) -> Ints:
    return np.fromiter(map(attrgetter(name), rows), dtype=np.int64, count=len(rows))


def _probabilities(file: Certificates, radius: Floats, sigma: float | None) -> Floats:
    if has_some_votes(file):
        return np.array(list(map(_vote_share, file.rows)))
    if sigma is None:
        return np.full(len(radius), math.nan)
    # Logs without votes are Cohen-style logs, whose noise is Gaussian.
    return np.where(radius > 0, GAUSSIAN.probability(radius, sigma=sigma), math.nan)


def _vote_share(row: Certificate) -> float:
    if not row.n:
        return math.nan
    counts = row.counts or {}
    return counts.get(row.selected or 0, 0) / row.n


def _default_name(file: Certificates, config: RunConfig | None) -> str:
    path = file.path
    in_run_folder = path.name.split(".")[0] == "certificates"
    if not in_run_folder:
        return path.name.removesuffix(".tsv") or str(path)
    # Someone's own network is certified into a folder of any name.
    if config is None and file.settings and ":" in file.settings.model:
        return file.settings.model
    return path.parent.resolve().name or str(path)


def _read_run(folder: Path) -> tuple[RunConfig | None, list[dict[str, Any]]]:
    """The settings and the metrics of the training in a run folder, as far as they exist."""
    run = RunFolder(folder)
    config = RunConfig.load(run.config) if run.config.exists() else None
    if not run.metrics.exists():
        return config, []
    try:
        lines = read_limited(run.metrics, LARGEST_METRICS).decode().splitlines()
        # The last line may be cut where training was killed.
        training = [_parse_epoch(line) for line in lines if line.endswith("}")]
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{run.metrics}: cannot be read ({shown(error, 200)})") from error
    return config, training


def _parse_epoch(text: str) -> dict[str, Any]:
    """One line of metrics.jsonl; ValueError where it holds anything but numbers by name."""
    line = json.loads(text)
    if not isinstance(line, dict):
        raise ValueError("a line that is no epoch")
    numbers = dict(line)
    parts = numbers.pop("parts", {})
    if not isinstance(parts, dict):
        raise ValueError("a line that is no epoch")
    _require_numbers(numbers)
    _require_numbers(parts)
    if not isinstance(line.get("epoch", 0), int):
        raise ValueError("an epoch that is no whole number")
    return line


def _require_numbers(values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        # Larger integers do not fit a float.
        is_small_integer = isinstance(value, int) and abs(value) < 2**53
        if not is_small_integer and not isinstance(value, float):
            raise ValueError(f"{name[:40]!r} is no number")

"""Files of attacks: the smallest adversarial distance found for each image. No torch.

`attacks.tsv` has one row per image, in the order in which they were attacked, and `attacks.toml`
beside it says how. An image's row depends on the settings and the image alone, so that a file may
grow by any images, and a run that was interrupted anywhere resumes after the last whole row.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import NormalDist
from typing import final

from smoothmix._io.files import atomic_write, read_limited
from smoothmix._io.locks import exclusive
from smoothmix._io.toml import from_table, read_toml, to_toml
from smoothmix.certificates.output import require_output
from smoothmix.certificates.row import Certificate, votes_from, votes_text
from smoothmix.certificates.settings import FileSettings, settings_path
from smoothmix.config import (
    Precision,
    plain_numbers,
    require,
    require_seed,
    require_sigma,
    require_whole,
)
from smoothmix.errors import CertificateError, SmoothmixError, UsageError, shown
from smoothmix.noise import GridNoise
from smoothmix.stats.binomial import require_enough_to_predict

FORMAT = 1

NAME = "attacks.tsv"
"""The name of the file in a run folder."""

SEARCH_VERSION = 2
"""Counts the changes to the search after which it finds other examples with equal settings."""

LARGEST_FILE = 2**28

MOST = 10**7
"""Most draws, noise samples and steps that a setting may request."""

COLUMNS = (
    "idx",
    "label",
    "before",
    "adversarial",
    "distance",
    "squared",
    "votes",
    "draws",
    "time",
)
HEADER = "\t".join(COLUMNS) + "\n"

CLASS = r"-1|\d{1,9}"
ROW = re.compile(
    rf"(\d{{1,9}})\t(\d{{1,9}})\t({CLASS})\t(\d{{1,9}})?\t(\d{{1,9}}\.\d{{6}})?"
    r"\t(\d{1,18})?\t([-\d:,]*)\t(\d{1,15})\t(\d{1,9}\.\d{1,6})",
    re.ASCII,
)
"""A line of the file. The limits on digits keep hostile files from taking long to read."""

CANDIDATE_SCALES = (0.97, 0.985, 1.0, 1.015, 1.03, 1.06, 1.12, 1.25, 1.6, 2.5)
"""The nearest example of the search is judged at these multiples of its distance. With few search
draws it may owe its class to their luck, and only one farther out passes the test."""

SLACK = 0.5
"""Standard deviations by which the search wants more than the lead that just passes."""


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """How much work the search for the nearest adversarial example does, and how it is judged."""

    n: int = 10_000
    """Fresh draws for each judgement."""

    alpha: float = 0.001
    """Chance that an image's row is wrong about a class of the smoothed classifier."""

    search_draws: int = 1_000
    """Draws that compare points during the search. They decide nothing that is reported."""

    copies: int = 64
    """Noise samples through which each gradient is averaged."""

    steps: int = 20
    """Steps of each PGD and of DDN."""

    radii: int = 8
    """Most radii that PGD tries, each larger than the one before, until it succeeds."""

    rounds: int = 40
    """Most attempts to shrink the distance along the boundary."""

    seed: int = 0
    """Decides all noise of the attack. Certificates never see this noise, whatever their seed."""

    def __post_init__(self) -> None:
        plain_numbers(self)
        for name in ("n", "search_draws", "copies", "steps", "radii", "rounds"):
            value = getattr(self, name)
            require_whole(name, value)
            least = 0 if name == "rounds" else 1
            possible = least <= value <= MOST
            require(possible, f"{name} must be {least} to {MOST:,}, got {value}")
        require_seed(self.seed)
        require(0 < self.alpha < 1, f"alpha must lie strictly between 0 and 1, got {self.alpha:g}")
        require_enough_to_predict(self.n, alpha=self.alpha_per_test)

    @property
    def alpha_per_test(self) -> float:
        """Each test gets its share of alpha: two at the image, and one at each candidate."""
        return self.alpha / (len(CANDIDATE_SCALES) + 2)

    @property
    def passing_lead(self) -> float:
        """The lead over the next class with which the test is just passed after n votes.

        Leads are (first - second) / sqrt(votes * (first + second)), which is close to normal with
        standard deviation 1 / sqrt(votes) whatever share other classes have.
        """
        return NormalDist().inv_cdf(1 - self.alpha_per_test / 2) / math.sqrt(self.n)

    @property
    def wanted_lead(self) -> float:
        """The lead that the search looks for: fresh votes have a lead a little less or more."""
        return self.passing_lead + SLACK / math.sqrt(self.n)


@dataclass(frozen=True, kw_only=True)
class AttackSettings:
    """Everything that decides the rows of a file of attacks."""

    search: SearchSettings
    model: str
    """Name of the network, or where it came from."""
    model_hash: str
    """SHA-256 of its weights."""
    data: str
    split: str
    data_hash: str
    """Fingerprint of the images and labels."""
    num_classes: int
    sigma: float
    noise: str
    """Name of the noise of the smoothed classifier."""
    levels: int = 0
    """Levels of the grid on which images lie, and so adversarial examples; 0 for other noise."""
    batch: int = 256
    precision: Precision = "fp32"
    engine: str = ""
    """What runs the network when votes are counted."""
    search_version: int = 1
    """Which search made the rows: `SEARCH_VERSION`, or 1 in files that do not record it."""
    format: int = FORMAT

    def __post_init__(self) -> None:
        plain_numbers(self)
        require(
            self.format == FORMAT, f"the format is {self.format}, and this smoothmix reads {FORMAT}"
        )
        require_sigma(self.sigma)
        require(self.num_classes >= 2, f"num_classes must be at least 2, got {self.num_classes}")
        require(self.levels >= 0, f"levels must be zero or more, got {self.levels}")

    def differences(self, other: AttackSettings) -> list[str]:
        """What differs, in words."""
        found = []
        for field in fields(self):
            # Its fields are compared one by one, so that the message names them.
            if field.name != "search":
                found += _difference(field.name, self, other)
        for field in fields(self.search):
            found += _difference(field.name, self.search, other.search)
        return found

    def is_about(self, settings: FileSettings) -> bool:
        """Whether the attacked classifier and images are those of a certificate file."""
        certification = settings.certification
        levels = 0
        if isinstance(certification.noise, GridNoise):
            levels = certification.noise.levels
        certified = (
            settings.model_hash,
            settings.data_hash,
            settings.split,
            certification.sigma,
            certification.noise.name,
            levels,
            # Near its boundary the network may answer differently in another precision.
            certification.precision,
        )
        attacked = (
            self.model_hash,
            self.data_hash,
            self.split,
            self.sigma,
            self.noise,
            self.levels,
            self.precision,
        )
        return certified == attacked


def _difference(name: str, one: object, other: object) -> list[str]:
    before = getattr(one, name)
    now = getattr(other, name)
    if before == now:
        return []
    return [f"{name} was {shown(before)} and is now {shown(now)}"]


@final
@dataclass(frozen=True, kw_only=True)
class Attack:
    """What the attack on one image found."""

    idx: int
    label: int
    """The true class."""
    before: int
    """The smoothed classifier's class at the image, or -1 where its draws do not decide."""
    adversarial: int | None = None
    """Its class at the adversarial example; None where none was found."""
    distance: float | None = None
    """L2 distance of the adversarial example, rounded up at six decimals."""
    squared: int | None = None
    """On a grid, the sum of squared differences of its pixels as integers."""
    votes: Mapping[int, int]
    """Votes of the judgement at the adversarial example; where there is none, at the image."""
    draws: int
    """Noise samples that this image took, for gradients, search and judgement together."""
    seconds: float

    @property
    def robust_distance(self) -> float:
        """The distance up to which the true class survived: infinite if nothing was found."""
        if self.before != self.label:
            return 0.0
        if self.distance is None:
            return math.inf
        return self.distance

    def contradicts(self, certificate: Certificate) -> bool:
        """Whether this example lies inside the certified radius, and has another class."""
        certified = certificate.predict
        if certified < 0 or certificate.radius == 0:
            return False
        # The image itself lies inside every radius.
        if self.before not in (-1, certified):
            return True
        if self.distance is None or self.adversarial == certified:
            return False
        # Whole numbers decide where both files have them: no rounding is involved.
        if self.squared is not None and certificate.squared is not None:
            return self.squared <= certificate.squared
        return self.distance < certificate.radius


@final
@dataclass(frozen=True, kw_only=True)
class Attacks:
    """The rows of a file of attacks."""

    path: Path
    settings: AttackSettings
    rows: tuple[Attack, ...]
    unfinished: tuple[str, ...] = ()
    """Shards of the requested images that still lack rows, such as `2/8`."""


def round_up(distance: float) -> float:
    """The distance at six decimals, never below itself.

    >>> round_up(0.1234561), round_up(0.5)
    (0.123457, 0.5)
    """
    rounded = round(distance, 6)
    # Rounded to nearest, which may be below.
    if rounded < distance:
        return round(rounded + 1e-6, 6)
    return rounded


def read_attacks(path: Path) -> Attacks:
    """The attacks in a file; a last line that was cut off is left out."""
    settings = load_attack_settings(path)
    return Attacks(path=path, settings=settings, rows=tuple(_rows(path)))


def load_attack_settings(path: Path) -> AttackSettings:
    """The settings beside a file of attacks."""
    where = settings_path(path)
    return from_table(AttackSettings, read_toml(where), where=str(where))


def attacks_beside(certificates: Path, settings: FileSettings | None) -> Attacks | None:
    """The attacks in the folder of a certificate file, on the same classifier and images."""
    path = certificates.parent / NAME
    # A log without settings does not say which classifier it is about.
    if settings is None or not path.is_file() or not settings_path(path).is_file():
        return None
    attacks = read_attacks(path)
    if not attacks.settings.is_about(settings):
        return None
    return attacks


def _rows(path: Path) -> list[Attack]:
    try:
        content = read_limited(path, LARGEST_FILE).decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise CertificateError(f"{path}: cannot be read ({error})") from error
    # A run may have been killed while it wrote the first line.
    if HEADER.startswith(content):
        return []
    if not content.startswith(HEADER):
        raise CertificateError(f"{path}: is no file of attacks: its first line is another one")
    rows: dict[int, Attack] = {}
    # What follows the last line end was being written when the run died.
    whole = content[len(HEADER) : content.rfind("\n")]
    for number, line in enumerate(whole.split("\n"), start=2):
        # The header alone leaves one empty line.
        if not line and number == 2:
            break
        row = _parsed(line, where=f"{path}: line {number}")
        if row.idx in rows:
            raise CertificateError(f"{path}: line {number}: image {row.idx} is there twice")
        rows[row.idx] = row
    return list(rows.values())


def _parsed(line: str, *, where: str) -> Attack:
    match = ROW.fullmatch(line)
    if match is None:
        raise CertificateError(f"{where}: is no row of attacks: {shown(repr(line))}")
    idx, label, before, adversarial, distance, squared, votes, draws, seconds = match.groups()
    if (adversarial is None) != (distance is None):
        raise CertificateError(f"{where}: has an adversarial class or a distance, but not both")
    try:
        counts = votes_from(votes)
    except ValueError as error:
        raise CertificateError(f"{where}: {error}") from None
    return Attack(
        idx=int(idx),
        label=int(label),
        before=int(before),
        adversarial=_whole(adversarial),
        distance=None if distance is None else float(distance),
        squared=_whole(squared),
        votes=counts,
        draws=int(draws),
        seconds=float(seconds),
    )


def _whole(text: str | None) -> int | None:
    if text is None:
        return None
    return int(text)


def attack_line(row: Attack) -> str:
    """The row as a line of the file."""
    cells: list[object] = [row.idx, row.label, row.before]
    if row.adversarial is None or row.distance is None:
        cells += ["", "", ""]
    else:
        squared = "" if row.squared is None else row.squared
        cells += [row.adversarial, f"{row.distance:.6f}", squared]
    cells += [votes_text(row.votes), row.draws, f"{row.seconds:.3f}"]
    return "\t".join(map(str, cells)) + "\n"


def file_of(rows: Sequence[Attack]) -> str:
    """The content of a file with these rows."""
    return HEADER + "".join(map(attack_line, rows))


@final
class AttackWriter:
    """Appends rows to a file of attacks; `writing_attacks` makes it."""

    def __init__(self, path: Path, rows: Sequence[Attack]) -> None:
        self.path = path
        self.done = {row.idx for row in rows}

    def append(self, row: Attack) -> None:
        """Add a row; it is on the disk when this returns."""
        try:
            # An attack takes seconds, so that opening the file for each row costs nothing.
            with self.path.open("ab") as stream:
                stream.write(attack_line(row).encode())
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise SmoothmixError(
                f"{self.path}: image {row.idx} could not be written ({error.strerror or error}); "
                f"{len(self.done)} images are safe: run the same command again"
            ) from error
        self.done.add(row.idx)


@contextmanager
def writing_attacks(path: Path, settings: AttackSettings) -> Iterator[AttackWriter]:
    """A writer that resumes a file of the same settings; a file of other settings is refused."""
    require_output(path).parent.mkdir(parents=True, exist_ok=True)
    with exclusive(path):
        # Settings that are no attack's are refused here, before anything is written.
        rows = rows_of(path, settings)
        atomic_write(settings_path(path), to_toml(settings).encode())
        # The whole rows again: a line that was cut off goes.
        atomic_write(path, file_of(rows).encode())
        yield AttackWriter(path, rows)


def rows_of(path: Path, settings: AttackSettings) -> list[Attack]:
    """The rows of a file with these settings, none without a file; others are refused."""
    if not settings_path(path).exists():
        if path.exists():
            raise UsageError(
                f"{path}: has no {settings_path(path).name} beside it to say how it was made; "
                "use another --out"
            )
        return []
    earlier = load_attack_settings(path)
    if not path.exists():
        return []
    rows = _rows(path)
    found = earlier.differences(settings)
    # Settings of a run that left no row are replaced.
    if rows and found:
        raise UsageError(
            f"{path}: was made with other settings: {'; '.join(found)}; use another --out"
        )
    return rows

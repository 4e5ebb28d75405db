"""What a certificate file was made with: the TOML beside it."""

from __future__ import annotations

import math
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from smoothmix._io.files import atomic_write
from smoothmix._io.toml import from_table, read_toml, to_toml
from smoothmix.config import MODES, Certification, Mode, require
from smoothmix.errors import CertificateError, SmoothmixError, UsageError
from smoothmix.stats import anytime
from smoothmix.stats import binomial as stats
from smoothmix.stats.anytime import Stopping
from smoothmix.version import __version__

FORMAT = 1

MOST_IMAGES = 2_000_000
"""ImageNet's training split has 1.3 million. Rows are held in memory, and images without one are listed one by one."""


@dataclass(frozen=True, kw_only=True)
class FileSettings:
    """Everything that decides the rows of a certificate file, and which images it is to hold."""

    certification: Certification
    """The noise, the draws and the guarantee."""

    mode: Mode = "exact"
    """The guarantee's kind: `exact` is a fixed number of draws, `anytime` holds whenever drawing stops."""

    stopping: Stopping | None = None
    """When an image has had enough draws, in mode `anytime`; None in mode `exact`."""

    model: str
    """Name of the network, or where it came from."""

    model_hash: str
    """SHA-256 of its weights."""

    weights: str = ""
    """Where they were read from, if the network does not come with them."""

    data: str
    """Name of the data set."""

    split: str
    """Which part of it."""

    data_hash: str
    """Fingerprint of its images and labels."""

    data_note: str = ""
    """What of it was not there, if only a part was."""

    num_classes: int
    """Classes the network tells apart."""

    skip: int = 1
    """Every how many images one is certified, from image 0 on."""

    images: int
    """How many images the whole run is to hold."""

    shard: str = ""
    """Which part of them this file is to hold: `2/3` is every third, from the second on; empty means all."""

    engine: str
    """What runs the network."""

    probe: str = field(default="", metadata={"key": "trial"})
    """Some logits of two probe images: other code may give the same weights other outputs.

    Empty where the network does not repeat its logits.
    """

    noise: str
    """The way noise is addressed."""

    format: int = FORMAT
    """Version of the file's format."""

    versions: Mapping[str, str] = field(default_factory=dict)
    """Of the software that wrote it, for the record."""

    def __post_init__(self) -> None:
        require(
            self.format == FORMAT, f"the format is {self.format}, and this smoothmix reads {FORMAT}"
        )
        require(self.skip >= 1, f"skip must be at least 1, got {self.skip}")
        require(self.images >= 1, f"images must be at least 1, got {self.images}")
        require(
            self.images <= MOST_IMAGES, f"images must be at most {MOST_IMAGES:,}, got {self.images}"
        )
        require(self.skip <= MOST_IMAGES, f"skip must be at most {MOST_IMAGES:,}, got {self.skip}")
        require(self.mode in MODES, f"mode must be one of {', '.join(MODES)}, got {self.mode!r}")
        require(
            (self.mode == "anytime") == (self.stopping is not None),
            f"mode {self.mode} does not go with its stopping",
        )
        budget = self.stopping.max_draws if self.stopping else self.certification.n
        require(
            budget == self.certification.n,
            f"n is {self.certification.n}, but drawing may go on to {budget}",
        )
        parse_shard(self.shard)
        _logits(self.probe)
        require(self.num_classes >= 2, f"num_classes must be at least 2, got {self.num_classes}")

    @property
    def indices(self) -> range:
        """The images that this file is to hold."""
        part, parts = parse_shard(self.shard)
        return range(0, self.images * self.skip, self.skip)[part - 1 :: parts]

    @property
    def largest_radius(self) -> float:
        """What the draws could certify at most: the cliff in every curve."""
        how = self.certification
        if self.mode == "exact":
            return stats.largest_radius(how.n, alpha=how.alpha, sigma=how.sigma)
        return anytime.largest_radius(how.n, n0=how.n0, alpha=how.alpha, sigma=how.sigma)

    @property
    def guarantee(self) -> str:
        """What kind of guarantee the file gives, and how many draws stand behind it, in words."""
        how = self.certification
        if self.stopping is None:
            return f"exact, n {how.n:,}"
        rules = (
            [f"radii {', '.join(f'{r:g}' for r in self.stopping.radii)} decided"]
            if self.stopping.radii
            else []
        )
        if self.stopping.tolerance is not None:
            rules.append(f"the radius within {self.stopping.tolerance:g}")
        return f"anytime, {' and '.join([*rules, f'at most {how.n:,} draws'])}"

    def save(self, path: Path) -> None:
        """Write as TOML."""
        atomic_write(path, to_toml(self).encode())


def parse_shard(shard: str) -> tuple[int, int]:
    """Part and number of parts of a shard such as `2/3`; all of it is part 1 of 1.

    >>> parse_shard("2/3")
    (2, 3)
    """
    found = re.fullmatch("([0-9]{1,9})/([0-9]{1,9})", shard or "1/1")
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise UsageError(f"a shard is written part/parts, such as 2/3, got {shard!r}")
    return int(found[1]), int(found[2])


def settings_path(path: Path) -> Path:
    """Where the settings of a certificate file are: certificates.toml beside certificates.tsv(.gz, .xz)."""
    name = path.name.removesuffix(".gz").removesuffix(".xz").removesuffix(".tsv")
    return path.with_name(f"{name}.toml")


def require_tsv(path: Path) -> Path:
    """The path, if it is one that our files may have: the settings beside it are named after it."""
    require(path.suffix == ".tsv", f"{path}: a certificate file must be named something.tsv")
    return path


def load_settings(path: Path) -> FileSettings | None:
    """The settings beside a certificate file, or None where there are none."""
    beside = settings_path(path)
    if not beside.exists():
        return None
    try:
        return from_table(FileSettings, read_toml(beside), where=str(beside))
    except UsageError as error:
        if not beside.exists():  # removed between the two looks
            return None
        raise CertificateError(str(error)) from error


def require_own_settings(path: Path) -> None:
    """Refuse to write a certificate file whose settings would take the place of a file that is something else."""
    try:
        load_settings(path)
    except SmoothmixError as error:
        name = settings_path(path).name
        raise UsageError(
            f"{path}: its settings go into {name}, which is there and is something else or damaged ({error}); "
            "choose another --out"
        ) from error


FREE = ("images", "versions", "weights", "data_note")
"""Settings in which two parts of one file may differ: none of them changes a row."""


def differences(
    there: FileSettings, here: FileSettings, *, free: Sequence[str] = FREE
) -> list[str]:
    """What differs between two settings, in words, apart from what is free to."""
    pairs = [(f.name, getattr(there, f.name), getattr(here, f.name)) for f in fields(there)]
    old_how, new_how = there.certification, here.certification
    pairs += [(f.name, getattr(old_how, f.name), getattr(new_how, f.name)) for f in fields(old_how)]
    same_data = there.data_hash == here.data_hash  # someone's own may have been moved
    apart = (*free, "certification", "probe", *(["data"] if same_data else []))
    found = [(name, old, new) for name, old, new in pairs if name not in apart and old != new]
    if any(name in ("mode", "stopping") for name, _, _ in found):
        told = ("mode", "stopping", "n")  # all of which the guarantee says in words
        found = [
            ("the guarantee", there.guarantee, here.guarantee),
            *(line for line in found if line[0] not in told),
        ]
    said = [
        f"{name} is {_text(name, old)} there and {_text(name, new)} here"
        for name, old, new in found
    ]
    if there.model_hash == here.model_hash and not same_outcome(there.probe, here.probe):
        said.append(
            "the network has the same weights and gives other logits: its code or its settings have changed"
        )
    return said


def same_outcome(there: str, here: str) -> bool:
    """Whether two probes are those of one network but for rounding, as far as both are known."""
    old, new = _logits(there), _logits(here)
    if not old or not new:
        return True
    largest = max(map(abs, old))
    return len(old) == len(new) and all(
        abs(a - b) <= 1e-3 * largest + 1e-6 for a, b in zip(old, new, strict=True)
    )


def _logits(text: str) -> list[float]:
    try:
        found = [float(part) for part in text.split()]
    except ValueError:
        found = [math.nan]
    require(
        all(map(math.isfinite, found)),
        f"trial must be numbers with blanks between them, got {text[:40]!r}",
    )
    return found


def refuse_others(path: Path, there: FileSettings, here: FileSettings) -> None:
    """Refuse to go on with a file that was begun otherwise."""
    found = differences(there, here)
    if found:
        both_anytime = there.mode == here.mode == "anytime"
        only_rules = both_anytime and not differences(there, here, free=(*FREE, "stopping", "n"))
        further = ", or --extend to draw further for its images" if only_rules else ""
        raise UsageError(
            f"{path}: was begun with other settings: {'; '.join(found)}; use them, or another --out{further}"
        )


def joined_versions(*versions: Mapping[str, str]) -> dict[str, str]:
    """What software wrote any of several files, or went on with one, each version once.

    >>> joined_versions({"torch": "2.10"}, {"torch": "2.10, 2.11", "numpy": "2.0"})
    {'torch': '2.10, 2.11', 'numpy': '2.0'}
    """
    found: dict[str, dict[str, None]] = {}
    for one in versions:
        for name, text in one.items():
            found.setdefault(name, {}).update(dict.fromkeys(text.split(", ")))
    return {name: ", ".join(texts) for name, texts in found.items()}


def software_versions() -> dict[str, str]:
    """Versions of what decides the votes, without importing any of it."""
    found = {"smoothmix": __version__, "python": platform.python_version()}
    for package in ("torch", "numpy", "scipy"):
        try:
            found[package] = version(package)
        except (
            PackageNotFoundError
        ):  # pragma: no cover - certificates are read where torch is not installed
            continue
    return found


def _text(name: str, value: object) -> str:
    return f"{str(value)[:12]}..." if name.endswith("_hash") else str(value) or "none"

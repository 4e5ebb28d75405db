"""The settings of a certificate file, in the TOML file beside it."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import tomli_w

from smoothmix._io.files import atomic_write
from smoothmix._io.toml import from_table, read_toml, to_table, to_toml_value
from smoothmix._io.unpacking import without_packing
from smoothmix.certificates.certification import Certification
from smoothmix.certificates.digests import SECTION, DigestRecord, RowDigests, digest_of_settings
from smoothmix.certificates.probes import Probe, probe_difference
from smoothmix.certificates.row import columns_of
from smoothmix.certificates.seeds import DEFAULT_SEED, seed_from_value, seed_to_value
from smoothmix.certificates.selection import parse_shard
from smoothmix.config import Precision, Preparation, require
from smoothmix.errors import CertificateError, SmoothmixError, UsageError, shown
from smoothmix.noise import GAUSSIAN, NOISES, GridNoise, Noise
from smoothmix.stats.allocation import Budget
from smoothmix.stats.guarantees import GUARANTEE, GUARANTEES, FixedDraws, Guarantee
from smoothmix.version import __version__

FORMAT = 1

MOST_IMAGES = 2_000_000
"""ImageNet's training split has 1.3 million. Rows are held in memory, and missing ones listed."""

RULES = (GUARANTEE, "budget")
"""Differences in when drawing stops: an extension may have others."""

FREE = ("images", "versions", "weights", "data_note", "sources", "positions", "has_digests")
"""Settings in which two parts of one file may differ: none of them changes a row."""


POSITIONS = ("", "rounding", "average")
"""How much logits depend on the position in a batch, from not at all on."""


@dataclass(frozen=True, kw_only=True)
class FileSettings:
    """Everything that decides the rows of a certificate file, and which images it holds."""

    certification: Certification
    """The noise, the draws and the guarantee."""

    model: str
    """Name of the network, or where it came from."""

    model_hash: str
    """SHA-256 of its weights."""

    weights: str = ""
    """Where the weights were read from, if the network does not come with them."""

    data: str
    """Name of the data set."""

    split: str
    """Which part of the data set."""

    data_hash: str
    """Fingerprint of the images and labels."""

    data_content_hash: str = ""
    """SHA-256 of all image files, where `data_hash` covers only some: folders above 256 MiB."""

    data_note: str = ""
    """What was missing, if only a part of the data set was available."""

    preparation: Preparation | None = None
    """How image files were resized and cropped; None for the images as they are."""

    labels: str = ""
    """`none` where the images have no labels, and every row has the label -1."""

    num_classes: int
    """Classes of the network."""

    class_numbers: tuple[int, ...] = ()
    """The network's number of each class of the data set, where that is not its own order."""

    skip: int = 1
    """Every how many images one is certified, from image 0 on."""

    images: int
    """How many images all parts of the run hold together."""

    shard: str = ""
    """The part in this file: `2/3` is every third image from the second on; empty is all."""

    engine: str
    """What runs the network."""

    probe: str = field(default="", metadata={"key": "trial"})
    """The network's logits on probe images (`probes.py`), and what computed them.

    Other code may give the same weights other outputs.
    """

    positions: str = ""
    """Whether logits depend on the position in a batch: empty, `rounding` or `average`.

    Empty: they have the same bits at every position. `rounding`: they differ by rounding alone.
    `average`: they differ by more, and claims are about the average over positions.
    """

    noise_scheme: str = field(metadata={"key": "noise"})
    """How the random numbers of the noise are addressed."""

    format: int = FORMAT
    """Version of the file's format."""

    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of the software that wrote the file, for the record."""

    sources: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of the source files of the network's own classes, by the name of their module."""

    has_digests: bool = field(default=False, metadata={"key": SECTION})
    """Whether rows are bound by digests; those of files of earlier versions are not."""

    def __post_init__(self) -> None:
        require(
            self.format == FORMAT, f"the format is {self.format}, and this smoothmix reads {FORMAT}"
        )
        for name in ("skip", "images"):
            value = getattr(self, name)
            require(value >= 1, f"{name} must be at least 1, got {value}")
            require(value <= MOST_IMAGES, f"{name} must be at most {MOST_IMAGES:,}, got {value}")
        require(self.num_classes >= 2, f"num_classes must be at least 2, got {self.num_classes}")
        require(self.labels in ("", "none"), f"labels must be none, got {self.labels[:40]!r}")
        for number in self.class_numbers:
            require(
                0 <= number < self.num_classes,
                f"class_numbers must be below {self.num_classes}, got {number}",
            )
        require(
            self.positions in POSITIONS,
            f"positions must be one of {', '.join(POSITIONS[1:])}, got {self.positions[:40]!r}",
        )
        parse_shard(self.shard)
        Probe(self.probe)

    @property
    def indices(self) -> range:
        """The images that this file holds once it is complete."""
        number, count = parse_shard(self.shard)
        return range(0, self.images * self.skip, self.skip)[number - 1 :: count]

    @property
    def labelled(self) -> bool:
        """Whether the images have labels."""
        return self.labels != "none"

    @property
    def guarantee(self) -> Guarantee:
        """What each certificate promises."""
        return self.certification.guarantee

    @property
    def budget_draws(self) -> int | None:
        """The draws that all images of this file may get together; None without such a limit.

        A shard has its share of the budget, by its number of images.
        """
        budget = self.certification.budget
        if budget is None:
            return None
        return budget.share(len(self.indices), self.images)

    @property
    def largest_radius(self) -> float:
        """The largest radius that the draws can certify: every curve drops to 0 there."""
        return self.certification.largest_radius

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the file."""
        return columns_of(self.certification, has_digests=self.has_digests)

    @property
    def digest(self) -> str:
        """SHA-256 of the settings that decide rows."""
        return digest_of_settings(to_tables(self))

    @property
    def row_digests(self) -> RowDigests:
        """What computes the digests of rows."""
        return RowDigests(self.digest, self.columns)

    def save(self, path: Path, record: DigestRecord | None = None) -> None:
        """Write as TOML, with the digests of a file that is finished if they are given."""
        tables = to_tables(self)
        if self.has_digests:
            tables[SECTION] = (record or DigestRecord(self.digest)).to_table()
        atomic_write(path, tomli_w.dumps(tables).encode())


# The layout of the TOML file. It is older than the values above, and stays as it is so that every
# file can be read: the numbers of the guarantee stand in the table `certification`, its kind is
# `mode`, its rules for stopping are the table `stopping`, and `block` is the batch.


@dataclass(frozen=True, kw_only=True)
class _CertificationTable:
    sigma: float
    n0: int = 100
    n: int = 100_000
    alpha: float = 0.001
    # Holds the place in the file's order; `seeds` reads and writes the value, which may be a table.
    seed: int = DEFAULT_SEED
    block: int = 256
    precision: Precision = "fp32"
    skip_wrong: bool = False
    stop_abstaining: bool = False


SHARED_FIELDS = ("n0", "n", "alpha", "stop_abstaining")
"""Fields of guarantees that stand in the table `certification`."""


def to_tables(settings: FileSettings) -> dict[str, Any]:
    """The settings as the tables of a TOML file."""
    certification = settings.certification
    guarantee = certification.guarantee
    # Whatever fields a guarantee has are recorded, so that one from outside needs no code here.
    own_fields = to_toml_value(guarantee)
    shared: dict[str, Any] = {"n": guarantee.max_draws}
    for name in SHARED_FIELDS:
        if name in own_fields:
            shared[name] = own_fields.pop(name)
    recorded = _CertificationTable(
        sigma=certification.sigma,
        block=certification.batch,
        precision=certification.precision,
        skip_wrong=certification.skip_wrong,
        **shared,
    )
    numbers = to_toml_value(recorded) | {"seed": seed_to_value(certification.seed)}
    tables: dict[str, Any] = {"certification": numbers, "mode": guarantee.mode}
    if "stopping" in own_fields:
        rules = own_fields.pop("stopping")
        # Off is not written down, so that files of earlier versions stay as they were.
        if rules.get("foresight") == 0:
            del rules["foresight"]
        tables["stopping"] = rules
    # Only guarantees and noises from outside, or with settings, need tables of their own.
    if own_fields:
        tables["guarantee"] = own_fields
    # Only where there is one, so that other files stay as they were.
    if certification.budget is not None:
        tables["budget"] = to_toml_value(certification.budget)
    if certification.noise != GAUSSIAN:
        noise = certification.noise
        tables["distribution"] = {"name": noise.name, **to_toml_value(noise)}
        # Where values are clipped follows from sigma; it is written down for readers without us.
        if isinstance(noise, GridNoise):
            tables["distribution"]["clip"] = noise.clip(certification.sigma)
    others = to_table(settings)
    # Its values are already in the tables above, by the keys of the file.
    del others["certification"]
    # Digests are computed from the tables.
    del others[SECTION]
    if not settings.sources:
        del others["sources"]
    return tables | others


def from_tables(tables: Mapping[str, Any], *, where: str) -> FileSettings:
    """The settings in the tables of a TOML file; what makes no sense is refused by file and key."""
    others = dict(tables)
    has_digests = others.pop(SECTION, None) is not None
    numbers = dict(_table(others.pop("certification", {}), where, "certification"))
    seed_value = numbers.pop("seed", DEFAULT_SEED)
    recorded = from_table(_CertificationTable, numbers, where=f"{where}: certification")
    guarantee = _guarantee(
        recorded,
        mode=others.pop("mode", FixedDraws.mode),
        stopping=others.pop("stopping", None),
        own_fields=_table(others.pop("guarantee", {}), where, "guarantee"),
        where=where,
    )
    distribution = _table(others.pop("distribution", {}), where, "distribution")
    budget = None
    if "budget" in others:
        table = _table(others.pop("budget"), where, "budget")
        budget = from_table(Budget, table, where=f"{where}: budget")
    try:
        certification = Certification(
            sigma=recorded.sigma,
            guarantee=guarantee,
            noise=_noise(distribution, sigma=recorded.sigma, where=where),
            seed=seed_from_value(seed_value),
            batch=recorded.block,
            precision=recorded.precision,
            skip_wrong=recorded.skip_wrong,
            budget=budget,
        )
    except UsageError as error:
        raise UsageError(f"{where}: certification: {shown(error, 500)}") from None
    known = {"certification": certification, "has_digests": has_digests}
    return from_table(FileSettings, others, where=where, known=known)


def _guarantee(
    recorded: _CertificationTable,
    *,
    mode: object,
    stopping: object,
    own_fields: Mapping[str, Any],
    where: str,
) -> Guarantee:
    # A guarantee from outside is imported by its address: only a subclass of ours is accepted.
    try:
        kind = GUARANTEES[str(mode)]
    except UsageError as error:
        raise UsageError(f"{where}: mode: {error}") from None
    values = dict(own_fields)
    names = [each.name for each in fields(kind)]
    for name in SHARED_FIELDS:
        if name in names:
            values[name] = getattr(recorded, name)
    if stopping is not None:
        values["stopping"] = stopping
    require(
        ("stopping" in values) == ("stopping" in names),
        f"{where}: mode {kind.mode} does not go with the stopping rules that the file has or lacks",
    )
    # Its own checks name the table, as for any other setting.
    guarantee = from_table(kind, values, where=f"{where}: certification")
    require(
        guarantee.max_draws == recorded.n,
        f"{where}: n is {recorded.n}, but an image may get {guarantee.max_draws} draws",
    )
    require(
        "stop_abstaining" in names or not recorded.stop_abstaining,
        f"{where}: stop_abstaining goes with another mode than {kind.mode}",
    )
    return guarantee


def _noise(distribution: Mapping[str, Any], *, sigma: float, where: str) -> Noise:
    if not distribution:
        return GAUSSIAN
    values = dict(distribution)
    name = values.pop("name", GAUSSIAN.name)
    try:
        kind = NOISES[str(name)]
    except UsageError as error:
        raise UsageError(f"{where}: distribution: {error}") from None
    clip = values.pop("clip", None) if issubclass(kind, GridNoise) else None
    noise = from_table(kind, values, where=f"{where}: distribution")
    if isinstance(noise, GridNoise):
        follows = noise.clip(sigma)
        # Not by equality alone: 3.0 and true are no numbers of units.
        require(
            type(clip) is int and clip == follows,
            f"{where}: distribution: clip must be {follows} for sigma {sigma:g}, got {clip!r:.60}",
        )
    return noise


def _table(value: object, where: str, key: str) -> Mapping[str, Any]:
    require(isinstance(value, Mapping), f"{where}: {key}: must be a table, got {value!r:.60}")
    assert isinstance(value, Mapping)
    return value


def settings_path(path: Path) -> Path:
    """The settings of a certificate file: certificates.toml beside certificates.tsv (.xz)."""
    name = without_packing(path.name).removesuffix(".tsv")
    return path.with_name(f"{name}.toml")


def require_tsv(path: Path) -> Path:
    """The path, if a file of ours may have it: the settings beside it are named after it."""
    require(path.suffix == ".tsv", f"{path}: a certificate file must be named something.tsv")
    return path


def load_settings(path: Path) -> FileSettings | None:
    """The settings beside a certificate file, or None where there are none."""
    settings, _ = load_bound_settings(path)
    return settings


def load_bound_settings(path: Path) -> tuple[FileSettings | None, DigestRecord | None]:
    """The settings beside a certificate file and the digests in them, None where there are none."""
    beside = settings_path(path)
    if not beside.exists():
        return None, None
    try:
        tables = read_toml(beside)
        settings = from_tables(tables, where=str(beside))
        record = None
        if settings.has_digests:
            where = f"{beside}: {SECTION}"
            table = _table(tables[SECTION], str(beside), SECTION)
            record = from_table(DigestRecord, table, where=where)
    except UsageError as error:
        # Another process may have removed the file since the check above.
        if not beside.exists():
            return None, None
        raise CertificateError(str(error)) from error
    return settings, record


def require_own_settings(path: Path) -> None:
    """Refuse to write a certificate file whose settings would replace a file of another kind."""
    try:
        load_settings(path)
    except SmoothmixError as error:
        name = settings_path(path).name
        raise UsageError(
            f"{path}: its settings go into {name}, which exists and is something else or damaged "
            f"({error}); choose another --out"
        ) from error


def differences(
    there: FileSettings, here: FileSettings, *, free: Sequence[str] = FREE
) -> list[str]:
    """The settings in which two files differ, as sentences, except for those in `free`.

    `RULES` in `free` allow other rules for stopping.
    """
    apart = {*free, "certification", "probe", "guarantee"}
    # With a budget, the draws of an image depend on all the others.
    if there.certification.budget or here.certification.budget:
        apart.discard("images")
    # The user's own data may have been moved.
    if there.data_hash == here.data_hash:
        apart.add("data")
    # Files of earlier versions do not have it, and small data sets do not need it.
    if not there.data_content_hash or not here.data_content_hash:
        apart.add("data_content_hash")
    # Other images have another fingerprint: one sentence is enough.
    if there.preparation != here.preparation:
        apart.add("data_hash")
    # Another noise has another scheme: one sentence is enough.
    if there.certification.noise != here.certification.noise:
        apart.add("noise_scheme")
    pairs = _field_pairs(there, here) + _field_pairs(there.certification, here.certification)
    pairs += there.guarantee.differences(here.guarantee)
    found = []
    for name, old, new in pairs:
        if name not in apart and old != new:
            found.append(f"{_plain(name)} is {_text(name, old)} there and {_text(name, new)} here")
    same_weights = there.model_hash == here.model_hash
    if same_weights:
        found.extend(filter(None, [probe_difference(there.probe, here.probe)]))
    return found


def _field_pairs(there: Any, here: Any) -> list[tuple[str, object, object]]:
    return [
        (each.name, getattr(there, each.name), getattr(here, each.name)) for each in fields(there)
    ]


def _plain(name: str) -> str:
    return name.replace("noise_scheme", "the noise's scheme")


def _text(name: str, value: object) -> str:
    if isinstance(value, Noise):
        return _noise_text(value)
    if isinstance(value, Budget):
        return value.description
    if name.endswith("_hash"):
        return f"{str(value)[:12]}..."
    if value is None:
        return "none"
    return str(value) or "none"


def _noise_text(noise: Noise) -> str:
    own_fields = [f"{key} {value}" for key, value in to_toml_value(noise).items()]
    if not own_fields:
        return noise.name
    return f"{noise.name} ({', '.join(own_fields)})"


def refuse_others(path: Path, there: FileSettings, here: FileSettings) -> None:
    """Refuse to resume a file that was started with other settings."""
    found = differences(there, here)
    if not found:
        return
    hint = ""
    only_rules_differ = not differences(there, here, free=(*FREE, *RULES))
    if only_rules_differ and not here.guarantee.extension_problem(there.guarantee):
        hint = ", or --extend to draw further for its images"
    raise UsageError(
        f"{path}: was started with other settings: {'; '.join(found)}; "
        f"use them, or another --out{hint}"
    )


def joined_records(*every: FileSettings) -> dict[str, Any]:
    """What several parts of one file record without having to agree, for `replace`."""
    return {
        "images": max(settings.images for settings in every),
        "versions": joined_versions(*(settings.versions for settings in every)),
        "sources": joined_versions(*(settings.sources for settings in every)),
        # The weakest claim of all parts is that of the whole.
        "positions": max((settings.positions for settings in every), key=POSITIONS.index),
        # Rows without digests cannot become bound later: nobody knows whether they were edited.
        "has_digests": all(settings.has_digests for settings in every),
    }


def warn_of_changed_sources(path: Path, there: FileSettings, here: FileSettings) -> None:
    """Warn if the code of the network was edited since a file was started.

    The logits are those of before, as far as probes show: a comment may have changed.
    """
    for module, digest in here.sources.items():
        before = there.sources.get(module, digest)
        if digest not in before.split(", "):
            warnings.warn(
                f"{path}: the source file of {module} has changed since the file was started; "
                "its logits on the probe images are the same",
                stacklevel=4,
            )


def joined_versions(*versions: Mapping[str, str]) -> dict[str, str]:
    """The software that wrote any of several files, or resumed one, each version once.

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
        except PackageNotFoundError:  # pragma: no cover
            # Certificates are also read where torch is not installed.
            continue
    return found

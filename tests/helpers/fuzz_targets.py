"""Every reader of files from outside, with a valid file to damage.

`make fuzz` (fuzz_run.py) feeds them for minutes, test_fuzz.py for seconds.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import pickle
import struct
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from smoothmix import certificates
from smoothmix._io.toml import to_toml
from smoothmix.analysis import measure
from smoothmix.analysis.measured import from_file
from smoothmix.analysis.sources import Source, read_sources
from smoothmix.certificates import Attack, AttackSettings, FileSettings, SearchSettings
from smoothmix.certificates.attack_file import HEADER, attack_line, read_attacks
from smoothmix.certificates.partial import Journal, PartialVotes
from smoothmix.certificates.secret_seeds import make_secret_seed, read_secret_seed
from smoothmix.certificates.settings import load_settings
from smoothmix.config import Preparation, RunConfig
from smoothmix.data import image_files, photos, resizing
from smoothmix.data.cifar import FOLDER, read_batches
from smoothmix.data.cifar_pickles import read_batch
from smoothmix.data.idx import IdxFile, parse_idx, read_at_most, read_idx
from smoothmix.data.npz import load_npz
from smoothmix.data.source import DataRequest
from smoothmix.errors import DataError, SmoothmixError
from smoothmix.networks import import_checkpoint, load_weights
from smoothmix.report.leaderboard.files import find
from smoothmix.report.sections import read_section
from smoothmix.reproduce.published_runs import COLUMNS as PUBLISHED_COLUMNS
from smoothmix.reproduce.published_runs import load_published
from smoothmix.serve.images import prepare_image
from smoothmix.training.checkpoint import load_state
from tests.helpers.certificates import COHEN_HEADER, our_file, zipped
from tests.helpers.fuzz_mutations import mutate

LONGEST_SENTENCE = 2000
MODEL = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))


@dataclass(frozen=True)
class Target:
    """A reader and what it is fed."""

    file: str
    """Name of the file it reads."""
    seeds: Callable[[], Sequence[bytes]]
    """Valid contents, before they are wrapped."""
    read: Callable[[Path], object]
    wrap: Callable[[bytes], bytes] = bytes
    """Packs a damaged content, so that the damage gets past checksums and lengths."""
    beside: Callable[[Path], object] = lambda path: None
    """Writes what must lie beside the file."""

    def inputs(self, random: Random) -> bytes:
        """A damaged file: mostly one that is damaged inside of its wrapping."""
        seeds = self.seeds()
        inside = self.wrap(mutate(random.choice(seeds), seeds, random))
        return mutate(inside, [inside], random) if random.randint(0, 9) == 0 else inside


def check(target: Target, content: bytes, folder: Path) -> str:
    """Read a file and say what came of it; anything but a value or an error of ours is raised."""
    path = folder / target.file
    path.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            target.read(path)
        except SmoothmixError as error:
            sentence = str(error)
        else:
            return "read"
    assert "\n" not in sentence, f"not one line: {sentence}"
    assert len(sentence) < LONGEST_SENTENCE, f"an error of {len(sentence):,} characters"
    return "refused"


# The valid files


def made(write: Callable[[Path], object], name: str = "file") -> bytes:
    """What a function writes into a file."""
    with TemporaryDirectory() as folder:
        write(Path(folder) / name)
        return (Path(folder) / name).read_bytes()


@cache
def our_rows() -> Sequence[bytes]:
    return [made(lambda path: our_file(path, [990, 999, 500]), "certificates.tsv"), *field_rows()]


@cache
def field_rows() -> Sequence[bytes]:
    rows = (
        "0\t7\t7\t1.52\t1\t0:00:05.84\n"
        "1\t2\t-1\t0.0\t0\t1 day, 0:00:01\n"
        "5\t1\t1\t0.953\tTrue\t12.5\n"
    )
    return [(COHEN_HEADER + rows).encode()]


@cache
def our_settings() -> Sequence[bytes]:
    def write(path: Path) -> object:
        return our_file(path.with_suffix(".tsv"), [990, 999, 500])

    exact = made(write, "certificates.toml")
    stopping = (
        b'mode = "anytime"\n[stopping]\nmax_draws = 1000\nradii = [0.25, 0.5]\n[certification]'
    )
    return [exact, exact.replace(b'mode = "exact"', b"").replace(b"[certification]", stopping)]


@cache
def journal_settings() -> FileSettings:
    """The settings of the runs that left the journal."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "certificates.tsv"
        our_file(path, [990])
        settings = load_settings(path)
    assert settings is not None
    return settings


@cache
def journal_records() -> Sequence[bytes]:
    """The records of a journal, without their checksums."""

    def write(path: Path) -> None:
        for drawn in (256, 512):
            journal = Journal(path.with_suffix(".tsv"), journal_settings())
            journal.read()
            n0 = journal_settings().guarantee.n0
            journal.append({0: PartialVotes(selection_counts={1: n0}, counts={1: drawn})})
            journal.path.replace(path)

    lines = made(write, "certificates").splitlines()
    return [b"\n".join(line.partition(b" ")[2] for line in lines)]


def with_checksums(records: bytes) -> bytes:
    lines = [b"%08x %s" % (zlib.crc32(line), line) for line in records.split(b"\n")]
    return b"\n".join(lines)


def read_journal(path: Path) -> None:
    journal = Journal(path.with_name("certificates.tsv"), journal_settings())
    journal.path = path
    for votes in journal.read(any_rules=True).values():
        assert votes.drawn <= journal_settings().guarantee.max_draws
        assert max(votes.counts, default=0) < journal_settings().num_classes
    journal.remove_if_finished(set())


@cache
def configs() -> Sequence[bytes]:
    method = {"name": "smoothmix", "sigma": 0.5, "eta": 5.0, "steps": 8}
    config = RunConfig(
        data="mnist", network="lenet", method=method, image_shape=(1, 28, 28), notes=("a", "b")
    )
    return [made(config.save)]


@cache
def safetensors_headers() -> Sequence[bytes]:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, value in MODEL.state_dict().items():
        kind = "F32" if value.dtype == torch.float32 else "I64"
        header[name] = {
            "dtype": kind,
            "shape": list(value.shape),
            "data_offsets": [at, at + value.nbytes],
        }
        at += value.nbytes
    return [json.dumps(header).encode()]


def as_safetensors(header: bytes) -> bytes:
    size = sum(value.nbytes for value in MODEL.state_dict().values())
    return struct.pack("<Q", len(header)) + header + bytes(size)


@cache
def saved(zipped: bool) -> bytes:
    optimiser = {
        "state": {0: {"momentum_buffer": torch.zeros(3)}},
        "param_groups": [{"lr": 0.1, "params": [0, 1]}],
    }
    whole = {
        "epoch": 3,
        "model": MODEL.state_dict(),
        "optimiser": optimiser,
        "sums": {"total": 0.5},
        "seconds": None,
    }
    return made(lambda path: torch.save(whole, path, _use_new_zipfile_serialization=zipped))


@cache
def members() -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(saved(True))) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def as_archive(content: bytes) -> bytes:
    """The checkpoint with another pickle in it, and with checksums that fit."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members().items():
            archive.writestr(name, content if name.endswith("/data.pkl") else data)
    return buffer.getvalue()


def pickled() -> Sequence[bytes]:
    return [next(data for name, data in members().items() if name.endswith("/data.pkl"))]


def cifar_batch() -> bytes:
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n"
        b"K\x00\x85U\x01b\x87R(K\x01(K\x01M\x00\x0ct"
    )
    kind = (
        b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    array += kind + b"\x89T" + struct.pack("<i", 3072) + bytes(3072) + b"tb"
    return b"\x80\x02}(U\x04data" + array + b"U\x06labels](K\x07eu."


BATCH = cifar_batch()
BATCHES = (BATCH, pickle.dumps({"data": [1, (2, 3)], "labels": {"a"}}, protocol=4))


@cache
def tars() -> Sequence[bytes]:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in ("a" * 120, "test_batch"):
            header = tarfile.TarInfo(f"{FOLDER}/{name}")
            header.size = len(BATCH)
            archive.addfile(header, io.BytesIO(BATCH))
    return [buffer.getvalue()]


@cache
def npz_headers() -> Sequence[bytes]:
    arrays = (np.zeros((2, 3, 4), np.uint8), np.array([0, 1]))
    files = []
    for array in arrays:
        buffer = io.BytesIO()
        np.save(buffer, array)
        files.append(buffer.getvalue())
    return files


def as_npz(content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", content)
        archive.writestr("y.npy", npz_headers()[1])
    return buffer.getvalue()


@cache
def images() -> Sequence[bytes]:
    image = Image.fromarray(np.arange(60, dtype=np.uint8).reshape(4, 5, 3))
    return [made(image.save, f"image.{form}") for form in ("png", "jpeg", "bmp", "webp", "ppm")]


@cache
def attack_rows() -> Sequence[bytes]:
    found = Attack(
        idx=0, label=1, before=1, adversarial=0, distance=0.512345, squared=17_000,
        votes={0: 99, 1: 1}, draws=100, seconds=0.5,
    )  # fmt: skip
    nothing = Attack(idx=5, label=2, before=2, votes={2: 100}, draws=100, seconds=1.25)
    return [(HEADER + attack_line(found) + attack_line(nothing)).encode()]


@cache
def attack_settings() -> Sequence[bytes]:
    settings = AttackSettings(
        search=SearchSettings(), model="lenet", model_hash="a" * 64, data="sample", split="test",
        data_hash="b" * 16, num_classes=10, sigma=0.5, noise="grid", levels=255,
    )  # fmt: skip
    return [to_toml(settings).encode()]


@cache
def secret_seeds() -> Sequence[bytes]:
    return [made(make_secret_seed)]


LIST_OF_RUNS = b"""sigma = 0.5
n = 1000
alpha = 0.001

[[run]]
path = "certificates.tsv"
name = "first"

[[run]]
path = "logs/second.tsv"
method = "smoothmix"
baseline = true
"""


@cache
def published_runs() -> Sequence[bytes]:
    rows = "mnist/0.50/gaussian\t1\t0\t7\t7\t1.52\nmnist/0.50/gaussian\t1\t5\t2\t-1\t0.0\n"
    return [("\t".join(PUBLISHED_COLUMNS) + "\n" + rows).encode()]


@cache
def log_archives() -> Sequence[bytes]:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in ("a" * 120 + "/noise_0.50_1", "mnist/noise_0.50_1.tsv", "notes.md"):
            content = field_rows()[0]
            header = tarfile.TarInfo(name)
            header.size = len(content)
            archive.addfile(header, io.BytesIO(content))
    return [buffer.getvalue()]


# The readers


def read_certificates(path: Path) -> None:
    file = certificates.read(path)
    certificates.verify(file)
    measured = from_file(file, name="a")
    measured.acr()
    measured.accuracy([0.0, 0.5])


def read_settings(path: Path) -> None:
    read_certificates(path.parent)


def read_archive(path: Path) -> None:
    batches = read_batches(
        path.parent, {"test_batch": hashlib.md5(BATCH, usedforsecurity=False).hexdigest()}
    )
    if batches.remarks:
        raise DataError("; ".join(batches.remarks))


def read_any_idx(path: Path) -> None:
    content = read_at_most(path, 10**6)
    parse_idx(content, path)
    read_idx(path, IdxFile("train-images", (2, 2, 2), hashlib.sha256(content).hexdigest()))


def read_image(path: Path) -> None:
    for channels in (1, 3):
        resizing.centre_crop(image_files.decode(path, channels), 8, (6, 6))


def read_served_image(path: Path) -> None:
    """The body of a request to `smoothmix serve`."""
    body = path.read_bytes()
    for shape, preparation in (
        ((1, 4, 5), None),
        ((3, 4, 5), None),
        ((3, 6, 6), Preparation(resize=8, crop=6)),
    ):
        found = prepare_image(
            body, shape=shape, trained_on="", max_pixels=10_000, preparation=preparation
        )
        assert found.pixels.shape == shape


def read_image_list(path: Path) -> None:
    photos.find_images([str(path)])


def read_leaderboard(path: Path) -> None:
    """What cannot be read is listed with its reason, and no reason to stop."""
    found = find(path.parent, stated=Source(path="", n=1000))
    if found.unread:
        raise DataError(found.unread[0].reason)


def read_npz(path: Path) -> None:
    with path.open("rb") as file:
        load_npz(file, path, DataRequest(name="npz", data_dir=path.parent))


def read_checkpoint(path: Path) -> None:
    str(import_checkpoint(path, MODEL))


def write_beside(name: str, content: Callable[[], Sequence[bytes]]) -> Callable[[Path], object]:
    return lambda path: path.with_name(name).write_bytes(content()[0])


METRICS = (
    b'{"epoch": 1, "loss": 0.5, "parts": {"natural": 0.2}, '
    b'"accuracy": 0.9, "learning_rate": 0.01}\n' * 2
)
SECTION = (
    b'{"title": "a", "text": "b", "table": {"columns": ["c"], "rows": [["d"]], "notes": []}, '
    b'"figure": null}'
)
WITH_SETTINGS = write_beside("certificates.toml", our_settings)
WITH_ROWS = write_beside("certificates.tsv", our_rows)
IDX = b"\x00\x00\x08\x03" + struct.pack(">3I", 2, 2, 2) + bytes(8)

TARGETS = {
    "certificates": Target("certificates.tsv", our_rows, read_certificates, beside=WITH_SETTINGS),
    "log": Target("noise_0.50_1", field_rows, read_certificates),
    "log-gz": Target("noise_0.50_1.gz", field_rows, read_certificates, gzip.compress),
    "log-xz": Target(
        "noise_0.50_1.xz", field_rows, read_certificates, lambda data: lzma.compress(data, preset=0)
    ),
    "log-bz2": Target("noise_0.50_1.bz2", field_rows, read_certificates, bz2.compress),
    "log-zip": Target("noise_0.50_1.zip", field_rows, read_certificates, zipped),
    "certificates-toml": Target("certificates.toml", our_settings, read_settings, bytes, WITH_ROWS),
    "partial-votes": Target(
        "certificates.partial-votes", journal_records, read_journal, with_checksums
    ),
    "config-toml": Target("config.toml", configs, RunConfig.load),
    "metrics": Target(
        "metrics.jsonl", lambda: [METRICS], lambda path: measure(path.parent), bytes, WITH_ROWS
    ),
    "section": Target("section.json", lambda: [SECTION], read_section),
    "attacks": Target(
        "attacks.tsv",
        attack_rows,
        read_attacks,
        beside=write_beside("attacks.toml", attack_settings),
    ),
    "attacks-toml": Target(
        "attacks.toml",
        attack_settings,
        lambda path: read_attacks(path.with_name("attacks.tsv")),
        beside=write_beside("attacks.tsv", attack_rows),
    ),
    "secret-seed": Target("c.secret-seed", secret_seeds, read_secret_seed),
    "list-of-runs": Target("runs.toml", lambda: [LIST_OF_RUNS], read_sources),
    "log-archive": Target("logs.tar.gz", log_archives, read_leaderboard, gzip.compress),
    "published-runs": Target(
        "published.tsv.xz",
        published_runs,
        load_published,
        lambda data: lzma.compress(data, preset=0),
    ),
    "image-list": Target("list.txt", lambda: [b"list.txt\n  list.txt\n\n"], read_image_list),
    "served-image": Target("body", images, read_served_image),
    "idx": Target("train-images", lambda: [IDX], read_any_idx),
    "idx-gz": Target("train-images.gz", lambda: [IDX], read_any_idx, gzip.compress),
    "cifar-batch": Target(
        "test_batch", lambda: BATCHES, lambda path: read_batch(path.read_bytes(), str(path))
    ),
    "cifar-archive": Target("a.tar.gz", tars, read_archive, gzip.compress),
    "npz": Target("my.npz", npz_headers, read_npz, as_npz),
    "image": Target("image.png", images, read_image),
    "safetensors": Target(
        "w.safetensors", safetensors_headers, lambda path: load_weights(MODEL, path), as_safetensors
    ),
    "checkpoint": Target("w.pt", pickled, read_checkpoint, as_archive),
    "state": Target("state.pt", pickled, load_state, as_archive),
    "checkpoint-legacy": Target("legacy.pt", lambda: [saved(False)], read_checkpoint),
    "checkpoint-archive": Target("archive.pt", lambda: [saved(True)], read_checkpoint),
}

"""Hostile files of every other kind: bombs, huge numbers, names that lead elsewhere."""

from __future__ import annotations

import ast
import bz2
import gzip
import io
import lzma
import os
import re
import struct
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from smoothmix import certificates
from smoothmix._io import files, unpacking
from smoothmix._io.toml import read_toml
from smoothmix.analysis import measure, measured
from smoothmix.analysis.sources import Source
from smoothmix.certificates import file as certificate_file
from smoothmix.certificates import parse as certificate_parse
from smoothmix.config import RunConfig
from smoothmix.data import DATASETS, download, image_files, load, photos
from smoothmix.data import npz as npz_module
from smoothmix.data.cifar import CifarSource, read_batches
from smoothmix.data.idx import IdxSource, parse_idx
from smoothmix.data.source import DownloadableSource
from smoothmix.errors import CertificateError, DataError, SmoothmixError, UsageError
from smoothmix.report.leaderboard import files as leaderboard_files
from smoothmix.report.sections import read_section
from smoothmix.reproduce import published_runs
from tests.helpers.certificates import COHEN_HEADER, cohen_log, our_file, zipped

SOURCES = sorted((Path(__file__).parents[2] / "src").rglob("*.py"))
RUNS_CODE = {
    "eval",
    "exec",
    "compile",
    "pickle.load",
    "pickle.loads",
    "marshal.loads",
    "shelve.open",
    "os.system",
}
SAFELY = {"torch.load": ("weights_only", True), "np.load": ("allow_pickle", False)}


def test_nothing_in_the_package_can_run_what_a_file_says() -> None:
    seen = set()
    for path in SOURCES:
        for call in (
            node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
        ):
            name = ast.unparse(call.func)
            assert name not in RUNS_CODE, f"{path}, line {call.lineno}: {name}"
            if name in SAFELY:
                key, value = SAFELY[name]
                given = {
                    k.arg: k.value.value for k in call.keywords if isinstance(k.value, ast.Constant)
                }
                assert given.get(key) is value, (
                    f"{path}, line {call.lineno}: {name} without {key}={value}"
                )
                seen.add(name)
    assert seen == set(SAFELY)


# Certificates and logs


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zip": zipped,
    "": bytes,
}


@pytest.mark.parametrize("suffix", PACKERS)
def test_bombs_are_given_up_at_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr(certificate_file, "LARGEST_FILE", 100_000)
    pack = PACKERS[suffix]
    path = tmp_path / f"log.tsv{suffix}"
    path.write_bytes(pack(COHEN_HEADER.encode() + bytes(5_000_000)))
    with pytest.raises(CertificateError, match="holds more than 100,000 bytes"):
        certificates.read(path)


def test_unpacking_takes_no_more_than_the_limit(tmp_path: Path) -> None:
    for suffix, pack in PACKERS.items():
        path = tmp_path / f"zeros{suffix}"
        # A zip archive is one stream; the others may follow one another.
        whole = pack(bytes(10_000) + b"more")
        joined = pack(bytes(10_000)) + pack(b"more")
        path.write_bytes(whole if suffix == ".zip" else joined)
        with pytest.raises(files.FileTooLargeError, match="holds more than 99 bytes"):
            unpacking.read_unpacked(path, 99)
        with pytest.raises(files.FileTooLargeError, match="holds more than 10,003 bytes"):
            unpacking.read_unpacked(path, 10_003)
        assert unpacking.read_unpacked(path, 10_004) == bytes(10_000) + b"more"


@pytest.mark.parametrize(("suffix", "pack"), [pair for pair in PACKERS.items() if pair[0]])
def test_a_bomb_takes_no_memory_beyond_the_limit(
    tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / f"zeros{suffix}"
    path.write_bytes(pack(bytes(50_000_000)))
    tracemalloc.start()
    try:
        with pytest.raises(files.FileTooLargeError):
            unpacking.read_unpacked(path, 100_000)
        # The window of xz alone takes 8 MiB.
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_readers_refuse_a_file_beyond_their_limit_and_never_cut_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured, "LARGEST_METRICS", 50)
    (tmp_path / "metrics.jsonl").write_text('{"epoch": 1, "loss": 0.5}\n' * 3)
    with pytest.raises(SmoothmixError, match=r"metrics.jsonl: holds more than 50 bytes"):
        measured._read_run(tmp_path)
    monkeypatch.setattr(published_runs, "LARGEST_FILE", 50)
    (tmp_path / "published.tsv").write_text("\t".join(published_runs.COLUMNS) + "\n" + "1\t" * 40)
    with pytest.raises(SmoothmixError, match=r"published.tsv: holds more than 50 bytes"):
        published_runs.load_published(tmp_path / "published.tsv")


def test_xz_that_is_cut_or_needs_much_memory_or_has_no_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, content = tmp_path / "log.tsv.xz", lzma.compress(COHEN_HEADER.encode())
    cases = {
        "in the middle": content[:-9],
        "cannot be read": content + b"?",
        "more than 64 streams": content * 99,
    }
    for sentence, damaged in cases.items():
        path.write_bytes(damaged)
        with pytest.raises(CertificateError, match=sentence):
            certificates.read(path)
    path.write_bytes(content)
    monkeypatch.setattr(unpacking, "XZ_MEMORY", 2**16)
    with pytest.raises(CertificateError, match=r"[Mm]emory"):
        certificates.read(path)


def test_archives_that_are_no_packed_log_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.zip"
    log = COHEN_HEADER + "0\t1\t1\t0.5\t1\t1\n"
    cases = {
        "holds 0 files instead of one": [],
        "holds 2 files instead of one: unpack it first": ["a", "b"],
        "more than 1000 files": list(map(str, range(1001))),
    }
    for sentence, names in cases.items():
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(name, log)
        with pytest.raises(CertificateError, match=sentence):
            certificates.read(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("log", log)
    with pytest.raises(CertificateError, match="compressed in an unusual way"):
        certificates.read(path)
    encrypted = bytearray(zipped(log.encode()))
    encrypted[encrypted.rindex(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(encrypted)
    with pytest.raises(CertificateError, match="it is encrypted"):
        certificates.read(path)
    path.write_bytes(b"PK" + bytes(100))
    with pytest.raises(CertificateError, match="cannot be read"):
        certificates.read(path)
    # A member without a name, which Python's own `is_dir` fails on.
    path.write_bytes(zipped(log.encode(), name="#").replace(b"#", b"\0"))
    assert len(certificates.read(path).rows) == 1
    # The files that macOS adds are not the log.
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("logs/noise_0.5", log)
        archive.writestr("__MACOSX/logs/._noise_0.5", b"?")
    assert len(certificates.read(path).rows) == 1


def test_a_damaged_archive_of_logs_is_listed_with_a_reason(tmp_path: Path) -> None:
    """The length of a record in its header is beyond all numbers of C."""
    header = tarfile.TarInfo("header")
    header.type = tarfile.XHDTYPE
    record = b"9" * 30 + b" path=a\n"
    header.size = len(record)
    packed = header.tobuf() + record.ljust(512, b"\0") + bytes(1024)
    (tmp_path / "logs.tar").write_bytes(packed)
    found = leaderboard_files.find(tmp_path, stated=Source(path="", n=1000))
    assert [each.place for each in found.unread] == ["logs.tar"]
    assert not found.runs


def test_a_long_value_is_shortened_in_its_error(tmp_path: Path) -> None:
    path = our_file(tmp_path / "c.tsv", [990])
    settings = path.with_suffix(".toml")
    changed, count = re.subn(
        'precision = ".*"', f'precision = "{"9" * 5000}"', settings.read_text()
    )
    assert count == 1
    settings.write_text(changed)
    with pytest.raises(CertificateError, match="precision must be one of") as caught:
        certificates.read(path)
    assert len(str(caught.value)) < 1000


def test_more_rows_than_any_data_set_needs_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificate_parse, "MOST_IMAGES", 3)
    assert len(certificates.read(cohen_log(tmp_path / "log", [0.5] * 3)).rows) == 3
    with pytest.raises(CertificateError, match="more than 3 rows"):
        certificates.read(cohen_log(tmp_path / "log", [0.5] * 4))


VOTES = ("1:" + "9" * 400, "1:" + "9" * 5000, "9999999999:1", f"0:{2**53},1:1", "1:1" + ",1" * 9999)


@pytest.mark.parametrize("votes", VOTES)
def test_votes_beyond_counting_are_refused(tmp_path: Path, votes: str) -> None:
    path = our_file(tmp_path / "certificates.tsv", [1000])
    path.write_text(path.read_text().replace("1:1000", votes))
    with pytest.raises(CertificateError) as caught:
        certificates.read(path)
    assert len(str(caught.value)) < 400


# Settings


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("a = " + "[" * 5000, "tables or lists nested more than 16 deep"),
        ("a = " + "9" * 5000, "4300 digits"),
        ("a = 9223372036854775808", "a whole number beyond 64 bits"),
        ("a = [[{b = [1" + "0" * 30 + "]}]]", "a whole number beyond 64 bits"),
        (".".join("a" * 30) + " = 1", "more than 16 deep"),
        (".".join("a" * 40_000) + " = 1", "more than 65,536 bytes"),
        ("a = '" + "x" * 70_000 + "'", "more than 65,536 bytes"),
        ("\ufeffa = 1\ud800", "utf-8"),
    ],
)
def test_monstrous_toml_is_refused(tmp_path: Path, content: str, sentence: str) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(content.encode(errors="surrogatepass"))
    with pytest.raises(SmoothmixError, match=sentence) as caught:
        read_toml(path)
    assert len(str(caught.value)) < 500


def test_settings_that_would_fill_the_memory_later_are_refused(tmp_path: Path) -> None:
    path = our_file(tmp_path / "certificates.tsv", [1000])
    settings = path.with_suffix(".toml")
    whole = settings.read_text()
    for old, new, sentence in (
        ("images = 1", "images = 4000000000000000000", "images must be at most 2,000,000"),
        ("skip = 1", "skip = 4000000000000000000", "skip must be at most"),
        ("skip = 1", f'shard = "1/{"9" * 5000}"', "a shard is written number/count"),
        ("[versions]", "[versions]\ntorch = 2", "versions.torch: must be text in quotes, got 2"),
        ('mode = "exact"', f'mode = "{"x" * 5000}"', "mode: unknown guarantee"),
        ('mode = "exact"', f"{'m' * 5000} = 1", "unknown setting"),
    ):
        settings.write_text(whole.replace(old, new))
        with pytest.raises(CertificateError, match=sentence) as caught:
            certificates.read(path)
        assert len(str(caught.value)) < 1000
    settings.write_text(whole.replace("sigma = 0.5", "sigma = 1e300"))
    assert not certificates.verify(certificates.read(path)).ok
    config = tmp_path / "config.toml"
    config.write_text(
        'data = "mnist"\nnetwork = "lenet"\n[method]\nname = "gaussian"\nsigma = 1' + "0" * 400
    )
    with pytest.raises(SmoothmixError, match="beyond 64 bits"):
        RunConfig.load(config)


@pytest.mark.parametrize(
    "line",
    [
        '{"a": ' + "[" * 10**5 + "]" * 10**5 + "}",
        '{"loss": ' + "1" * 5000 + "}",
        '{"loss": 1' + "0" * 400 + "}",
        '{"epoch": 1.5}',
        '{"epoch": "1"}',
        '{"parts": [1]}',
        '{"parts": {"a": {}}}',
        '{"' + "x" * 10**5 + '": null}',
    ],
)
def test_metrics_and_sections_that_are_none_are_refused(tmp_path: Path, line: str) -> None:
    our_file(tmp_path / "certificates.tsv", [1000])
    (tmp_path / "metrics.jsonl").write_text(f"{line}\n")
    for read in (lambda: measure(tmp_path), lambda: read_section(tmp_path / "metrics.jsonl")):
        with pytest.raises(SmoothmixError) as caught:
            read()
        assert len(str(caught.value)) < 1000


def test_a_section_of_any_size_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    with (tmp_path / "study.json").open("wb") as file:
        file.truncate(2**40)  # a terabyte of nothing, which takes no room on the disk
    with pytest.raises(SmoothmixError, match="more than 67,108,864 bytes"):
        read_section(tmp_path / "study.json")


# Data


@pytest.mark.parametrize(
    "sides", [(2**32 - 1,) * 4, (0, 2**32 - 1, 2**32 - 1, 2**32 - 1), (2**31, 2**31, 4, 1)]
)
def test_idx_headers_that_announce_the_impossible_are_refused(sides: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match="its header announces"):
        parse_idx(bytes([0, 0, 8, len(sides)]) + struct.pack(f">{len(sides)}I", *sides), "made")


def npz(path: Path, content: bytes, compression: int = zipfile.ZIP_DEFLATED) -> str:
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("x.npy", content)
    return f"npz:{path}"


def npy(shape: tuple[int, ...], content: bytes = b"", kind: str = "|u1") -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"descr": kind, "fortran_order": False, "shape": shape}
    )
    return buffer.getvalue() + content


def test_hostile_arrays_are_refused_before_memory_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "my.npz"
    monkeypatch.setattr(npz_module, "ALWAYS_ALLOWED_BYTES", 10**6)
    lzma_damaged = bytearray(
        Path(npz(path, bytes(range(256)) * 9, zipfile.ZIP_LZMA)[4:]).read_bytes()
    )
    lzma_damaged[60:80] = b"\xff" * 20
    for content, sentence in (
        (npy((20_000_000,), bytes(20_000_000)), "would unpack to 20,000,128 bytes"),
        (npy((2**60,)), "x declares 1,152,921,504,606,846,976 bytes"),
        (npy((2**40, 2**40)), "x declares"),
        (npy((9,), kind="|V1000000000"), "x declares 9,000,000,000 bytes"),
        (b"\x93NUMPY\x01\x00\x09\x00" + b"(" * 9, "not a readable|truncated or damaged"),
        (b"\x93NUMPY\x01\x00\x02\x00''", "not a readable|truncated or damaged"),
    ):
        with pytest.raises(DataError, match=sentence):
            load(npz(path, content))
    path.write_bytes(lzma_damaged)
    with pytest.raises(DataError, match="truncated or damaged"):
        load(f"npz:{path}")


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_archives_of_nothing_but_headers_end_in_a_remark(tmp_path: Path, kind: bytes) -> None:
    header = tarfile.TarInfo("a")
    header.type = kind
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(header.tobuf(tarfile.GNU_FORMAT) * 5000))
    batches = read_batches(tmp_path, {"test_batch": ""})
    assert batches.missing == ["test_batch"]


def test_long_and_large_images_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "val" / "n01440764").mkdir(parents=True)
    path = tmp_path / "val" / "n01440764" / "a.png"
    Image.new("L", (1, 200_000)).save(path)
    with pytest.raises(
        DataError, match="an image of 1x200000 pixels is too long to be scaled"
    ) as caught:
        load("imagenet", data_dir=tmp_path).images([0])
    assert str(caught.value).startswith(str(path))
    monkeypatch.setattr(image_files, "MAX_PIXELS", 1000)
    with pytest.raises(DataError, match="1x200000 pixels: resize or remove it"):
        image_files.open_image(path)


@pytest.mark.parametrize("name", ["a.png", "a.webp", "a.tif"])
def test_an_image_file_of_any_size_is_refused_unread(tmp_path: Path, name: str) -> None:
    """Some decoders read a whole file at once, and so does the fingerprint of a data set."""
    (tmp_path / "cat").mkdir()
    path = tmp_path / "cat" / name
    Image.new("L", (4, 4)).save(path)
    # Of a terabyte, next to nothing is on the disk.
    os.truncate(path, 2**40)
    with pytest.raises(DataError, match=rf"{name}: 1,099,511,627,776 bytes, more than any image"):
        load(f"folder:{tmp_path}")


def test_a_list_of_images_of_any_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("a.png\n")
    os.truncate(path, 2**40)
    with pytest.raises(SmoothmixError, match=r"list\.txt: holds more than 67,108,864 bytes"):
        photos.find_images([str(path)])


@pytest.mark.skipif(os.name != "posix", reason="only there are such names and pipes")
def test_pipes_and_names_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    os.mkfifo(tmp_path / "cat" / "a.png")
    with pytest.raises(DataError, match=r"a\.png: not a readable image \(not a file\)"):
        load(f"folder:{tmp_path}")
    for name in (b"\xff\xfe", b"a\x1b[2Jb", b"a\nb"):
        folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
        folder.mkdir()
        with pytest.raises(DataError, match="has a name that is not plain text"):
            load(f"folder:{tmp_path}")
        folder.rmdir()


def test_downloads_have_known_hashes_and_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = [
        source
        for source in map(DATASETS.__getitem__, DATASETS)
        if isinstance(source, DownloadableSource)
    ]
    known = [
        f.sha256
        for s in fetched
        if isinstance(s, IdxSource)
        for pair in s.files.values()
        for f in pair
    ]
    known += [source.archive_sha256 for source in fetched if isinstance(source, CifarSource)]
    assert len(known) == len(set(known)) == 4 * (len(fetched) - 1) + 1
    assert all(len(bytes.fromhex(digest)) == 32 for digest in known)

    class Endless:
        headers: dict[str, str] = {}  # noqa: RUF012

        def raise_for_status(self) -> None:
            pass

        def iter_content(self, chunk_size: int) -> object:
            while True:
                yield bytes(chunk_size)

    monkeypatch.setattr("requests.get", lambda url, **_: Endless())
    monkeypatch.setattr(download, "MAX_BYTES", 10**6)
    with (
        download.web(progress=False) as downloader,
        pytest.raises(DataError, match="sends more than 1,000,000 bytes"),
    ):
        download.download(
            tmp_path / "f.gz", ["https://one.example/"], lambda path: None, downloader
        )
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_still_said_to_be_missing(tmp_path: Path) -> None:
    for name in ("log.tsv", "log.tsv.gz", "log.tsv.xz"):
        with pytest.raises(UsageError, match="there is no such certificate file"):
            certificates.read(tmp_path / name)

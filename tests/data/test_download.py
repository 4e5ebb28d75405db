"""Downloads: mirrors in turn, nothing unverified is kept. A stub stands for the network."""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import tarfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pooch
import pytest

from smoothmix.data import DATASETS, fetch
from smoothmix.data.cifar import CIFAR10
from smoothmix.data.download import CHUNK, download, refuse_plain_http, web
from smoothmix.data.idx import MNIST, IdxFile
from smoothmix.data.source import DataRequest, DownloadableSource
from smoothmix.errors import DataError, UsageError

MIRRORS = ("https://one.example/mnist/", "https://two.example/", "https://three.example/")


class Network:
    """Called as pooch calls a downloader; `answers` has the bytes or the error for each address."""

    def __init__(self, answers):
        self.answers = answers
        self.asked = []

    def __call__(self, url, output_file, pooch):
        self.asked.append(url)
        answer = self.answers.get(url, OSError("404 Client Error: Not Found"))
        if isinstance(answer, BaseException):
            Path(output_file).write_bytes(b"half a fi")
            raise answer
        Path(output_file).write_bytes(answer)


def refuse_wrong(path):
    if path.read_bytes() != b"right":
        raise DataError(f"{path}: altered")


def test_a_file_may_be_as_large_as_is_allowed(tmp_path, monkeypatch):
    class Whole:
        headers = {"content-length": str(CHUNK)}  # noqa: RUF012

        def raise_for_status(self):
            pass

        def iter_content(self, chunk_size):
            yield bytes(chunk_size)

    monkeypatch.setattr("requests.get", lambda url, **_: Whole())
    monkeypatch.setattr("smoothmix.data.download.MAX_BYTES", CHUNK)
    with web(progress=True) as downloader:
        download(tmp_path / "f", ["https://one.example/"], lambda path: None, downloader)
    assert (tmp_path / "f").stat().st_size == CHUNK


def test_first_mirror_fails_second_is_wrong_third_is_kept(tmp_path):
    target = tmp_path / "new" / "file.gz"
    network = Network({f"{MIRRORS[1]}file.gz": b"wrong", f"{MIRRORS[2]}file.gz": b"right"})
    assert download(target, MIRRORS, refuse_wrong, network) == target
    assert target.read_bytes() == b"right"
    assert network.asked == [f"{mirror}file.gz" for mirror in MIRRORS]
    assert [path.name for path in target.parent.iterdir()] == ["file.gz"]


def test_all_failing_is_one_sentence_with_each_reason_and_a_way_out(tmp_path):
    target = tmp_path / "file.gz"
    target.write_bytes(b"what was there")
    cause = (
        "HTTPSConnectionPool(host='one'): Max retries\n "
        "(Caused by NameResolutionError('no such host')"
    )
    network = Network({f"{MIRRORS[0]}file.gz": OSError(cause), f"{MIRRORS[1]}file.gz": b"wrong"})
    with pytest.raises(DataError) as error:
        download(target, MIRRORS, refuse_wrong, network)
    assert str(error.value) == (
        "file.gz could not be downloaded "
        "(one.example: its address cannot be found: is this machine online?; "
        "two.example: refused, file.gz: altered; three.example: 404 Client Error: Not Found): "
        "try again later, or copy it from a machine "
        f"that has it into {tmp_path}"
    )
    assert target.read_bytes() == b"what was there"
    assert [path.name for path in tmp_path.iterdir()] == ["file.gz"]


def test_long_reasons_are_cut_and_empty_ones_get_a_name(tmp_path):
    network = Network({f"{MIRRORS[0]}f": OSError("x" * 500), f"{MIRRORS[1]}f": TimeoutError()})
    with pytest.raises(
        DataError, match=r"one\.example: x{160}…; two\.example: TimeoutError; three"
    ):
        download(tmp_path / "f", MIRRORS, refuse_wrong, network)


def test_interruption_leaves_no_part_behind(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        download(
            tmp_path / "f", MIRRORS, refuse_wrong, Network({f"{MIRRORS[0]}f": KeyboardInterrupt()})
        )
    assert list(tmp_path.iterdir()) == []


def test_plain_http_is_never_asked(tmp_path):
    network = Network({"http://one.example/f": b"right"})
    with pytest.raises(DataError, match=r"http://one.example/f is not an https address"):
        download(tmp_path / "f", ["http://one.example/"], refuse_wrong, network)
    assert network.asked == []


@pytest.mark.parametrize(
    ("location", "followed"),
    [
        ("https://two.example/f", True),
        ("/other/f", True),
        ("http://two.example/f", False),
        ("ftp://x/f", False),
    ],
)
def test_redirections_are_followed_only_to_https(location, followed):
    response = SimpleNamespace(
        is_redirect=True, url="https://one.example/f", headers={"location": location}
    )
    if followed:
        refuse_plain_http(response, timeout=30)
    else:
        with pytest.raises(ValueError, match="is not an https address"):
            refuse_plain_http(response, timeout=30)


def test_a_data_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"cannot be made .* choose another --data-dir"):
        download(tmp_path / "file" / "mnist" / "f", MIRRORS, refuse_wrong, Network({}))


def test_every_mirror_is_https():
    mirrors = [
        mirror
        for source in map(DATASETS.__getitem__, DATASETS)
        if isinstance(source, DownloadableSource)
        for mirror in source.mirrors
    ]
    assert len(mirrors) >= 6
    assert all(mirror.startswith("https://") and mirror.endswith("/") for mirror in mirrors)


# the data sets


def idx(array):
    return (
        bytes([0, 0, 8, array.ndim])
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.tobytes()
    )


def tiny_mnist():
    arrays = {
        "train-images": np.ones((3, 2, 2), np.uint8),
        "train-labels": np.arange(3, dtype=np.uint8),
    }
    content = {stem: idx(array) for stem, array in arrays.items()}
    files = [
        IdxFile(stem, arrays[stem].shape, hashlib.sha256(content[stem]).hexdigest())
        for stem in arrays
    ]
    source = replace(MNIST, files={"train": tuple(files)}, mirrors=MIRRORS)
    web = {f"{MIRRORS[1]}{file.names[0]}": gzip.compress(content[file.stem]) for file in files}
    return source, web


def test_mnist_is_fetched_verified_by_content_and_then_loads(tmp_path):
    source, answers = tiny_mnist()
    network, request = Network(answers), DataRequest(name="mnist", split="train", data_dir=tmp_path)
    names = ["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"]
    assert source.fetch(request, network) == [tmp_path / "mnist" / name for name in names]
    assert len(source.load(request)) == 3
    assert len(network.asked) == 4
    source.fetch(request, network)
    assert len(network.asked) == 4, "what is there and intact is not downloaded again"


def test_damaged_mnist_is_fetched_again_and_no_longer_in_the_way(tmp_path):
    source, answers = tiny_mnist()
    network, request = Network(answers), DataRequest(name="mnist", split="train", data_dir=tmp_path)
    for place in ("mnist/train-images-idx3-ubyte", "MNIST/raw/train-labels.idx1-ubyte"):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_bytes(b"damaged")
    source.fetch(request, network)
    assert len(source.load(request)) == 3


def test_mnist_of_a_wrong_mirror_is_refused(tmp_path):
    source, answers = tiny_mnist()
    answers = {
        url: gzip.compress(gzip.decompress(body)[:-1] + b"\x09") for url, body in answers.items()
    }
    with pytest.raises(
        DataError,
        match=r"two\.example: refused, train-images-idx3-ubyte\.gz: altered, or of another",
    ):
        source.fetch(DataRequest(name="mnist", data_dir=tmp_path), Network(answers))
    assert list((tmp_path / "mnist").iterdir()) == []


def test_cifar10_archive_is_verified_whole(tmp_path):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz"):
        pass
    good = buffer.getvalue()
    source = replace(CIFAR10, mirrors=MIRRORS, archive_sha256=hashlib.sha256(good).hexdigest())
    answers = {
        f"{MIRRORS[0]}cifar-10-python.tar.gz": good[:-1],
        f"{MIRRORS[1]}cifar-10-python.tar.gz": good,
    }
    network, request = Network(answers), DataRequest(name="cifar10", data_dir=tmp_path)
    assert source.fetch(request, network) == [tmp_path / "cifar10" / "cifar-10-python.tar.gz"]
    assert len(network.asked) == 2
    with pytest.raises(
        DataError, match=r"one\.example: refused, cifar-10-python\.tar\.gz has sha256"
    ):
        source.fetch(
            DataRequest(name="cifar10", data_dir=tmp_path / "other"),
            Network(dict(list(answers.items())[:1])),
        )


def test_what_cannot_be_fetched_says_where_it_comes_from(tmp_path):
    assert fetch("sample", data_dir=tmp_path) == []
    with pytest.raises(
        UsageError, match=r"imagenet cannot be downloaded \(.*account at https://image-net\.org\)"
    ):
        fetch("imagenet", data_dir=tmp_path)
    with pytest.raises(UsageError, match=r"npz:my\.npz cannot be downloaded \(your own"):
        fetch("npz:my.npz", data_dir=tmp_path)


class FakeResponse:
    def __init__(self):
        self.headers = {"content-length": "600000"}

    def raise_for_status(self):
        pass

    def iter_content(self, chunk_size):
        for start in range(0, 600_000, chunk_size):
            yield bytes(min(chunk_size, 600_000 - start))


@pytest.mark.parametrize("terminal", [False, True])
def test_pooch_is_driven_with_our_hook_and_bar(tmp_path, monkeypatch, capsys, terminal):
    calls = []
    monkeypatch.setattr(
        "requests.get", lambda url, **options: calls.append((url, options)) or FakeResponse()
    )
    for name, value in (("TERM", "xterm"), ("TTY_COMPATIBLE", "1"), ("FORCE_COLOR", "1")):
        monkeypatch.setenv(name, value) if terminal else monkeypatch.delenv(name, raising=False)
    with web(progress=True) as downloader:
        downloader("https://one.example/file.gz", str(tmp_path / "file.gz"), None)
    assert (tmp_path / "file.gz").stat().st_size == 600_000
    assert calls[0][0] == "https://one.example/file.gz"
    assert calls[0][1]["hooks"] == {"response": refuse_plain_http}
    shown = capsys.readouterr()
    assert ("file.gz" in shown.err and "100%" in shown.err) == terminal
    assert shown.out == ""


def test_fetch_goes_through_pooch(tmp_path, monkeypatch):
    def offline(self, url, output_file, pooch, check_only=False):
        raise OSError("no route to host")

    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", offline)
    with pytest.raises(DataError, match=r"googleapis\.com: no route to host\): try again later"):
        fetch("mnist", data_dir=tmp_path)

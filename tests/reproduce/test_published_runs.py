"""A run compared with published seeds on the same images."""

from __future__ import annotations

import lzma
from pathlib import Path

import numpy as np
import pytest

from smoothmix.analysis import measure
from smoothmix.errors import CertificateError, SmoothmixError, UsageError
from smoothmix.reproduce import published_runs
from smoothmix.reproduce.published_runs import (
    compare_with_published,
    load_published,
    save_published,
)
from tests.helpers.certificates import cohen_log, our_file

OURS = [990, 900, 800, 400]
"""Votes of four images; the last is wrong."""
LOGS = ([1.0, 0.611, 0.3, 0.0], [1.04, 0.6, 0.3, 0.2], [0.98, 0.63, 0.31, 0.1])


@pytest.fixture
def published(tmp_path: Path) -> Path:
    logs = [measure(cohen_log(tmp_path / f"log{i}", radii)) for i, radii in enumerate(LOGS)]
    save_published(tmp_path / "published.tsv.xz", {"mnist/0.50/gaussian": logs}, skip=1)
    return tmp_path / "published.tsv.xz"


def test_its_numbers_are_what_the_definitions_say(tmp_path: Path, published: Path) -> None:
    ours = measure(our_file(tmp_path / "run" / "certificates.tsv", OURS))
    found = compare_with_published(
        ours, load_published(published)["mnist/0.50/gaussian"], at=(0.0, 0.25, 1.0)
    )
    rounded = np.array([float(f"{r:.3}") for r in ours.printed]) * ours.correct
    acrs = [np.mean(radii) for radii in LOGS]
    assert found.acr == pytest.approx(rounded.mean())
    assert found.published == pytest.approx(np.mean(acrs))
    assert found.std == pytest.approx(np.std(acrs, ddof=1))
    assert found.seeds == 3
    assert found.difference.value == pytest.approx(found.acr - found.published)
    differences = rounded - np.mean(LOGS, axis=0)
    assert (
        differences.min() <= found.difference.low <= found.difference.value <= found.difference.high
    )
    assert found.margin == pytest.approx(
        3 * found.std + (found.difference.high - found.difference.low) / 2
    )
    assert found.within == (abs(found.difference.value) <= found.margin)
    assert found.stds == pytest.approx(
        found.difference.value / (np.std(acrs, ddof=1) * np.sqrt(4 / 3))
    )
    # The first log abstains on its last image; one of three seeds is below 1.0 on the first.
    assert found.accuracy[0.0] == (0.75, pytest.approx((0.75 + 1 + 1) / 3))
    assert found.accuracy[1.0][1] == pytest.approx(2 / 3 / 4)


def test_only_the_images_that_were_certified_count(tmp_path: Path, published: Path) -> None:
    ours = measure(our_file(tmp_path / "run" / "certificates.tsv", OURS[:2]))
    found = compare_with_published(ours, load_published(published)["mnist/0.50/gaussian"])
    assert found.published == pytest.approx(np.mean([radii[:2] for radii in LOGS]))


def test_a_run_far_off_is_outside(tmp_path: Path) -> None:
    logs = [measure(cohen_log(tmp_path / f"log{i}", 10 * radii)) for i, radii in enumerate(LOGS)]
    far, near = (
        measure(our_file(tmp_path / name / "certificates.tsv", 10 * votes))
        for name, votes in (("far", [600, 600, 600, 600]), ("near", OURS))
    )
    save_published(tmp_path / "published.tsv.xz", {"row": logs}, skip=1)
    published = load_published(tmp_path / "published.tsv.xz")["row"]
    assert [compare_with_published(ours, published).within for ours in (far, near)] == [False, True]


def test_every_skipth_image_is_kept(tmp_path: Path) -> None:
    log = measure(cohen_log(tmp_path / "log", [0.1, 0.2, 0.3, 0.4, 0.5]))
    save_published(tmp_path / "p.tsv.xz", {"row": [log]}, skip=2)
    (run,) = load_published(tmp_path / "p.tsv.xz")["row"]
    assert run.idx.tolist() == [0, 2, 4]
    assert run.counted.tolist() == [0.1, 0.3, 0.5]


def test_images_that_no_log_holds_are_refused(tmp_path: Path, published: Path) -> None:
    ours = measure(our_file(tmp_path / "run" / "certificates.tsv", [*OURS, 900]))
    with pytest.raises(UsageError, match="do not hold these images"):
        compare_with_published(ours, load_published(published)["mnist/0.50/gaussian"])


def test_one_seed_has_no_deviation(tmp_path: Path, published: Path) -> None:
    ours = measure(our_file(tmp_path / "run" / "certificates.tsv", OURS))
    with pytest.raises(UsageError, match="at least two published seeds"):
        compare_with_published(ours, load_published(published)["mnist/0.50/gaussian"][:1])


@pytest.mark.parametrize(
    "text", ["", "row\tseed\n", "row\tseed\tidx\tlabel\tpredict\tradius\na\tb\tc\td\te\tf\n"]
)
def test_a_damaged_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.tsv.xz"
    path.write_bytes(lzma.compress(text.encode()))
    with pytest.raises(CertificateError, match=r"p\.tsv\.xz"):
        load_published(path)
    path.write_bytes(b"not packed")
    with pytest.raises(CertificateError, match="cannot be read"):
        load_published(path)


def test_a_file_that_is_too_long_is_refused_and_not_cut(
    published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked = lzma.decompress(published.read_bytes())
    monkeypatch.setattr(published_runs, "LARGEST_FILE", len(unpacked))
    assert load_published(published)
    monkeypatch.setattr(published_runs, "LARGEST_FILE", len(unpacked) - 1)
    with pytest.raises(SmoothmixError, match=r"published\.tsv\.xz: holds more than"):
        load_published(published)

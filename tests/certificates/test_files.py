"""Rows and files: written, read, checked, merged, recomputed and exported; logs of others too."""

from __future__ import annotations

import bz2
import contextlib
import csv
import gzip
import lzma
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothmix import certificates
from smoothmix.certificates import Certificates, Certification, FileSettings, from_votes
from smoothmix.certificates.row import (
    certificates_of,
    from_cells,
    round_down,
    seconds_from,
    to_line,
    votes_from,
    votes_of,
)
from smoothmix.errors import CertificateError, SmoothmixError, UsageError
from smoothmix.noise import GAUSSIAN
from smoothmix.stats.binomial import lower_bound
from smoothmix.stats.guarantees import FixedDraws
from tests.helpers.certificates import zipped

HOW = Certification(sigma=0.5, guarantee=FixedDraws(n0=10, n=1000, alpha=0.001))
SETTINGS = FileSettings(
    certification=HOW,
    model="lenet",
    model_hash="a" * 64,
    data="sample",
    split="test",
    data_hash="b" * 16,
    num_classes=10,
    skip=2,
    images=4,
    engine="torch-cpu",
    noise_scheme="test",
)
ROWS = tuple(
    from_votes(idx, 3, {3: 9, 5: 1}, votes, certification=HOW, seconds=1.5)
    for idx, votes in zip(
        range(0, 8, 2), ({3: 1000}, {3: 990, 5: 10}, {3: 510, 7: 490}, {5: 1000}), strict=True
    )
)
FIELD_LOG = (
    "idx\tlabel\tpredict\tradius\tcorrect\ttime\n"
    "0\t7\t7\t1.52\t1\t0:00:03.5\n"
    "20\t9\t-1\t0.0\t0\t0:00:03.1\n"
)


def whole_file(
    folder: Path,
    rows: tuple[certificates.Certificate, ...] = ROWS,
    name: str = "c.tsv",
    shard: str = "",
) -> Path:
    certificates.save(
        Certificates(folder / name, rows, replace(SETTINGS, shard=shard)), folder / name
    )
    return folder / name


def test_a_certificate_is_what_the_statistics_say_of_its_votes() -> None:
    sure, likely, torn, wrong = ROWS
    bound = float(lower_bound(990, 1000, alpha=0.001))
    assert (likely.predict, likely.correct, likely.n) == (3, True, 1000)
    assert likely.p_lower == round_down(bound)
    assert likely.radius == round_down(float(GAUSSIAN.radius(bound, sigma=0.5)))
    assert sure.radius > likely.radius
    assert (torn.predict, torn.radius, torn.correct) == (-1, 0.0, False)
    assert (wrong.predict, wrong.p_lower, wrong.correct) == (-1, 0.0, False)


def test_an_image_that_was_skipped_as_wrong_keeps_its_prediction() -> None:
    row = from_votes(0, 5, {3: 10}, {}, certification=HOW)
    assert (row.predict, row.radius, row.n, row.correct, row.counts) == (3, 0.0, 0, False, {})


@given(st.floats(0, 10))
def test_rounding_never_goes_up(value: float) -> None:
    cut = round_down(value)
    assert Fraction(f"{cut:.6f}") <= Fraction(value) < Fraction(f"{cut:.6f}") + Fraction(1, 10**6)


@given(st.dictionaries(st.integers(0, 999), st.integers(1, 10**6), min_size=1), st.data())
def test_lines_are_read_back_as_they_were(votes: dict[int, int], data: st.DataObject) -> None:
    label = data.draw(st.sampled_from(sorted(votes)))
    guarantee = FixedDraws(sum(votes.values()), alpha=0.01)
    certification = Certification(sigma=0.25, guarantee=guarantee)
    row = from_votes(4, label, votes, votes, certification=certification, seconds=0.25)
    line = to_line(row).removesuffix("\n").split("\t")
    assert from_cells(dict(zip(certificates.COLUMNS, line, strict=True))) == row


def test_a_plain_csv_reader_reads_the_file(tmp_path: Path) -> None:
    with whole_file(tmp_path).open(newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    assert [int(row["idx"]) for row in rows] == [0, 2, 4, 6]
    assert list(rows[0])[:6] == ["idx", "label", "predict", "radius", "correct", "time"]
    assert rows[1]["counts"] == "3:990,5:10"


def test_files_are_read_back_as_they_were(tmp_path: Path) -> None:
    file = certificates.read(whole_file(tmp_path))
    assert (file.rows, file.settings, file.notes, file.missing) == (ROWS, SETTINGS, (), [])
    assert file.correct.tolist() == [True, True, False, False]


def test_a_right_file_passes_and_every_tampering_is_found(tmp_path: Path) -> None:
    path = whole_file(tmp_path)
    assert certificates.verify(certificates.read(path)).ok
    text = path.read_text()
    tampered = {
        "says radius": text.replace(f"{ROWS[1].radius:.6f}", "1.234567"),
        "says p_lower": text.replace(f"{ROWS[1].p_lower:.6f}", "0.999999"),
        "votes, where it says n=1000": text.replace("3:990,5:10", "3:991,5:10"),
        "says predict": text.replace("4\t3\t-1\t0.000000\t0", "4\t3\t3\t0.000000\t1"),
        "selection votes, not n0=10": text.replace("3:9,5:1\n2\t", "3:9\n2\t"),
        "says selected": text.replace("\t3\t3:9,5:1\n2\t", "\t5\t3:9,5:1\n2\t"),
        "class of 10 or more": text.replace("3:990,5:10", "3:990,15:10"),
        "none of the 4 images": text.replace("\n6\t", "\n7\t"),
        "comes after": text.replace("\n4\t", "\n8\t")
        .replace("\n6\t", "\n4\t")
        .replace("\n8\t", "\n6\t"),
    }
    for problem, changed in tampered.items():
        assert changed != text, problem
        path.write_text(changed)
        found = certificates.verify(certificates.read(path))
        assert any(problem in line for line in found.problems), (problem, found.problems)


def test_an_unfinished_file_is_right_but_says_what_is_missing(tmp_path: Path) -> None:
    found = certificates.verify(certificates.read(whole_file(tmp_path, ROWS[:2])))
    assert (found.ok, found.missing) == (True, (4, 6))


def test_shards_merge_to_the_whole_and_gaps_and_doubles_are_found(tmp_path: Path) -> None:
    whole = whole_file(tmp_path)
    odd = certificates.read(whole_file(tmp_path, ROWS[1::2], "odd.tsv", shard="2/2"))
    even = certificates.read(whole_file(tmp_path, ROWS[0::2], "even.tsv", shard="1/2"))
    assert certificates.verify(odd).ok
    assert not odd.missing
    merged = certificates.merge([odd, even])
    certificates.save(merged, tmp_path / "merged.tsv")
    assert (tmp_path / "merged.tsv").read_bytes() == whole.read_bytes()
    with pytest.raises(CertificateError, match=r"lack 2 images \(0, 4\) of 4"):
        certificates.merge([odd])
    assert certificates.merge([odd], allow_gaps=True).rows == ROWS[1::2]
    with pytest.raises(CertificateError, match=r"image 2 is in .*odd.tsv and in .*c.tsv"):
        certificates.merge([odd, certificates.read(whole)])
    twice = replace(HOW, sigma=1.0)
    rows = certificates_of([votes_of(row) for row in even.rows], twice)
    other = replace(
        even, rows=tuple(rows), settings=replace(even.settings or SETTINGS, certification=twice)
    )
    with pytest.raises(
        CertificateError, match=r"do not belong together: sigma is 0.5 there and 1.0 here"
    ):
        certificates.merge([odd, other])


def test_recomputing_at_another_alpha_is_what_certifying_at_it_would_have_given(
    tmp_path: Path,
) -> None:
    again = certificates.recompute(certificates.read(whole_file(tmp_path)), alpha=0.01)
    assert again.settings is not None
    assert again.settings.guarantee.alpha == 0.01
    assert again.rows[1].radius > ROWS[1].radius
    assert certificates.verify(again).ok
    at_that_alpha = replace(HOW, guarantee=replace(HOW.guarantee, alpha=0.01))
    assert again.rows[1] == from_votes(
        2, 3, {3: 9, 5: 1}, {3: 990, 5: 10}, certification=at_that_alpha, seconds=1.5
    )
    with pytest.raises(UsageError, match="alpha"):
        certificates.recompute(again, alpha=2)


def test_the_export_has_the_fields_six_columns_and_claims_no_more(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(certificates.export_cohen_log(certificates.read(whole_file(tmp_path))))
    rows = certificates.read(log).rows
    assert log.read_text().splitlines()[0].split("\t") == list(certificates.COHEN_COLUMNS)
    assert [(r.idx, r.predict, r.radius, r.correct) for r in rows] == [
        (r.idx, r.predict, r.radius, r.correct) for r in ROWS
    ]


def test_logs_of_the_field_are_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(FIELD_LOG)
    first, second = certificates.read(path).rows
    assert (first.idx, first.predict, first.radius, first.correct, first.seconds) == (
        0,
        7,
        1.52,
        True,
        3.5,
    )
    assert (second.predict, second.correct, second.has_votes) == (-1, False, False)
    found = certificates.verify(certificates.read(path))
    assert (found.ok, found.rows, found.recomputed) == (True, 2, 0)


@pytest.mark.parametrize(
    "text",
    [
        FIELD_LOG.removesuffix("\n"),
        FIELD_LOG.replace("\n", "\r\n"),
        FIELD_LOG.replace("0:00:03.5", "3.5"),
        FIELD_LOG.replace("time\n", "time\textra\n")
        .replace("03.5\n", "03.5\tx\n")
        .replace("03.1\n", "03.1\ty\n"),
    ],
    ids=["no last newline", "CRLF", "time in seconds", "more columns"],
)
def test_logs_with_quirks_are_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "log").write_text(text, newline="")
    rows = certificates.read(tmp_path / "log").rows
    assert [(row.idx, row.radius) for row in rows] == [(0, 1.52), (20, 0.0)]
    assert rows[0].seconds == 3.5


def test_compressed_logs_are_read(tmp_path: Path) -> None:
    content = FIELD_LOG.encode()
    (tmp_path / "log").write_bytes(content)
    plain = certificates.read(tmp_path / "log").rows
    packed = {
        "gz": gzip.compress(content),
        "xz": lzma.compress(content),
        "bz2": bz2.compress(content),
        "zip": zipped(content),
    }
    for ending, data in packed.items():
        (tmp_path / f"log.{ending}").write_bytes(data)
        assert certificates.read(tmp_path / f"log.{ending}").rows == plain
        (tmp_path / ending).mkdir()
        (tmp_path / ending / f"certificates.tsv.{ending}").write_bytes(data)
        assert certificates.read(tmp_path / ending).rows == plain


WITHOUT_TIME = "idx\tlabel\tpredict\tradius\tcorrect\n0\t7\t7\t1.52\t1\n20\t9\t-1\t0.0\t0\n"


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + FIELD_LOG,
        "\n \n" + FIELD_LOG.replace("\n", "\n\n\t\n") + "\n\n",
        WITHOUT_TIME,
        FIELD_LOG.replace("idx\t", " idx \t"),
    ],
    ids=["a mark of the encoding", "blank lines", "no time", "spaces in the header"],
)
def test_logs_that_passed_through_other_tools_are_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "log").write_text(text)
    file = certificates.read(tmp_path / "log")
    assert [(row.idx, row.predict, row.radius) for row in file.rows] == [
        (0, 7, 1.52),
        (20, -1, 0.0),
    ]
    assert file.notes == ()


@pytest.mark.parametrize(
    ("separator", "name"),
    [(",", "commas"), (";", "semicolons"), ("  ", "spaces"), ("|", "vertical bars")],
)
def test_other_separators_are_found_and_said(tmp_path: Path, separator: str, name: str) -> None:
    # A duration of more than a day holds a comma and spaces.
    text = FIELD_LOG.replace("0:00:03.5", "1 day, 0:00:03.5").replace("\t", separator)
    (tmp_path / "log").write_text(text)
    file = certificates.read(tmp_path / "log")
    assert [(row.idx, row.radius) for row in file.rows] == [(0, 1.52), (20, 0.0)]
    assert file.notes == (f"its columns are separated by {name}, not by tabs",)
    assert file.rows[0].seconds == 86_403.5


def test_blank_lines_do_not_shift_the_numbers_of_lines(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("\n" + FIELD_LOG + "\n30\t1\t1\tx\t1\t1\n")
    with pytest.raises(CertificateError, match="line 6: radius must be a number"):
        certificates.read(tmp_path / "log")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "log: is empty; certification writes the first line together with the first image"),
        ("\n\n", "log: is empty"),
        (FIELD_LOG + FIELD_LOG, "line 4: a second header; two logs seem to be in one file"),
        (FIELD_LOG + WITHOUT_TIME, "line 4: a second header"),
        (
            FIELD_LOG.replace("label", "radius", 1).replace("time", "label", 1),
            "line 1: the column radius is there 2 times; remove all but the right one",
        ),
        ("hello\n", r"no column idx, label, .*the first line must name the columns idx, label"),
        (",".join(certificates.COLUMNS) + "\n", "with votes must be separated by tabs"),
    ],
)
def test_files_that_cannot_be_read_get_a_sentence_that_helps(
    tmp_path: Path, text: str, sentence: str
) -> None:
    (tmp_path / "log").write_text(text)
    with pytest.raises(CertificateError, match=sentence):
        certificates.read(tmp_path / "log")


def test_a_folder_without_certificates_gets_a_sentence_that_helps(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such certificate file; the folder is empty"):
        certificates.read(tmp_path)
    (tmp_path / "cohen").mkdir()
    with pytest.raises(UsageError, match="the folder holds 1 folder: name the runs or logs in"):
        certificates.read(tmp_path)
    (tmp_path / "noise_0.50").write_text(FIELD_LOG)
    with pytest.raises(UsageError, match=r"name a log in the folder itself.*: noise_0.50"):
        certificates.read(tmp_path)


def test_a_cut_last_line_is_left_out_and_said(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(FIELD_LOG + "40\t1\t1\t0.")
    file = certificates.read(tmp_path / "log")
    assert (len(file.rows), file.notes) == (2, ("line 4 is cut off and was left out",))


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ("20\t9\t-1\tnan\t0\t1\n", "line 4: radius must be a number of zero or more, got 'nan'"),
        ("20\t9\t-1\t-0.5\t0\t1\n", "line 4: radius"),
        (
            "20\t9\t-1\t1e26\t0\t1\n",
            "line 4: radius must be a number of zero or more and 1e.12 at most",
        ),
        ("20\t9\t-1\t0.5\t0\n", "line 4: 5 columns, where the header has 6"),
        ("0\t9\t-1\t0.5\t0\t1\n", "line 4: image 0 has a row already, in line 2"),
        ("x\t9\t-1\t0.5\t0\t1\n", "line 4: idx must be a whole number"),
        ("22\t9\t-2\t0.5\t0\t1\n", "line 4: predict must be"),
        ("22\t9\t9\t0.5\t2\t1\n", "line 4: correct must be 0 or 1"),
        ("22\t9\t9\t0.5\t0\t1\n", "line 4: correct is 0, but the label is 9"),
    ],
)
def test_broken_lines_are_refused_by_number(tmp_path: Path, bad: str, sentence: str) -> None:
    (tmp_path / "log").write_text(FIELD_LOG + bad)
    with pytest.raises(CertificateError, match=sentence):
        certificates.read(tmp_path / "log")


@pytest.mark.parametrize("content", [b"", b"hello", b"\xff\xfe\n", b"idx\tlabel\n0\t1\n"])
def test_what_is_no_certificate_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "c.tsv").write_bytes(content)
    with pytest.raises(CertificateError):
        certificates.read(tmp_path / "c.tsv")


@given(
    st.binary(max_size=300)
    | st.text(alphabet="0123456789\t\n\r:,.-idxcountsn", max_size=300).map(str.encode)
)
def test_only_our_own_errors_come_out_of_reading(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "c.tsv"
    for prefix in (b"", "\t".join(certificates.COLUMNS).encode() + b"\n"):
        path.write_bytes(prefix + content)
        with contextlib.suppress(SmoothmixError):
            certificates.read(path)


def test_settings_that_make_no_sense_are_refused_by_file_and_key(tmp_path: Path) -> None:
    path = whole_file(tmp_path)
    beside = certificates.settings_path(path)
    text = beside.read_text()
    for changed, sentence in (
        (text.replace("alpha = 0.001", "alpha = 7"), r"c.toml: certification: alpha must lie"),
        (
            text.replace("skip = 2", "skpi = 2"),
            r"c.toml: unknown setting 'skpi': did you mean 'skip'",
        ),
        (text.replace("format = 1", "format = 2"), r"c.toml: the format is 2"),
        (text.replace("images = 4", 'images = "4"'), r"c.toml: images: must be a whole number"),
        ("= nonsense", r"c.toml: cannot be read as TOML"),
    ):
        beside.write_text(changed)
        with pytest.raises(SmoothmixError, match=sentence):
            certificates.read(path)


def test_small_things() -> None:
    assert math.isnan(seconds_from("soon"))
    assert seconds_from("1 day, 0:00:01") == 86401
    assert seconds_from("2 days, 1:00:00") == 49 * 3600
    for text in ("3:1,3:2", "3", ":", "a:1", "1:-1", "1:1,"):
        with pytest.raises(ValueError, match="votes"):
            votes_from(text)


def test_our_file_without_its_settings_is_not_called_right(tmp_path: Path) -> None:
    path = whole_file(tmp_path)
    certificates.settings_path(path).unlink()
    assert "has no c.toml beside it" in certificates.verify(certificates.read(path)).problems[0]


@pytest.mark.parametrize("shard", ["0/2", "3/2", "a/b", "1", "1/0", "-1/2", "/"])
def test_shards_that_cannot_be_are_refused(shard: str) -> None:
    with pytest.raises(UsageError, match="a shard is written number/count"):
        replace(SETTINGS, shard=shard)


@pytest.mark.parametrize("name", ["c.toml", "c.tsv.gz", "c", "c.lock"])
def test_our_files_are_named_tsv(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"must be named something.tsv"):
        whole_file(tmp_path, name=name)


def test_names_with_dots_have_settings_of_their_own(tmp_path: Path) -> None:
    paths = [
        certificates.settings_path(tmp_path / name).name
        for name in ("m-0.25.tsv", "m-0.50.tsv.gz", "noise_0.5_1")
    ]
    assert paths == ["m-0.25.toml", "m-0.50.toml", "noise_0.5_1.toml"]

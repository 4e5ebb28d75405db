"""Digests: every single edit of a file is found, and named by a sentence."""

from __future__ import annotations

import hashlib
import json
import lzma
import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothmix.certificates import (
    Certificate,
    Certificates,
    Certification,
    FileSettings,
    from_votes,
    merge,
    read,
    recompute,
    save,
    settings_path,
    verify,
    writing,
)
from smoothmix.certificates.row import to_line
from smoothmix.certificates.settings import load_settings
from smoothmix.cli.verification import LIMITS
from smoothmix.errors import CertificateError, SmoothmixError, UsageError
from smoothmix.noise import GridNoise
from smoothmix.stats.guarantees import FixedDraws
from tests.conftest import Run
from tests.helpers.certificates import our_file

HOW = Certification(
    sigma=0.5, guarantee=FixedDraws(n0=10, n=1000, alpha=0.001), noise=GridNoise(), seed=7
)
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
    has_digests=True,
)
VOTES = ({3: 1000}, {3: 990, 5: 10}, {3: 510, 7: 490}, {5: 1000})
ROWS = tuple(
    from_votes(idx, 3, {3: 9, 5: 1}, votes, certification=HOW, seconds=1.5)
    for idx, votes in zip(range(0, 8, 2), VOTES, strict=True)
)
EDITED_ROW = "the row was edited after it was written: its digest does not fit"
EDITED_SETTINGS = "the settings in c.toml were edited after the rows were written"


def written(
    path: Path, rows: tuple[Certificate, ...] = ROWS, settings: FileSettings = SETTINGS
) -> Path:
    """A file that the writer has written row by row; unfinished if rows are left out."""
    with writing(path, settings) as writer:
        for row in rows:
            writer.append(row)
    return path


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines(keepends=True)


def edit_settings(path: Path, old: str, new: str) -> None:
    settings = settings_path(path)
    text = settings.read_text()
    assert old in text
    settings.write_text(text.replace(old, new))


def replace_row(path: Path, row: Certificate) -> None:
    """Put another row in the place of the image's row, which keeps its digest and its time."""
    file = read(path)
    position = [each.idx for each in file.rows].index(row.idx)
    lines = lines_of(path)
    kept = replace(row, digest=file.rows[position].digest)
    lines[position + 1] = to_line(kept, SETTINGS.columns)
    path.write_text("".join(lines))


def edit_vote(path: Path) -> None:
    """One vote more for the leading class, and all that follows from it."""
    more = {3: 991, 5: 9}
    replace_row(path, from_votes(2, 3, {3: 9, 5: 1}, more, certification=HOW, seconds=1.5))


def edit_label(path: Path) -> None:
    row = from_votes(2, 4, {3: 9, 5: 1}, VOTES[1], certification=HOW, seconds=1.5)
    replace_row(path, row)


def edit_radius(path: Path) -> None:
    """A radius with the claim in integers that belongs to it."""
    better = read(path).rows[0]
    replace_row(path, replace(read(path).rows[1], radius=better.radius, squared=better.squared))


def swap_votes(path: Path) -> None:
    """Two rows exchange everything but the number of their image, and digests too."""
    _, second, third, *_ = read(path).rows
    lines = lines_of(path)
    lines[2] = to_line(replace(third, idx=second.idx), SETTINGS.columns)
    lines[3] = to_line(replace(second, idx=third.idx), SETTINGS.columns)
    path.write_text("".join(lines))


def swap_rows(path: Path) -> None:
    lines = lines_of(path)
    lines[2], lines[3] = lines[3], lines[2]
    path.write_text("".join(lines))


def delete_row(path: Path) -> None:
    lines = lines_of(path)
    path.write_text("".join(lines[:2] + lines[3:]))


def cut_tail(path: Path) -> None:
    path.write_text("".join(lines_of(path)[:-2]))


EDITS: dict[str, tuple[Callable[[Path], None], str]] = {
    "one vote": (edit_vote, f"image 2: {EDITED_ROW}"),
    "one radius": (edit_radius, f"image 2: {EDITED_ROW}"),
    "one label": (edit_label, f"image 2: {EDITED_ROW}"),
    "sigma": (
        lambda path: edit_settings(path, "sigma = 0.5", "sigma = 0.49"),
        EDITED_SETTINGS,
    ),
    "seed": (lambda path: edit_settings(path, "seed = 7", "seed = 8"), EDITED_SETTINGS),
    "n": (lambda path: edit_settings(path, "n = 1000", "n = 1001"), EDITED_SETTINGS),
    "a deleted row": (
        delete_row,
        "was finished with 4 rows and has 3: image 2 removed or cut off",
    ),
    "a cut tail": (
        cut_tail,
        "was finished with 4 rows and has 2: 2 images (4, 6) removed or cut off",
    ),
    "swapped rows": (swap_rows, "image 2 comes after image 4"),
    "swapped votes": (swap_votes, f"image 4: {EDITED_ROW}"),
}


@pytest.mark.parametrize("name", EDITS)
def test_every_single_edit_of_a_finished_file_is_found_and_named(
    tmp_path: Path, smoothmix: Run, name: str
) -> None:
    path = written(tmp_path / "c.tsv")
    edit, sentence = EDITS[name]
    assert verify(read(path)).ok
    edit(path)
    problems = verify(read(path)).problems
    assert [problem for problem in problems if problem.startswith(sentence)], problems
    done = smoothmix("certificates", "verify", "c.tsv")
    assert done.code == 1
    assert f"c.tsv: {sentence}" in done.out


@pytest.mark.parametrize("name", EDITS)
def test_a_packed_file_is_checked_as_well(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / "c.tsv")
    edit, sentence = EDITS[name]
    packed = path.with_name("c.tsv.xz")
    packed.write_bytes(lzma.compress(path.read_bytes()))
    assert verify(read(packed)).ok
    edit(path)
    packed.write_bytes(lzma.compress(path.read_bytes()))
    assert [each for each in verify(read(packed)).problems if each.startswith(sentence)]


@pytest.mark.parametrize("name", ["one vote", "one label", "seed", "swapped votes"])
def test_an_edited_file_is_neither_continued_nor_merged_nor_recomputed(
    tmp_path: Path, name: str
) -> None:
    path = written(tmp_path / "c.tsv", ROWS[:3])
    edit, _ = EDITS[name]
    edit(path)
    before = path.read_bytes()
    settings = load_settings(path)
    assert settings is not None
    with pytest.raises(CertificateError, match="edited after"), writing(path, settings):
        pass
    assert path.read_bytes() == before
    file = read(path)
    for use in (
        lambda: merge([file], allow_gaps=True),
        lambda: recompute(file, alpha=0.01),
        lambda: save(file, tmp_path / "d.tsv"),
    ):
        with pytest.raises(CertificateError, match="edited after"):
            use()


def test_an_unfinished_file_says_so_and_a_gap_in_it_is_an_error(
    tmp_path: Path, smoothmix: Run
) -> None:
    path = written(tmp_path / "c.tsv", ROWS[:3])
    assert load_digests(path).keys() == {"settings"}
    found = verify(read(path))
    assert (found.ok, found.finished, found.missing) == (True, False, (6,))
    done = smoothmix("certificates", "verify", "c.tsv")
    assert done.code == 0
    assert "not finished, image 6 still missing" in done.out
    assert "not checked: rows cut off at the end, which an unfinished file cannot show" in done.out
    # A cut tail is not detectable yet, as it says.
    path.write_text("".join(lines_of(path)[:-1]))
    assert verify(read(path)).ok
    path = written(tmp_path / "d.tsv", ROWS[:3])
    delete_row(path)
    assert verify(read(path)).problems == ("image 2 missing before image 4: rows were removed",)


def load_digests(path: Path) -> dict[str, object]:
    """The table of digests, read by hand."""
    table = settings_path(path).read_text().partition("[digests]\n")[2].partition("\n[")[0]
    pairs = [line.split(" = ") for line in table.splitlines() if line]
    return {key: json.loads(value) for key, value in pairs}


def test_digests_are_what_anyone_can_compute_from_the_text(tmp_path: Path) -> None:
    path = written(tmp_path / "c.tsv")
    header, *lines = path.read_text().splitlines()
    names = header.split("\t")
    assert names[-2:] == ["squared", "digest"]
    recorded = load_digests(path)
    digests = []
    for line in lines:
        cells = line.split("\t")
        cells.pop(names.index("time"))
        digest = cells.pop()
        text = "\t".join([str(recorded["settings"]), *cells])
        assert digest == hashlib.sha256(text.encode()).hexdigest()
        digests.append(digest)
    whole = hashlib.sha256("".join(f"{each}\n" for each in digests).encode()).hexdigest()
    assert recorded == {"settings": SETTINGS.digest, "rows": 4, "sha256": whole}


def test_the_digest_of_settings_stays_the_same_in_later_versions() -> None:
    """Written down by hand: if it changes, every file of before fails to verify."""
    bound = {
        "certification": {
            "sigma": 0.5, "n0": 10, "n": 1000, "alpha": 0.001, "seed": 7, "block": 256,
            "precision": "fp32", "skip_wrong": False, "stop_abstaining": False,
        },
        "distribution": {"name": "grid", "levels": 255, "clip": 3},
        "mode": "exact",
        "model": "lenet",
        "model_hash": "a" * 64,
        "split": "test",
        "data_hash": "b" * 16,
        "num_classes": 10,
        "skip": 2,
        "engine": "torch-cpu",
        "noise": "test",
        "format": 1,
    }  # fmt: skip
    text = json.dumps(bound, sort_keys=True, separators=(",", ":"))
    assert SETTINGS.digest == hashlib.sha256(text.encode()).hexdigest()


def test_the_digest_of_settings_leaves_out_what_parts_of_a_file_need_not_share() -> None:
    free = replace(
        SETTINGS,
        shard="1/2",
        images=9,
        versions={"torch": "1"},
        weights="elsewhere.pt",
        data="npz:moved.npz",
        data_note="a part",
        data_content_hash="c" * 64,
        positions="rounding",
        sources={"mine": "d" * 64},
        probe="random",
    )
    assert free.digest == SETTINGS.digest
    whole_number = replace(SETTINGS, certification=replace(HOW, sigma=1))
    assert whole_number.digest == replace(SETTINGS, certification=replace(HOW, sigma=1.0)).digest
    for other in (
        replace(SETTINGS, skip=3),
        replace(SETTINGS, model_hash="c" * 64),
        replace(SETTINGS, engine="fused"),
        replace(SETTINGS, certification=replace(HOW, batch=128)),
        replace(SETTINGS, certification=replace(HOW, noise=GridNoise(256))),
    ):
        assert other.digest != SETTINGS.digest


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished file that no test edits."""
    return written(tmp_path_factory.mktemp("whole") / "c.tsv")


class TestAnyEdit:
    """Whatever single character is changed: the file is refused, or says the same as before."""

    @given(data=st.data())
    def test_of_the_rows(self, whole: Path, data: st.DataObject) -> None:
        before = read(whole)
        self._edit(whole, whole, data)
        copy = whole.with_name("edited.tsv")
        try:
            after = read(copy)
        except SmoothmixError:
            return
        if verify(after).ok:
            assert after.rows == tuple(
                replace(old, seconds=new.seconds)
                for old, new in zip(before.rows, after.rows, strict=True)
            )

    @given(data=st.data())
    def test_of_the_settings(self, whole: Path, data: st.DataObject) -> None:
        self._edit(whole, settings_path(whole), data)
        try:
            after = read(whole.with_name("edited.tsv"))
        except SmoothmixError:
            return
        if verify(after).ok:
            assert after.settings is not None
            assert after.settings.digest == SETTINGS.digest

    @staticmethod
    def _edit(path: Path, edited: Path, data: st.DataObject) -> None:
        for file in (path, settings_path(path)):
            copy = file.with_name(f"edited{file.suffix}")
            shutil.copy(file, copy)
            if file != edited:
                continue
            text = file.read_text()
            position = data.draw(st.integers(0, len(text) - 1))
            new = data.draw(st.sampled_from('0123456789abcdef.,:\t\n=" '))
            copy.write_text(text[:position] + new + text[position + 1 :])


class TestFinishing:
    def test_a_run_that_died_after_its_last_row_is_finished_by_the_next(
        self, tmp_path: Path
    ) -> None:
        path = written(tmp_path / "c.tsv")
        whole = settings_path(path).read_text()
        # As the settings are before the last step.
        SETTINGS.save(settings_path(path))
        assert settings_path(path).read_text() != whole
        assert not verify(read(path)).finished
        with writing(path, SETTINGS) as writer:
            assert not writer.remaining
        assert settings_path(path).read_text() == whole

    def test_more_images_open_a_finished_file_again(self, tmp_path: Path) -> None:
        path = written(tmp_path / "c.tsv", ROWS[:2], replace(SETTINGS, images=2))
        assert read(path).finished
        with writing(path, SETTINGS) as writer:
            assert load_digests(path).keys() == {"settings"}
            for row in ROWS[2:]:
                writer.append(row)
        other = written(tmp_path / "d.tsv")
        assert path.read_text() == other.read_text()
        assert settings_path(path).read_text() == settings_path(other).read_text()

    def test_rows_that_were_cut_off_are_certified_again_with_a_warning(
        self, tmp_path: Path
    ) -> None:
        path = written(tmp_path / "c.tsv")
        before = path.read_text()
        cut_tail(path)
        with pytest.warns(UserWarning, match="was finished with 4 rows and has 2; the others are"):
            written(path, ROWS[2:])
        assert path.read_text() == before
        assert verify(read(path)).finished

    def test_shards_merge_into_the_file_of_one_run(self, tmp_path: Path) -> None:
        whole = written(tmp_path / "whole.tsv")
        parts = []
        for number in (1, 2):
            shard = replace(SETTINGS, shard=f"{number}/2", versions={"torch": "2"})
            rows = ROWS[number - 1 :: 2]
            parts.append(read(written(tmp_path / f"{number}.tsv", rows, shard)))
        merged = merge(parts)
        save(merged, tmp_path / "merged.tsv")
        assert (tmp_path / "merged.tsv").read_text() == whole.read_text()
        assert load_digests(tmp_path / "merged.tsv") == load_digests(whole)
        assert verify(merged).ok

    def test_gaps_that_were_allowed_are_no_error_but_later_ones_are(self, tmp_path: Path) -> None:
        first, _, third, fourth = ROWS
        parts = [
            read(written(tmp_path / "1.tsv", (first, third), replace(SETTINGS, shard="1/2"))),
        ]
        file = merge(parts, allow_gaps=True)
        save(file, tmp_path / "c.tsv")
        found = verify(read(tmp_path / "c.tsv"))
        assert (found.ok, found.missing) == (True, (2, 6))
        path = tmp_path / "c.tsv"
        path.write_text("".join(lines_of(path)[:-1]))
        assert "was finished with 2 rows and has 1" in verify(read(path)).problems[0]
        assert fourth.idx == 6


def test_other_alphas_get_digests_of_their_own(tmp_path: Path) -> None:
    old = read(written(tmp_path / "c.tsv"))
    new = recompute(old, alpha=0.01)
    assert verify(new).ok
    save(new, tmp_path / "d.tsv")
    again = read(tmp_path / "d.tsv")
    assert verify(again).ok
    assert again.finished
    assert again.settings is not None
    assert again.settings.digest != SETTINGS.digest
    assert {row.digest for row in again.rows}.isdisjoint({row.digest for row in old.rows})


class TestFilesWithoutDigests:
    """Those of earlier versions."""

    OLD = replace(SETTINGS, has_digests=False)

    def test_they_verify_as_before_and_the_list_says_so(
        self, tmp_path: Path, smoothmix: Run
    ) -> None:
        our_file(tmp_path / "c.tsv", [990, 700])
        done = smoothmix("certificates", "verify", "c.tsv")
        assert done.code == 0
        assert "since rows are not bound by digests" in done.out

    def test_resuming_one_keeps_its_format(self, tmp_path: Path) -> None:
        path = written(tmp_path / "c.tsv", ROWS[:2], self.OLD)
        assert "digest" not in path.read_text()
        written(path, ROWS[2:])
        assert "digest" not in path.read_text() + settings_path(path).read_text()
        assert path.read_text() == written(tmp_path / "d.tsv", ROWS, self.OLD).read_text()

    def test_merged_with_parts_that_have_digests_they_stay_without(self, tmp_path: Path) -> None:
        old = read(written(tmp_path / "1.tsv", ROWS[::2], replace(self.OLD, shard="1/2")))
        new = read(written(tmp_path / "2.tsv", ROWS[1::2], replace(SETTINGS, shard="2/2")))
        for parts in ([old, new], [new, old]):
            merged = merge(parts)
            assert merged.rows == ROWS
            assert merged.digests is None
            save(merged, tmp_path / "merged.tsv")
            assert verify(read(tmp_path / "merged.tsv")).ok

    def test_a_header_that_a_run_left_is_replaced(self, tmp_path: Path) -> None:
        path = tmp_path / "c.tsv"
        path.write_text("\t".join(self.OLD.columns) + "\n")
        self.OLD.save(settings_path(path))
        assert written(path).read_text() == written(tmp_path / "d.tsv").read_text()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[digests]", "[digest]", "digest"),
        ("rows = 4", "rows = 0", "rows and sha256 must both be there"),
        ("rows = 4", 'rows = "4"', "rows: must be a whole number"),
        (f'settings = "{SETTINGS.digest}"', 'settings = "abc"', "64 hexadecimal digits"),
        (f'settings = "{SETTINGS.digest}"', "", "lacks settings"),
    ],
)
def test_a_damaged_table_of_digests_is_refused(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    path = written(tmp_path / "c.tsv")
    edit_settings(path, old, new)
    with pytest.raises(CertificateError, match=message):
        read(path)


def test_rows_and_settings_have_digests_both_or_neither(tmp_path: Path) -> None:
    path = written(tmp_path / "c.tsv")
    text = path.read_text()
    bare = ["\t".join(line.split("\t")[:-1]) for line in text.splitlines()]
    path.write_text("\n".join(bare) + "\n")
    with pytest.raises(CertificateError, match=r"no column digest, though c\.toml says"):
        read(path)
    path.write_text(text)
    replace(SETTINGS, has_digests=False).save(settings_path(path))
    with pytest.raises(CertificateError, match=r"has a column digest, but c\.toml has no table"):
        read(path)
    settings_path(path).unlink()
    assert "has no c.toml beside it" in verify(read(path)).problems[0]
    with warnings.catch_warnings(), pytest.raises(UsageError), writing(path, SETTINGS):
        pass


def test_labels_are_compared_with_the_data_set(tmp_path: Path, smoothmix: Run) -> None:
    from smoothmix import data

    sample = data.load("sample")
    settings = replace(SETTINGS, data_hash=sample.fingerprint)
    rows = [
        from_votes(idx, int(sample.labels[idx]), {3: 10}, {3: 1000}, certification=HOW)
        for idx in settings.indices
    ]
    path = written(tmp_path / "c.tsv", tuple(rows), settings)
    done = smoothmix("certificates", "verify", "c.tsv")
    assert done.code == 0, done.out
    assert "  checked: the labels, against the data set sample" in done.out
    # With digests that fit: the label is false all the same.
    label = (rows[1].label + 1) % 10
    rows[1] = from_votes(2, label, {3: 10}, {3: 1000}, certification=HOW)
    save(Certificates(path, tuple(rows), settings), path)
    done = smoothmix("certificates", "verify", "c.tsv")
    assert done.code == 1
    assert f"c.tsv: image 2: says label {label}, but the data set says" in done.out
    other = replace(settings, data_hash="c" * 16)
    save(Certificates(path, tuple(rows), other), path)
    done = smoothmix("certificates", "verify", "c.tsv")
    assert done.code == 0
    assert "not checked: the labels, since sample here is not the data set" in done.out


def test_data_that_a_file_names_by_a_path_is_not_read_unasked(
    tmp_path: Path, smoothmix: Run
) -> None:
    our_file(tmp_path / "c.tsv", [990], data="folder:/")
    done = smoothmix("certificates", "verify", "c.tsv")
    assert done.code == 0
    assert "not checked: the labels, since folder:/ is data of your own: name it by" in done.out
    asked = smoothmix("certificates", "verify", "c.tsv", "--data", "npz:missing.npz")
    assert asked.code == 1
    assert "missing.npz" in asked.err


def test_the_list_names_every_check(tmp_path: Path, smoothmix: Run) -> None:
    written(tmp_path / "c.tsv")
    done = smoothmix("certificates", "verify", "c.tsv")
    _, _, title, *checks = done.out.splitlines()
    assert title == "c.tsv: what was checked, and what was not:"
    assert "only a signature or --redraw stops a forger" in LIMITS
    assert checks == [
        "  checked: the arithmetic: bounds, radii and predictions from the votes of each row",
        "  checked: digests of the settings and of 4 rows",
        "  checked: completeness: every image has its row",
        "  not checked: the labels, since sample here is not the data set of the file",
        "  not checked: who made the file: --signer KEY checks a signature",
        "  not checked: that the network gave these votes: --redraw 20 draws some rows again",
        f"  {LIMITS}",
    ]

"""The claim in integers: the column squared, from the radius to the file and back."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothmix.certificates import (
    Certificates,
    export_cohen_log,
    read,
    recompute,
    save,
    settings_path,
    verify,
    writing,
)
from smoothmix.certificates.file import header_of
from smoothmix.certificates.row import COLUMNS, GRID_COLUMNS, from_votes
from smoothmix.certificates.settings import from_tables, load_settings, to_tables
from smoothmix.certificates.squared import squared_claim
from smoothmix.errors import CertificateError, UsageError
from smoothmix.noise import GAUSSIAN, GridNoise
from tests.helpers.certificates import our_file

MILLIONTHS = st.integers(1, 10**9)
LEVELS = st.sampled_from([1, 255, 1023, 65_535])


@given(MILLIONTHS, LEVELS)
def test_it_is_the_largest_integer_below_the_squared_radius(m: int, levels: int) -> None:
    found = squared_claim(float(f"{m // 10**6}.{m % 10**6:06d}"), levels=levels)
    assert found is not None
    bound = (levels * Fraction(m, 10**6)) ** 2
    assert found < bound <= found + 1
    # The formula of the documentation.
    assert found == math.ceil(Fraction((levels * m) ** 2, 10**12)) - 1


def test_a_radius_that_is_a_whole_number_of_levels_is_not_reached() -> None:
    # A change of exactly the radius is not covered: 255^2 would be at distance 1.
    assert squared_claim(1.0, levels=255) == 255**2 - 1
    assert squared_claim(0.000001, levels=255) == 0
    assert squared_claim(0.0, levels=255) is None


def grid_file(path: Path, levels: int = 255) -> Path:
    """Three rows: certified, certified, and an abstention."""
    return our_file(path, [999, 940, 500], noise=GridNoise(levels))


def changed(path: Path, old: str, new: str) -> Path:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return path


def cells_of(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text().splitlines()]


@pytest.mark.parametrize("levels", [255, 65_535])
def test_files_with_grid_noise_have_it_as_their_last_column(tmp_path: Path, levels: int) -> None:
    path = grid_file(tmp_path / "c.tsv", levels)
    header, *rows = cells_of(path)
    assert tuple(header) == GRID_COLUMNS == (*COLUMNS, "squared")
    for row in rows[:2]:
        m = int(row[3].replace(".", ""))
        assert row[-1] == str(math.ceil(Fraction((levels * m) ** 2, 10**12)) - 1)
    assert (rows[2][2], rows[2][-1]) == ("-1", "")
    file = read(path)
    assert [row.squared for row in file.rows] == [int(rows[0][-1]), int(rows[1][-1]), None]
    assert verify(file).ok
    save(file, tmp_path / "again.tsv")
    assert (tmp_path / "again.tsv").read_text() == path.read_text()


def test_files_with_other_noise_do_not_have_it(tmp_path: Path) -> None:
    path = our_file(tmp_path / "c.tsv", [999, 940])
    assert tuple(cells_of(path)[0]) == COLUMNS
    assert [row.squared for row in read(path).rows] == [None, None]


def test_it_changes_with_the_failure_probability(tmp_path: Path) -> None:
    again = recompute(read(grid_file(tmp_path / "c.tsv")), alpha=0.1)
    assert again.rows[0].squared == squared_claim(again.rows[0].radius, levels=255)
    assert verify(again).ok


def test_logs_for_other_tools_stay_as_they_are(tmp_path: Path) -> None:
    grid = export_cohen_log(read(grid_file(tmp_path / "grid.tsv")))
    gaussian = export_cohen_log(read(our_file(tmp_path / "g.tsv", [999, 940, 500])))
    assert grid == gaussian


@pytest.mark.parametrize(("off", "row"), [(1, 0), (-1, 0), (1, 1)])
def test_a_wrong_number_is_refused_by_image_and_column(tmp_path: Path, off: int, row: int) -> None:
    path = grid_file(tmp_path / "c.tsv")
    right = cells_of(path)[row + 1][-1]
    changed(path, f"\t{right}\n", f"\t{int(right) + off}\n")
    with pytest.raises(CertificateError, match=rf"image {row}: squared is {int(right) + off}, but"):
        read(path)


def test_a_number_for_an_abstention_is_refused(tmp_path: Path) -> None:
    path = grid_file(tmp_path / "c.tsv")
    path.write_text(path.read_text().removesuffix("\n") + "7\n")
    with pytest.raises(CertificateError, match=r"image 2: squared is 7, but .* gives empty"):
        read(path)


@pytest.mark.parametrize("text", ["-1", "1e3", "x", "9" * 60, "1.0"])
def test_what_is_no_whole_number_is_refused(tmp_path: Path, text: str) -> None:
    path = grid_file(tmp_path / "c.tsv")
    changed(path, f"\t{cells_of(path)[1][-1]}\n", f"\t{text}\n")
    with pytest.raises(CertificateError, match="squared must be a whole number"):
        read(path)


def test_a_radius_with_more_decimals_could_round_up_and_is_refused(tmp_path: Path) -> None:
    path = grid_file(tmp_path / "c.tsv")
    radius = cells_of(path)[1][3]
    changed(path, f"\t{radius}\t", f"\t{radius}4\t")
    with pytest.raises(CertificateError, match="image 0: radius must have six decimals"):
        read(path)


def test_a_radius_edited_together_with_it_is_found_by_verify(tmp_path: Path) -> None:
    path = grid_file(tmp_path / "c.tsv")
    file = read(path)
    row = replace(file.rows[0], radius=9.0, squared=squared_claim(9.0, levels=255))
    save(replace(file, rows=(row, *file.rows[1:])), path)
    problems = verify(read(path)).problems
    assert any("image 0: says radius 9.0" in problem for problem in problems)
    assert any("image 0: says squared 5267024" in problem for problem in problems)


def test_column_and_settings_must_go_together(tmp_path: Path) -> None:
    grid = grid_file(tmp_path / "grid.tsv")
    gaussian = our_file(tmp_path / "gaussian.tsv", [999, 940, 500])
    grid_settings = settings_path(grid).read_bytes()
    settings_path(grid).write_bytes(settings_path(gaussian).read_bytes())
    with pytest.raises(CertificateError, match="has a column squared, which goes with grid noise"):
        read(grid)
    settings_path(gaussian).write_bytes(grid_settings)
    with pytest.raises(CertificateError, match="has no column squared"):
        read(gaussian)


def test_settings_record_levels_and_clip(tmp_path: Path) -> None:
    path = grid_file(tmp_path / "c.tsv", 65_535)
    settings = load_settings(path)
    assert settings is not None
    tables = to_tables(settings)
    # k = max(1, ceil(6 sigma)) for sigma 0.5.
    assert tables["distribution"] == {"name": "grid", "levels": 65_535, "clip": 3}
    assert from_tables(tables, where="file") == settings
    for clip in (2, 4, 3.0, True, "3", None):
        wrong = {**tables, "distribution": {**tables["distribution"], "clip": clip}}
        with pytest.raises(UsageError, match=r"distribution: clip must be 3 for sigma 0\.5"):
            from_tables(wrong, where="file")


@pytest.mark.parametrize("rows", [0, 1])
def test_a_file_is_continued_with_its_own_columns_only(tmp_path: Path, rows: int) -> None:
    file = read(our_file(tmp_path / "made.tsv", [999, 940]))
    assert file.settings is not None
    path = tmp_path / "c.tsv"
    path.write_text("".join((tmp_path / "made.tsv").read_text().splitlines(True)[: rows + 1]))
    file.settings.save(settings_path(path))
    on_grid = replace(file.settings.certification, noise=GridNoise())
    settings = replace(file.settings, certification=on_grid)
    if rows:
        with pytest.raises(UsageError, match=r"noise is gaussian there and grid .* here"):
            _append(path, settings, file)
        return
    # Without a row there is nothing to mix, and the header must fit the rows to come.
    _append(path, settings, file)
    assert path.read_text().startswith(header_of(GRID_COLUMNS))
    assert read(path).rows[0].squared is not None


def _append(path: Path, settings: object, file: Certificates) -> None:
    row = file.rows[0]
    with writing(path, settings) as writer:  # type: ignore[arg-type]
        writer.append(
            from_votes(
                row.idx,
                row.label,
                row.selection_counts or {},
                row.counts or {},
                certification=writer.settings.certification,
            )
        )


def test_gaussian_files_are_as_before(tmp_path: Path) -> None:
    file = read(our_file(tmp_path / "c.tsv", [999]))
    assert file.settings is not None
    assert file.settings.certification.noise == GAUSSIAN
    assert "distribution" not in to_tables(file.settings)

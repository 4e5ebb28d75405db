"""The verdicts and notes of a reproduction's table."""

from __future__ import annotations

import csv
from dataclasses import replace
from math import sqrt
from pathlib import Path

import numpy as np
import pytest

from smoothmix import presets
from smoothmix.analysis import Measured
from smoothmix.certificates import Certificates
from smoothmix.presets import Preset
from smoothmix.reproduce.table import Reproduced, margin, reproduction_grid, target, verdict
from smoothmix.tables import FORMATS, Cell


def csv_rows(rows: list[Reproduced], radii: list[float] | None = None) -> list[dict[str, str]]:
    """The table as a program reads it."""
    grid = reproduction_grid(rows, title="made", radii=radii, wide=True)
    return list(csv.DictReader(FORMATS["csv"](grid).splitlines()))


def run_of(acr: float, images: int = 10_000) -> Measured:
    """A run with the same radius for every image."""
    same = np.full(images, acr)
    zero = np.zeros(images, dtype=np.int64)
    return Measured(
        name="made",
        file=Certificates(Path("made"), ()),
        idx=np.arange(images),
        label=zero,
        predict=zero,
        radius=same,
        printed=same,
        probability=same,
        sigma=1.0,
    )


def published(acr: float | None, deviation: float | None) -> Preset:
    """The Gaussian preset with other numbers over seeds."""
    preset = presets.get("mnist/1.00/gaussian")
    assert preset.published is not None
    return replace(preset, published=replace(preset.published, acr_mean=acr, acr_std=deviation))


# 3 x 0.01 x sqrt(1/5 + 1/5) = 0.018974; the radii are of three digits already.
@pytest.mark.parametrize(
    ("acr", "said"),
    [
        (1.60, "agrees"),
        (1.61, "agrees"),
        (1.59, "agrees"),
        (1.62, "higher by 0.0200"),
        (1.58, "lower by 0.0200"),
    ],
)
def test_five_seeds_agree_within_what_seeds_explain(acr: float, said: str) -> None:
    row = Reproduced(preset=published(1.60, 0.01), runs=tuple(run_of(acr) for _ in range(5)))
    assert verdict(row) == said


def test_a_single_seed_may_lie_further_off() -> None:
    row = Reproduced(preset=published(1.60, 0.01), runs=(run_of(1.62),))
    assert verdict(row) == "agrees"
    found = target(row)
    assert found is not None
    assert margin(row, found) == pytest.approx(3 * 0.01 * sqrt(1 + 1 / 5))
    assert margin(replace(row, runs=row.runs * 5), found) == pytest.approx(
        3 * 0.01 * sqrt(1 / 5 + 1 / 5)
    )


def test_the_published_number_is_compared_with_radii_rounded_as_there() -> None:
    row = Reproduced(preset=published(1.60, 0.0001), runs=(run_of(1.5951),))
    assert verdict(row) == "agrees"
    assert csv_rows([row])[0]["acr"] == "1.5951"
    assert verdict(replace(row, runs=(run_of(1.5949),))) == "lower by 0.0100"


def test_the_choice_of_images_is_part_of_chance() -> None:
    half = np.where(np.arange(100) % 2, 1.0, 2.0)
    row = Reproduced(
        preset=published(1.60, 0.001), runs=(replace(run_of(1.0, 100), radius=half, printed=half),)
    )
    assert verdict(row) == "lower by 0.1000"
    few = replace(row, all_images=False, cuts=("every 100th image (100)",))
    found = target(few)
    assert found is not None
    # The mean of 100 images has a standard deviation of 0.05, and an interval of 1.96 times that.
    assert margin(few, found) == pytest.approx(3 * 0.001 * sqrt(1.2) + 1.96 * 0.05, rel=0.1)
    assert verdict(few) == "agrees"
    notes = " ".join(reproduction_grid([few], title="made").notes)
    assert "cut: every 100th image (100)" in notes
    assert "on 100 images a difference below 0.1" in notes


def test_what_cannot_be_judged_says_why() -> None:
    run = run_of(1.6212)
    known = Reproduced(preset=published(None, None), runs=(run,))
    assert (
        verdict(known) == "no deviation published: +0.0000"
    )  # 1.62 as the paper rounds, and 1.620 in print
    assert verdict(replace(known, runs=(run_of(1.63),))) == "no deviation published: +0.0100"
    cut = Reproduced(
        preset=published(1.6, 0.01), runs=(run,), cuts=("30 of 90 epochs", "n 10,000"), judged=False
    )
    assert verdict(cut) == "not judged: 30 of 90 epochs, n 10,000"
    assert csv_rows([cut])[0]["difference_in_deviations"] == ""
    assert verdict(replace(cut, cuts=())) == "not judged"
    assert verdict(replace(known, runs=())) == "no run"
    assert verdict(replace(known, preset=presets.get("quick/gaussian"))) == "nothing published"


def test_a_row_of_nothing_published_stands_at_usual_radii() -> None:
    grid = reproduction_grid(
        [Reproduced(preset=presets.get("quick/gaussian"), runs=(run_of(0.5),))], title="quick"
    )
    assert [column.name for column in grid.columns][-5:] == ["0.00", "0.25", "0.50", "0.75", "1.00"]
    assert grid.rows[0].cells[0] == Cell("gaussian")
    assert grid.rows[0].cells[4].shown == "–"


def test_notes_of_rows_and_files_are_told_once() -> None:
    both = [
        Reproduced(
            preset=presets.get(name),
            runs=(replace(run_of(1.0), notes=("line 7 is cut off",)),),
            notes=("hello",),
        )
        for name in ("mnist/1.00/gaussian", "mnist/1.00/consistency")
    ]
    notes = reproduction_grid(both, title="made").notes
    assert notes.count("hello") == 1
    assert notes.count("line 7 is cut off") == 1
    assert sum(note.startswith("1.00/consistency: The released logs") for note in notes) == 1


def test_what_a_row_was_set_to_stands_beside_its_number() -> None:
    row = Reproduced(preset=presets.get("mnist/1.00/smoothadv"), runs=(run_of(1.0),))
    notes = reproduction_grid([row], title="made").notes
    assert "1.00/smoothadv: SmoothAdv (PGD, eps 255/256, T 10, m 4)" in notes

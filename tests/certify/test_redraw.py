"""Votes that are drawn again: edits are found, and told from what rounding explains."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import comb
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import smoothmix
from smoothmix.certificates import (
    Certificate,
    Certificates,
    Certification,
    Selection,
    read,
    save,
    verify,
)
from smoothmix.certificates.row import from_votes
from smoothmix.certify import certify_dataset, redraw_dataset
from smoothmix.certify.redraw import (
    Redraw,
    chance_missed,
    choose_rows,
    open_recorded,
)
from smoothmix.certify.same_votes import is_rounding
from smoothmix.errors import CertificateError, UsageError
from smoothmix.inference.sampler import ImageDraws
from smoothmix.noise import GAUSSIAN, Domain, DrawRange, GridNoise, Noise
from smoothmix.stats import Anytime, FixedDraws, Guarantee, Stopping
from tests.conftest import Linear, Run
from tests.helpers.ambiguous import EverySeventh
from tests.helpers.certification import images, network, put_network

SIGMA = 0.5
EXACT = FixedDraws(1000, n0=50)
ANYTIME = Anytime(Stopping(tolerance=0.3, max_draws=1024), n0=50)


@pytest.fixture(autouse=True)
def _trusted_noise() -> None:
    smoothmix.trust("tests.helpers.ambiguous")


def certified(
    path: Path,
    *,
    noise: Noise = GAUSSIAN,
    guarantee: Guarantee = EXACT,
    skip_wrong: bool = False,
    maximum: int = 6,
) -> Certificates:
    certification = Certification(
        sigma=SIGMA, guarantee=guarantee, noise=noise, skip_wrong=skip_wrong, batch=64
    )
    return certify_dataset(
        network(),
        images(),
        certification,
        path=path,
        model_name="digits:make",
        selection=Selection(skip=20, maximum=maximum),
    )


def redrawn(file: Certificates, count: int = 100) -> Redraw:
    return redraw_dataset(network(), images(), file, rows=count)


def edited(file: Certificates, position: int = 0) -> Certificates:
    """The file with votes of one row improved, and all that follows computed from them."""
    row = file.rows[position]
    assert row.counts is not None
    assert row.selection_counts is not None
    assert row.selected is not None
    assert file.settings is not None
    votes = {row.selected: sum(row.counts.values())}
    better = from_votes(
        row.idx,
        row.label,
        row.selection_counts,
        votes,
        certification=file.settings.certification,
        seconds=row.seconds,
    )
    assert better.radius > row.radius
    return with_row(file, position, better)


def with_row(file: Certificates, position: int, row: Certificate) -> Certificates:
    rows = list(file.rows)
    rows[position] = row
    # Without the digests that were read, new ones are computed: a forger does that too.
    save(replace(file, rows=tuple(rows), digests=None), file.path)
    return read(file.path)


@pytest.mark.parametrize(
    ("noise", "guarantee", "skip_wrong"),
    [
        (GAUSSIAN, EXACT, False),
        (GridNoise(), EXACT, True),
        (EverySeventh(), EXACT, False),
        (GridNoise(), ANYTIME, False),
    ],
    ids=["gaussian", "grid and skipped images", "ambiguous draws", "anytime"],
)
def test_votes_of_an_untouched_file_are_drawn_again_exactly(
    tmp_path: Path, noise: Noise, guarantee: Guarantee, skip_wrong: bool
) -> None:
    file = certified(
        tmp_path / "c.tsv", noise=noise, guarantee=guarantee, skip_wrong=skip_wrong, maximum=10
    )
    found = redrawn(file)
    assert [row.idx for row in found.rows] == [row.idx for row in file.rows]
    assert [row.draws for row in found.rows] == [50 + (row.n or 0) for row in file.rows]
    assert {row.differing for row in found.rows} == {0}
    assert not found.edited
    assert not found.rounded
    draws = {row.n for row in file.rows}
    assert len(draws) > 1 or (guarantee is EXACT and not skip_wrong), "a case of its own"


def test_an_edit_that_verify_accepts_is_found(tmp_path: Path, smoothmix: Run) -> None:
    put_network(tmp_path)
    how = (
        "--model", "digits:make", "--sigma", SIGMA, "--data", "sample", "--n0", 20, "--n", 300,
        "--noise", "grid", "--skip", 20, "--max", 6, "--out", "c.tsv",
    )  # fmt: skip
    assert smoothmix("certify", *how).code == 0
    check = ("certificates", "verify", "c.tsv", "--redraw", 20, "--model", "digits:make")
    clean = smoothmix(*check)
    assert clean.code == 0, clean.err
    assert "6 of 6 rows drawn again, and all votes are the same" in clean.out
    assert "missed all of them with a chance of 0 %" in clean.out
    assert "drawing 6 of 6 rows again takes about" in clean.err

    file = read(tmp_path / "c.tsv")
    uncertain = min(range(6), key=lambda i: file.rows[i].p_lower or 0)
    idx = edited(file, uncertain).rows[uncertain].idx
    assert smoothmix("certificates", "verify", "c.tsv").code == 0
    found = smoothmix(*check)
    assert found.code == 1
    assert f"c.tsv: image {idx}: says estimation votes" in found.out
    assert "1 of them do not have the votes that the network gives" in found.out


def test_edits_of_selection_votes_and_labels_are_found(tmp_path: Path) -> None:
    file = certified(tmp_path / "c.tsv")
    first, second = file.rows[:2]
    assert first.selection_counts is not None
    assert first.selected is not None
    assert file.settings is not None
    others = {first.selected: 49, (first.selected + 1) % 10: 1}
    if first.selection_counts == others:
        others = {first.selected: 50}
    row = from_votes(
        first.idx, first.label, others, first.counts or {},
        certification=file.settings.certification,
    )  # fmt: skip
    file = with_row(file, 0, row)
    label = 9 - second.label
    file = with_row(file, 1, replace(second, label=label, correct=second.predict == label))
    assert verify(file).ok
    found = redrawn(file)
    assert [row.idx for row in found.edited] == [first.idx, second.idx]
    assert "says selection votes" in found.edited[0].problems[0]
    assert f"says label {label}, but the data set says" in found.edited[1].problems[0]


TIED = """
import torch

class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(()))

    def forward(self, x):
        # Two classes whose logits are equal up to a millionth, decided by one pixel.
        sign = torch.sign(x[:, 0, 14, 14])
        one = torch.ones_like(sign)
        return torch.stack([one, one + 1e-6 * sign] + 8 * [0 * one], 1) + self.bias

def make():
    return Tied()
"""


def test_what_rounding_explains_is_no_edit(tmp_path: Path, smoothmix: Run) -> None:
    (tmp_path / "tied.py").write_text(TIED)
    how = ("--sigma", 0.5, "--data", "sample", "--n0", 20, "--n", 300, "--max", 2)
    made = smoothmix("certify", "--model", "tied:make", *how, "--out", "c.tsv")
    assert made.code == 0, made.err
    file = read(tmp_path / "c.tsv")
    row = file.rows[0]
    assert file.settings is not None
    assert row.counts is not None
    moved = {0: row.counts[0] - 2, 1: row.counts[1] + 2}
    again = from_votes(
        row.idx, row.label, row.selection_counts or {}, moved,
        certification=file.settings.certification,
    )  # fmt: skip
    with_row(file, 0, again)
    found = smoothmix("certificates", "verify", "c.tsv", "--redraw", 2, "--model", "tied:make")
    assert found.code == 3, found.out
    assert "image 0: 2 of 320 draws voted otherwise, all of them near a tie" in found.out
    assert "there is no sign of edits" in found.out

    # No draw came near a tie with class 2.
    moved = {0: row.counts[0] - 2, 1: row.counts[1], 2: 2}
    again = from_votes(
        row.idx, row.label, row.selection_counts or {}, moved,
        certification=file.settings.certification,
    )  # fmt: skip
    with_row(file, 0, again)
    found = smoothmix("certificates", "verify", "c.tsv", "--redraw", 2, "--model", "tied:make")
    assert found.code == 1, found.out


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), max_size=30))
def test_near_ties_that_turn_round_are_rounding(
    draws: list[tuple[int, int, bool]],
) -> None:
    """Each draw: first class, second class, and whether it turned round (a near tie)."""
    again = np.zeros(5, dtype=np.int64)
    recorded = np.zeros(5, dtype=np.int64)
    ties = np.zeros((2, 5), dtype=np.int64)
    for first, second, turned in draws:
        again[first] += 1
        recorded[second if turned else first] += 1
        if turned:
            ties[0, first] += 1
            ties[1, second] += 1
    assert is_rounding(recorded, again, ties)


def test_one_vote_more_than_near_ties_explain_is_an_edit() -> None:
    again = np.array([90, 10, 0])
    ties = np.array([[2, 0, 0], [0, 2, 0]])
    assert is_rounding(np.array([88, 12, 0]), again, ties)
    assert not is_rounding(np.array([87, 13, 0]), again, ties)
    assert not is_rounding(np.array([91, 9, 0]), again, ties)
    # Nobody's votes follow from the random bits alone.
    assert not is_rounding(np.array([89, 10, 1]), again, ties)


def test_near_ties_are_those_of_a_slow_loop(tmp_path: Path) -> None:
    file = certified(tmp_path / "c.tsv", noise=EverySeventh(), maximum=1)
    (image,) = images().images([0])
    expected = np.zeros((2, 11), dtype=np.int64)
    for j in range(150):
        draw = DrawRange(0, Domain.ESTIMATION, 0, j, 1)
        sample = torch.from_numpy(GAUSSIAN.sample(draw, (1, 28, 28), sigma=SIGMA))
        (logits,) = network()(image[None] + sample)
        first, second = logits.sort(descending=True)
        gap = first[0] - first[1]
        if j % 7 and gap <= 0.2 * logits.abs().max():
            expected[0, int(second[0])] += 1
            expected[1, int(second[1])] += 1
    assert expected.sum() > 4, "the test would prove nothing"
    with open_recorded(network(), images(), file) as (sampler, _):
        draws = ImageDraws(image=image, index=0, domain=Domain.ESTIMATION, start=0, stop=150)
        assert np.array_equal(sampler.near_ties(draws, tolerance=0.2), expected)


def test_another_network_is_refused(tmp_path: Path) -> None:
    file = certified(tmp_path / "c.tsv", maximum=2)
    with (
        pytest.raises(UsageError, match=r"model_hash is .* there and .* here"),
        open_recorded(Linear(784, 10), images(), file),
    ):
        pass


@pytest.mark.parametrize(("rows", "checked"), [(1, 1), (8, 3), (12, 12), (30, 2), (41, 3)])
def test_the_chance_of_missing_edits_is_that_of_all_choices(rows: int, checked: int) -> None:
    bad = -(-rows // 20)
    choices = list(combinations(range(rows), checked))
    missed = [choice for choice in choices if min(choice) >= bad]
    assert chance_missed(rows, checked) == pytest.approx(len(missed) / len(choices))


def test_twenty_rows_miss_edits_of_five_percent_with_a_chance_of_36_percent() -> None:
    assert chance_missed(10_000, 20) == pytest.approx(0.95**20, abs=0.001)
    assert chance_missed(500, 20) == pytest.approx(comb(475, 20) / comb(500, 20))
    assert chance_missed(6, 20) == 0


def test_rows_are_chosen_at_random_and_repeated_by_a_seed(tmp_path: Path) -> None:
    file = certified(tmp_path / "c.tsv", guarantee=FixedDraws(20, n0=10), maximum=20)
    seeded = choose_rows(file, 5, seed=1)
    assert seeded == choose_rows(file, 5, seed=1)
    assert [row.idx for row in seeded] == sorted({row.idx for row in seeded})
    # 15,504 choices: ten equal ones do not happen.
    choices = {tuple(row.idx for row in choose_rows(file, 5)) for _ in range(10)}
    assert len(choices) > 1
    assert choose_rows(file, 50) == file.rows


def test_rows_that_do_not_follow_from_their_votes_are_not_drawn_again(tmp_path: Path) -> None:
    file = certified(tmp_path / "c.tsv", maximum=2)
    wrong = with_row(file, 0, replace(file.rows[0], radius=5.0))
    with pytest.raises(CertificateError, match=r"image 0: says radius 5\.0"):
        choose_rows(wrong, 1)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("c.tsv", "--redraw", 2), "--redraw needs the network"),
        (("c.tsv", "--redraw", 0, "--model", "digits:make"), "redraw must be at least 1"),
        (("c.tsv", "c.tsv", "--redraw", 2, "--model", "digits:make"), "takes one certificate file"),
        (("c.tsv", "--model", "digits:make"), "go with --redraw"),
    ],
)
def test_mistakes_are_explained(
    tmp_path: Path, smoothmix: Run, arguments: tuple[object, ...], problem: str
) -> None:
    put_network(tmp_path)
    certified(tmp_path / "c.tsv", guarantee=FixedDraws(20, n0=10), maximum=2)
    found = smoothmix("certificates", "verify", *arguments)
    assert found.code == 2
    assert problem in found.err


def test_a_run_folder_holds_file_and_network(untrained_run: str, smoothmix: Run) -> None:
    how = ("--n", 100, "--n0", 20, "--max", 2, "--device", "cpu")
    assert smoothmix("certify", untrained_run, *how).code == 0
    alone = smoothmix("certificates", "verify", untrained_run, "--redraw", 1, "--redraw-seed", 4)
    both = smoothmix(
        "certificates", "verify", f"{untrained_run}/certificates.tsv", "--redraw", 1,
        "--redraw-seed", 4, untrained_run,
    )  # fmt: skip
    assert (alone.code, both.code) == (0, 0), alone.err + both.err
    assert "1 of 2 rows drawn again, and all votes are the same" in both.out


def test_a_secret_seed_is_needed_to_draw_again(tmp_path: Path, smoothmix: Run) -> None:
    put_network(tmp_path)
    how = ("--model", "digits:make", "--sigma", SIGMA, "--data", "sample", "--n", 100, "--max", 2)
    made = smoothmix("certify", *how, "--seed", "secret", "--out", "c.tsv")
    assert made.code == 0, made.err
    check = ("certificates", "verify", "c.tsv", "--redraw", 2, "--model", "digits:make")
    found = smoothmix(*check)
    assert found.code == 0, found.err
    assert "2 of 2 rows drawn again, and all votes are the same" in found.out
    (tmp_path / "c.secret-seed").rename(tmp_path / "published")
    assert "name it by --seed-file" in smoothmix(*check).err
    assert smoothmix(*check, "--seed-file", "published").code == 0

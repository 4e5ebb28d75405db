"""Every guarantee keeps the contract; one table feeds all tests."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from smoothmix import trust
from smoothmix.errors import UsageError
from smoothmix.noise import GAUSSIAN, NOISES, make_noise
from smoothmix.stats.anytime import FORESIGHT, Stopping
from smoothmix.stats.guarantees import (
    GUARANTEE,
    GUARANTEES,
    Anytime,
    FixedDraws,
    Guarantee,
    GuaranteeOptions,
    SelectedVotes,
)

TABLE: list[Guarantee] = [
    FixedDraws(500, n0=20, alpha=0.01),
    FixedDraws(500, n0=20, alpha=0.01, stop_abstaining=True),
    Anytime(Stopping(max_draws=500), n0=20, alpha=0.01),
    Anytime(Stopping(radii=(0.25, 0.5), max_draws=500), n0=20, alpha=0.01),
    Anytime(Stopping(tolerance=0.1, max_draws=500), n0=20, alpha=0.01),
]
EVERY = pytest.mark.parametrize("guarantee", TABLE, ids=lambda guarantee: guarantee.description)
BATCH = 64
SIGMA = 0.5
REPEATS = 4_000


def selected(votes: Any, draws: Any, before: Any, n0: int = 20) -> SelectedVotes:
    votes, draws, before = np.broadcast_arrays(votes, draws, before)
    return SelectedVotes(votes, draws, before, np.full(votes.shape, n0))


def test_the_table_lacks_no_guarantee() -> None:
    assert {type(guarantee) for guarantee in TABLE} == {GUARANTEES[mode] for mode in GUARANTEES}
    assert [GUARANTEES[mode].mode for mode in GUARANTEES] == list(GUARANTEES)


@EVERY
@pytest.mark.parametrize("p", [0.5, 0.7, 0.95])
def test_the_whole_procedure_errs_no_more_often_than_alpha(guarantee: Guarantee, p: float) -> None:
    """Draw, check and stop as the loop does: the bound of the end is rarely above the truth."""
    rng = np.random.default_rng(5)
    before = rng.binomial(guarantee.n0, p, size=REPEATS)
    votes = np.zeros(REPEATS, dtype=np.int64)
    draws = np.zeros(REPEATS, dtype=np.int64)
    active = np.ones(REPEATS, dtype=bool)
    checked = 0
    while active.any():
        goal = guarantee.next_check(checked, batch=BATCH)
        assert checked < goal <= guarantee.max_draws
        votes[active] += rng.binomial(goal - checked, p, size=active.sum())
        draws[active] = goal
        state = selected(votes, draws, before)
        active &= ~guarantee.enough(state, GAUSSIAN, sigma=SIGMA)
        checked = goal
    bounds = guarantee.lower_bound(selected(votes, draws, before))
    wrong = (bounds > p).mean()
    assert wrong <= float(binom.isf(1e-6, REPEATS, guarantee.alpha)) / REPEATS


@EVERY
def test_the_bound_grows_with_votes_and_with_alpha(guarantee: Guarantee) -> None:
    votes = np.arange(0, 501, 10)
    bounds = guarantee.lower_bound(selected(votes, 500, 15))
    assert bounds[0] == 0
    assert (np.diff(bounds) > 0).all()
    assert (bounds <= votes / 500).all()
    easier = replace(guarantee, alpha=0.1).lower_bound(selected(votes, 500, 15))
    assert (easier[1:] > bounds[1:]).all()
    assert guarantee.lower_bound(selected([0], [0], [15])).tolist() == [0.0]


@EVERY
@pytest.mark.parametrize("noise", sorted(NOISES))
def test_no_votes_certify_more_than_the_largest_radius(guarantee: Guarantee, noise: str) -> None:
    kind = make_noise(noise)
    largest = guarantee.largest_radius(kind, sigma=SIGMA)
    unanimous = guarantee.lower_bound(selected([500], [500], [20]))
    assert kind.radius(unanimous, sigma=SIGMA)[0] == pytest.approx(largest, rel=1e-9)
    guarantee.require_reach(kind, sigma=SIGMA, wanted=0.999 * largest)
    with pytest.raises(UsageError, match="can never certify"):
        guarantee.require_reach(kind, sigma=SIGMA, wanted=1.005 * largest)
    with pytest.raises(UsageError, match="can never certify anything"):
        smaller(guarantee, 5).require_reach(kind, sigma=SIGMA)


def smaller(guarantee: Guarantee, draws: int) -> Guarantee:
    if isinstance(guarantee, FixedDraws):
        return replace(guarantee, n=draws)
    assert isinstance(guarantee, Anytime)
    return replace(guarantee, stopping=replace(guarantee.stopping, max_draws=draws))


@EVERY
def test_all_draws_are_enough_and_rows_may_have_them(guarantee: Guarantee) -> None:
    for votes in (0, 250, 490, 500):
        state = selected([votes], [500], [10])
        assert guarantee.enough(state, GAUSSIAN, sigma=SIGMA).tolist() == [True]
    assert guarantee.draws_problem(500) == ""
    assert "draws" in guarantee.draws_problem(0)


def test_draws_that_a_row_may_have() -> None:
    fixed, stops, anytime, *_ = TABLE
    assert fixed.draws_problem(256) == "has n=256 draws, not 500"
    assert stops.draws_problem(256) == ""
    assert stops.draws_problem(512) == "has n=512 draws, not 500"
    assert anytime.draws_problem(256) == ""


def test_rows_that_stopped_early_claim_nothing() -> None:
    """Where their draws ended depends on the votes: no other alpha may read a bound off them."""
    stops = replace(TABLE[1], alpha=0.5)
    assert stops.lower_bound(selected([400], [400], [20])).tolist() == [0.0]


@EVERY
def test_checks_come_after_whole_batches(guarantee: Guarantee) -> None:
    checked = 0
    while checked < guarantee.max_draws:
        checked = guarantee.next_check(checked, batch=BATCH)
        assert checked % BATCH == 0 or checked == guarantee.max_draws
    in_batches = guarantee.in_whole_batches(BATCH)
    if guarantee.holds_at_any_time:
        assert in_batches.max_draws == 512
    else:
        assert in_batches == guarantee


@pytest.mark.parametrize(
    "guarantee",
    [*TABLE, Anytime(Stopping(radii=(0.5, 1 / 3)))],
    ids=lambda guarantee: guarantee.description,
)
def test_options_ask_for_the_same_guarantee_again(guarantee: Guarantee) -> None:
    options = guarantee.options()
    mode = options.pop("mode", "exact")
    if "radii" in options:
        options["radii"] = tuple(map(float, str(options["radii"]).split(",")))
    given = GuaranteeOptions(**options)  # type: ignore[arg-type]
    again = GUARANTEES[str(mode)].from_options(given)
    assert again == guarantee


def test_words_say_what_was_drawn() -> None:
    assert [guarantee.description for guarantee in TABLE] == [
        "exact, n 500",
        "exact, n 500",
        "anytime, at most 500 draws",
        "anytime, radii 0.25, 0.5 decided and at most 500 draws",
        "anytime, the radius within 0.1 and at most 500 draws",
    ]


@pytest.mark.parametrize(
    ("mode", "options", "message"),
    [
        ("exact", {"radii": (0.5,)}, "--radii goes with --mode anytime"),
        (
            "exact",
            {"tolerance": 0.1, "max_draws": 5},
            "--tolerance and --max-draws go with --mode anytime",
        ),
        ("exact", {"foresight": 0.0}, "--foresight goes with --mode anytime"),
        ("anytime", {"foresight": 0.1}, "--foresight goes with --radii or --tolerance"),
        ("anytime", {"stop_abstaining": True}, "--stop-abstaining goes with --mode exact"),
        ("exact", {"n": 0}, "n must be at least 1, got 0"),
        ("exact", {"n": 1e3}, "n must be a whole number, got 1000.0"),
        ("anytime", {"n0": 0}, "n0 must be at least 1, got 0"),
        ("anytime", {"alpha": 2.0}, "alpha must lie strictly between 0 and 1, got 2.0"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    mode: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as error:
        GUARANTEES[mode].from_options(GuaranteeOptions(**options))
    assert message in str(error.value)


def test_commands_have_foresight_where_there_is_something_to_foresee() -> None:
    def foresight_of(**options: Any) -> float:
        guarantee = Anytime.from_options(GuaranteeOptions(**options))
        return guarantee.stopping.foresight

    assert foresight_of(radii=(0.5,)) == FORESIGHT == 0.02
    assert foresight_of(tolerance=0.1) == FORESIGHT
    assert foresight_of(radii=(0.5,), foresight=0.0) == 0
    assert foresight_of() == 0
    guarantee = Anytime(Stopping(radii=(0.5,), foresight=0.05))
    assert guarantee.description.endswith("at most 100,000 draws, foresight 0.05")


def test_differences_are_named() -> None:
    fixed, stops, anytime, radii, _ = TABLE
    assert fixed.differences(fixed) == []
    assert fixed.differences(stops) == [("stop_abstaining", False, True)]
    assert fixed.differences(FixedDraws(400, n0=20, alpha=0.01)) == [("n", 500, 400)]
    assert anytime.differences(radii) == [(GUARANTEE, anytime.description, radii.description)]
    assert fixed.differences(replace(anytime, n0=30)) == [
        (GUARANTEE, fixed.description, anytime.description),
        ("n0", 20, 30),
    ]


def test_only_what_holds_at_any_time_may_be_extended() -> None:
    fixed, _, anytime, radii, _ = TABLE
    assert anytime.extension_problem(radii) == ""
    assert smaller(anytime, 900).extension_problem(anytime) == ""
    assert "at least as many, not 100" in smaller(anytime, 100).extension_problem(anytime)
    assert "a fixed number of draws" in anytime.extension_problem(fixed)
    assert "another guarantee" in fixed.extension_problem(anytime)


OUTSIDE = """
from dataclasses import dataclass
import numpy as np
from smoothmix.stats.guarantees import FixedDraws, Guarantee

@dataclass(frozen=True)
class Half(Guarantee):
    n: int = 500

    @property
    def max_draws(self):
        return self.n

    def lower_bound(self, votes):
        return votes.votes / np.maximum(votes.draws, 1) / 2

    def largest_radius(self, noise, *, sigma):
        return float(noise.radius(0.5, sigma=sigma))

    def next_check(self, drawn, *, batch):
        return self.n

    def enough(self, votes, noise, *, sigma):
        return votes.draws >= self.n

@dataclass(frozen=True)
class Needy(Half):
    width: float = None

    def __post_init__(self):
        raise TypeError("width")
"""


def test_a_guarantee_from_outside_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_guarantees.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(tmp_path)
    trust("my_guarantees")
    half = GUARANTEES["my_guarantees:Half"].from_options(GuaranteeOptions(n=300, alpha=0.1))
    assert (half.mode, half.max_draws, half.alpha) == ("my_guarantees:Half", 300, 0.1)
    assert half.description == "my_guarantees:Half, n 300"
    assert half.options() == {"mode": "my_guarantees:Half", "n0": 100, "n": 300, "alpha": 0.1}
    assert half.draws_problem(299) == "has n=299 draws, not 300"
    with pytest.raises(UsageError, match="300 draws in mode my_guarantees:Half can never certify"):
        half.require_reach(GAUSSIAN, sigma=0.5)
    with pytest.raises(UsageError, match="--radii goes with --mode anytime"):
        GUARANTEES["my_guarantees:Half"].from_options(GuaranteeOptions(radii=(0.5,)))
    with pytest.raises(UsageError, match="cannot be made from options"):
        GUARANTEES["my_guarantees:Needy"].from_options(GuaranteeOptions())
    with pytest.raises(UsageError, match="unknown guarantee 'exakt': did you mean 'exact'"):
        GUARANTEES["exakt"]
    del sys.modules["my_guarantees"]

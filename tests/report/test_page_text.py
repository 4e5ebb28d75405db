"""The page as text: complete in itself, no markup from names, radii rounded down, its headline."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothmix.analysis import Estimate
from smoothmix.report.headline import headline
from smoothmix.report.payload import payload
from smoothmix.report.sections.summary import scale
from smoothmix.report.views import Curve, Difference, RunView
from smoothmix.tables.numbers import radius
from tests.helpers.pages import (
    HOSTILE,
    MadePage,
    bare_run,
    crowded_page,
    made_page,
    made_run,
    page_of,
    rendered,
)


class Addresses(HTMLParser):
    """Everything that a page points to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [
            value or ""
            for name, value in attrs
            if name in ("src", "href", "action", "srcset", "poster")
        ]


@pytest.mark.parametrize("make", [made_page, crowded_page])
def test_the_page_points_at_nothing_outside_itself(make: Callable[[], MadePage]) -> None:
    addresses = Addresses()
    addresses.feed(rendered(make()))
    assert addresses.found
    assert all(address.startswith(("#", "data:")) for address in addresses.found)


def test_twenty_runs_fit_into_two_megabytes() -> None:
    assert len(rendered(crowded_page()).encode()) < 2_000_000


def test_the_same_page_is_the_same_text() -> None:
    assert rendered(made_page()) == rendered(made_page())


def test_data_is_strict_json_that_no_name_leaves() -> None:
    _, _, rest = rendered(made_page()).partition('id="data">')
    text, _, _ = rest.partition("</script>")
    data = json.loads(text, parse_constant=pytest.fail)
    assert data["runs"][2] == HOSTILE
    mix = [trace for trace in data["charts"]["loss"]["traces"] if trace["choice"] == "mix"]
    assert mix[0]["y"][0] is None
    assert not set("<>&\u2028\u2029") & set(text)


def test_names_that_utf8_cannot_hold_do_not_stop_the_page() -> None:
    assert "odd?name" in rendered(replace(made_page(), runs=[made_run("odd\udcffname", mean=0.5)]))


SMALL = replace(made_page(), images=(), runs=[bare_run("small")])


@given(st.floats(0, 1e4))
def test_no_radius_is_rounded_up(value: float) -> None:
    run = replace(SMALL.runs[0], curve=Curve(x=[0.0, value], y=[1.0, value / 1e4]))
    data = payload(page_of(replace(SMALL, runs=[run])))
    (trace,) = data["charts"]["curve"]["traces"]
    drawn = zip(data["axes"][trace["axis"]], trace["y"], strict=True)
    # Up to the last point of the file, whatever is drawn at a radius holds there.
    for at, share in drawn:
        within = at <= value * (1 + 1e-11)
        assert share <= (value / 1e4 * (1 + 1e-11) if within and at > 0 else float(at == 0))
    assert value - 0.001 - 1e-9 <= float(radius(value)) <= value * (1 + 1e-11)


def against(versus: str, *acr: float) -> Difference:
    return Difference(versus=versus, images=50, acr=Estimate(*acr))


def plain_headline(*runs: RunView, runner_up: Difference | None = None) -> str:
    page = replace(made_page(), runs=runs, runners_up={0: runner_up} if runner_up else {})
    return " ".join(sentence.striptags() for sentence in headline(page))


def test_the_headline_says_who_wins_and_by_how_much() -> None:
    base, best = made_run("gaussian", mean=0.2), made_run("smoothmix", mean=0.9)
    text = plain_headline(base, replace(best, difference=against("gaussian", 0.142, 0.12, 0.164)))
    assert text.startswith("smoothmix is certifiably robust at average radius 0.8")
    assert text.endswith(", 0.142 [0.120, 0.164] above gaussian on the same 50 images.")


def test_the_headline_turns_the_difference_round_when_the_baseline_wins() -> None:
    base, worse = made_run("gaussian", mean=0.9), made_run("smoothmix", mean=0.2)
    text = plain_headline(base, replace(worse, difference=against("gaussian", -0.4, -0.5, -0.3)))
    assert text.startswith("gaussian is certifiably robust")
    assert text.endswith(", 0.400 [0.300, 0.500] above smoothmix on the same 50 images.")


@pytest.mark.parametrize("low", [-0.01, 0.0, 0.0004])
def test_the_headline_claims_no_winner_where_the_interval_holds_zero(low: float) -> None:
    base, best = made_run("gaussian", mean=0.5), made_run("smoothmix", mean=0.55)
    text = plain_headline(base, replace(best, difference=against("gaussian", 0.02, low, 0.05)))
    assert "on the same 50 images, is too small to say which of the two is better" in text
    assert "above" not in text


def test_the_headline_names_a_second_run_that_may_be_as_good() -> None:
    base, best = made_run("gaussian", mean=0.2), made_run("smoothmix", mean=0.9)
    near = made_run("consistency", mean=0.88)
    ahead = against("gaussian", 0.142, 0.12, 0.164)
    runs = (base, near, replace(best, difference=ahead))
    assert "Close behind is consistency" in plain_headline(*runs)
    assert "so this page does not say which of the two is better" in plain_headline(*runs)
    paired = plain_headline(*runs, runner_up=against("consistency", 0.008, 0.006, 0.01))
    assert paired.endswith(
        "smoothmix is ahead of it by +0.008 [0.006, 0.010] on the same 50 images."
    )
    unsure = plain_headline(*runs, runner_up=against("consistency", 0.008, -0.001, 0.02))
    assert unsure.endswith(
        "the lead, +0.008 [\u22120.001, 0.020] on the same 50 images, "
        "is too small to say which of the two is better."
    )


def test_runs_are_ranked_within_one_noise_level_only() -> None:
    base, best = made_run("gaussian", mean=0.2), made_run("smoothmix", mean=0.9)
    ahead = replace(best, difference=against("gaussian", 0.142, 0.12, 0.164))
    other = made_run("wide noise", mean=1.4, sigma=1.0)
    first, second = [
        sentence.striptags()
        for sentence in headline(replace(made_page(), runs=(base, ahead, other)))
    ]
    assert first.startswith("At σ 0.5, smoothmix is certifiably robust at average radius")
    assert first.endswith("above gaussian on the same 50 images.")
    assert second.startswith("At σ 1, wide noise is certifiably robust at average radius 1.")
    assert second.endswith("].")


def test_runs_that_were_not_certified_alike_are_not_ranked() -> None:
    base, best = made_run("few draws", mean=0.2), made_run("many draws", mean=0.9)
    ahead = replace(best, difference=against("few draws", 0.142, 0.12, 0.164))
    ahead = replace(ahead, group=1)
    (text,) = headline(replace(made_page(), runs=(base, ahead)))
    assert text.striptags().startswith(
        "At σ 0.5, the average radii, from 0.316 (few draws) to 0.889"
    )
    assert text.striptags().endswith(
        "(many draws), are not ranked: these runs were not certified with the same settings."
    )


def test_the_headline_claims_no_robustness_of_rounded_radii_and_no_interval_of_few_images() -> None:
    page = replace(made_page(), runs=[made_run("only", mean=0.5, images=1)], paper_rounding=True)
    (text,) = headline(page)
    assert text.striptags().startswith("only has, rounded as in the paper, the average radius 0.")
    assert "of its 1 image is classified correctly" in text
    assert "[" not in text


def test_the_headline_of_one_run_and_of_none() -> None:
    assert "images are classified correctly and certified at radius 0.75." in plain_headline(
        made_run("only", mean=0.5)
    )
    assert plain_headline() == ""


def test_equal_intervals_have_room_on_their_scale() -> None:
    nearly = 0.6158 * (1 + 1e-15)
    low, high = scale([Estimate(0.6158, 0.6158, nearly)])
    assert high - low == pytest.approx(1.0)


def test_axes_name_the_norm_of_the_noise() -> None:
    page = made_page()
    laplace = replace(page.runs[0], name="laplace", norm="L1")
    assert "radius (L2)" in rendered(page)
    assert "radius (L1)" in rendered(replace(page, runs=[laplace], images=()))
    assert "radius (L2 or L1)" in rendered(replace(page, runs=[page.runs[1], laplace], images=()))

"""The sentences at the top of the page: which run is most robust, and by how much. No torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from markupsafe import Markup

from smoothmix._io.text import counted
from smoothmix.analysis import Estimate
from smoothmix.analysis.compare import MOST_NAMES, TOO_FEW_IMAGES
from smoothmix.report.comparison import Comparison
from smoothmix.report.views import Difference, RunView, base_name
from smoothmix.tables.numbers import number, percent, signed

DIGITS = 3
"""Printed of a radius: an interval contains 0 if it does so as printed."""


def headline(comparison: Comparison) -> list[Markup]:
    """Which run is most robust and by how much, claiming no more than the intervals allow.

    Runs of different sigma, or certified with different settings, are not ranked: their radii
    differ for that reason alone.
    """
    if len(comparison.runs) == 1:
        run = comparison.runs[0]
        return [_opening(comparison, run) + _only_run(comparison, run)]
    levels = comparison.by_sigma
    # With one noise level there is no need to name it.
    if len(levels) == 1 and comparison.comparable:
        (sigma,) = levels
        return _ranking(comparison, sigma)
    sentences = []
    for sigma in levels:
        ranking = _ranking(_with_short_names(comparison, sigma), sigma)
        sentences.append(_at_sigma(sigma) + Markup(" ").join(ranking))
    return sentences


def _with_short_names(comparison: Comparison, sigma: float | None) -> Comparison:
    """The runs of one noise level without the sigma in their names: the sentence begins so."""
    runs = []
    runners_up = dict(comparison.runners_up)
    for run in comparison.by_sigma[sigma]:
        difference = run.difference
        if difference is not None:
            difference = _with_short_name(difference, sigma)
        runs.append(replace(run, name=run.base_name, difference=difference))
        runner_up = runners_up.get(run.group)
        if runner_up is not None:
            runners_up[run.group] = _with_short_name(runner_up, sigma)
    return replace(comparison, runs=runs, runners_up=runners_up)


def _with_short_name(difference: Difference, sigma: float | None) -> Difference:
    # Against a run of another sigma, the name keeps it.
    return replace(difference, versus=base_name(difference.versus, sigma))


def _at_sigma(sigma: float | None) -> Markup:
    if sigma is None:
        return Markup("Of unknown σ, ")
    return Markup("At σ {:g}, ").format(sigma)


def _opening(comparison: Comparison, run: RunView) -> Markup:
    # Radii that may have been rounded up certify nothing.
    claim = "is certifiably robust at"
    if comparison.paper_rounding:
        claim = "has, rounded as in the paper, the"
    return Markup("<strong>{}</strong> {} average radius <strong>{}</strong>{}").format(
        run.name, claim, number(run.acr.value), _interval(run.acr, run.images)
    )


def _only_run(comparison: Comparison, run: RunView) -> Markup:
    """What else there is to say about the only run: its accuracy at a radius in the middle."""
    if not comparison.radii:
        return Markup(".")
    middle = len(comparison.radii) // 2
    share = run.accuracy[middle]
    verb = "is" if run.images == 1 else "are"
    text = Markup("; {}%{} of its {} {} classified correctly and certified at radius {:g}.")
    return text.format(
        percent(share.value),
        _interval(share, run.images, percent),
        counted(run.images, "image"),
        verb,
        comparison.radii[middle],
    )


def _ranking(comparison: Comparison, sigma: float | None) -> list[Markup]:
    """Which run of a noise level is most robust."""
    runs = comparison.ranked(sigma)
    every = comparison.by_sigma[sigma]
    # A single run of each kind: there is nothing to rank.
    if len(runs) == 1 and len(every) > 1:
        return [_not_ranked(every)]
    others = [run.name for run in every if run not in runs]
    return [*_ranking_of(comparison, runs), *_left_out(others)]


def _left_out(names: Sequence[str]) -> list[Markup]:
    """The runs of a noise level that are not ranked with the others."""
    if not names:
        return []
    verb = "is" if len(names) == 1 else "are"
    shown = ", ".join(names[:MOST_NAMES])
    if len(names) > MOST_NAMES:
        shown += f" and {len(names) - MOST_NAMES} more"
    text = Markup("<strong>{}</strong> {} not ranked with them: other images or other settings.")
    return [text.format(shown, verb)]


def _ranking_of(comparison: Comparison, runs: Sequence[RunView]) -> list[Markup]:
    best = runs[0]
    opening = _opening(comparison, best)
    if len(runs) == 1:
        return [opening + "."]
    lead = _lead(runs, best)
    runner_up = comparison.runners_up.get(best.group)
    if lead is None:
        return [
            opening + ": the highest of these runs.",
            *_close_second(runs, best, None, runner_up),
        ]
    # Whoever is ahead by chance must not be called better.
    if _contains_zero(lead.acr):
        return [opening + ".", _too_small(lead)]
    ahead = Markup(", <strong>{}</strong>{} {} <strong>{}</strong> on the same {}.").format(
        number(lead.acr.value),
        _interval(lead.acr, lead.images),
        "above" if lead.acr.value > 0 else "away from",
        lead.versus,
        counted(lead.images, "image"),
    )
    return [opening + ahead, *_close_second(runs, best, lead.versus, runner_up)]


def _not_ranked(runs: Sequence[RunView]) -> Markup:
    ordered = sorted(runs, key=lambda run: run.acr.value)
    highest = ordered[-1]
    lowest = ordered[0]
    return Markup(
        "the average radii, from {} (<strong>{}</strong>) to {} (<strong>{}</strong>), "
        "are not ranked: these runs were not certified with the same settings."
    ).format(number(lowest.acr.value), lowest.name, number(highest.acr.value), highest.name)


def _too_small(lead: Difference) -> Markup:
    return Markup(
        "Its lead over <strong>{}</strong>, {}{} on the same {}, "
        "is too small to say which of the two is better."
    ).format(
        lead.versus,
        signed(lead.acr.value),
        _interval(lead.acr, lead.images),
        counted(lead.images, "image"),
    )


def _lead(runs: Sequence[RunView], best: RunView) -> Difference | None:
    """The paired difference between the best run and the run that it was compared with."""
    if best.difference:
        return best.difference
    # Where the best run is the baseline, the next best was compared with it.
    for run in runs:
        if run.difference and run.difference.versus == best.name:
            gap = run.difference.acr
            reversed_gap = Estimate(value=-gap.value, low=-gap.high, high=-gap.low)
            return Difference(versus=run.name, images=run.difference.images, acr=reversed_gap)
    return None


def _close_second(
    runs: Sequence[RunView], best: RunView, rival: str | None, runner_up: Difference | None
) -> list[Markup]:
    """A caution where a run other than the rival may be as good as the best."""
    second = None
    for run in runs:
        may_be_as_good = run.acr.high >= best.acr.low
        if run is not best and run.name != rival and may_be_as_good:
            second = run
            break
    if second is None:
        return []
    opening = Markup("Close behind is <strong>{}</strong> with {}{}: ").format(
        second.name, number(second.acr.value), _interval(second.acr, second.images)
    )
    if runner_up is None or runner_up.versus != second.name:
        return [
            opening + "the intervals overlap, so this page does not say which of the two is better."
        ]
    # The two intervals overlap also because of what the images have in common; that of the paired
    # difference does not contain it.
    lead = Markup("{}{} on the same {}").format(
        signed(runner_up.acr.value),
        _interval(runner_up.acr, runner_up.images),
        counted(runner_up.images, "image"),
    )
    if round(runner_up.acr.low, DIGITS) > 0:
        ahead = Markup("<strong>{}</strong> is ahead of it by {}.").format(best.name, lead)
        return [opening + ahead]
    unsure = Markup("the lead, {}, is too small to say which of the two is better.")
    return [opening + unsure.format(lead)]


def _contains_zero(gap: Estimate) -> bool:
    return round(gap.low, DIGITS) <= 0 <= round(gap.high, DIGITS)


def _interval(estimate: Estimate, images: int, text: Callable[[float], str] = number) -> Markup:
    """The interval behind a number. With too few images it would seem more certain than it is."""
    if images < TOO_FEW_IMAGES:
        return Markup("")
    return Markup(' <span class="interval">[{}, {}]</span>').format(
        text(estimate.low), text(estimate.high)
    )

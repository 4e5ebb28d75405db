"""The sentences at the top of the page: which run is most robust, and by how much. No torch."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

from markupsafe import Markup

from smoothmix.analysis import Estimate
from smoothmix.report.data import Page, RunView
from smoothmix.report.numbers import number, percent, signed
from smoothmix.words import counted

_acr = attrgetter("acr.value")


def headline(page: Page) -> list[Markup]:
    """Which run is most robust and by how much, in sentences that claim no more than the intervals allow."""
    if not page.runs:
        return []
    best = max(page.runs, key=_acr)
    opening = Markup("<strong>{}</strong> is certifiably robust at average radius <strong>{}</strong> {}").format(
        best.name, number(best.acr.value), _interval(best.acr)
    )
    if len(page.runs) == 1:
        return [opening + _alone(page, best)]
    rival, gap, images = _ahead(page, best)
    if gap is None:
        return [opening + ": the highest on this page.", *_close_second(page, best, rival)]
    if not (round(gap.low, 3) > 0 or round(gap.high, 3) < 0):  # as printed
        same = Markup("Its lead over <strong>{}</strong>, {} {} on the same {}, is too small to tell the two apart.")
        return [opening + ".", same.format(rival, signed(gap.value), _interval(gap), counted(images, "image"))]
    apart = Markup(", <strong>{}</strong> {} {} <strong>{}</strong> on the same {}.").format(
        number(gap.value), _interval(gap), "above" if gap.value > 0 else "away from", rival, counted(images, "image")
    )
    return [opening + apart, *_close_second(page, best, rival)]


def _alone(page: Page, run: RunView) -> Markup:
    """What else there is to say of the only run."""
    if not page.radii:
        return Markup(".")
    at = len(page.radii) // 2
    share = run.accuracy[at]
    return Markup("; {}% {} of its {} are classified right and certified at radius {:g}.").format(
        percent(share.value), _interval(share, percent), counted(run.images, "image"), page.radii[at]
    )


def _ahead(page: Page, best: RunView) -> tuple[str, Estimate | None, int]:
    """With whom the best run was compared on the same images, how far it is ahead, and on how many."""
    if best.difference:
        return best.difference.versus, best.difference.acr, best.difference.images
    for run in sorted(page.runs, key=_acr, reverse=True):
        if run.difference and run.difference.versus == best.name:
            gap = run.difference.acr
            return run.name, Estimate(value=-gap.value, low=-gap.high, high=-gap.low), run.difference.images
    return "", None, 0


def _close_second(page: Page, best: RunView, rival: str) -> list[Markup]:
    """A caution where a run that was not compared with the best may be as good."""
    others = [run for run in page.runs if run is not best and run.name != rival and run.acr.high >= best.acr.low]
    if not others:
        return []
    second = max(others, key=_acr)
    said = Markup("Close behind is <strong>{}</strong> with {} {}: ").format(
        second.name, number(second.acr.value), _interval(second.acr)
    )
    paired = page.runner_up if page.runner_up and page.runner_up.versus == second.name else None
    if paired is None:
        return [said + "the intervals overlap, so this page does not say which of the two is better."]
    # Intervals of the two overlap by what their images have in common; that of the difference does not contain it.
    lead = Markup("{} {} on the same {}").format(
        signed(paired.acr.value), _interval(paired.acr), counted(paired.images, "image")
    )
    if round(paired.acr.low, 3) > 0:  # as printed
        return [said + Markup("<strong>{}</strong> is ahead of it by {}.").format(best.name, lead)]
    return [said + Markup("the lead, {}, is too small to tell the two apart.").format(lead)]


def _interval(estimate: Estimate, text: Callable[[float], str] = number) -> Markup:
    return Markup('<span class="interval">[{}, {}]</span>').format(text(estimate.low), text(estimate.high))

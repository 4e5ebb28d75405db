"""The sentences at the top of the page: which run is most robust, and by how much. No torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

from markupsafe import Markup

from smoothmix._io.text import counted
from smoothmix.analysis import Estimate
from smoothmix.analysis.compare import TOO_FEW_IMAGES
from smoothmix.report.data import Difference, Page, RunView
from smoothmix.tables.numbers import number, percent, signed

_acr = attrgetter("acr.value")


def headline(page: Page) -> list[Markup]:
    """Which run is most robust and by how much, in sentences that claim no more than the intervals allow.

    Runs of another sigma, or certified otherwise, are not ranked: their radii differ for that alone.
    """
    if len(page.runs) == 1:
        return [_opening(page, page.runs[0]) + _alone(page, page.runs[0])]
    levels = page.by_sigma
    if len(levels) == 1 and page.comparable:
        return [sentence for sigma in levels for sentence in _ranked(page, sigma)]
    return [_at_sigma(sigma) + Markup(" ").join(_ranked(page, sigma)) for sigma in levels]


def _at_sigma(sigma: float | None) -> Markup:
    return Markup("Of unknown σ, ") if sigma is None else Markup("At σ {:g}, ").format(sigma)


def _opening(page: Page, run: RunView) -> Markup:
    said = (
        "has, rounded as in the paper, the" if page.paper_rounding else "is certifiably robust at"
    )
    return Markup("<strong>{}</strong> {} average radius <strong>{}</strong>{}").format(
        run.name, said, number(run.acr.value), _interval(run.acr, run.images)
    )


def _ranked(page: Page, sigma: float | None) -> list[Markup]:
    """Which run of a noise level is most robust."""
    runs = page.by_sigma[sigma]
    if sigma in page.unlike:
        one, other = min(runs, key=_acr), max(runs, key=_acr)
        said = Markup(
            "the average radii, from {} (<strong>{}</strong>) to {} (<strong>{}</strong>), are not ranked: "
        )
        ends = said.format(number(one.acr.value), one.name, number(other.acr.value), other.name)
        return [ends + "these runs were not certified alike."]
    best = max(runs, key=_acr)
    opening = _opening(page, best)
    if len(runs) == 1:
        return [opening + "."]
    rival, gap, images = _ahead(runs, best)
    if gap is None:
        return [
            opening + ": the highest of these runs.",
            *_close_second(runs, best, rival, page.runners_up.get(sigma)),
        ]
    if not (round(gap.low, 3) > 0 or round(gap.high, 3) < 0):  # as printed
        same = Markup(
            "Its lead over <strong>{}</strong>, {}{} on the same {}, is too small to tell the two apart."
        )
        return [
            opening + ".",
            same.format(rival, signed(gap.value), _interval(gap, images), counted(images, "image")),
        ]
    apart = Markup(", <strong>{}</strong>{} {} <strong>{}</strong> on the same {}.").format(
        number(gap.value),
        _interval(gap, images),
        "above" if gap.value > 0 else "away from",
        rival,
        counted(images, "image"),
    )
    return [opening + apart, *_close_second(runs, best, rival, page.runners_up.get(sigma))]


def _alone(page: Page, run: RunView) -> Markup:
    """What else there is to say of the only run."""
    if not page.radii:
        return Markup(".")
    at = len(page.radii) // 2
    share = run.accuracy[at]
    return Markup("; {}%{} of its {} {} classified right and certified at radius {:g}.").format(
        percent(share.value),
        _interval(share, run.images, percent),
        counted(run.images, "image"),
        "is" if run.images == 1 else "are",
        page.radii[at],
    )


def _ahead(runs: Sequence[RunView], best: RunView) -> tuple[str, Estimate | None, int]:
    """With whom the best run was compared on the same images, how far it is ahead, and on how many."""
    if best.difference:
        return best.difference.versus, best.difference.acr, best.difference.images
    for run in sorted(runs, key=_acr, reverse=True):
        if run.difference and run.difference.versus == best.name:
            gap = run.difference.acr
            return (
                run.name,
                Estimate(value=-gap.value, low=-gap.high, high=-gap.low),
                run.difference.images,
            )
    return "", None, 0


def _close_second(
    runs: Sequence[RunView], best: RunView, rival: str, runner_up: Difference | None
) -> list[Markup]:
    """A caution where a run that was not compared with the best may be as good."""
    others = [
        run
        for run in runs
        if run is not best and run.name != rival and run.acr.high >= best.acr.low
    ]
    if not others:
        return []
    second = max(others, key=_acr)
    said = Markup("Close behind is <strong>{}</strong> with {}{}: ").format(
        second.name, number(second.acr.value), _interval(second.acr, second.images)
    )
    paired = runner_up if runner_up and runner_up.versus == second.name else None
    if paired is None:
        return [
            said + "the intervals overlap, so this page does not say which of the two is better."
        ]
    # Intervals of the two overlap by what their images have in common; that of the difference does not contain it.
    lead = Markup("{}{} on the same {}").format(
        signed(paired.acr.value),
        _interval(paired.acr, paired.images),
        counted(paired.images, "image"),
    )
    if round(paired.acr.low, 3) > 0:  # as printed
        return [said + Markup("<strong>{}</strong> is ahead of it by {}.").format(best.name, lead)]
    return [said + Markup("the lead, {}, is too small to tell the two apart.").format(lead)]


def _interval(estimate: Estimate, images: int, text: Callable[[float], str] = number) -> Markup:
    """The interval behind a number; of too few images it would seem surer than it is."""
    if images < TOO_FEW_IMAGES:
        return Markup("")
    return Markup(' <span class="interval">[{}, {}]</span>').format(
        text(estimate.low), text(estimate.high)
    )

"""The page with many runs: blocks by sigma, one look per method, what is marked, what is blank."""

from __future__ import annotations

from dataclasses import replace

from markupsafe import Markup

from smoothmix.analysis import Estimate
from smoothmix.report import Comparison, RunView, make_page, render
from smoothmix.report.sections.curves import make_slider
from smoothmix.report.sections.gallery import _images_per_kind
from smoothmix.report.sections.radii import radii
from smoothmix.report.sections.summary import blocks
from tests.helpers.pages import RADII, made_page, made_run


def run_at(name: str, sigma: float, mean: float, group: int) -> RunView:
    return made_run(
        f"{name}, sigma {sigma:g}",
        mean=mean,
        sigma=sigma,
        group=group,
        largest_radius=3.2 * sigma,
        training=None,
    )


def many(methods: int = 4) -> Comparison:
    """Methods at two sigmas; at the small one nothing is certified from 1 on."""
    runs = []
    for number in range(methods):
        small = run_at(f"method {number}", 0.25, 0.2 + number / 10, 0)
        accuracy = [
            share if radius < 0.8 else Estimate(0.0, 0.0, 0.01)
            for radius, share in zip(RADII, small.accuracy, strict=True)
        ]
        runs.append(replace(small, accuracy=accuracy))
        runs.append(run_at(f"method {number}", 0.5, 0.5 + number / 10, 1))
    return replace(made_page(), runs=runs, measured=())


def test_a_method_looks_the_same_at_every_sigma() -> None:
    styles = many().styles
    assert [look for look, _ in styles] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [dash for _, dash in styles] == [0, 1] * 4
    # At one sigma, more than seven are told apart by colour, marker and dash together.
    one_sigma = replace(many(), runs=[made_run(f"m{i}", mean=0.5) for i in range(100)])
    seen = {(look % 7, look % 8, dash % 5) for look, dash in one_sigma.styles}
    assert len(seen) == 100


def test_the_table_has_a_block_for_each_sigma_with_its_best_marked() -> None:
    small, large = blocks(many())
    assert [run.sigma for _, run in small.runs] == [0.25] * 4
    assert [at for at, _ in large.runs] == [1, 3, 5, 7]
    assert small.best_acr == {6}
    assert large.best_acr == {7}
    # RADII are 0, 0.25, ... 1.5; sigma 0.25 reaches 0.8.
    assert small.reached == [True, True, True, True, False, False, False]
    assert large.reached == [True] * 7
    html = render(make_page(many()))
    table = html[html.index('<table class="summary') :]
    table = table[: table.index("</table>")]
    assert table.count("<tbody>") == 2
    assert table.count('<td class="num" data-sort=""></td>') == 4 * 3
    assert "Blank under a radius" in html
    assert "A dash under a radius" not in html


def test_nothing_is_best_among_runs_that_were_not_certified_alike() -> None:
    runs = [replace(run, group=number) for number, run in enumerate(many().runs)]
    for block in blocks(replace(many(), runs=runs)):
        assert block.best_acr == set()
        assert all(best == set() for best in block.best)


def test_the_slider_starts_where_runs_differ_most() -> None:
    comparison = many()
    start = make_slider(comparison).start
    gaps = []
    for column, _ in enumerate(RADII):
        shares = [run.accuracy[column].value for run in comparison.runs if run.sigma == 0.5]
        small = [run.accuracy[column].value for run in comparison.runs if run.sigma == 0.25]
        gaps.append(max(max(shares) - min(shares), max(small) - min(small)))
    assert start == RADII[gaps.index(max(gaps))]


def test_many_histograms_become_quantiles() -> None:
    section = radii(many())
    assert section is not None
    chart = section.charts[0]
    assert chart.id == "quantiles"
    for trace, run in zip(chart.traces, many().runs, strict=True):
        assert list(trace.x) == sorted(trace.x)
        # At least half of the images have the median or more.
        share = dict(zip(run.curve.x, run.curve.y, strict=True))[trace.x[2]]
        assert share >= 0.5
    few = radii(replace(many(), runs=many().runs[:6]))
    assert few is not None
    assert few.charts[0].id == "histogram"


def test_models_can_be_searched_and_marks_are_explained() -> None:
    html = Markup(render(make_page(many())))
    assert 'id="find-run"' in html
    assert "● the best of the models shown, at its σ among those certified alike" in html
    alone = render(make_page(replace(many(), runs=many().runs[:1])))
    assert 'id="find-run"' not in alone
    assert "● the best" not in alone


def test_of_many_models_the_legends_are_folded_and_settings_stay_closed_in_print() -> None:
    few = render(make_page(many(12)))
    assert "Colours and marks of" not in few
    assert '<details class="run">' in few
    html = render(make_page(many(13)))
    folds = html.count("<summary>Colours and marks of 26 models</summary>")
    # One for each section whose charts have a legend.
    assert folds == html.count('<ul class="legend">') > 1
    assert html.count('<details class="run many">') == 26


def test_the_gallery_has_fewer_images_of_many_models() -> None:
    assert [_images_per_kind(models) for models in (1, 4, 8, 12)] == [16, 16, 8, 5]

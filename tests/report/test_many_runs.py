"""The page with many runs: blocks by sigma, one look per method, what is marked, what is blank."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from markupsafe import Markup

from smoothmix.analysis import Estimate, measure
from smoothmix.report import Choices, Comparison, RunView, compare_runs, make_page, render
from smoothmix.report.headline import headline
from smoothmix.report.sections.curves import curves, make_slider
from smoothmix.report.sections.gallery import _images_per_kind, gallery
from smoothmix.report.sections.radii import radii
from smoothmix.report.sections.summary import blocks
from smoothmix.report.views import Difference
from tests.helpers.certificates import cohen_log
from tests.helpers.pages import RADII, MadePage, Open, chart, made_page, made_run, readings


def run_at(name: str, sigma: float, mean: float, group: int) -> RunView:
    return made_run(
        f"{name}, sigma {sigma:g}",
        mean=mean,
        sigma=sigma,
        group=group,
        largest_radius=3.2 * sigma,
        training=None,
    )


def many(methods: int = 4) -> MadePage:
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


def test_run_folders_with_their_sigma_in_the_name_look_the_same_at_every_sigma() -> None:
    runs = []
    for sigma in (0.25, 0.5, 1.0):
        for method in ("gaussian", "smoothmix"):
            run = run_at(method, sigma, 0.5, 0)
            runs.append(replace(run, name=f"mnist-{sigma:.2f}-{method}"))
    # The number of another setting is no sigma.
    runs.append(replace(runs[-1], name="mnist-1.00-smoothmix-0.50"))
    styles = replace(many(), runs=runs).styles
    assert [look for look, _ in styles] == [0, 1, 0, 1, 0, 1, 2]


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


def compared(versus: str) -> Comparison:
    """Four methods at two sigmas; all but the first are compared with it, or one with `versus`."""
    runs = []
    for run in many().runs:
        baseline = run.name.replace(run.base_name, "method 0")
        if run.base_name == "method 3":
            baseline = versus.format(run=run)
        gap = Estimate(0.1, 0.05, 0.15)
        difference = Difference(versus=baseline, images=250, acr=gap)
        runs.append(replace(run, difference=None if baseline == run.name else difference))
    return replace(many(), runs=runs)


def test_the_sigma_of_a_block_is_no_part_of_its_names() -> None:
    same = compared("method 0, sigma {run.sigma:g}")
    html = render(make_page(same))
    table = html[html.index('<table class="summary') : html.index("</table>")]
    assert "method 3" in table
    assert ">method 3, sigma" not in table
    # One baseline in each block, which its own row names.
    assert table.count("<small>baseline</small>") == 2
    assert "<small>from" not in table
    assert "image by image against method 0 at the same σ, over" in html
    small, large = headline(same)
    assert small.striptags().startswith("At σ 0.25, method 3 is certifiably robust")
    assert "above method 0 on the same 250 images" in large.striptags()


def test_a_difference_from_another_run_than_the_rest_says_from_which() -> None:
    other = compared("method 1, sigma 0.5")
    assert [block.names_baselines for block in blocks(other)] == [True, True]
    html = render(make_page(other))
    assert html.count("<small>from method 1, sigma 0.5</small>") == 2
    # A sentence on another sigma keeps it in the name.
    small, _ = headline(other)
    assert "above method 1, sigma 0.5 on the same" in small.striptags()


def test_one_number_of_images_stands_in_the_text_and_several_in_a_column() -> None:
    html = render(make_page(many()))
    assert "Each run has 250 images." in html
    assert 'data-name="Images"' not in html
    runs = [replace(many().runs[0], images=100), *many().runs[1:]]
    html = render(make_page(replace(many(), runs=runs)))
    assert "Each run has" not in html
    assert 'data-name="Images"' in html


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
    # Sigma by sigma from the top, though the runs alternate, with an empty row between the two.
    places = [trace.y[0] for trace in chart.traces]
    assert places == [9, 4, 8, 3, 7, 2, 6, 1]
    assert chart.rows == 9
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


def test_the_search_finds_models_and_all_of_them_are_chosen_at_once(opened: Open) -> None:
    comparison = many()
    tab = opened(comparison)
    tab.get_by_label("Find models by name").fill("1 0.5")
    rows = tab.locator("#readings tbody tr:visible")
    assert rows.count() == 1
    assert "method 1, sigma 0.5" in rows.first.inner_text()
    tab.get_by_label("Show all models").uncheck()
    # Those that were not found stay drawn.
    assert chart(tab, "curve", "data.length") == len(comparison.runs) - 1
    tab.get_by_label("Find models by name").fill("")
    assert rows.count() == len(comparison.runs)


def test_readings_of_many_models_stand_below_the_chart_and_no_row_is_cut(opened: Open) -> None:
    tab = opened(many(10), width=1280)
    below = tab.locator("#radius-box").bounding_box()
    box = tab.locator("#readings").bounding_box()
    assert below is not None
    assert box is not None
    assert box["y"] > below["y"] + below["height"]
    places = []
    for row in tab.locator("#readings tbody tr").all():
        place = row.bounding_box()
        assert place is not None
        assert place["y"] + place["height"] <= box["y"] + box["height"]
        assert place["x"] + place["width"] <= box["x"] + box["width"]
        places.append((place["x"], place["y"]))
    # In several columns, one row in each place.
    assert len({x for x, _ in places}) > 1
    assert len(set(places)) == len(readings(tab)) == 20


def test_the_curve_of_a_small_sigma_is_as_fine_as_its_panel(tmp_path: Path) -> None:
    paths = {}
    for sigma in (0.12, 1.0):
        radii_of_images = [3.8 * sigma * number / 50 for number in range(50)]
        paths[sigma] = cohen_log(tmp_path / f"noise_{sigma}", radii_of_images)
    every = [measure(f"log@{sigma}={path}") for sigma, path in paths.items()]
    section = curves(compare_runs(every, Choices(), title="t"))
    assert section is not None
    (trace,) = section.charts[1].traces
    # A hundred points, and as many values as there are radii: the large sigma's steps of 0.01
    # would leave 46.
    assert len(set(trace.y)) > 48
    for x, y in zip(trace.x, trace.y, strict=True):
        assert y <= every[0].accuracy_at([x])[0] + 1e-9


def test_without_images_and_votes_there_is_no_gallery(tmp_path: Path) -> None:
    log = measure(cohen_log(tmp_path / "noise_0.5", [0.1 * number for number in range(20)]))
    comparison = compare_runs([log], Choices(), title="t")
    assert gallery(comparison) is None


def test_of_many_models_the_legends_are_folded_and_settings_stay_closed_in_print() -> None:
    few = render(make_page(many(6)))
    assert "Colours and marks of" not in few
    assert '<details class="run">' in few
    html = render(make_page(many(7)))
    folds = html.count("<summary>Colours and marks of 14 models</summary>")
    # One for each section whose charts have a legend.
    assert folds == html.count('<ul class="legend">') > 1
    assert html.count('<details class="run many">') == 14


def test_the_gallery_has_fewer_images_of_many_models() -> None:
    assert [_images_per_kind(models) for models in (1, 4, 8, 12)] == [16, 16, 8, 5]

"""What each figure draws, against slow counting."""

from __future__ import annotations

import math
import re
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.patches import StepPatch
from matplotlib.text import Text

from smoothmix import analysis, plots
from smoothmix.errors import UsageError
from smoothmix.plots import labels
from tests.helpers.plots import EPOCHS, legend_of, lines_of, log, read_off, run, texts_of


class TestCertifiedAccuracy:
    def test_the_curve_is_what_counting_gives(self) -> None:
        m = run()
        line = lines_of(plots.certified_accuracy([m]))[m.name]
        corners = sorted({0.0, *m.radius.tolist()})
        between = [(a + b) / 2 for a, b in pairwise(corners)]
        for r in [*corners, *between, *(c + 1e-9 for c in corners)]:
            right = sum(row.correct and row.radius >= r for row in m.file.rows)
            assert read_off(line, r) == pytest.approx(100 * right / len(m), abs=1e-9), r

    def test_a_wrong_image_counts_nowhere_and_the_curve_ends_at_zero(self) -> None:
        line = lines_of(plots.certified_accuracy([log([9.5, 1.25, 1.25, 0.5], wrong=1)]))["log"]
        x, y = (np.asarray(data).tolist() for data in line.get_data())
        assert x == pytest.approx([0, 0.4995, 1.245, 1.245])  # what the printed digits prove
        assert y == [75, 75, 50, 0]

    def test_one_panel_for_each_noise_level_and_one_look_for_each_name(self) -> None:
        every = [
            run("b", sigma=1.0),
            run("a", sigma=0.25),
            run("b", sigma=0.25),
            log([0.5] * 3, name="c"),
        ]
        figure = plots.certified_accuracy(every)
        titles = ["σ = 0.25  (40 images)", "σ = 1  (40 images)", "σ not recorded  (3 images)"]
        assert [ax.get_title() for ax in figure.axes] == titles
        assert [set(lines_of(ax)) for ax in figure.axes] == [{"a", "b"}, {"b"}, {"c"}]
        assert legend_of(figure) == ["b", "a", "c"]  # as they were given
        low, high = (lines_of(ax)["b"] for ax in figure.axes[:2])
        assert (low.get_color(), low.get_linestyle()) == (high.get_color(), high.get_linestyle())

    def test_axes_begin_at_zero_and_show_all_of_the_percentages(self) -> None:
        (ax,) = plots.certified_accuracy([run()]).axes
        assert ax.get_xlim()[0] == 0
        assert ax.get_ylim()[0] == 0
        assert ax.get_ylim()[1] >= 100

    def test_the_largest_radius_is_marked_and_rounded_up_as_a_limit(self) -> None:
        few, many = run("few", n=1000), run("many", n=100_000)
        (ax,) = plots.certified_accuracy([few, many, run("again", n=1000)]).axes
        dotted = [line for line in ax.get_lines() if line.get_linestyle() == ":"]
        assert [line.get_xdata()[0] for line in dotted] == [few.largest_radius, many.largest_radius]
        assert [text.partition(" (")[2] for text in texts_of(ax)] == ["n = 1,000)", "n = 100,000)"]
        shown = [float(re.findall(r"≤ ([\d.]+)", text)[0]) for text in texts_of(ax)]
        for number, m in zip(shown, (few, many), strict=True):
            assert m.largest_radius is not None
            assert m.largest_radius <= number < m.largest_radius + 0.001
        assert ax.get_xlim()[1] > (many.largest_radius or 0)

    def test_a_log_has_no_mark(self) -> None:
        (ax,) = plots.certified_accuracy([log([0.5, 1.5])]).axes
        assert not texts_of(ax)

    def test_bands_are_clopper_pearson_intervals(self) -> None:
        m = run()
        (ax,) = plots.certified_accuracy([m], bands=True).axes
        (band,) = [c for c in ax.collections if isinstance(c, PolyCollection)]
        drawn = {(round(float(x), 9), round(float(y), 9)) for x, y in band.get_paths()[0].vertices}
        for r in sorted({0.0, *m.radius[m.correct].tolist()}):
            right = sum(row.correct and row.radius >= r for row in m.file.rows)
            estimate = analysis.share(right, len(m))
            assert {
                (round(r, 9), round(100 * estimate.low, 9)),
                (round(r, 9), round(100 * estimate.high, 9)),
            } <= drawn

    def test_paper_rounding_is_said(self) -> None:
        (ax,) = plots.certified_accuracy([run().as_in_the_paper()]).axes
        assert "rounded as in the paper" in ax.get_xlabel()

    def test_nothing_certified_at_all_is_drawn_too(self) -> None:
        (ax,) = plots.certified_accuracy([log([0.0, 0.0], wrong=2)]).axes
        assert lines_of(ax)["log"].get_data()[1].tolist() == [0, 0]  # type: ignore[union-attr]


class TestProbabilities:
    def test_the_curve_is_what_counting_gives(self) -> None:
        m = run()
        (ax,) = plots.probabilities([m]).axes
        line = lines_of(ax)[m.name]
        for p in (0.5, 0.6, 0.75, 0.9, 0.95, 0.99, 0.999):
            votes = [(row.counts or {}).get(row.selected or 0, 0) for row in m.file.rows]
            right = sum(
                row.correct and k >= p * 1000 for row, k in zip(m.file.rows, votes, strict=True)
            )
            assert read_off(line, -math.log10(1 - p) - 1e-9) == pytest.approx(
                100 * right / len(m)
            ), p

    def test_each_nine_takes_as_much_room_and_the_axis_ends_with_what_the_draws_tell(self) -> None:
        (ax,) = plots.probabilities([run(n=100_000)]).axes
        labels = [".5", ".9", ".99", ".999", ".9999", ".99999"]
        assert [text.get_text() for text in ax.get_xticklabels()] == labels
        assert ax.get_xticks()[1:] == pytest.approx([1, 2, 3, 4, 5])
        assert ax.get_xlim() == (pytest.approx(math.log10(2)), pytest.approx(5))

    def test_fewer_draws_do_not_make_a_model_look_surer(self) -> None:
        few, many = run("few", n=1000), run("many", n=100_000)
        lines = lines_of(plots.probabilities([few, many]))
        ends = [np.asarray(lines[m.name].get_xdata())[-1] for m in (few, many)]
        assert ends == pytest.approx([3, 5])

    def test_images_on_which_all_draws_agree_end_the_curve(self) -> None:
        m = run()
        line = lines_of(plots.probabilities([m]))[m.name]
        agreed = sum(row.correct and len(row.counts or {}) == 1 for row in m.file.rows)
        assert agreed > 0
        assert line.get_ydata()[-1] == pytest.approx(100 * agreed / len(m))  # type: ignore[index]

    def test_what_only_bounds_p_says_so_and_what_is_not_measured_too(self) -> None:
        every = [run("votes"), log([0.5, 1.0], name="radii", sigma=0.5), log([0.5], name="neither")]
        figure = plots.probabilities(every)
        assert legend_of(figure) == ["votes", "radii (at least)", "neither (not measured)"]
        bound = lines_of(figure)["radii"]
        assert bound.get_ydata()[-1] == 0  # type: ignore[index]
        assert "neither" not in lines_of(figure)

    def test_a_figure_of_nothing_measured_says_so(self) -> None:
        figure = plots.probabilities([log([0.5])])
        assert texts_of(figure.axes[0]) == ["not measured"]
        assert legend_of(figure) == ["log (not measured)"]

    def test_a_name_that_is_measured_in_one_panel_only(self) -> None:
        assert legend_of(plots.probabilities([run("a"), log([0.5], name="a")])) == [
            "a (not all measured)"
        ]


class TestTraining:
    def test_lines_are_the_records(self) -> None:
        figure = plots.training([run("a"), log([0.5])])
        loss, accuracy, rate = (
            {str(x.get_label()): x for x in ax.get_lines()} for ax in figure.axes
        )
        assert list(loss) == ["a"]
        assert np.asarray(loss["a"].get_data()).tolist() == [
            [1, 2, 3, 4, 5],
            [line["loss"] for line in EPOCHS],
        ]
        assert accuracy["a"].get_ydata() == pytest.approx(
            [100 * line["accuracy"] for line in EPOCHS]
        )
        assert np.asarray(rate["a"].get_ydata()).tolist() == [0.1, 0.1, 0.01, 0.01, 0.01]
        assert [ax.get_yscale() for ax in figure.axes] == ["linear", "linear", "log"]
        assert [ax.get_ylim()[0] for ax in figure.axes[:2]] == [0, 0]

    def test_one_row_for_each_noise_level(self) -> None:
        figure = plots.training([run("a", sigma=0.25), run("a", sigma=1.0)])
        assert [ax.get_title() for ax in figure.axes] == ["σ = 0.25"] * 3 + ["σ = 1"] * 3

    def test_a_single_epoch_a_gap_and_odd_rates_can_be_drawn(self) -> None:
        odd = [
            {"epoch": 1, "loss": math.nan, "learning_rate": 0.0},
            {"epoch": 2, "loss": -1.0, "learning_rate": 0.1},
        ]
        figure = plots.training([run("one", training=EPOCHS[:1]), run("odd", training=odd)])
        one, other = figure.axes[0].get_lines()
        assert (one.get_marker(), other.get_marker()) == ("o", "")
        assert figure.axes[0].get_ylim()[0] < -1
        assert figure.axes[2].get_yscale() == "linear"

    def test_lines_without_a_number_are_counted(self) -> None:
        unnumbered = [{"loss": 2.0}, {"loss": 1.0}]
        (line,) = plots.training([run("a", training=unnumbered)]).axes[0].get_lines()
        assert np.asarray(line.get_data()).tolist() == [[1, 2], [2.0, 1.0]]

    def test_runs_without_records_are_refused(self) -> None:
        with pytest.raises(UsageError, match="record of its training"):
            plots.training([log([0.5])])


class TestHistogram:
    def test_bins_hold_what_counting_gives(self) -> None:
        every = [run("a", seed=1), run("b", seed=2)]
        (ax,) = plots.radius_histogram(every).axes
        steps = {
            str(patch.get_label()): patch.get_data()
            for patch in ax.patches
            if isinstance(patch, StepPatch)
        }
        assert steps["a"].edges.tolist() == steps["b"].edges.tolist()
        for m in every:
            values, edges, _ = steps[m.name]
            for low, high, value in zip(edges, edges[1:], values, strict=False):
                inside = [low <= r < high or r == high == edges[-1] for r in m.radius[m.correct]]
                assert value == pytest.approx(100 * sum(inside) / len(m))
            assert values.sum() == pytest.approx(100 * m.correct.mean())

    def test_the_legend_says_what_is_in_no_bin(self) -> None:
        m = run()
        wrong = sum(row.predict not in (-1, row.label) for row in m.file.rows) / len(m)
        abstained = sum(row.predict == -1 for row in m.file.rows) / len(m)
        assert wrong > 0 < abstained
        shown = [f"gaussian: {100 * wrong:.1f} % wrong, {100 * abstained:.1f} % abstained"]
        assert legend_of(plots.radius_histogram([m])) == shown

    def test_what_was_skipped_may_be_either(self) -> None:
        (shown,) = legend_of(plots.radius_histogram([run(skip_wrong=True)]))
        assert shown.endswith("% wrong or abstained")

    def test_a_name_in_two_panels_has_the_shares_of_both(self) -> None:
        (shown,) = legend_of(
            plots.radius_histogram(
                [run("a", sigma=1.0), log([0.5] * 4, name="a", sigma=0.25, wrong=1)]
            )
        )
        assert re.fullmatch(r"a: 25\.0 / [\d.]+ % wrong, 0\.0 / [\d.]+ % abstained", shown)


class TestAccuracyAgainstAcr:
    def test_points_and_bars_are_the_estimates(self) -> None:
        every = [run("a", seed=1), run("b", seed=2, images=60)]
        (ax,) = plots.accuracy_against_acr(every).axes
        assert len(ax.containers) == len(every)
        for m, drawn in zip(every, ax.containers, strict=True):
            point, _, (across, upright) = drawn.lines  # type: ignore[attr-defined]
            accuracy, acr = m.accuracy([0.0])[0], m.acr()
            assert np.ravel(point.get_data()) == pytest.approx([100 * accuracy.value, acr.value])
            assert across.get_segments()[0][:, 0] == pytest.approx(
                [100 * accuracy.low, 100 * accuracy.high]
            )
            assert upright.get_segments()[0][:, 1] == pytest.approx([acr.low, acr.high])

    def test_few_runs_are_named_beside_their_points_and_many_in_a_legend(self) -> None:
        few = plots.accuracy_against_acr([run(f"run {i}", seed=i) for i in range(3)])
        assert sorted(texts_of(few.axes[0])) == ["run 0", "run 1", "run 2"]
        assert not few.legends
        many = plots.accuracy_against_acr(
            [run(f"run-{i:02d}-with-a-long-name", seed=i) for i in range(20)]
        )
        assert not texts_of(many.axes[0])
        assert len(legend_of(many)) == 20

    def test_names_cover_no_other_and_stay_in_the_panel(self) -> None:
        figure = plots.accuracy_against_acr([run(f"run {i}", seed=i) for i in range(4)])
        (ax,) = figure.axes
        figure.draw_without_rendering()
        boxes = [
            Text.get_window_extent(text) for text in ax.texts
        ]  # without the line of an annotation
        for i, box in enumerate(boxes):
            assert all(not box.overlaps(other) for other in boxes[:i])
            frame = ax.get_window_extent()
            assert frame.x0 - 1 <= box.x0
            assert box.x1 <= frame.x1 + 1

    def test_axes_begin_at_zero_where_that_leaves_the_points_half_of_the_panel(self) -> None:
        wide = plots.accuracy_against_acr(
            [log([1.5] * 90, name="a"), log([1.5] * 90, name="b", wrong=80)]
        )
        assert (wide.axes[0].get_xlim(), wide.axes[0].get_ylim()[0]) == ((0, 100), 0)
        near = plots.accuracy_against_acr(
            [log([1.5] * 90, name="a"), log([1.5] * 90, name="b", wrong=2)]
        )
        assert near.axes[0].get_xlim()[0] > 80
        assert near.axes[0].get_xlim()[1] == 100


def test_boxes_without_room_are_said_not_to_fit() -> None:
    frame, size = np.array([0.0, 0.0, 100.0, 100.0]), np.array([[40.0, 10.0]])
    none = np.empty((0, 4))
    offsets, fits = labels.spread(np.array([[50.0, 50.0]]), size, bars=none, frame=frame)
    assert fits
    assert np.abs(offsets[0]).tolist() == [23, 8]
    assert not labels.spread(
        np.full((20, 2), 50.0), np.repeat(size, 20, axis=0), bars=none, frame=frame
    )[1]

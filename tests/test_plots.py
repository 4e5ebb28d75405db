"""Figures: what is drawn against slow counting, and files that open and are the same whenever they are made."""

from __future__ import annotations

import hashlib
import math
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import StepPatch
from matplotlib.text import Text
from PIL import Image

from smoothmix import analysis, plots
from smoothmix.analysis import Measured
from smoothmix.certificates import Certificate, FileSettings, from_votes
from smoothmix.certificates.file import Certificates
from smoothmix.config import Certification
from smoothmix.errors import UsageError
from smoothmix.plots import labels, style

EPOCHS = [
    {"epoch": e, "loss": 2.0 / e, "parts": {}, "accuracy": 0.9 - 0.5 / e, "learning_rate": 0.1 if e < 3 else 0.01}
    for e in range(1, 6)
]


def run(
    name: str = "gaussian",
    *,
    sigma: float = 0.5,
    images: int = 40,
    n: int = 1000,
    seed: int = 0,
    training: Sequence[Mapping[str, Any]] = EPOCHS,
    skip_wrong: bool = False,
) -> Measured:
    """A file of ours with votes drawn at random: right, wrong and undecided images, some with all votes."""
    generator = np.random.default_rng(seed)
    how = Certification(sigma=sigma, n=n, skip_wrong=skip_wrong)
    rows = []
    for i in range(images):
        label, chosen = int(generator.integers(3)), int(generator.integers(3)) if i % 5 == 0 else -1
        chosen = label if chosen < 0 else chosen
        votes = n if i % 7 == 0 else int(generator.binomial(n, generator.uniform(0.4, 1.0)))
        counts = {c: k for c, k in ((chosen, votes), ((chosen + 1) % 3, n - votes)) if k}
        rows.append(from_votes(i, label, {chosen: 100}, counts, sigma=sigma, alpha=how.alpha))
    settings = FileSettings(
        certification=how,
        model="lenet",
        model_hash="m",
        data="sample",
        split="test",
        data_hash="d",
        num_classes=3,
        images=images,
        engine="torch-cpu",
        noise="philox",
    )
    file = Certificates(Path(f"{name}/certificates.tsv"), tuple(rows), settings)
    return analysis.from_file(file, name=name, training=training)


def log(radii: Sequence[float], *, name: str = "log", sigma: float | None = None, wrong: int = 0) -> Measured:
    """A log of the field: no votes, no settings; the first `wrong` images are wrong."""
    rows = [
        Certificate(idx=i, label=1, predict=int(i >= wrong), radius=r, correct=i >= wrong) for i, r in enumerate(radii)
    ]
    return analysis.from_file(Certificates(Path("log"), tuple(rows)), name=name, sigma=sigma)


def lines_of(figure: Figure | Axes) -> dict[str, Line2D]:
    """The curves of a figure by the runs' names; of one name in several panels, the last."""
    axes = figure.axes if isinstance(figure, Figure) else [figure]
    return {str(line.get_label()): line for ax in axes for line in ax.get_lines() if line.get_drawstyle() != "default"}


def legend_of(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def texts_of(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


def read_off(line: Line2D, at: float) -> float:
    """What the step curve shows at a place: up to each corner, that corner's value."""
    assert line.get_drawstyle() == "steps-pre"
    x, y = line.get_data()
    return next((float(b) for a, b in zip(x, y, strict=True) if a >= at), 0.0)


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
        every = [run("b", sigma=1.0), run("a", sigma=0.25), run("b", sigma=0.25), log([0.5] * 3, name="c")]
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

    def test_the_largest_radius_is_marked_and_not_rounded_up(self) -> None:
        few, many = run("few", n=1000), run("many", n=100_000)
        (ax,) = plots.certified_accuracy([few, many, run("again", n=1000)]).axes
        dotted = [line for line in ax.get_lines() if line.get_linestyle() == ":"]
        assert [line.get_xdata()[0] for line in dotted] == [few.largest_radius, many.largest_radius]
        assert [text.partition(" (")[2] for text in texts_of(ax)] == ["n = 1,000)", "n = 100,000)"]
        said = [float(re.findall(r"≤ ([\d.]+)", text)[0]) for text in texts_of(ax)]
        for number, m in zip(said, (few, many), strict=True):
            assert m.largest_radius is not None
            assert m.largest_radius - 0.001 < number <= m.largest_radius
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
            assert {(round(r, 9), round(100 * estimate.low, 9)), (round(r, 9), round(100 * estimate.high, 9))} <= drawn

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
        line, edge = lines_of(ax)[m.name], ax.get_xlim()[1]
        for p in (0.5, 0.6, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0):
            votes = [(row.counts or {}).get(row.selected or 0, 0) for row in m.file.rows]
            right = sum(row.correct and k >= p * 1000 for row, k in zip(m.file.rows, votes, strict=True))
            at = edge if p == 1 else -math.log10(1 - p)
            assert read_off(line, at - 1e-9) == pytest.approx(100 * right / len(m)), p

    def test_each_nine_takes_as_much_room_and_one_stands_at_the_right_edge(self) -> None:
        (ax,) = plots.probabilities([run(n=100_000)]).axes
        assert [text.get_text() for text in ax.get_xticklabels()] == ["0.5", "0.9", "0.99", "0.999", "0.9999", "1"]
        assert ax.get_xticks()[1:-1] == pytest.approx([1, 2, 3, 4])
        assert ax.get_xlim() == (pytest.approx(math.log10(2)), ax.get_xticks()[-1])

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
        assert legend_of(plots.probabilities([run("a"), log([0.5], name="a")])) == ["a (not all measured)"]


class TestTraining:
    def test_lines_are_the_records(self) -> None:
        figure = plots.training([run("a"), log([0.5])])
        loss, accuracy, rate = ({str(x.get_label()): x for x in ax.get_lines()} for ax in figure.axes)
        assert list(loss) == ["a"]
        assert np.asarray(loss["a"].get_data()).tolist() == [[1, 2, 3, 4, 5], [line["loss"] for line in EPOCHS]]
        assert accuracy["a"].get_ydata() == pytest.approx([100 * line["accuracy"] for line in EPOCHS])
        assert np.asarray(rate["a"].get_ydata()).tolist() == [0.1, 0.1, 0.01, 0.01, 0.01]
        assert [ax.get_yscale() for ax in figure.axes] == ["linear", "linear", "log"]
        assert [ax.get_ylim()[0] for ax in figure.axes[:2]] == [0, 0]

    def test_one_row_for_each_noise_level(self) -> None:
        figure = plots.training([run("a", sigma=0.25), run("a", sigma=1.0)])
        assert [ax.get_title() for ax in figure.axes] == ["σ = 0.25"] * 3 + ["σ = 1"] * 3

    def test_a_single_epoch_a_gap_and_odd_rates_can_be_drawn(self) -> None:
        odd = [{"epoch": 1, "loss": math.nan, "learning_rate": 0.0}, {"epoch": 2, "loss": -1.0, "learning_rate": 0.1}]
        figure = plots.training([run("one", training=EPOCHS[:1]), run("odd", training=odd)])
        one, other = figure.axes[0].get_lines()
        assert (one.get_marker(), other.get_marker()) == ("o", "")
        assert figure.axes[0].get_ylim()[0] < -1
        assert figure.axes[2].get_yscale() == "linear"

    def test_runs_without_records_are_refused(self) -> None:
        with pytest.raises(UsageError, match="record of its training"):
            plots.training([log([0.5])])


class TestHistogram:
    def test_bins_hold_what_counting_gives(self) -> None:
        every = [run("a", seed=1), run("b", seed=2)]
        (ax,) = plots.radius_histogram(every).axes
        steps = {str(patch.get_label()): patch.get_data() for patch in ax.patches if isinstance(patch, StepPatch)}
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
        said = [f"gaussian: {100 * wrong:.1f} % wrong, {100 * abstained:.1f} % abstained"]
        assert legend_of(plots.radius_histogram([m])) == said

    def test_what_was_skipped_may_be_either(self) -> None:
        (said,) = legend_of(plots.radius_histogram([run(skip_wrong=True)]))
        assert said.endswith("% wrong or abstained")

    def test_a_name_in_two_panels_has_the_shares_of_both(self) -> None:
        (said,) = legend_of(
            plots.radius_histogram([run("a", sigma=1.0), log([0.5] * 4, name="a", sigma=0.25, wrong=1)])
        )
        assert re.fullmatch(r"a: 25\.0 / [\d.]+ % wrong, 0\.0 / [\d.]+ % abstained", said)


class TestAccuracyAgainstAcr:
    def test_points_and_bars_are_the_estimates(self) -> None:
        every = [run("a", seed=1), run("b", seed=2, images=60)]
        (ax,) = plots.accuracy_against_acr(every).axes
        assert len(ax.containers) == len(every)
        for m, drawn in zip(every, ax.containers, strict=True):
            point, _, (across, upright) = drawn.lines  # type: ignore[attr-defined]
            accuracy, acr = m.accuracy([0.0])[0], m.acr()
            assert np.ravel(point.get_data()) == pytest.approx([100 * accuracy.value, acr.value])
            assert across.get_segments()[0][:, 0] == pytest.approx([100 * accuracy.low, 100 * accuracy.high])
            assert upright.get_segments()[0][:, 1] == pytest.approx([acr.low, acr.high])

    def test_few_runs_are_named_beside_their_points_and_many_in_a_legend(self) -> None:
        few = plots.accuracy_against_acr([run(f"run {i}", seed=i) for i in range(3)])
        assert sorted(texts_of(few.axes[0])) == ["run 0", "run 1", "run 2"]
        assert not few.legends
        many = plots.accuracy_against_acr([run(f"run-{i:02d}-with-a-long-name", seed=i) for i in range(20)])
        assert not texts_of(many.axes[0])
        assert len(legend_of(many)) == 20

    def test_names_cover_no_other_and_stay_in_the_panel(self) -> None:
        figure = plots.accuracy_against_acr([run(f"run {i}", seed=i) for i in range(4)])
        (ax,) = figure.axes
        figure.draw_without_rendering()
        boxes = [Text.get_window_extent(text) for text in ax.texts]  # without the line of an annotation
        for i, box in enumerate(boxes):
            assert all(not box.overlaps(other) for other in boxes[:i])
            frame = ax.get_window_extent()
            assert frame.x0 - 1 <= box.x0
            assert box.x1 <= frame.x1 + 1

    def test_axes_begin_at_zero_where_that_leaves_the_points_half_of_the_panel(self) -> None:
        wide = plots.accuracy_against_acr([log([1.5] * 90, name="a"), log([1.5] * 90, name="b", wrong=80)])
        assert (wide.axes[0].get_xlim(), wide.axes[0].get_ylim()[0]) == ((0, 100), 0)
        near = plots.accuracy_against_acr([log([1.5] * 90, name="a"), log([1.5] * 90, name="b", wrong=2)])
        assert near.axes[0].get_xlim()[0] > 80
        assert near.axes[0].get_xlim()[1] == 100


def test_boxes_without_room_are_said_not_to_fit() -> None:
    frame, size = np.array([0.0, 0.0, 100.0, 100.0]), np.array([[40.0, 10.0]])
    none = np.empty((0, 4))
    offsets, fits = labels.spread(np.array([[50.0, 50.0]]), size, bars=none, frame=frame)
    assert fits
    assert np.abs(offsets[0]).tolist() == [23, 8]
    assert not labels.spread(np.full((20, 2), 50.0), np.repeat(size, 20, axis=0), bars=none, frame=frame)[1]


AWKWARD = [
    "costs $5 or $6",
    "_hidden",
    "a & b <i>",
    "100%_\\alpha^2",
    "x" * 200,
    "mnist-1.00-smoothmix-eta5-onestep-m1",
]


class TestEveryFigure:
    def test_a_run_looks_the_same_everywhere(self) -> None:
        every = [log([0.5, 0.7], name="first", sigma=0.5), *(run(f"run {i}", seed=i) for i in range(9))]
        found: dict[str, set[str]] = {}
        for draw in plots.FIGURES.values():
            for ax in draw(every).axes:
                drawn = [*ax.get_lines(), *(patch for patch in ax.patches if isinstance(patch, StepPatch))]
                for artist in drawn:
                    colour = artist.get_color() if isinstance(artist, Line2D) else artist.get_edgecolor()
                    found.setdefault(str(artist.get_label()), set()).add(to_hex(colour))
        assert all(len(found[m.name]) == 1 for m in every)

    def test_28_runs_can_be_told_apart(self) -> None:
        every = [log([0.5], name=str(i)) for i in range(28)]
        assert len({(look.colour, str(look.dash)) for look in style.looks(every).values()}) == 28
        assert len({(look.colour, look.marker) for look in style.looks(every).values()}) == 28

    @pytest.mark.parametrize("count", [1, 20])
    @pytest.mark.parametrize("name", plots.FIGURES)
    def test_the_legend_hides_nothing_and_everything_is_on_the_page(self, name: str, count: int) -> None:
        every = [run(f"mnist-{i:02d}-smoothmix-eta5-onestep", sigma=(0.25, 1.0)[i % 2], seed=i) for i in range(count)]
        figure = plots.FIGURES[name](every)
        page, boxes = figure.bbox, [ax.get_tightbbox() for ax in figure.axes]
        assert figure.get_figwidth() in (plots.COLUMN_WIDTH, plots.FULL_WIDTH)
        for box in boxes:
            assert box is not None
            assert page.x0 - 1 <= box.x0 < box.x1 <= page.x1 + 1
            assert page.y0 - 1 <= box.y0 < box.y1 <= page.y1 + 1
            assert all(not box.overlaps(legend.get_window_extent()) for legend in figure.legends)
        for legend in figure.legends:
            box = legend.get_window_extent()
            assert page.x0 - 1 <= box.x0 < box.x1 <= page.x1 + 1
            assert page.y0 - 1 <= box.y0

    @pytest.mark.parametrize("name", plots.FIGURES)
    def test_names_are_shown_literally(self, name: str) -> None:
        figure = plots.FIGURES[name]([run(called, seed=i) for i, called in enumerate(AWKWARD)])
        shown = [text for legend in figure.legends for text in legend.get_texts()] or list(figure.axes[0].texts)
        assert not any(text.get_parse_math() for text in shown)
        said = "|".join(text.get_text() for text in shown).replace("\n", "")
        assert all(called.replace(" ", "") in said.replace(" ", "") for called in (*AWKWARD[:4], AWKWARD[5]))

    @pytest.mark.parametrize("width", [plots.COLUMN_WIDTH, plots.FULL_WIDTH])
    def test_a_width_can_be_asked_for(self, width: float) -> None:
        every = [run("a", sigma=0.25), run("b", sigma=0.5)]
        figure = plots.certified_accuracy(every, width=width)
        assert figure.get_figwidth() == width
        left = {round(ax.get_position().x0, 3) for ax in figure.axes}
        assert len(left) == (1 if width == plots.COLUMN_WIDTH else 2)

    @pytest.mark.parametrize("name", plots.FIGURES)
    def test_no_runs_are_refused(self, name: str) -> None:
        with pytest.raises(UsageError, match="at least one run"):
            plots.FIGURES[name]([])

    def test_the_settings_of_the_caller_are_neither_heeded_nor_changed(self, tmp_path: Path) -> None:
        plots.save(plots.certified_accuracy([run()]), tmp_path / "plain.svg")
        with mpl.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.hashsalt": "mine", "savefig.dpi": 17}):
            before = dict(mpl.rcParams)
            plots.save(plots.certified_accuracy([run()]), tmp_path / "styled.svg")
            assert dict(mpl.rcParams) == before
        assert (tmp_path / "plain.svg").read_bytes() == (tmp_path / "styled.svg").read_bytes()

    def test_without_matplotlib_one_is_told_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(UsageError, match=r"pip install 'smoothmix\[plots\]'"):
            plots.certified_accuracy([run()])


def test_long_names_keep_both_ends() -> None:
    assert style.fitted("short") == "short"
    cut = style.fitted("begin-" + "x" * 200 + "-end")
    assert cut.startswith("begin-")
    assert cut.endswith("-end")
    assert "…" in cut
    assert max(map(len, cut.split("\n"))) <= 30
    assert style.fitted(" two\n words\t") == "two words"


class TestFiles:
    @pytest.mark.parametrize("suffix", plots.FORMATS)
    def test_files_are_valid_and_the_same_each_time(self, suffix: str, tmp_path: Path) -> None:
        figure = plots.certified_accuracy([run()])
        for name, drawn in (("a", figure), ("again", figure), ("anew", plots.certified_accuracy([run()]))):
            plots.save(drawn, tmp_path / "folder" / f"{name}{suffix}")
        first, *others = (path.read_bytes() for path in sorted((tmp_path / "folder").iterdir()))
        assert all(other == first for other in others)
        path = tmp_path / "folder" / f"a{suffix}"
        if suffix == ".png":
            with Image.open(path) as image:
                assert image.size == tuple(int(inches * style.DPI) for inches in figure.get_size_inches())
                assert not image.text  # type: ignore[attr-defined]
        elif suffix == ".pdf":
            assert first.startswith(b"%PDF")
            assert b"/FontFile2" in first
            assert not re.search(rb"/(CreationDate|ModDate|Producer|Type3)", first)
        else:
            assert ET.fromstring(first).tag.endswith("svg")
            assert b"date" not in first

    @pytest.mark.parametrize("name", ["figure.gif", "figure", "figure.pdf.gz"])
    def test_other_formats_are_refused(self, name: str, tmp_path: Path) -> None:
        figure = plots.certified_accuracy([run()])
        with pytest.raises(UsageError, match=r"\.pdf, \.png, \.svg"):
            plots.save(figure, tmp_path / name)
        assert not list(tmp_path.iterdir())

    def test_a_failure_leaves_the_old_file(self, tmp_path: Path) -> None:
        path = tmp_path / "figure.png"
        path.write_text("old")
        figure = plots.certified_accuracy([run()])
        figure.axes[0].text(0, 0, "$\\nonsense{$", parse_math=True)
        with pytest.raises(ValueError, match="nonsense"):
            plots.save(figure, path)
        assert [p.name for p in tmp_path.iterdir()] == ["figure.png"]
        assert path.read_text() == "old"

    def test_all_that_there_is_to_show_is_written(self, tmp_path: Path) -> None:
        written = plots.save_all([run("a"), run("b", seed=1)], tmp_path, "PNG")
        assert written == [tmp_path / f"{name}.png" for name in plots.FIGURES]
        assert all(path.stat().st_size > 1000 for path in written)

    def test_logs_have_no_training_to_show(self, tmp_path: Path) -> None:
        written = plots.save_all([log([0.5, 1.5], sigma=0.5)], tmp_path / "new", "svg")
        assert [path.stem for path in written] == [name for name in plots.FIGURES if name != "training"]

    def test_nothing_is_written_in_a_format_that_is_unknown(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="gif"):
            plots.save_all([run()], tmp_path, "gif")
        assert not list(tmp_path.iterdir())

    def test_another_process_writes_the_same_and_imports_neither_pyplot_nor_torch(self, tmp_path: Path) -> None:
        script = f"""
import sys
from pathlib import Path
from smoothmix import plots
from smoothmix.analysis import from_file
from smoothmix.certificates import Certificate
from smoothmix.certificates.file import Certificates
rows = tuple(Certificate(idx=i, label=1, predict=1, radius=r, correct=True) for i, r in enumerate([0.5, 1.5]))
plots.save_all([from_file(Certificates(Path("log"), rows), name="log", sigma=0.5)], Path({str(tmp_path)!r}), "pdf")
print(*sys.modules)
"""
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": "12345"},
        )
        assert not {"torch", "matplotlib.pyplot"} & set(done.stdout.split())
        for path in plots.save_all([log([0.5, 1.5], sigma=0.5)], tmp_path / "here", "pdf"):
            there = hashlib.sha256((tmp_path / path.name).read_bytes()).hexdigest()
            assert hashlib.sha256(path.read_bytes()).hexdigest() == there, path.name

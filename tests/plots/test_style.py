"""What all figures have in common: looks, legends, names, widths and refusals."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D
from matplotlib.patches import StepPatch

from smoothmix import plots
from smoothmix.errors import UsageError
from smoothmix.plots import style
from tests.helpers.plots import log, run

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
        every = [
            log([0.5, 0.7], name="first", sigma=0.5),
            *(run(f"run {i}", seed=i) for i in range(9)),
        ]
        found: dict[str, set[str]] = {}
        for draw in plots.FIGURES.values():
            for ax in draw(every).axes:
                drawn = [
                    *ax.get_lines(),
                    *(patch for patch in ax.patches if isinstance(patch, StepPatch)),
                ]
                for artist in drawn:
                    colour = (
                        artist.get_color() if isinstance(artist, Line2D) else artist.get_edgecolor()
                    )
                    found.setdefault(str(artist.get_label()), set()).add(to_hex(colour))
        assert all(len(found[m.name]) == 1 for m in every)

    def test_28_runs_can_be_told_apart(self) -> None:
        every = [log([0.5], name=str(i)) for i in range(28)]
        assert len({(look.colour, str(look.dash)) for look in style.looks(every).values()}) == 28
        assert len({(look.colour, look.marker) for look in style.looks(every).values()}) == 28

    @pytest.mark.parametrize("count", [1, 20])
    @pytest.mark.parametrize("name", plots.FIGURES)
    def test_the_legend_hides_nothing_and_everything_is_on_the_page(
        self, name: str, count: int
    ) -> None:
        every = [
            run(f"mnist-{i:02d}-smoothmix-eta5-onestep", sigma=(0.25, 1.0)[i % 2], seed=i)
            for i in range(count)
        ]
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
        shown = [text for legend in figure.legends for text in legend.get_texts()] or list(
            figure.axes[0].texts
        )
        assert not any(text.get_parse_math() for text in shown)
        text = "|".join(text.get_text() for text in shown).replace("\n", "")
        assert all(
            called.replace(" ", "") in text.replace(" ", "")
            for called in (*AWKWARD[:4], AWKWARD[5])
        )

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

    def test_the_settings_of_the_caller_are_neither_heeded_nor_changed(
        self, tmp_path: Path
    ) -> None:
        plots.save(plots.certified_accuracy([run()]), tmp_path / "plain.svg")
        with mpl.rc_context(
            {"font.size": 30, "axes.facecolor": "red", "svg.hashsalt": "mine", "savefig.dpi": 17}
        ):
            before = dict(mpl.rcParams)
            plots.save(plots.certified_accuracy([run()]), tmp_path / "styled.svg")
            assert dict(mpl.rcParams) == before
        assert (tmp_path / "plain.svg").read_bytes() == (tmp_path / "styled.svg").read_bytes()

    def test_without_matplotlib_one_is_told_what_to_install(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(UsageError, match=r"pip install matplotlib"):
            plots.certified_accuracy([run()])


def test_long_names_keep_both_ends() -> None:
    assert style.fitted("short") == "short"
    cut = style.fitted("begin-" + "x" * 200 + "-end")
    assert cut.startswith("begin-")
    assert cut.endswith("-end")
    assert "…" in cut
    assert max(map(len, cut.split("\n"))) <= 30
    assert style.fitted(" two\n words\t") == "two words"

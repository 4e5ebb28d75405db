"""Tables and the page that show which model is more robust, and by how much. No torch at import.

comparison = compare_runs([measure("runs/a"), measure("runs/b")], title="a or b?")
html = render(make_page(comparison))
"""

from smoothmix.report.comparison import Choices, Comparison, compare_runs
from smoothmix.report.html import render
from smoothmix.report.page import Page, make_page
from smoothmix.report.paper_grid import paper_grid
from smoothmix.report.section import Chart, LegendEntry, Section, Table, Trace
from smoothmix.report.sections import SECTIONS, read_sections
from smoothmix.report.summary_grid import summary_grid
from smoothmix.report.views import RunView

__all__ = [
    "SECTIONS",
    "Chart",
    "Choices",
    "Comparison",
    "LegendEntry",
    "Page",
    "RunView",
    "Section",
    "Table",
    "Trace",
    "compare_runs",
    "make_page",
    "paper_grid",
    "read_sections",
    "render",
    "summary_grid",
]

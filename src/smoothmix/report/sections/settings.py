"""All settings of every run, and the commands that make it again."""

from __future__ import annotations

from smoothmix.report.comparison import Comparison
from smoothmix.report.section import Section
from smoothmix.report.views import RunView
from smoothmix.tables.numbers import limit

NOT_RECORDED = "not recorded"


def settings(comparison: Comparison) -> Section:
    """A fold per run with its settings, commands and notes."""
    groups = []
    for run in comparison.runs:
        others = dict(run.settings)
        # What belongs to no group stands with the facts that every run has.
        this_run = {**_facts(run), **others.pop("", {})}
        groups.append({"this run": this_run, **others})
    return Section(
        id="runs",
        title="Settings and commands",
        short_title="Settings",
        template="settings.html",
        values={"groups": groups},
    )


def _facts(run: RunView) -> dict[str, str]:
    facts = {
        "method": run.method,
        "data": run.data,
        "images": f"{run.images:,}",
        "σ": _number(run.sigma, "g"),
        "noise": run.noise,
        "draws per image": _number(run.n, ","),
        "alpha": _number(run.alpha, "g"),
        "draws and alpha are": str(run.origin),
        "mode": run.mode,
        "largest certifiable radius": "",
    }
    if run.largest_radius is not None:
        facts["largest certifiable radius"] = f"{limit(run.largest_radius)} ({run.norm})"
    # An empty cell would leave open whether it was forgotten.
    for name, text in facts.items():
        facts[name] = text or NOT_RECORDED
    return facts


def _number(value: float | None, form: str) -> str:
    if value is None:
        return ""
    return f"{value:{form}}"

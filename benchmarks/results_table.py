"""`make results`: the table of docs/results.md from the committed certificates, beside the published logs.

python -m benchmarks.results_table --published DIR    # first makes results/published.tsv.xz from the published logs
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from smoothmix import presets
from smoothmix.analysis import Measured, intervals, measure
from smoothmix.analysis.compare import differences_by_image
from smoothmix.analysis.intervals import Estimate
from smoothmix.config import RunConfig
from smoothmix.reproduce.beside import Beside, beside, load_published, save_published
from smoothmix.reproduce.logs import find_logs
from smoothmix.run_folder import RunFolder

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "results", ROOT / "docs" / "results.md"
PUBLISHED = RESULTS / "published.tsv.xz"
BEGIN, END = "<!-- table: make results writes it -->\n", "<!-- end of table -->\n"
SKIP = 20


def main() -> None:
    """Print the table, and put it into the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.results_table", description=__doc__)
    parser.add_argument("--published", type=Path, help="folder of the published logs, with mnist/ in it")
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the page has another table")
    options = parser.parse_args()
    if options.published:
        keep_published(options.published)
    text = table(runs())
    print(text)
    now = PAGE.read_text()
    before, _, rest = now.partition(BEGIN)
    _, _, after = rest.partition(END)
    page = f"{before}{BEGIN}\n{text}\n{END}{after}"
    if options.check and page != now:
        raise SystemExit(f"{PAGE} has another table: make results writes this one")
    PAGE.write_text(page)


def keep_published(folder: Path) -> None:
    """The images that our runs are certified on, from the logs of every row of the main tables."""
    logs = find_logs(folder).rows
    rows = {name: [measure(path) for path in logs[name].seeds] for name in presets.names("mnist")}
    save_published(PUBLISHED, rows, skip=SKIP)


def runs() -> list[Measured]:
    """Our runs, by sigma and name."""
    folders = [path for path in sorted(RESULTS.iterdir()) if RunFolder(path).config.exists()]
    return [measure(path) for path in folders if any(path.glob("certificates.tsv*"))]


def table(every: Sequence[Measured]) -> str:
    """A line for each run, as markdown."""
    published = load_published(PUBLISHED)
    gaussian = {run.sigma: run for run in every if _config(run).method["name"] == "gaussian"}
    titles = ("run", "epochs", "ACR", "above our Gaussian (95 %)", "published, same images", "difference (95 %)")
    titles += ("margin", "", "published, all 10,000 images")
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for run in every:
        logs = published.get(_config(run).preset)
        lines.append(_line(run, gaussian.get(run.sigma, run), beside(run, logs) if logs else None))
    return "\n".join(lines) + "\n"


def _config(run: Measured) -> RunConfig:
    assert run.config is not None
    return run.config


def _line(run: Measured, gaussian: Measured, found: Beside | None) -> str:
    recipe = _config(run).recipe
    ours, baseline = run.as_in_the_paper(), gaussian.as_in_the_paper()
    acr = ours.counted.mean()
    above = "" if gaussian is run else _signed(intervals.mean(differences_by_image(ours, baseline)))
    start = f"| {run.name} | {recipe.epochs} | {acr:.4f} | {above} "
    if found is None:
        return f"{start}| no published row | | | | |"
    preset = presets.get(_config(run).preset)
    assert preset.published is not None
    whole = recipe.epochs == preset.config.recipe.epochs
    verdict = ("within" if found.within else "outside") if whole else "not judged: fewer epochs"
    return (
        f"{start}| {found.published:.4f} ± {found.deviation:.4f} ({found.seeds} seeds) "
        f"| {_signed(found.difference)} | {found.margin:.4f} | {verdict} "
        f"| {preset.published.acr_mean:.4f} ± {preset.published.acr_deviation:.4f} |"
    )


def _signed(difference: Estimate) -> str:
    return f"{difference.value:+.4f} ({difference.low:+.4f} to {difference.high:+.4f})"


if __name__ == "__main__":
    main()

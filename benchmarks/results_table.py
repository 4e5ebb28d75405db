"""`make results`: the tables of docs/results.md from the committed certificates and published logs.

python -m benchmarks.results_table --published DIR    # first makes results/published.tsv.xz
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from smoothmix import presets
from smoothmix.analysis import Measured, intervals, measure
from smoothmix.analysis.compare import differences_by_image, same_images
from smoothmix.analysis.intervals import Estimate
from smoothmix.config import RunConfig
from smoothmix.reproduce.logs import find_logs
from smoothmix.reproduce.published_runs import (
    PublishedComparison,
    PublishedRun,
    compare_with_published,
    load_published,
    save_published,
)
from smoothmix.runs.folder import RunFolder
from smoothmix.stats.binomial import NOBODY

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "results", ROOT / "docs" / "results.md"
PUBLISHED = RESULTS / "published.tsv.xz"
SKIP = 20
RADII = [0.25 * i for i in range(12)]
"""Of the paper's table for MNIST."""
CIFAR_RADII = [0.25 * i for i in range(8)]
"""Of the paper's table for CIFAR-10."""
GRID_FILE = "certificates-grid.tsv.xz"
"""The same images of a run certified with grid noise, beside those with Gaussian noise."""

Published = Mapping[str, Sequence[PublishedRun]]
"""The published runs of each row."""


def main() -> None:
    """Print the tables, and put them into the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.results_table", description=__doc__)
    parser.add_argument(
        "--published", type=Path, help="folder of the published logs, with mnist/ in it"
    )
    parser.add_argument(
        "--check", action="store_true", help="change nothing; fail if the page has other tables"
    )
    options = parser.parse_args()
    if options.published:
        keep_published(options.published)
    mnist, published = runs("mnist"), load_published(PUBLISHED)
    now = page = PAGE.read_text()
    for name, text in {
        "ACR": table(mnist, published),
        "accuracy": accuracy_table(mnist, published),
        "grid": grid_table(mnist),
        "CIFAR-10": cifar_table(runs("cifar10")),
    }.items():
        print(text)
        page = put(page, name, text)
    if options.check and page != now:
        raise SystemExit(f"{PAGE} has other tables: make results writes these")
    PAGE.write_text(page)


def put(page: str, name: str, text: str) -> str:
    """The page with this text between the marks of that name."""
    begin, end = f"<!-- {name}: make results writes it -->\n", f"<!-- end of {name} -->\n"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise SystemExit(
            f"{PAGE} has no place for {name}: it needs {begin.strip()} and {end.strip()}"
        )
    return f"{before}{begin}\n{text}\n{end}{after}"


def keep_published(folder: Path) -> None:
    """The images that our runs are certified on, from the logs of every row of the main tables."""
    logs = find_logs(folder).rows
    rows = {name: [measure(path) for path in logs[name].seeds] for name in presets.names("mnist")}
    save_published(PUBLISHED, rows, skip=SKIP)


def runs(data: str) -> list[Measured]:
    """Our runs on a data set, by sigma and name."""
    folders = [path for path in sorted(RESULTS.iterdir()) if RunFolder(path).config.exists()]
    certified = [measure(path) for path in folders if any(path.glob("certificates.tsv*"))]
    return [run for run in certified if _config(run).data == data]


def table(every: Sequence[Measured], published: Published) -> str:
    """ACR: a line for each run."""
    gaussian = _gaussian_by_sigma(every)
    titles = [
        "run",
        "epochs",
        "ACR",
        "above our Gaussian (95 %)",
        "published, same images",
        "difference (95 %)",
    ]
    titles += ["margin", "", "in seed deviations", "published, all 10,000 images"]
    lines = []
    for run in every:
        logs = published.get(_config(run).preset)
        found = None
        if logs:
            found = compare_with_published(run, logs)
        lines.append(_line(run, gaussian.get(run.sigma, run), found))
    return _markdown(titles, lines)


def accuracy_table(every: Sequence[Measured], published: Published) -> str:
    """Certified accuracy in percent: for each run, a line of ours and one of published seeds."""
    lines = []
    for run in every:
        logs = published.get(_config(run).preset)
        reached = [r for r in RADII if r <= (run.largest_radius or r)]
        lines.append(_shares(run.name, run.as_in_the_paper().accuracy_at(reached)))
        if logs:
            found = compare_with_published(run, logs, at=reached)
            lines.append(_shares("published", [share for _, share in found.accuracy.values()]))
    return _markdown(("certified accuracy at", *(f"{r:.2f}" for r in RADII)), lines)


def grid_table(every: Sequence[Measured]) -> str:
    """Both kinds of noise: a line for each run that was certified with both."""
    titles = [
        "run",
        "images",
        "ACR, Gaussian noise",
        "ACR, grid noise",
        "grid minus Gaussian (95 %)",
        "largest difference of certified accuracy",
        "ambiguous draws",
    ]
    lines = []
    for run in every:
        path = run.path.with_name(GRID_FILE)
        if path.exists():
            lines.append(_grid_line(run, measure(path)))
    return _markdown(titles, lines)


def _grid_line(gaussian: Measured, grid: Measured) -> str:
    if not same_images(gaussian, grid):
        raise SystemExit(f"{grid.path} has other images than {gaussian.path}")
    difference = intervals.mean(differences_by_image(grid, gaussian))
    reached = [r for r in RADII if r <= (grid.largest_radius or r)]
    points = 100 * (grid.accuracy_at(reached) - gaussian.accuracy_at(reached))
    largest = max(points.tolist(), key=abs)
    ambiguous = sum((row.counts or {}).get(NOBODY, 0) for row in grid.file.rows)
    draws = sum(row.n for row in grid.file.rows)
    return (
        f"| {gaussian.name} | {len(grid)} | {gaussian.counted.mean():.4f} "
        f"| {grid.counted.mean():.4f} | {_signed(difference)} | {largest:+.1f} points "
        f"| {ambiguous} of {draws:,} |"
    )


def cifar_table(every: Sequence[Measured]) -> str:
    """CIFAR-10: ACR and certified accuracy of each run, and the paper's row below it."""
    gaussian = _gaussian_by_sigma(every)
    radii = [f"{r:.2f}" for r in CIFAR_RADII]
    titles = ["run", "epochs", "images", "ACR", "above our Gaussian (95 %)", *radii]
    lines = []
    for run in every:
        epochs = _config(run).recipe.epochs
        above = _above(run, gaussian[run.sigma])
        start = [run.name, str(epochs), str(len(run)), f"{run.counted.mean():.4f}", above]
        reached = [r for r in CIFAR_RADII if r <= (run.largest_radius or r)]
        shares = [f"{100 * share:.1f}" for share in run.accuracy_at(reached)]
        lines.append(_row([*start, *shares], len(titles)))
        lines.extend(_paper_row(run.name, len(titles)))
    return _markdown(titles, lines)


def _paper_row(run: str, width: int) -> list[str]:
    """The row of the paper that a run's name belongs to, if there is one."""
    preset = run.replace("-", "/", 2)
    if preset not in presets.names("cifar10"):
        return []
    found = presets.get(preset)
    assert found.published is not None
    epochs = str(found.config.recipe.epochs)
    start = ["the paper's, ResNet-110", epochs, "10,000", f"{found.published.acr:.3f}", ""]
    shares = [f"{share:.1f}" for share in found.published.accuracy.values()]
    return [_row([*start, *shares], width)]


def _gaussian_by_sigma(every: Sequence[Measured]) -> dict[float, Measured]:
    return {run.sigma: run for run in every if _config(run).method["name"] == "gaussian"}


def _above(run: Measured, gaussian: Measured) -> str:
    """A run's ACR minus that of Gaussian training, paired by image; empty for Gaussian training."""
    if gaussian is run:
        return ""
    return _signed(intervals.mean(differences_by_image(run, gaussian)))


def _row(cells: Sequence[str], width: int) -> str:
    return f"| {' | '.join([*cells, *[''] * (width - len(cells))])} |"


def _shares(name: str, shares: Iterable[float]) -> str:
    cells = [f"{100 * share:.1f}" for share in shares]
    return _row([name, *cells], 1 + len(RADII))


def _markdown(titles: Sequence[str], lines: Sequence[str]) -> str:
    return "\n".join([f"| {' | '.join(titles)} |", "|---" * len(titles) + "|", *lines]) + "\n"


def _config(run: Measured) -> RunConfig:
    assert run.config is not None
    return run.config


def _line(run: Measured, gaussian: Measured, found: PublishedComparison | None) -> str:
    recipe = _config(run).recipe
    ours, baseline = run.as_in_the_paper(), gaussian.as_in_the_paper()
    acr = ours.counted.mean()
    above = "" if gaussian is run else _above(ours, baseline)
    start = f"| {run.name} | {recipe.epochs} | {acr:.4f} | {above} "
    if found is None:
        return f"{start}| no published row | | | | | |"
    preset = presets.get(_config(run).preset)
    assert preset.published is not None
    whole = recipe.epochs == preset.config.recipe.epochs
    verdict = ("within" if found.within else "outside") if whole else "not judged: fewer epochs"
    on_all_images = f"{preset.published.acr_mean:.4f} ± {preset.published.acr_std:.4f}"
    return (
        f"{start}| {found.published:.4f} ± {found.std:.4f} ({found.seeds} seeds) "
        f"| {_signed(found.difference)} | {found.margin:.4f} | {verdict} "
        f"| {found.stds:+z.1f} | {on_all_images} |"
    )


def _signed(difference: Estimate) -> str:
    return f"{difference.value:+.4f} ({difference.low:+.4f} to {difference.high:+.4f})"


if __name__ == "__main__":
    main()

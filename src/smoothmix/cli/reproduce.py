"""The command `reproduce`: rows of the paper, trained, certified and compared with its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from smoothmix._io.text import counted
from smoothmix._io.toml import to_toml_value
from smoothmix._process.world import current_world
from smoothmix.cli.options import (
    FLAT,
    USUAL_GROUP,
    Flag,
    ImageOptions,
    ModelOptions,
    Numbers,
    PresetRunOptions,
    parse_radii,
)
from smoothmix.cli.output import duration, echo, progress, show, table
from smoothmix.cli.report import TableFormat, show_grid, write_page
from smoothmix.config import RunConfig, require
from smoothmix.runs.options import Overrides, TrainingOptions, given_options

if TYPE_CHECKING:
    from smoothmix.certificates import Certification
    from smoothmix.reproduce.estimate import Planned
    from smoothmix.reproduce.jobs import Job
    from smoothmix.reproduce.outputs import Outputs
    from smoothmix.reproduce.table import Reproduced
    from smoothmix.runs.folder import RunFolder

OUT = Path("runs/reproduce")


@Parameter(name="*", group=USUAL_GROUP)
@dataclass(frozen=True, kw_only=True)
class ReproductionOptions(PresetRunOptions):
    """Which runs are made, and where. None of these goes with --from-logs."""

    seeds: int | None = None
    """Runs of each row, with seeds 0, 1, ...; by default 1."""

    out: Path | None = None
    """Folder for the runs, the tables and the page; by default runs/reproduce."""

    dry_run: Flag = False
    """Print what would be done, with the time it would take by a short measurement."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """How the table is made."""

    paper_rounding: Flag = False
    """Round radii to nearest at three digits, as the paper's logs do. Such radii are not sound: use
    them only to compare with its tables."""

    radii: Numbers = None
    """Radii of the table; by default the paper's."""

    format: TableFormat = "terminal"
    """Format of the printed table."""


OVERRIDES = Overrides()
RUNS = ReproductionOptions()
TABLE = TableOptions()


def reproduce(
    group: str,
    /,
    *,
    sigma: float | None = None,
    rows: str = "*",
    from_logs: Path | None = None,
    overrides: Annotated[Overrides, FLAT] = OVERRIDES,
    options: ReproductionOptions = RUNS,
    shown: TableOptions = TABLE,
) -> None:
    """Train and certify rows of the paper, and compare them with the published numbers.

    Every run has its own folder. Interrupt it at any time and run the same command again: it skips
    what is done. `torchrun --nproc-per-node 2 -m smoothmix -- reproduce ...` trains and certifies
    each run with several processes; without the two dashes torchrun would take --n and --max for
    its own options.

    Parameters
    ----------
    group
        mnist, cifar10, imagenet, ablation or quick; or a prefix of names, such as ablation/eta.
    sigma
        Only rows with this standard deviation of the noise.
    rows
        Only these rows, separated by commas; gaussian,smoothmix* for example.
    from_logs
        Make the tables from a folder of the paper's published logs instead of running anything.
    """
    from smoothmix.reproduce.jobs import choose

    # Everything that can be refused is refused here, before hours of training.
    radii = parse_radii(shown.radii) or None
    patterns = [row.strip() for row in rows.split(",") if row.strip()]
    names = choose(group, sigma=sigma, rows=patterns)
    if from_logs is not None:
        # Options that are silently ignored mislead.
        given = [*given_options(overrides), *given_options(options)]
        require(not given, f"{', '.join(given)}: nothing is run with --from-logs")
        _show_logs(from_logs, group, names, radii, shown)
        return
    out = options.out or OUT
    seeds = 1 if options.seeds is None else options.seeds
    planned = plan_runs(names, seeds=seeds, overrides=overrides, out=out, options=options)
    main = current_world().is_main
    if options.dry_run:
        if main:
            show_plan(planned)
        return
    request = _request(names, seeds, planned, overrides, radii, shown)
    planned.run()
    # Certification waits until the file is complete, so that the main process finds all results.
    if main:
        _show_results(planned, group, radii, out, options, shown, request)


@dataclass(frozen=True)
class PlannedRuns:
    """Runs of presets that are to be trained and certified."""

    jobs: Sequence[Job]
    certifications: Sequence[Certification]
    images: ImageOptions
    training: TrainingOptions

    def run(self) -> None:
        """Train and certify all of them, skipping what is done."""
        pairs = zip(self.jobs, self.certifications, strict=True)
        for number, (job, certification) in enumerate(pairs, start=1):
            seed = job.config.recipe.seed
            echo()
            echo(f"run {number} of {len(self.jobs)}: {job.preset.name}, seed {seed}")
            train_and_certify(
                job.config,
                job.folder,
                certification,
                self.images,
                self.training,
                path=job.certificates,
            )


def plan_runs(
    names: Sequence[str],
    *,
    seeds: int,
    overrides: Overrides,
    out: Path,
    options: PresetRunOptions,
) -> PlannedRuns:
    """The runs of these presets with the first seeds; what cannot be done is refused now."""
    from smoothmix.reproduce.jobs import certifications, choose_files, make_jobs, paper_skip
    from smoothmix.stats.guarantees import FixedDraws

    jobs = make_jobs(names, seeds=seeds, overrides=overrides, out=out)
    skip = options.skip
    if skip is None:
        skip = paper_skip(jobs)
    n = FixedDraws.n
    if options.n is not None:
        n = options.n
    settings = certifications(jobs, n=n, skip_wrong=options.skip_wrong)
    return PlannedRuns(
        jobs=choose_files(jobs, settings, skip=skip),
        certifications=settings,
        images=ImageOptions(data_dir=options.data_dir, skip=skip, maximum=options.maximum),
        training=TrainingOptions(data_dir=options.data_dir, device=options.device),
    )


def train_and_certify(
    config: RunConfig,
    folder: RunFolder,
    certification: Certification,
    images: ImageOptions,
    training: TrainingOptions,
    *,
    path: Path | None = None,
) -> None:
    """Train and certify one run, or resume it; its certificates go to `path`, if that is given."""
    from smoothmix import data
    from smoothmix.certificates.selection import Selection
    from smoothmix.cli.certification import certify_with_progress
    from smoothmix.cli.models import load_network
    from smoothmix.cli.train import train_with_progress

    train_with_progress(config, folder.path, training)
    network = load_network(folder.path, ModelOptions(device=training.device))
    dataset = data.load(config.data, images.split, data_dir=images.data_dir)
    selection = Selection(skip=images.skip, maximum=images.maximum)
    path = path or folder.certificates
    if path != folder.certificates:
        echo(f"note: {folder.certificates} has other settings and is kept: certifying to {path}")
    certify_with_progress(network, dataset, certification, path, selection=selection)


def _show_logs(
    folder: Path,
    group: str,
    names: Sequence[str],
    radii: Sequence[float] | None,
    shown: TableOptions,
) -> None:
    """Print the table of published logs."""
    from smoothmix.reproduce.logs import rows_from_logs

    if not current_world().is_main:
        return
    with progress("reading logs", unit="logs") as on_progress:
        rows = rows_from_logs(
            folder, names, paper_rounding=shown.paper_rounding, on_progress=on_progress
        )
    require(any(row.runs for row in rows), f"{folder}: holds no log of a row of {group}")
    show_rows(rows, f"{group}, from published logs", radii, shown.format)


def _request(
    names: Sequence[str],
    seeds: int,
    planned: PlannedRuns,
    overrides: Overrides,
    radii: Sequence[float] | None,
    shown: TableOptions,
) -> dict[str, Any]:
    """What decides the table: a command that asks for the same replaces it."""
    certification = planned.certifications[0]
    request = {
        "rows": names,
        "seeds": seeds,
        "n": certification.guarantee.max_draws,
        "skip": planned.images.skip,
        "max": planned.images.maximum,
        "skip_wrong": certification.skip_wrong,
        "radii": radii,
        "paper_rounding": shown.paper_rounding,
        "training": overrides,
    }
    table: dict[str, Any] = to_toml_value(request)
    return table


def _show_results(
    planned: PlannedRuns,
    group: str,
    radii: Sequence[float] | None,
    out: Path,
    options: ReproductionOptions,
    shown: TableOptions,
    request: Mapping[str, Any],
) -> None:
    """Write the tables and the page of finished runs, and print the table."""
    from smoothmix.analysis import unique_names
    from smoothmix.report import Choices, compare_runs, make_page
    from smoothmix.reproduce.outputs import outputs_for
    from smoothmix.reproduce.results import results

    rows = results(planned.jobs, paper_rounding=shown.paper_rounding)
    # Some rows of the ablations are one run.
    runs = {}
    for row in rows:
        for run in row.runs:
            runs[run.path] = run
    title = f"{group}: our numbers and the published ones"
    comparison = compare_runs(
        unique_names(list(runs.values())),
        Choices(radii=radii or ()),
        title=title,
        data_dir=options.data_dir,
    )
    outputs = outputs_for(out, request)
    outputs.save_record(request)
    messages = (
        write_tables(rows, title, radii, outputs),
        write_page(make_page(comparison), outputs.page),
    )
    echo()
    # After the files: the reader of a pipe may close it before the table ends.
    show_rows(rows, title, radii, shown.format)
    for message in messages:
        echo(message)


def show_rows(
    rows: Sequence[Reproduced],
    title: str,
    radii: Sequence[float] | None,
    table_format: TableFormat,
) -> None:
    """Print the table. A terminal gets half of the paper's radii by default: all are too wide."""
    from smoothmix.reproduce.table import paper_radii, reproduction_grid

    if radii is None and table_format == "terminal":
        radii = [radius for radius in paper_radii(rows) if radius % 0.5 == 0]
    wide = table_format in ("csv", "json")
    show_grid(reproduction_grid(rows, title=title, radii=radii, wide=wide), table_format)


def write_tables(
    rows: Sequence[Reproduced], title: str, radii: Sequence[float] | None, outputs: Outputs
) -> str:
    """Write the table in every format; returns the message about it."""
    from smoothmix._io.files import atomic_write
    from smoothmix.reproduce.table import reproduction_grid
    from smoothmix.tables import FORMATS

    # The one format whose files do not end in its name.
    suffixes = {"latex": "tex"}
    for name, write in FORMATS.items():
        wide = name in ("csv", "json")
        grid = reproduction_grid(rows, title=title, radii=radii, wide=wide)
        atomic_write(outputs.table(suffixes.get(name, name)), write(grid).encode())
    message = f"wrote {outputs.table('md')}, .tex, .csv and .json"
    if outputs.number > 1:
        message += "; tables of other commands in the folder are kept"
    return message


PLAN_COLUMNS = (
    "preset",
    "seed",
    "epochs",
    "training",
    "images",
    "certification",
    "draws per second",
    "folder",
)


def show_plan(runs: PlannedRuns) -> None:
    """Print what would be done, and how long it would take."""
    from smoothmix.inference.devices import choose_device
    from smoothmix.reproduce.estimate import plan

    device = choose_device(runs.training.device)
    planned = plan(
        runs.jobs,
        runs.certifications,
        skip=runs.images.skip,
        maximum=runs.images.maximum,
        data_dir=runs.images.data_dir,
        device=device,
        measuring=lambda name: echo(f"measuring a few steps of {name}"),
    )
    pairs = zip(planned, runs.certifications, strict=True)
    rows = [_plan_cells(one, certification) for one, certification in pairs]
    table(counted(len(runs.jobs), "run"), PLAN_COLUMNS, rows)
    total = sum(one.training + one.certification for one in planned)
    show(
        f"about {duration(total)} in total on {device}, as measured now: other load on the machine "
        "changes it"
    )
    # Many runs have the same note: a dict keeps the order and drops repetitions.
    notes: dict[str, None] = {}
    for job in runs.jobs:
        notes.update(dict.fromkeys(job.config.notes))
    for note in notes:
        show(f"note: {note}")


def _plan_cells(one: Planned, certification: Certification) -> tuple[str, ...]:
    guarantee = certification.guarantee
    # The rate of the whole certification: what is left may be nothing.
    draws = one.images * (guarantee.n0 + guarantee.max_draws)
    return (
        one.job.preset.name,
        str(one.job.config.recipe.seed),
        str(one.job.config.recipe.epochs),
        _time_left(one, one.training),
        str(one.images),
        _time_left(one, one.certification),
        f"{draws / one.whole.certification:,.0f}",
        str(one.job.folder.path),
    )


def _time_left(one: Planned, seconds: float) -> str:
    if one.repeats:
        return "as above"
    if not seconds:
        return "done"
    return duration(seconds)

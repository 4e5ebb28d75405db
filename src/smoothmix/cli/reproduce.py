"""The command `reproduce`: rows of the paper, trained, certified and held against the published numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from smoothmix._io.text import counted
from smoothmix._process.world import current_world
from smoothmix.cli.options import ImageOptions, ModelOptions, Numbers, radii_of
from smoothmix.cli.output import duration, echo, progress, table
from smoothmix.cli.report import TableFormat, show_grid, write_page
from smoothmix.config import Fidelity, Precision, RunConfig, require
from smoothmix.runs.options import Overrides, TrainingOptions

if TYPE_CHECKING:
    from smoothmix.config import Certification
    from smoothmix.reproduce.estimate import Planned
    from smoothmix.reproduce.jobs import Job
    from smoothmix.reproduce.table import Reproduced
    from smoothmix.runs.folder import RunFolder

OUT = Path("runs/reproduce")


def reproduce(
    group: str,
    /,
    *,
    sigma: float | None = None,
    rows: str = "*",
    seeds: int = 1,
    epochs: int | None = None,
    epochs_scale: float | None = None,
    precision: Precision | None = None,
    fidelity: Fidelity | None = None,
    skip: int | None = None,
    maximum: Annotated[int | None, Parameter(name="--max")] = None,
    n: int = 100_000,
    skip_wrong: Annotated[bool, Parameter(negative="")] = False,
    data_dir: Path | None = None,
    device: str = "auto",
    out: Path = OUT,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    from_logs: Path | None = None,
    paper_rounding: Annotated[bool, Parameter(negative="")] = False,
    radii: Numbers = None,
    format: TableFormat = "terminal",  # noqa: A002 - the option's name
) -> None:
    """Train and certify rows of the paper, and say how they compare with the published numbers.

    Every run has a folder of its own. Interrupt it anywhere and run the same command again: what is done is skipped.
    `torchrun --nproc-per-node 2 -m smoothmix -- reproduce ...` trains and certifies each run with many processes; the
    two dashes keep torchrun from taking --n and --max for options of its own.

    Parameters
    ----------
    group
        mnist, cifar10, imagenet, ablation or quick; also the beginning of some names, such as ablation/eta.
    sigma
        Only rows of this noise.
    rows
        Only these rows, separated by commas; gaussian,smoothmix* for example.
    seeds
        Runs of each row, with seeds 0, 1, ...
    epochs
        Passes over the data; learning-rate drops, warm-up and deferral stay where they are.
    epochs_scale
        Multiply epochs, drops, warm-up and deferral.
    precision
        bf16 trains under autocast; certification stays in fp32.
    fidelity
        official does what made the published tables, paper what the paper's text says.
    skip
        Certify every skip-th test image; by default those of the paper: every 100th of ImageNet, all of the others.
    maximum
        Certify at most so many images.
    n
        Draws an image.
    skip_wrong
        Spend no further draws on an image whose selected class is wrong.
    data_dir
        Folder that holds the data set; by default $SMOOTHMIX_DATA or this user's cache.
    device
        cpu, cuda, cuda:1, ...; auto takes a GPU if there is one.
    out
        Folder for the runs, the tables and the page.
    dry_run
        Print what would be done, with the time it would take from a short measurement.
    from_logs
        Make the tables from a folder of the paper's published logs instead of running anything.
    paper_rounding
        Round radii to nearest at three digits, as the paper's logs do. Not sound: for comparing with its tables.
    radii
        Radii of the table; by default the paper's.
    format
        How the table is printed.
    """
    from smoothmix.analysis import unique_names
    from smoothmix.report import Choices, compare_runs, make_page
    from smoothmix.reproduce.jobs import certifications, choose, make_jobs, usual_skip
    from smoothmix.reproduce.results import results

    main = current_world().is_main
    at = radii_of(radii) or None
    names = choose(group, sigma=sigma, rows=[row.strip() for row in rows.split(",") if row.strip()])
    if from_logs:
        from smoothmix.reproduce.logs import from_logs as read_logs

        refuse_running_options(
            seeds=seeds != 1, epochs=epochs, epochs_scale=epochs_scale, precision=precision, fidelity=fidelity,
            skip=skip, max=maximum, n=n != 100_000, skip_wrong=skip_wrong, dry_run=dry_run,
            data_dir=data_dir, device=device != "auto", out=out != OUT,
        )  # fmt: skip
        if main:
            with progress("reading logs", unit="logs") as on_progress:
                found = read_logs(
                    from_logs, names, paper_rounding=paper_rounding, on_progress=on_progress
                )
            require(
                any(row.runs for row in found), f"{from_logs}: holds no log of a row of {group}"
            )
            show_rows(found, f"{group}, from published logs", at, format)
        return
    overrides = Overrides(
        epochs=epochs, epochs_scale=epochs_scale, precision=precision, fidelity=fidelity
    )
    jobs = make_jobs(names, seeds=seeds, overrides=overrides, out=out)
    skip = usual_skip(jobs) if skip is None else skip
    images = ImageOptions(data_dir=data_dir, skip=skip, maximum=maximum)
    training = TrainingOptions(data_dir=data_dir, device=device)
    hows = certifications(jobs, n=n, skip_wrong=skip_wrong)
    if dry_run:
        if main:
            show_plan(jobs, hows, images, training)
        return
    for number, (job, how) in enumerate(zip(jobs, hows, strict=True), start=1):
        echo(f"\nrun {number} of {len(jobs)}: {job.preset.name}, seed {job.config.recipe.seed}")
        train_and_certify(job.config, job.folder, how, images, training)
    if not main:
        return  # whoever certifies waits until the file is whole: rank 0 finds everything there
    every = results(jobs, paper_rounding=paper_rounding)
    title = f"{group}: our numbers and the published ones"
    measured = unique_names(list({run.path: run for row in every for run in row.runs}.values()))
    comparison = compare_runs(measured, Choices(radii=at or ()), title=title, data_dir=data_dir)
    page = make_page(comparison)
    wrote = (write_tables(every, title, at, out), write_page(page, out / "report.html"))
    echo()
    show_rows(every, title, at, format)  # after the files: who reads it may go away
    for line in wrote:
        echo(line)


def refuse_running_options(**given: object) -> None:
    """Refuse options about runs where none will be made: what is ignored in silence misleads."""
    names = [f"--{name.replace('_', '-')}" for name, value in given.items() if value]
    require(not names, f"{', '.join(names)}: nothing is run with --from-logs")


def train_and_certify(
    config: RunConfig,
    folder: RunFolder,
    how: Certification,
    images: ImageOptions,
    training: TrainingOptions,
) -> None:
    """Bring one run to its end, from wherever it stands."""
    from smoothmix import data
    from smoothmix.cli.certifying import certify_with_progress
    from smoothmix.cli.target import load_target
    from smoothmix.cli.train import train_with_progress

    train_with_progress(config, folder.path, training)
    target = load_target(folder.path, ModelOptions(device=training.device or "auto"))
    dataset = data.load(config.data, images.split, data_dir=images.data_dir)
    certify_with_progress(target, dataset, how, folder.certificates, images=images)


def show_rows(
    rows: Sequence[Reproduced], title: str, radii: Sequence[float] | None, how: TableFormat
) -> None:
    """The table on standard output; on a terminal with half as many radii as the paper has, which are too many."""
    from smoothmix.reproduce.table import paper_radii, reproduction_grid

    if radii is None and how == "terminal":
        radii = [radius for radius in paper_radii(rows) if radius % 0.5 == 0]
    show_grid(reproduction_grid(rows, title=title, radii=radii, wide=how in ("csv", "json")), how)


def write_tables(
    rows: Sequence[Reproduced], title: str, radii: Sequence[float] | None, out: Path
) -> str:
    """The table in every format, in the folder of the runs; returns what to say of it."""
    from smoothmix._io.files import atomic_write
    from smoothmix.reproduce.table import reproduction_grid
    from smoothmix.tables import FORMATS

    for kind, write in FORMATS.items():
        grid = reproduction_grid(rows, title=title, radii=radii, wide=kind in ("csv", "json"))
        atomic_write(out / f"table.{'tex' if kind == 'latex' else kind}", write(grid).encode())
    return f"wrote {out / 'table.md'}, .tex, .csv and .json"


def show_plan(
    jobs: Sequence[Job],
    hows: Sequence[Certification],
    images: ImageOptions,
    training: TrainingOptions,
) -> None:
    """What would be done, and how long it would take."""
    from smoothmix.inference.devices import choose_device
    from smoothmix.reproduce.estimate import plan

    device = choose_device(training.device)
    planned = plan(
        jobs,
        hows,
        skip=images.skip,
        maximum=images.maximum,
        data_dir=images.data_dir,
        device=device,
        measuring=lambda name: echo(f"measuring a few steps of {name}"),
    )
    columns = (
        "preset",
        "seed",
        "epochs",
        "training",
        "images",
        "certification",
        "draws a second",
        "folder",
    )
    table(
        counted(len(jobs), "run"),
        columns,
        [_cells(one, how) for one, how in zip(planned, hows, strict=True)],
    )
    total = sum(one.training + one.certification for one in planned)
    print(
        f"about {duration(total)} in all on {device}, measured just now: another load on the machine changes it"
    )
    for note in dict.fromkeys(note for job in jobs for note in job.config.notes):
        print(f"note: {note}")


def _cells(one: Planned, how: Certification) -> tuple[str, ...]:
    def left(seconds: float) -> str:
        return "as above" if one.repeats else duration(seconds) if seconds else "done"

    return (
        one.job.preset.name,
        str(one.job.config.recipe.seed),
        str(one.job.config.recipe.epochs),
        left(one.training),
        str(one.images),
        left(one.certification),
        f"{one.images * (how.n0 + how.n) / one.whole.certification:,.0f}",
        str(one.job.folder.path),
    )

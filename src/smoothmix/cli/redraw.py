"""`certificates verify --redraw`: compare the votes of some rows with those of the network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from smoothmix._io.text import counted
from smoothmix._process.world import current_world
from smoothmix.cli.options import ModelOptions, RedrawOptions
from smoothmix.cli.output import duration, echo, progress, show
from smoothmix.config import require
from smoothmix.errors import UsageError

if TYPE_CHECKING:
    from smoothmix.certificates import Certificates
    from smoothmix.certify.redraw import Redraw

EDITED = 1
"""Exit code if rows were edited, as for every other problem that `verify` finds."""

ROUNDED = 3
"""Exit code if votes differ, but by no more than rounding on other hardware explains."""


def file_and_run(paths: Sequence[Path], options: RedrawOptions) -> tuple[Path, Path | None]:
    """The certificate file to check and the run folder of its network, if a run it is."""
    if options.model is not None:
        require(len(paths) == 1, "--redraw with --model takes one certificate file")
        return paths[0], None
    require(len(paths) <= 2, "--redraw takes one certificate file, and the run of its network")
    if len(paths) == 2:
        return paths[0], paths[1]
    # A run folder, or zoo:NAME, holds both; so does the folder of most certificate files.
    (path,) = paths
    run = path.parent if path.is_file() else path
    if not _has_network(run):
        raise UsageError(
            f"{path}: --redraw needs the network: name its run folder after the certificate file, "
            "or give --model package.module:function"
        )
    return path, run


def _has_network(run: Path) -> bool:
    from smoothmix.runs import zoo
    from smoothmix.runs.folder import RunFolder

    return RunFolder(zoo.resolved(run)).weights.exists()


def redraw_file(
    path: Path, run: Path | None, options: RedrawOptions, *, seed_file: Path | None
) -> int:
    """Draw rows of a file again and print what that shows; the exit code of the command."""
    from smoothmix import certificates, data
    from smoothmix.certify.redraw import (
        choose_rows,
        open_recorded,
        redraw_rows,
        seconds_needed,
    )
    from smoothmix.cli.models import load_network

    require(current_world().alone, "--redraw runs in one process: start it without torchrun")
    assert options.redraw is not None
    file = _with_seed(certificates.read(path), seed_file)
    rows = choose_rows(file, options.redraw, seed=options.redraw_seed)
    settings = file.settings
    assert settings is not None, "choose_rows refuses files without settings"
    require(
        settings.labelled,
        f"{path}: holds images without labels, whose files it does not name: run the same "
        "`certify --images` with another --out, and compare the files",
    )
    network = load_network(
        run,
        ModelOptions(
            model=options.model,
            weights=options.weights,
            output=options.output,
            normalisation=options.normalisation,
            layout=options.layout,
            allow_code=options.allow_code,
            revision=options.revision,
            device=options.device,
            num_classes=settings.num_classes,
        ),
    )
    dataset = data.load(
        options.data or settings.data,
        settings.split,
        data_dir=options.data_dir,
        preparation=settings.preparation,
    )
    if network.trained_shape:
        dataset = data.match_shape(dataset, network.trained_shape)
    if settings.class_numbers:
        dataset = data.renumbered(dataset, settings.class_numbers)
    with open_recorded(network.model, dataset, file) as (sampler, near_tie):
        seconds = seconds_needed(sampler, dataset, rows)
        of_rows = f"{len(rows)} of {counted(len(file.rows), 'row')}"
        echo(f"{path}: drawing {of_rows} again takes about {duration(seconds)}")
        with progress("redrawing", unit="images") as on_progress:
            found = redraw_rows(
                sampler, dataset, file, rows, near_tie=near_tie, on_progress=on_progress
            )
    return _show(path, found)


def _with_seed(file: Certificates, seed_file: Path | None) -> Certificates:
    """The file, with the key of its secret seed if it has one and the seed's file is there."""
    from smoothmix.certificates.secret_seeds import seed_path, with_secret
    from smoothmix.certificates.seeds import SecretSeed

    settings = file.settings
    if settings is None or not isinstance(settings.certification.seed, SecretSeed):
        return file
    place = seed_file or seed_path(file.path)
    if not place.exists():
        raise UsageError(
            f"{file.path}: was drawn with a secret seed, whose file {place} is not there: name it "
            "by --seed-file; without it nothing can be drawn again"
        )
    certification = replace(settings.certification, seed=with_secret(settings, place))
    return replace(file, settings=replace(settings, certification=certification))


def _show(path: Path, found: Redraw) -> int:
    from smoothmix.certify.redraw import edited_rows

    for row in found.rows:
        for problem in row.problems:
            show(f"{path}: image {row.idx}: {problem}")
        if row.is_rounded:
            show(
                f"{path}: image {row.idx}: {row.differing} of {counted(row.draws, 'draw')} voted "
                "otherwise, all of them near a tie: rounding on other hardware explains that"
            )
    again = f"{len(found.rows)} of {counted(found.of_rows, 'row')} drawn again"
    if found.edited:
        show(
            f"{path}: {again}, and {len(found.edited)} of them do not have the votes that the "
            "network gives: they were edited, or drawn in another way than the file says"
        )
        return EDITED
    if found.rounded:
        show(
            f"{path}: {again}; in {len(found.rounded)} of them some votes differ, by no more than "
            "rounding explains: there is no sign of edits"
        )
    else:
        show(f"{path}: {again}, and all votes are the same")
    edited = edited_rows(found.of_rows)
    show(
        f"{path}: had {counted(edited, 'row')} (5 %) been edited, this check would have missed "
        f"all of them with a chance of {100 * found.chance_missed:.0f} %"
    )
    if found.rounded:
        return ROUNDED
    return 0

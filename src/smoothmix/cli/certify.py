"""The commands `certify` and `predict`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

from smoothmix._io.text import counted
from smoothmix._process.world import current_world
from smoothmix.cli.certification import (
    certify_with_progress,
    chosen_budget,
    chosen_guarantee,
    chosen_seed,
    file_name,
    note_on_budget,
    note_without_rules,
    require_in_reach,
    require_same_images,
)
from smoothmix.cli.options import (
    IN_GUARANTEE,
    IN_IMAGES,
    IN_NOISE,
    IN_OUTPUT,
    AnytimeOptions,
    Flag,
    ImageOptions,
    NetworkOptions,
    SeedOptions,
    parse_numbers,
)
from smoothmix.cli.output import NothingSavedError, echo, show, table
from smoothmix.config import require

if TYPE_CHECKING:
    from smoothmix.certificates import Certificates, Certification
    from smoothmix.certify.workers import Outcome
    from smoothmix.cli.models import LoadedNetwork
    from smoothmix.data import Dataset
    from smoothmix.stats.allocation import Budget

NETWORK = NetworkOptions()
IMAGES = ImageOptions()
ANYTIME = AnytimeOptions()
SEEDS = SeedOptions()

RADIUS_STEP = 0.25
MOST_SHOWN = 50
"""Images without labels that the terminal shows; the files have all."""

LARGEST_SHOWN_RADIUS = 2.5
"""The summary shows certified accuracy at multiples of the step, up to this."""


def certify(
    run: Path | None = None,
    /,
    *,
    network: NetworkOptions = NETWORK,
    images: ImageOptions = IMAGES,
    n0: Annotated[int, IN_GUARANTEE] = 100,
    n: Annotated[int, IN_GUARANTEE] = 100_000,
    alpha: Annotated[float, IN_GUARANTEE] = 0.001,
    radius: Annotated[float | None, IN_GUARANTEE] = None,
    seeds: SeedOptions = SEEDS,
    shard: Annotated[str | None, IN_IMAGES] = None,
    skip_wrong: Annotated[Flag, IN_GUARANTEE] = False,
    stop_abstaining: Annotated[Flag, IN_GUARANTEE] = False,
    mode: Annotated[str, IN_GUARANTEE] = "exact",
    anytime: AnytimeOptions = ANYTIME,
    out: Annotated[Path | None, IN_OUTPUT] = None,
) -> None:
    """Certify the images of a data set with a trained network, into a file that anyone can check.

    Interrupt it anywhere and run the same command again: it resumes, and the file is the same in
    the end. `torchrun --nproc-per-node 2 -m smoothmix -- certify ...` uses several processes, also
    on several machines; the two dashes keep torchrun from taking --n and --max for its own options.

    Parameters
    ----------
    run
        A run folder, from `smoothmix train` or `smoothmix import`; or zoo:NAME, a network of the
        results in the clone.
    n0
        Draws that select the class.
    n
        Fresh draws that bound its probability.
    alpha
        Chance that one image's certificate is wrong.
    radius
        A radius of interest: refused at once if n and alpha can never reach it, and shown in the
        summary.
    shard
        Certify some shards of the images only: 2/3 is every third from the second on, 3,4/8 are two
        of eight. Each shard has its own file; the command that finishes the last one merges them.
    skip_wrong
        Spend no further draws on an image whose selected class is wrong: it counts as radius 0.
    stop_abstaining
        Spend no further draws on an image once it is certain to abstain, whatever the remaining
        draws give (mode exact).
    mode
        exact draws n times for every image. anytime gives the same guarantee whenever it stops, so
        that images get only the draws they need for --radii or --tolerance; with all draws its
        radii are a little smaller. Your own guarantee is named by package.module:Class.
    out
        The certificate file, something.tsv; by default certificates.tsv in the run folder, or here;
        where that holds certificates of another network, a file with the network's name.
        With --shard it is the file of that one shard, which `certificates merge` merges with the
        others.
    """
    from smoothmix.certificates import Certification
    from smoothmix.certificates.output import require_output
    from smoothmix.certificates.selection import Selection
    from smoothmix.cli.models import choose_data, choose_noise, choose_sigma, load_network
    from smoothmix.stats.guarantees import GuaranteeOptions

    selection = Selection(skip=images.skip, maximum=images.maximum, shard=shard or "")
    shard_file = file_name(selection.shard, out, extend=anytime.extend)
    loaded = load_network(run, network)
    folder = loaded.folder or Path()
    usual_name = "certificates.tsv"
    if images.photos:
        _require_for_photos(skip_wrong=skip_wrong, shard=shard, extend=anytime.extend)
        usual_name = "images.tsv"
    usual = folder / (shard_file or usual_name)
    path = require_output(out or _usual_path(usual, loaded))
    options = GuaranteeOptions(
        n0=n0,
        n=n,
        alpha=alpha,
        stop_abstaining=stop_abstaining,
        radii=parse_numbers(anytime.radii),
        tolerance=anytime.tolerance,
        min_gain=anytime.min_gain,
        max_draws=anytime.max_draws,
        foresight=anytime.foresight,
    )
    budget = chosen_budget(mode, anytime)
    certification = Certification(
        sigma=choose_sigma(loaded, network.sigma),
        guarantee=chosen_guarantee(mode, options, anytime, path),
        budget=budget,
        batch=network.batch,
        precision=network.precision,
        skip_wrong=skip_wrong,
    )
    dataset = choose_data(loaded, images)
    noise = choose_noise(network, dataset, path=path)
    certification = replace(certification, noise=noise)
    require_in_reach(certification, radius, path)
    note_without_rules(certification)
    note_on_budget(certification, labelled=dataset.labelled)
    if anytime.extend:
        require_same_images(path, selection, network)
    # After all checks: a new secret seed is written to a file.
    seed = chosen_seed(seeds, path, is_shard=bool(shard_file))
    certification = replace(certification, seed=seed)
    outcome = certify_with_progress(
        loaded,
        dataset,
        certification,
        path,
        selection=selection,
        merged=not shard_file,
        anytime=anytime,
        engine=network.engine,
    )
    # The other processes of a job would print the same.
    if not current_world().is_main:
        return
    if images.photos and outcome.file is not None:
        show_photos(outcome.file, dataset)
    else:
        show_outcome(outcome, radius=radius, maximum=images.maximum)


def _usual_path(usual: Path, loaded: LoadedNetwork) -> Path:
    """The file where no --out says otherwise."""
    from smoothmix.certificates.existing import path_for_model

    if loaded.folder is not None:
        return usual
    path = path_for_model(usual, loaded.name)
    if path != usual and current_world().is_main:
        echo(f"note: {usual} holds certificates of another network; those of this one: {path}")
    return path


def _require_for_photos(*, skip_wrong: bool, shard: str | None, extend: bool) -> None:
    """Refuse options that images without labels do not go with."""
    require(not skip_wrong, "--skip-wrong needs labels, and --images have none")
    require(shard is None, "--shard goes with a data set, not with --images")
    require(not extend, "--extend goes with a data set, not with --images")


def show_photos(file: Certificates, dataset: Dataset) -> None:
    """Print what is certified of images without labels, and write it as TSV, JSON and a page."""
    from smoothmix._io.files import atomic_write
    from smoothmix.data import FolderDataset
    from smoothmix.report.contact_sheet import as_json, as_page, as_tsv, facts_of, photos_of

    assert isinstance(dataset, FolderDataset)
    photos = photos_of(file, dataset)
    rows = []
    for photo in photos[:MOST_SHOWN]:
        answer = (photo.class_name, photo.radius)
        if photo.abstained:
            answer = ("abstained", "")
        rows.append((photo.file, *answer))
    table("certified images", ("file", "class", "radius"), rows)
    if len(photos) > MOST_SHOWN:
        show(f"and {len(photos) - MOST_SHOWN:,} more")
    show(f"images were {dataset.note}")
    base = file.path.with_suffix("")
    contents = {
        "table.tsv": as_tsv(photos),
        "table.json": as_json(photos, facts_of(file)),
        "contact.html": as_page(file, dataset),
    }
    for ending, content in contents.items():
        beside = base.with_name(f"{base.name}.{ending}")
        atomic_write(beside, content.encode("utf-8", "replace"))
        echo(f"written: {beside}")
    echo(f"certificates: {file.path}")
    _show_missing(file, None)


def show_outcome(outcome: Outcome, *, radius: float | None, maximum: int | None = None) -> None:
    """Print the summary of the file or of the only shard, and what is still to do."""
    from smoothmix.certificates import read

    file = outcome.file
    if file is None and len(outcome.requested) == 1:
        (only,) = outcome.requested
        # There may be more shards than images.
        if only.path.exists():
            file = read(only.path)
        else:
            echo(f"shard {only.number} of {only.count} holds no images")
    if file is not None:
        show_summary(file, radius=radius)
        echo(f"certificates: {file.path}")
        _show_missing(file, maximum)
        # An earlier run was for more images; its file keeps them, whatever --max is now.
        if outcome.file and maximum and len(file.rows) > maximum:
            echo(f"note: the file has more images than --max {maximum}, and all of them are shown")
    if outcome.unfinished:
        _show_unfinished(outcome)


def _show_unfinished(outcome: Outcome) -> None:
    numbers = ", ".join(str(shard.number) for shard in outcome.unfinished)
    advice = ""
    # Shards that nobody asked this command for are the work of others.
    if set(outcome.requested) & set(outcome.unfinished):
        advice = "; run the same command again"
    echo(f"unfinished shards of {outcome.unfinished[0].count}: {numbers}{advice}")


def _show_missing(file: Certificates, maximum: int | None) -> None:
    from smoothmix.certificates.tools import some

    if not file.missing:
        return
    advice = "run the same command again"
    # The same command would stop at --max again.
    if maximum is not None and len(file.rows) >= maximum:
        advice = f"the file was started for more than --max {maximum}: leave that out"
    echo(f"{some(file.missing)} left: {advice}")


def show_summary(file: Certificates, *, radius: float | None = None) -> None:
    """Print certified accuracy at a few radii and the average certified radius, as a table."""
    from smoothmix.analysis import average_certified_radius, certified_accuracy
    from smoothmix.tables.numbers import limit

    settings = file.settings
    assert settings is not None
    certification = settings.certification
    radii = _shown_radii(file, radius)
    accuracy = certified_accuracy(file.radius, file.correct, at=radii)
    title = (
        f"{settings.model} on {settings.data} ({settings.split}), "
        f"{counted(len(file.rows), 'image')}, {_noise_words(certification)}, "
        f"{settings.guarantee.description}, alpha {settings.guarantee.alpha:g}"
    )
    rows = [(f"{r:g}", f"{100 * share:.1f} %") for r, share in zip(radii, accuracy, strict=True)]
    table(title, (_radius_words(certification), "certified accuracy"), rows)
    acr = average_certified_radius(file.radius, file.correct)
    show(f"average certified radius (ACR) {acr:.4f}")
    if settings.guarantee.holds_at_any_time:
        draws = sum(row.n or 0 for row in file.rows) / len(file.rows)
        show(f"{draws:,.0f} draws per image on average; with more, radii may still grow")
    if certification.budget is not None:
        _show_budget(file, certification.budget)
    abstained = sum(row.predict < 0 for row in file.rows)
    # Images that selection got wrong were not drawn for, so nobody knows which would abstain.
    among = " of those right in selection" if certification.skip_wrong else ""
    show(
        f"abstained {abstained}{among}; no radius above {limit(settings.largest_radius)} can be "
        "certified with these draws and alpha"
    )


def _show_budget(file: Certificates, budget: Budget) -> None:
    """Print what a budget was spent on."""
    assert file.settings is not None
    spent = sum(file.settings.guarantee.n0 + (row.n or 0) for row in file.rows)
    without = sum(row.n == 0 for row in file.rows)
    show(
        f"{budget.description}: spent {spent:,} draws, selection included; "
        f"images without further draws, which count as radius 0: {without:,}"
    )


def _noise_words(certification: Certification) -> str:
    return f"{certification.noise.description}, sigma {certification.sigma:g}"


def _radius_words(certification: Certification) -> str:
    if certification.noise.norm == "L2":
        return "radius"
    return f"{certification.noise.norm} radius"


def _shown_radii(file: Certificates, radius: float | None) -> list[float]:
    """The radii of the summary: those that the run was asked to decide, or a usual grid."""
    assert file.settings is not None
    radii = {0.0}
    if file.settings.guarantee.radii:
        radii.update(file.settings.guarantee.radii)
    else:
        most = min(file.settings.largest_radius, LARGEST_SHOWN_RADIUS)
        radii.update(RADIUS_STEP * step for step in range(int(most / RADIUS_STEP) + 1))
    if radius is not None:
        radii.add(radius)
    return sorted(radii)


def predict(
    run: Path | None = None,
    /,
    *,
    network: NetworkOptions = NETWORK,
    images: ImageOptions = IMAGES,
    n: Annotated[int, IN_GUARANTEE] = 1_000,
    alpha: Annotated[float, IN_GUARANTEE] = 0.001,
    seed: Annotated[int | None, IN_NOISE] = None,
    out: Annotated[Path | None, IN_OUTPUT] = None,
) -> None:
    """Classify images with the smoothed network, abstaining where the votes do not decide.

    An answer differs from the smoothed classifier's with chance at most alpha (two-sided binomial
    test of the top two classes). Writes a tab-separated line per image: idx, label, predict (-1
    abstains), p_value, counts.

    Parameters
    ----------
    run
        A run folder, from `smoothmix train` or `smoothmix import`; or zoo:NAME, a network of the
        results in the clone.
    n
        Draws per image.
    alpha
        Chance that one answer is not the smoothed classifier's.
    seed
        Decides the noise; by default the operating system's entropy, which nobody can prepare an
        input for.
    out
        A file for the lines instead of standard output.
    """
    from smoothmix.certificates.partial import refuse_reserved
    from smoothmix.certificates.row import sparse, votes_text
    from smoothmix.certificates.selection import Selection
    from smoothmix.certify.predict import predict_dataset
    from smoothmix.cli.models import choose_data, choose_noise, choose_sigma, load_network
    from smoothmix.data import FolderDataset
    from smoothmix.report.contact_sheet import class_name
    from smoothmix.stats.binomial import require_enough_to_predict

    require(
        current_world().alone,
        "predict writes its lines with one process: start it without torchrun",
    )
    loaded = load_network(run, network)
    dataset = choose_data(loaded, images)
    smoothed = loaded.smoothed(
        sigma=choose_sigma(loaded, network.sigma),
        noise=choose_noise(network, dataset),
        num_classes=loaded.num_classes or dataset.num_classes,
        batch=network.batch,
        precision=network.precision,
        engine=network.engine,
    )
    indices = Selection(skip=images.skip, maximum=images.maximum).indices(len(dataset))
    if out is not None:
        require(not refuse_reserved(out).exists(), f"{out}: exists already; choose another --out")
    require_enough_to_predict(n, alpha=alpha)
    names = tuple(str(index) for index in range(len(dataset)))
    if images.photos:
        assert isinstance(dataset, FolderDataset)
        names = dataset.files
    right = 0
    abstained = 0
    with _lines_to(out) as stream:
        first = ("file", "class_name") if images.photos else ("idx", "label")
        print(*first, "predict", "p_value", "counts", sep="\t", file=stream)
        for row in predict_dataset(smoothed, dataset, indices, n=n, alpha=alpha, seed=seed):
            votes = votes_text(sparse(row.counts, nobody=row.nobody))
            label = str(row.label)
            if images.photos:
                label = class_name(dataset.class_names, row.predict)
            cells = (names[row.idx], label, row.predict, f"{row.p_value:.3g}", votes)
            print(*map(_one_cell, cells), sep="\t", file=stream, flush=True)
            right += row.predict == row.label
            abstained += row.predict < 0
    if images.photos:
        echo(f"{counted(len(indices), 'image')}, {abstained} abstained; images were {dataset.note}")
        return
    echo(f"{right} of {len(indices)} right, {abstained} abstained")


def _one_cell(value: object) -> str:
    """A value as one cell: a file name may hold a tab or a line break."""
    return " ".join(str(value).split())


@contextmanager
def _lines_to(out: Path | None) -> Iterator[IO[str]]:
    """Standard output, or a file that appears once it is complete."""
    from smoothmix._io.files import replace_file

    try:
        if out is None:
            yield sys.stdout
            return
        with replace_file(out) as temporary, temporary.open("w") as stream:
            yield stream
    except KeyboardInterrupt as error:
        raise NothingSavedError from error

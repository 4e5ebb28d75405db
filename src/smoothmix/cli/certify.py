"""The commands `certify` and `predict`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

from cyclopts import Parameter

from smoothmix._io.text import counted
from smoothmix._process.world import current_world
from smoothmix.cli.certifying import (
    certify_with_progress,
    note_without_rules,
    part_by_itself,
    require_as_made,
    require_in_reach,
    stopping_rules,
)
from smoothmix.cli.options import AnytimeOptions, ImageOptions, NetworkOptions
from smoothmix.cli.output import NothingSavedError, echo, table
from smoothmix.config import Mode, require

if TYPE_CHECKING:
    from smoothmix.certificates import Certificates
    from smoothmix.certify.workers import Outcome

NETWORK, IMAGES, ANYTIME = NetworkOptions(), ImageOptions(), AnytimeOptions()


def certify(
    run: Path | None = None,
    /,
    *,
    network: NetworkOptions = NETWORK,
    images: ImageOptions = IMAGES,
    n0: int = 100,
    n: int = 100_000,
    alpha: float = 0.001,
    radius: float | None = None,
    seed: int = 0,
    shard: str | None = None,
    skip_wrong: Annotated[bool, Parameter(negative="")] = False,
    stop_abstaining: Annotated[bool, Parameter(negative="")] = False,
    mode: Mode = "exact",
    anytime: AnytimeOptions = ANYTIME,
    out: Path | None = None,
) -> None:
    """Certify the images of a data set with a trained network, into a file that anyone can check.

    Interrupt it anywhere and run the same command again: it goes on, and the file is the same in the end.
    `torchrun --nproc-per-node 2 -m smoothmix -- certify ...` does it with several processes, also on several machines;
    the two dashes keep torchrun from taking --n and --max for options of its own.

    Parameters
    ----------
    run
        A run folder, from `smoothmix train` or `smoothmix import`; or zoo:NAME, a network of the results in the clone.
    n0
        Draws that select the class.
    n
        Fresh draws that bound its probability.
    alpha
        Chance that one image's certificate is wrong.
    radius
        A radius that you are after: refused at once if n and alpha can never reach it, and shown in the summary.
    seed
        Decides the noise. If you chose the model by its certificates, certify anew with another seed and --out.
    shard
        Certify some parts of the images only: 2/3 is every third from the second on, 3,4/8 are two of eight. Each part
        has a file of its own; the command that finishes the last one puts them together.
    skip_wrong
        Spend no further draws on an image whose selected class is wrong: it counts as radius 0.
    stop_abstaining
        Spend no further draws on an image once no outcome of those left could keep it from abstention (mode
        exact).
    mode
        exact draws n times for every image. anytime gives the same guarantee whenever it stops, so that images get only
        the draws they need for --radii or --tolerance; at the full budget its radii are a little smaller.
    out
        The certificate file, something.tsv; by default certificates.tsv in the run folder, or here. With --shard it is
        the file of that one part, which `certificates merge` puts together with the others.
    """
    from smoothmix.cli.target import choose_data, choose_sigma, load_target
    from smoothmix.config import Certification

    by_itself = part_by_itself(shard or "", out, extend=anytime.extend)
    target = load_target(run, network)
    how = Certification(
        sigma=choose_sigma(target, network.sigma),
        n0=n0,
        n=n,
        alpha=alpha,
        seed=seed,
        batch=network.batch,
        precision=network.precision,
        skip_wrong=skip_wrong,
        stop_abstaining=stop_abstaining,
    )
    path = out or (target.folder or Path()) / (by_itself or "certificates.tsv")
    rules = stopping_rules(mode, anytime, how, path)
    if radius is not None:
        require_in_reach(how, rules, radius)
    if rules and rules.radii:
        require_in_reach(how, rules, min(rules.radii))
    note_without_rules(rules)
    dataset = choose_data(target, images)
    if anytime.extend:
        require_as_made(path, images, shard or "", network)
    outcome = certify_with_progress(
        target,
        dataset,
        how,
        path,
        images=images,
        shard=shard or "",
        by_itself=bool(by_itself),
        stopping=rules,
        anytime=anytime,
        engine=network.engine,
    )
    if current_world().is_main:
        show_outcome(outcome, extra=radius, maximum=images.maximum)
        if outcome.file and images.maximum and len(outcome.file.rows) > images.maximum:
            echo(
                f"note: the file was there with more images than --max {images.maximum}, and all of them are shown"
            )


def show_outcome(outcome: Outcome, *, extra: float | None, maximum: int | None = None) -> None:
    """The summary of a file that is whole, or of the part that was made; and what is left to do."""
    from smoothmix.certificates import read
    from smoothmix.certificates.tools import some

    (only,) = outcome.asked if len(outcome.asked) == 1 else (None,)
    file = outcome.file or (read(only.path) if only and only.path.exists() else None)
    if file is None and only:
        echo(f"part {only.number} of {only.parts} holds no images")
    if file is not None:
        show_summary(file, extra=extra)
        echo(f"certificates: {file.path}")
        if file.missing:
            fewer = maximum is not None and len(file.rows) >= maximum
            again = (
                f"the file was begun for more than --max {maximum}: leave that out"
                if fewer
                else "run the same command again"
            )
            echo(f"{some(file.missing)} left: {again}")
    if outcome.unfinished:
        numbers = ", ".join(str(part.number) for part in outcome.unfinished)
        ours = set(outcome.asked) & set(outcome.unfinished)
        then = "; run the same command again" if ours else ""
        echo(f"not finished yet, of {outcome.unfinished[0].parts} parts: {numbers}{then}")


def show_summary(file: Certificates, *, extra: float | None = None) -> None:
    """Certified accuracy at a few radii and the average certified radius, as a table."""
    from smoothmix.analysis import average_certified_radius, certified_accuracy
    from smoothmix.tables.numbers import limit

    assert file.settings is not None
    how, stopping = file.settings.certification, file.settings.stopping
    reach = file.settings.largest_radius
    usual = {r / 4 for r in range(int(4 * min(reach, 2.5)) + 1)}
    chosen = {0.0, *stopping.radii} if stopping and stopping.radii else usual
    radii = sorted(chosen | ({extra} if extra is not None else set()))
    accuracy = certified_accuracy(file.radius, file.correct, at=radii)
    abstained = sum(row.predict < 0 for row in file.rows)
    title = (
        f"{file.settings.model} on {file.settings.data} ({file.settings.split}), {counted(len(file.rows), 'image')}, "
        f"sigma {how.sigma:g}, {file.settings.guarantee}, alpha {how.alpha:g}"
    )
    rows = [(f"{r:g}", f"{100 * share:.1f} %") for r, share in zip(radii, accuracy, strict=True)]
    table(title, ("radius", "certified accuracy"), rows)
    print(
        f"average certified radius (ACR) {average_certified_radius(file.radius, file.correct):.4f}"
    )
    if stopping:
        draws = sum(row.n or 0 for row in file.rows)
        print(
            f"{draws / len(file.rows):,.0f} draws an image on average; with more, radii may still grow"
        )
    unknown = " of those right in selection" if how.skip_wrong else ""
    print(
        f"abstained {abstained}{unknown}; no radius above {limit(reach)} can be certified with this budget and alpha"
    )


def predict(
    run: Path | None = None,
    /,
    *,
    network: NetworkOptions = NETWORK,
    images: ImageOptions = IMAGES,
    n: int = 1_000,
    alpha: float = 0.001,
    seed: int | None = None,
    out: Path | None = None,
) -> None:
    """Classify images with the smoothed network, abstaining where the votes cannot tell.

    An answer differs from the smoothed classifier's with chance at most alpha (two-sided binomial test of the top two
    classes). Writes a tab-separated line an image: idx, label, predict (-1 abstains), p_value, counts.

    Parameters
    ----------
    run
        A run folder, from `smoothmix train` or `smoothmix import`; or zoo:NAME, a network of the results in the clone.
    n
        Draws an image.
    alpha
        Chance that one answer is not the smoothed classifier's.
    seed
        Decides the noise; by default the operating system's entropy, which nobody can prepare an input for.
    out
        A file for the lines instead of standard output.
    """
    from smoothmix.certificates.row import sparse, votes_text
    from smoothmix.certify.predict import predict_dataset
    from smoothmix.certify.smoothed import Smoothed
    from smoothmix.cli.target import choose_data, choose_sigma, load_target
    from smoothmix.stats.binomial import require_enough_to_predict

    require(
        current_world().alone,
        "predict writes its lines with one process: start it without torchrun",
    )
    target = load_target(run, network)
    dataset = choose_data(target, images)
    smoothed = Smoothed(
        target.model,
        sigma=choose_sigma(target, network.sigma),
        num_classes=target.num_classes or dataset.num_classes,
        block=network.batch,
        precision=network.precision,
        engine=network.engine,
    )
    indices = range(0, len(dataset), images.skip)[: images.maximum]
    require(out is None or not out.exists(), f"{out}: is there already; choose another --out")
    require_enough_to_predict(n, alpha=alpha)
    right = abstained = 0
    with _lines_to(out) as stream:
        print("idx", "label", "predict", "p_value", "counts", sep="\t", file=stream)
        for row in predict_dataset(smoothed, dataset, indices, n=n, alpha=alpha, seed=seed):
            votes = votes_text(sparse(row.counts))
            print(
                row.idx,
                row.label,
                row.predict,
                f"{row.p_value:.3g}",
                votes,
                sep="\t",
                file=stream,
                flush=True,
            )
            right += row.predict == row.label
            abstained += row.predict < 0
    echo(f"{right} of {len(indices)} right, {abstained} abstained")


@contextmanager
def _lines_to(out: Path | None) -> Iterator[IO[str]]:
    """Standard output, or a file that is there only once it is whole."""
    from smoothmix._io.files import replace_file

    try:
        if out is None:
            yield sys.stdout
            return
        with replace_file(out) as temporary, temporary.open("w") as stream:
            yield stream
    except KeyboardInterrupt as error:
        raise NothingSavedError from error

"""The command `attack`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from smoothmix._io.text import counted
from smoothmix._process.signals import sigterm_raises
from smoothmix._process.world import current_world
from smoothmix.cli.options import IN_IMAGES, IN_OUTPUT, ImageOptions, NetworkOptions
from smoothmix.cli.output import echo, progress, show, table
from smoothmix.config import require

if TYPE_CHECKING:
    from smoothmix.certificates import Certificates
    from smoothmix.certificates.attack_file import Attacks, SearchSettings

NETWORK = NetworkOptions()
IMAGES = ImageOptions()

RADIUS_STEP = 0.25
MOST_SHOWN_RADII = 12


@Parameter(name="*", group="Search")
@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How hard the attack tries, and how its finds are judged."""

    n: int = 10_000
    """Fresh draws that judge an adversarial example."""

    alpha: float = 0.001
    """Chance that one image's row is wrong about the smoothed classifier."""

    search_draws: int = 1_000
    """Draws that compare points during the search."""

    copies: int = 64
    """Noise samples through which each gradient is averaged."""

    steps: int = 20
    """Steps of each PGD and of DDN."""

    rounds: int = 40
    """Most attempts to shrink the distance along the boundary."""

    seed: int = 0
    """Decides the noise of the attack, which certificates never see."""

    def settings(self) -> SearchSettings:
        """The settings of the search; refused here if they make no sense."""
        from smoothmix.certificates.attack_file import SearchSettings

        return SearchSettings(
            n=self.n,
            alpha=self.alpha,
            search_draws=self.search_draws,
            copies=self.copies,
            steps=self.steps,
            rounds=self.rounds,
            seed=self.seed,
        )


SEARCH = SearchOptions()


def attack(
    *runs: Annotated[Path, Parameter(negative="")],
    network: NetworkOptions = NETWORK,
    images: ImageOptions = IMAGES,
    search: SearchOptions = SEARCH,
    shard: Annotated[str | None, IN_IMAGES] = None,
    out: Annotated[Path | None, IN_OUTPUT] = None,
) -> None:
    """Look for the nearest adversarial example of each image, to set beside its certificate.

    The smoothed classifier is attacked under the noise of its certificates: by PGD and DDN through
    many noise samples, and by a search along the boundary that needs votes only. An example counts
    if fresh noise shows another class by the test of `predict`. Under grid noise it is an 8-bit
    image. Interrupt it anywhere and run the same command again: images with a row are not repeated.
    `torchrun --nproc-per-node 2 -m smoothmix -- attack ...` uses several processes.

    Parameters
    ----------
    runs
        Run folders, from `smoothmix train` or `smoothmix import`; or zoo:NAME, a network of the
        results in the clone.
    shard
        Attack some shards of the images only: 2/3 is every third from the second on, 3,4/8 are two
        of eight. Each shard has its own file; the command that finishes the last one merges them.
    out
        The file of the attacks, something.tsv; by default attacks.tsv in the run folder, or here.
    """
    from smoothmix.certificates.selection import parse_shards

    require(
        out is None or len(runs) <= 1,
        "--out names one file: leave it out to attack several runs",
    )
    chosen: Sequence[Path | None] = runs or (None,)
    # Before the first attack, which may take hours.
    paths = [_output(run, out) for run in chosen]
    require(
        len(set(paths)) == len(paths),
        "several of these runs would write the same attacks.tsv: attack them one by one with --out",
    )
    if shard:
        parse_shards(shard)
    settings = search.settings()
    for run, path in zip(chosen, paths, strict=True):
        _attack_run(run, path, network, images, settings, shard or "")


def _output(run: Path | None, out: Path | None) -> Path:
    from smoothmix.certificates.attack_file import NAME
    from smoothmix.certificates.output import require_output
    from smoothmix.runs import zoo

    folder = Path()
    # The zoo's own folders hold published results.
    if run is not None and not zoo.is_zoo(run):
        folder = run
    return require_output(out or folder / NAME)


def _attack_run(
    run: Path | None,
    path: Path,
    network: NetworkOptions,
    images: ImageOptions,
    search: SearchSettings,
    shards: str,
) -> None:
    from smoothmix.certificates.selection import Selection
    from smoothmix.certify.attack import attack_dataset
    from smoothmix.cli.models import choose_data, choose_noise, choose_sigma, load_network

    loaded = load_network(run, network)
    dataset = choose_data(loaded, images)
    sigma = network.sigma
    noise = choose_noise(network, dataset)
    certificates = _certificates_of(run)
    # What is not requested is as in the certificates that the attacks are set beside.
    if certificates is not None and certificates.settings is not None:
        certification = certificates.settings.certification
        if sigma is None:
            sigma = certification.sigma
        if network.noise is None and network.levels is None:
            noise = certification.noise
    smoothed = loaded.smoothed(
        sigma=choose_sigma(loaded, sigma),
        noise=noise,
        num_classes=loaded.num_classes or dataset.num_classes,
        batch=network.batch,
        precision=network.precision,
        engine=network.engine,
    )
    indices = Selection(skip=images.skip, maximum=images.maximum).indices(len(dataset))
    # SIGTERM is what schedulers send before they kill a job; whole rows are on the disk.
    with sigterm_raises(), progress("attacking", unit="images") as on_progress:
        attacks = attack_dataset(
            smoothed,
            dataset,
            indices,
            path=path,
            model_name=loaded.name,
            search=search,
            shards=shards,
            world=current_world(),
            on_progress=on_progress,
        )
    # The other processes of a job would print the same.
    if current_world().is_main:
        show_attacks(attacks, certificates)


def _certificates_of(run: Path | None) -> Certificates | None:
    """The certificates in a run folder, packed or not."""
    from smoothmix.certificates import read
    from smoothmix.runs import zoo

    if run is None or not any(zoo.resolved(run).glob("certificates.tsv*")):
        return None
    return read(run)


def show_attacks(attacks: Attacks, certificates: Certificates | None) -> None:
    """Print how many examples were found, and certified beside empirical accuracy if known."""
    from statistics import median

    settings = attacks.settings
    distances = [row.distance for row in attacks.rows if row.distance is not None]
    undecided = sum(row.before < 0 for row in attacks.rows)
    show(
        f"{settings.model} on {settings.data} ({settings.split}), {settings.noise} noise, sigma "
        f"{settings.sigma:g}: adversarial examples for {len(distances)} of "
        f"{counted(len(attacks.rows), 'image')}"
    )
    if distances:
        show(f"median distance {median(distances):.3f}, smallest {min(distances):.3f}")
    if undecided:
        show(f"{counted(undecided, 'image')} not attacked: the draws do not decide their class")
    if certificates is not None:
        _show_beside(attacks, certificates)
    if attacks.unfinished:
        echo(f"unfinished shards: {', '.join(attacks.unfinished)}; the last to finish merges them")
        return
    echo(f"attacks: {attacks.path}")


def _show_beside(attacks: Attacks, file: Certificates) -> None:
    from smoothmix.analysis.robustness import attacked_images, certified_share, empirical_share

    if file.settings is None or not attacks.settings.is_about(file.settings):
        show(f"{file.path}: certifies another classifier or other images, and is not compared")
        return
    found = attacked_images(file.rows, attacks.rows)
    if not found:
        show(f"{file.path}: has none of these images")
        return
    largest = max(each.certificate.radius for each in found)
    steps = min(int(largest / RADIUS_STEP) + 2, MOST_SHOWN_RADII)
    radii = [RADIUS_STEP * step for step in range(steps)]
    certified = certified_share(found, radii)
    empirical = empirical_share(found, radii)
    rows = []
    for radius, low, high in zip(radii, certified, empirical, strict=True):
        gap = 100 * (high - low)
        rows.append((f"{radius:g}", f"{100 * low:.1f} %", f"{100 * high:.1f} %", f"{gap:.1f}"))
    title = f"{counted(len(found), 'image')} both certified and attacked"
    table(title, ("radius", "certified", "not broken", "gap"), rows)
    inside = sum(each.contradiction for each in found)
    show(f"adversarial examples inside a certified radius: {inside}")

"""The command `quickstart`: train, certify and compare on embedded data, in a few minutes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from smoothmix.cli.output import echo
from smoothmix.errors import UsageError

if TYPE_CHECKING:
    from smoothmix.runs.folder import RunFolder

PRESETS = ("quick/gaussian", "quick/smoothmix")

IMAGES = 50
"""Test images that are certified, of 1,000."""

DRAWS = 10_000
"""Draws per image."""


def quickstart(
    *, out: Path = Path("runs/quickstart"), fresh: Annotated[bool, Parameter(negative="")] = False
) -> None:
    """Train two small networks on embedded digits, certify both and compare them in a page.

    One is trained with Gaussian noise alone, the other with SmoothMix, for the same epochs.

    Parameters
    ----------
    out
        Folder for the runs and the page.
    fresh
        Start again, even if the folder holds the runs already.
    """
    from smoothmix.runs.folder import RunFolder

    folders = []
    for name in PRESETS:
        folder = RunFolder(out / name.rpartition("/")[2])
        _train_and_certify(name, folder, fresh=fresh)
        folders.append(folder)
    _compare([folder.path for folder in folders], out / "report.html")
    first, second = folders
    echo()
    echo("Now try:")
    echo(f"  smoothmix certificates verify {second.certificates}")
    echo(f"  smoothmix report {first.path} {second.path} --format md")
    echo("  smoothmix presets                      # the rows of the paper")


def _train_and_certify(name: str, folder: RunFolder, *, fresh: bool) -> None:
    from smoothmix import presets
    from smoothmix.certificates import Certification
    from smoothmix.cli.models import choose_noise
    from smoothmix.cli.options import ImageOptions, ModelOptions
    from smoothmix.cli.reproduce import train_and_certify
    from smoothmix.config import RunConfig
    from smoothmix.runs.options import TrainingOptions
    from smoothmix.stats.guarantees import FixedDraws

    preset = presets.get(name)
    config = preset.config
    if fresh and folder.config.exists():
        shutil.rmtree(folder.path)
    # A later version may have another recipe for the preset.
    if folder.config.exists() and RunConfig.load(folder.config).recipe != config.recipe:
        raise UsageError(
            f"{folder.path}: holds a run with other settings; add --fresh to start again"
        )
    title = preset.about.partition(",")[0]
    echo(
        f"{title}: a {config.network} on 4,000 digits, noise of standard deviation {config.sigma:g}"
    )
    # Runs of earlier versions are resumed with their own noise.
    noise = choose_noise(ModelOptions(), path=folder.certificates)
    certification = Certification(sigma=config.sigma, guarantee=FixedDraws(DRAWS), noise=noise)
    images = ImageOptions(skip=1000 // IMAGES)
    # The networks are so small that a GPU would not be faster.
    train_and_certify(config, folder, certification, images, TrainingOptions(device="cpu"))
    echo()


def _compare(folders: list[Path], out: Path) -> None:
    from smoothmix.cli.report import PageOptions, compare

    title = f"Gaussian or SmoothMix? {IMAGES} digits, certified with {DRAWS:,} draws each"
    runs = [f"Gaussian={folders[0]}", f"SmoothMix={folders[1]}"]
    compare(runs, page=PageOptions(out=out, title=title))

"""The command `quickstart`: the main job on embedded data, in a few minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from smoothmix.cli.output import echo

PRESETS = ("quick/gaussian", "quick/smoothmix")
IMAGES, DRAWS = 50, 10_000


def quickstart(
    *, out: Path = Path("runs/quickstart"), fresh: Annotated[bool, Parameter(negative="")] = False
) -> None:
    """Train two small networks on embedded digits, certify both and compare them in a page.

    One is trained with Gaussian noise alone, the other with SmoothMix, for as many epochs.

    Parameters
    ----------
    out
        Folder that keeps the runs and the page.
    fresh
        Begin anew even if the runs are there already.
    """
    import shutil

    from smoothmix import presets
    from smoothmix.certificates import Certification
    from smoothmix.cli.options import ImageOptions
    from smoothmix.cli.reproduce import train_and_certify
    from smoothmix.config import RunConfig
    from smoothmix.errors import UsageError
    from smoothmix.runs.folder import RunFolder
    from smoothmix.runs.options import TrainingOptions
    from smoothmix.stats.guarantees import FixedDraws

    folders = [RunFolder(out / name.rpartition("/")[2]) for name in PRESETS]
    images = ImageOptions(skip=1000 // IMAGES)
    for name, folder in zip(PRESETS, folders, strict=True):
        if fresh and folder.config.exists():
            shutil.rmtree(folder.path)
        preset = presets.get(name)
        config = preset.config
        if folder.config.exists() and RunConfig.load(folder.config).recipe != config.recipe:
            raise UsageError(
                f"{folder.path}: holds a run with other settings; add --fresh to begin anew"
            )
        echo(
            f"{preset.about.partition(',')[0]}: a {config.network} on 4,000 digits, noise of deviation {config.sigma:g}"
        )
        how = Certification(sigma=config.sigma, guarantee=FixedDraws(DRAWS))
        train_and_certify(config, folder, how, images, TrainingOptions(device="cpu"))
        echo()
    _compare([folder.path for folder in folders], out / "report.html")
    echo("\nNow try:")
    echo(f"  smoothmix certificates verify {folders[1].certificates}")
    echo(f"  smoothmix report {folders[0].path} {folders[1].path} --format md")
    echo("  smoothmix presets                      # the rows of the paper")


def _compare(folders: list[Path], out: Path) -> None:
    from smoothmix.cli.report import PageOptions, compare

    title = f"Gaussian or SmoothMix? {IMAGES} digits, certified with {DRAWS:,} draws each"
    runs = [f"Gaussian={folders[0]}", f"SmoothMix={folders[1]}"]
    compare(runs, page=PageOptions(out=out, title=title))

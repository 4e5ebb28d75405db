"""The command `bench`: what certification will cost on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from smoothmix._io.text import counted
from smoothmix._process.world import current_world
from smoothmix.cli.options import ImageOptions, ModelOptions, Numbers, parse_numbers
from smoothmix.cli.output import NothingSavedError, duration, progress, table
from smoothmix.config import require
from smoothmix.errors import UsageError

if TYPE_CHECKING:
    from smoothmix.cli.target import Target
    from smoothmix.inference.speed import Speed

NETWORK = ModelOptions()
WORTH_SAYING = 1.1
"""How many times as fast something must be to be recommended: less may be the machine's mood."""
LONG = 3600.0
"""Seconds of certification after which a way to do with less is worth a line."""


def bench(
    run: Path | None = None,
    /,
    *,
    network: ModelOptions = NETWORK,
    shape: Numbers = None,
    data: str | None = None,
    data_dir: Path | None = None,
    n: int = 100_000,
    images: int = 500,
    turns: int = 5,
) -> None:
    """Measure how many draws a second a network gets through here, and how long certification will take.

    The ways to run it (layers fused or as written, fp32 or bf16) take turns, so that their ratios hold on a machine
    that does other things too. Nothing is written, and a run folder needs no data set for it.

    Parameters
    ----------
    run
        A run folder, or zoo:NAME.
    shape
        Channels, height and width of the images, such as --shape 3,224,224, for a network of your own.
    data
        A data set with images of this shape and as many classes, instead of --shape and --num-classes.
    data_dir
        Folder that holds it; by default $SMOOTHMIX_DATA or this user's cache.
    n
        Draws an image.
    images
        How many images are to be certified.
    turns
        How often each way is measured, half a second or more at a time; the median counts.
    """
    from smoothmix.cli.target import load_target

    require(current_world().alone, "bench measures one process: start it without torchrun")
    for name, number in ("n", n), ("images", images), ("turns", turns):
        require(number >= 1, f"{name} must be at least 1, got {number}")
    target = load_target(run, network)
    sides, classes = _what_it_takes(target, shape, ImageOptions(data=data, data_dir=data_dir))

    import torch

    from smoothmix.inference.speed import measure
    from smoothmix.networks.modes import device_of

    try:
        with progress("measuring", unit="turns") as on_progress:
            speeds = measure(
                target.model,
                sides,
                num_classes=classes,
                block=network.batch,
                turns=turns,
                on_progress=on_progress,
            )
    except KeyboardInterrupt as error:
        raise NothingSavedError from error
    where = device_of(target.model).type
    threads = f" on {counted(torch.get_num_threads(), 'thread')}" if where == "cpu" else ""
    table(
        f"{target.name}, images of {'x'.join(map(str, sides))}, {n:,} draws each, {where}{threads}",
        (
            "precision",
            "engine",
            "ratio",
            "draws a second",
            "images an hour",
            f"{counted(images, 'image')} in",
        ),
        [
            (
                found.way.precision,
                found.engine,
                f"{found.ratio:.2f}",
                _rounded(found.rate),
                _rounded(3600 * found.rate / n),
                duration(images * n / found.rate),
            )
            for found in speeds
        ],
    )
    for line in _advice(speeds, images * n):
        print(f"- {line}")


def _what_it_takes(
    target: Target, shape: Sequence[str] | None, where: ImageOptions
) -> tuple[tuple[int, ...], int]:
    """Shape of the network's images, and number of its classes."""
    from smoothmix.cli.target import choose_data

    given = parse_numbers(shape)
    right = len(given) in (0, 3) and all(side >= 1 and side.is_integer() for side in given)
    require(right, f"a shape is written like --shape 3,224,224, got {' '.join(shape or ())}")
    require(not given or where.data is None, "give --shape or --data, not both")
    sides, classes = tuple(map(int, given)) or target.shape, target.num_classes
    if where.data is not None:
        dataset = choose_data(target, where)
        sides, classes = dataset.shape, classes or dataset.num_classes
    if not sides:
        raise UsageError(
            "--shape 3,224,224 or --data is needed: a network of your own does not say what it takes"
        )
    if classes is None:
        raise UsageError(
            "--num-classes is needed with --shape: a network of your own does not say what it tells apart"
        )
    return sides, classes


def _rounded(number: float) -> str:
    """A whole number where it is large, with digits after the point where it is not.

    >>> _rounded(17591.3), _rounded(99.6), _rounded(4.68), _rounded(0.46789)
    ('17,591', '100', '4.7', '0.47')
    """
    return f"{number:,.0f}" if number >= 10 else f"{number:.1f}" if number >= 1 else f"{number:.2g}"


def _advice(speeds: Sequence[Speed], draws: int) -> list[str]:
    """What the numbers mean for whoever is about to certify."""
    first, *others = speeds
    lines = ["the first line is what `smoothmix certify` does"]
    for other in others:
        if other.way.precision != "bf16":
            continue
        gain = f"bf16 is {other.ratio:.1f} times as fast; it is another classifier: certify so if you deploy so"
        lines.append(gain if other.ratio >= WORTH_SAYING else "bf16 gains nothing here")
    if draws / first.rate > LONG:
        lines.append(
            "`--mode anytime --radii 0.5` answers one question with tens of times fewer draws"
        )
    return lines

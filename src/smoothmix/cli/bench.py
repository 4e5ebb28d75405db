"""The command `bench`: what certification will cost on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from smoothmix._io.text import counted
from smoothmix._process.world import current_world
from smoothmix.cli.options import ImageOptions, ModelOptions, Numbers, parse_numbers
from smoothmix.cli.output import NothingSavedError, duration, progress, show, table
from smoothmix.config import EngineName, Precision, require
from smoothmix.errors import UsageError

if TYPE_CHECKING:
    from smoothmix.certify.smoothed import Smoothed
    from smoothmix.cli.models import LoadedNetwork
    from smoothmix.inference.sampler import Sampler
    from smoothmix.inference.speed import Setup, Speed

NETWORK = ModelOptions()

ANY_SIGMA = 0.5
"""Every noise level takes the same time."""

WORTH_MENTIONING = 1.1
"""How many times as fast something must be to be recommended: less may be chance."""

LONG = 3600.0
"""Seconds of certification from which on advice to need fewer draws is worth a line."""


def bench(
    run: Path | None = None,
    /,
    *,
    network: ModelOptions = NETWORK,
    shape: Numbers = None,
    data: str | None = None,
    data_dir: Path | None = None,
    engine: EngineName = "auto",
    n: int = 100_000,
    images: int = 500,
    turns: int = 5,
) -> None:
    """Measure how many draws per second a network reaches here, and how long certification takes.

    The engines that are installed take turns in fp32 and bf16, so that their ratios hold on a
    machine that does other things too. Nothing is written, and a run folder needs no data set.

    Parameters
    ----------
    run
        A run folder, or zoo:NAME.
    shape
        Channels, height and width of the images, such as --shape 3,224,224, for your own network.
    data
        A data set with such images and classes, instead of --shape and --num-classes.
    data_dir
        Folder that holds it; by default $SMOOTHMIX_DATA or this user's cache.
    engine
        Compare this engine alone with torch; compiled, which takes a minute to prepare, is measured
        only if it is named.
    n
        Draws per image.
    images
        How many images are to be certified.
    turns
        How often each setup is measured, half a second or more at a time; the median counts.
    """
    from smoothmix.cli.models import choose_noise, load_network
    from smoothmix.inference.engines import ENGINES
    from smoothmix.inference.speed import all_setups

    require(current_world().alone, "bench measures one process: start it without torchrun")
    for name, number in ("n", n), ("images", images), ("turns", turns):
        require(number >= 1, f"{name} must be at least 1, got {number}")
    loaded = load_network(run, network)
    where = ImageOptions(data=data, data_dir=data_dir)
    image_shape, num_classes = _shape_and_classes(loaded, shape, where)
    smoothed = loaded.smoothed(
        sigma=ANY_SIGMA,
        noise=choose_noise(network),
        num_classes=num_classes,
        batch=network.batch,
    )
    if engine != "auto":
        ENGINES[engine].require_installed()
    speeds = _measured(smoothed, image_shape, turns, all_setups(engine))
    shown_shape = "x".join(map(str, image_shape))
    table(
        f"{loaded.name}, images of {shown_shape}, {n:,} draws each, {_device_text(smoothed)}",
        (
            "precision",
            "engine",
            "ratio",
            "draws per second",
            "images per hour",
            f"{counted(images, 'image')} in",
        ),
        [_table_row(speed, n, images) for speed in speeds],
    )
    for line in _advice(speeds, images * n):
        show(f"- {line}")


def _measured(
    smoothed: Smoothed, shape: tuple[int, ...], turns: int, setups: Sequence[Setup]
) -> list[Speed]:
    from smoothmix.inference.speed import measure

    def open_sampler(setup: Setup) -> AbstractContextManager[Sampler]:
        classifier = replace(smoothed, engine=setup.engine, precision=setup.precision)
        return classifier.open(shape, seed=0)

    try:
        with progress("measuring", unit="turns") as on_progress:
            return measure(open_sampler, shape, setups=setups, turns=turns, on_progress=on_progress)
    except KeyboardInterrupt as error:
        raise NothingSavedError from error


def _device_text(smoothed: Smoothed) -> str:
    import torch

    from smoothmix.networks.modes import device_of

    device = device_of(smoothed.model).type
    if device != "cpu":
        return device
    return f"cpu on {counted(torch.get_num_threads(), 'thread')}"


def _table_row(speed: Speed, n: int, images: int) -> tuple[str, ...]:
    return (
        speed.setup.precision,
        speed.engine,
        f"{speed.ratio:.2f}",
        _rounded(speed.rate),
        _rounded(3600 * speed.rate / n),
        duration(images * n / speed.rate),
    )


def _shape_and_classes(
    loaded: LoadedNetwork, shape: Sequence[str] | None, where: ImageOptions
) -> tuple[tuple[int, ...], int]:
    """Shape of the network's images, and number of its classes."""
    from smoothmix.cli.models import choose_data

    require(not shape or where.data is None, "give --shape or --data, not both")
    image_shape = _parsed_shape(shape) or loaded.shape
    num_classes = loaded.num_classes
    if where.data is not None:
        dataset = choose_data(loaded, where)
        image_shape = dataset.shape
        num_classes = num_classes or dataset.num_classes
    if not image_shape:
        raise UsageError(
            "--shape 3,224,224 or --data is needed: the images of your network are not known"
        )
    if num_classes is None:
        raise UsageError(
            "--num-classes is needed with --shape: the classes of your network are not known"
        )
    return image_shape, num_classes


def _parsed_shape(texts: Sequence[str] | None) -> tuple[int, ...]:
    sides = parse_numbers(texts)
    is_shape = len(sides) in (0, 3) and all(side >= 1 and side.is_integer() for side in sides)
    require(is_shape, f"a shape is written like --shape 3,224,224, got {' '.join(texts or ())}")
    return tuple(int(side) for side in sides)


def _rounded(number: float) -> str:
    """A whole number where it is large, with digits after the point where it is not.

    >>> _rounded(17591.3), _rounded(99.6), _rounded(4.68), _rounded(0.46789)
    ('17,591', '100', '4.7', '0.47')
    """
    if number >= 10:
        return f"{number:,.0f}"
    if number >= 1:
        return f"{number:.1f}"
    return f"{number:.2g}"


def _advice(speeds: Sequence[Speed], draws: int) -> list[str]:
    """What the numbers mean for whoever is about to certify."""
    first = speeds[0]
    lines = ["the first line is what `smoothmix certify` does unless it chooses another engine"]
    fastest = _fastest(speeds, first.setup.precision)
    if fastest.ratio >= WORTH_MENTIONING:
        lines.append(
            f"{fastest.setup.engine} is {fastest.ratio:.1f} times as fast: certify chooses it by "
            f"itself for long jobs, and with --engine {fastest.setup.engine} for any"
        )
    in_bf16 = _fastest(speeds, "bf16")
    if in_bf16.ratio >= WORTH_MENTIONING * fastest.ratio:
        lines.append(
            f"bf16 is {in_bf16.ratio / fastest.ratio:.1f} times as fast; it is another classifier: "
            "certify with it if you deploy with it"
        )
    else:
        lines.append("bf16 gains nothing here")
    if draws / first.rate > LONG:
        # A fixed number of draws spends most of them on images that were clear long before.
        lines.append(
            "`--mode anytime --radii 0.5` answers one question with tens of times fewer draws"
        )
    return lines


def _fastest(speeds: Sequence[Speed], precision: Precision) -> Speed:
    """The fastest of the setups in one precision; the first of all where there is none."""
    found = [speed for speed in speeds if speed.setup.precision == precision]
    return max(found, key=lambda speed: speed.ratio, default=speeds[0])

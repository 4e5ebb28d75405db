"""Normalisation as the first layer of a network, so that noise is added to pixels in [0, 1]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from smoothmix.data.registry import DATASETS
from smoothmix.errors import UsageError, shown, unknown_name
from smoothmix.registry import is_address

Statistics = tuple[Sequence[float], Sequence[float]]
"""Mean and standard deviation of each channel."""


@final
class Normalise(nn.Module):
    """(x - mean) / std for each channel; both are buffers, so that saved weights are complete."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if len(mean) != len(std) or min(std) <= 0:
            raise UsageError(
                "normalisation needs as many means as positive standard deviations, "
                f"got {mean} and {std}"
            )
        self.register_buffer("mean", _by_channel(mean))
        self.register_buffer("std", _by_channel(std))

    def forward(self, images: Tensor) -> Tensor:
        return (images - self.mean) / self.std


def _by_channel(values: Sequence[float]) -> Tensor:
    # Without the type, means such as (0, 0, 0) would become integers.
    return torch.tensor(values, dtype=torch.get_default_dtype()).view(-1, 1, 1)


def normalise_layer(normalisation: str | Statistics, channels: int | None) -> nn.Module:
    """The layer for `none`, a data set's name or given statistics; `Identity` for none.

    Statistics are two sequences, or a text such as `0.5,0.4,0.3/0.25,0.25,0.25`, or `0.5/0.25` for
    all channels.
    """
    statistics = _statistics(normalisation)
    if statistics is None:
        return nn.Identity()
    if channels is not None and len(statistics[0]) == len(statistics[1]) == 1:
        # A single mean and standard deviation are those of every channel.
        statistics = ([*statistics[0]] * channels, [*statistics[1]] * channels)
    known_channels = len(statistics[0])
    if channels is not None and known_channels != channels:
        raise UsageError(
            f"normalisation {normalisation!r} is for {known_channels} channels, "
            f"the images have {channels}: "
            "give a mean and a standard deviation for each channel, or 'none'"
        )
    return Normalise(*statistics)


def _statistics(normalisation: str | Statistics) -> Statistics | None:
    if not isinstance(normalisation, str):
        return normalisation
    if normalisation == "none":
        return None
    if "/" in normalisation:
        return parse_statistics(normalisation)
    if normalisation not in DATASETS and not is_address(normalisation):
        names = [name for name in DATASETS if ":" not in name]
        raise unknown_name("normalisation", normalisation, ["none", *names])
    return DATASETS[normalisation].pixel_statistics


def parse_statistics(text: str) -> Statistics:
    """The means and standard deviations in a text.

    >>> parse_statistics("0.5,0.4,0.3/0.25,0.25,0.25")
    ((0.5, 0.4, 0.3), (0.25, 0.25, 0.25))
    """
    means, _, deviations = text.partition("/")
    try:
        mean = tuple(float(part) for part in means.split(","))
        std = tuple(float(part) for part in deviations.split(","))
    except ValueError:
        raise UsageError(
            "a normalisation is written like 0.5,0.4,0.3/0.25,0.25,0.25: means / standard "
            f"deviations, got {shown(text)!r}"
        ) from None
    return mean, std

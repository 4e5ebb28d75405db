"""The folders of the authors' published MNIST logs, by the settings of a method. No torch.

The folders are named after settings; where the authors' setting is not ours, the formula is here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Settings = Mapping[str, Any]


def gaussian(settings: Settings) -> list[str]:
    """Of Gaussian augmentation, which has no settings."""
    return ["cohen"]


def stability(settings: Settings) -> list[str]:
    """Of stability training."""
    return ["stab/lbd_{weight:g}".format_map(settings)]


def smoothadv(settings: Settings) -> list[str]:
    """Of SmoothAdv."""
    # The authors give epsilon in levels of a pixel.
    levels = 256 * settings["epsilon"]
    attack = "{attack}_{levels:g}_{steps}_{warmup_epochs}".format(levels=levels, **settings)
    return [f"salman/{attack}/num_{settings['copies']}"]


def macer(settings: Settings) -> list[str]:
    """Of MACER, whose logs lie in either of two folders."""
    # The authors count the last epoch without the robustness term, from 0.
    deferred = settings["defer_epochs"] - 1
    weight = "num_{copies}/lbd_{weight:g}".format_map(settings)
    margin = "gamma_{gamma:g}/beta_{beta:g}".format_map(settings)
    folder = f"macer_deferred{deferred}/{weight}"
    return [f"{folder}/{margin}", folder]


def consistency(settings: Settings) -> list[str]:
    """Of consistency regularisation on top of Gaussian augmentation."""
    weights = "num_{copies}/lbd_{weight:g}/eta_{entropy_weight:g}".format_map(settings)
    return [f"consistency/cohen/{weights}"]


def smoothmix(settings: Settings) -> list[str]:
    """Of SmoothMix."""
    attack = "smix_{step_size:g}_{steps}_m{one_step:d}".format_map(settings)
    if "limit" in settings:
        attack += f"_max{settings['limit']:g}"
    weights = "tau_{eta:g}/num_{copies}".format_map(settings)
    return [f"smoothmix/{attack}/{weights}"]

"""The schedule of a run: its recipe and the settings of its method that count epochs. No torch."""

from __future__ import annotations

import math
from dataclasses import fields, replace

from smoothmix.config import Recipe, RunConfig, require
from smoothmix.methods.registry import METHODS

OTHER_SCHEDULE = "not the schedule of"
"""How the note begins on a run of a preset that was trained with another recipe."""


def scale_epochs(config: RunConfig, scale: float) -> RunConfig:
    """The run with its epochs, drops, warm-up and deferral all multiplied by `scale` and rounded.

    A method that waits for the first drop still does, also where drops come one epoch late.
    """
    require(math.isfinite(scale) and scale > 0, f"epochs-scale must be positive, got {scale}")
    recipe = config.recipe
    method = dict(config.method)
    # At least one epoch, and no drop before the first epoch ends; drops that meet become one.
    epochs = max(1, round(recipe.epochs * scale))
    drops = tuple(sorted({max(1, round(drop * scale)) for drop in recipe.drops}))
    # An unknown method is refused here: what it counts in epochs would not be scaled.
    for name, default in METHODS[method["name"]].epoch_settings.items():
        method[name] = round(method.get(name, default) * scale)
    # Rounding the two numbers apart could separate them.
    if drops and config.method.get("defer_epochs") == recipe.drops[0] + recipe.late_drops:
        method["defer_epochs"] = min(drops[0] + recipe.late_drops, epochs - 1)
    return replace(config, method=method, recipe=replace(recipe, epochs=epochs, drops=drops))


def extend_epochs(config: RunConfig, epochs: int) -> RunConfig:
    """The run with `epochs` beyond those that it was first made with.

    Learning-rate drops, warm-up and deferral stay where they are, so that it ends like a run that
    had so many epochs from the start.
    """
    require(epochs >= 1, f"--extend-epochs must be at least 1, got {epochs}")
    # Counted from the first number, so that the same command resumes instead of extending again.
    first = config.recipe.epochs - (config.extended_epochs or 0)
    recipe = replace(config.recipe, epochs=first + epochs)
    return replace(config, recipe=recipe, extended_epochs=epochs)


def schedule_differences(config: RunConfig, preset: RunConfig) -> dict[str, str]:
    """How the schedule of a run differs from a preset's: a phrase for each setting, by its name."""
    differences = {}
    for setting in fields(Recipe):
        ours = getattr(config.recipe, setting.name)
        theirs = getattr(preset.recipe, setting.name)
        # Runs with other seeds repeat one experiment.
        if setting.name != "seed" and ours != theirs:
            differences[setting.name] = f"{setting.name} {ours} instead of {theirs}"
    for name, default in METHODS[preset.method["name"]].epoch_settings.items():
        ours = config.method.get(name, default)
        theirs = preset.method.get(name, default)
        if ours != theirs:
            differences[name] = f"{name} {ours} instead of {theirs}"
    return differences

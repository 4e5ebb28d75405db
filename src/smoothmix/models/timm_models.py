"""Networks of timm by their names, with the normalisation of their configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from smoothmix.errors import UsageError, shown
from smoothmix.models.extras import import_extra
from smoothmix.models.loaded import LoadedModel
from smoothmix.networks.normalise import Normalise
from smoothmix.networks.weights import load_weights

PREFIX = "timm:"


def load_timm(name: str, *, weights: Path | None, num_classes: int | None = None) -> LoadedModel:
    """The network of that name with the weights of a file, normalised inside."""
    timm = import_extra("timm", extra="timm", purpose=f"{PREFIX}{name}")
    # timm would fetch them from a hub: a run would then depend on a server.
    if weights is None:
        raise UsageError(
            f"{PREFIX}{name}: name a file with its weights by --weights, such as one that "
            "safetensors.torch.save_file wrote of "
            f"timm.create_model({name!r}, pretrained=True).state_dict()"
        )
    options = {}
    if num_classes is not None:
        options["num_classes"] = num_classes
    try:
        # Without its own weights, which those of the file would replace.
        model = timm.create_model(name, pretrained=False, **options)
    except Exception as error:
        # Names that are not known, and options that a network does not take.
        raise UsageError(f"{PREFIX}{name}: timm cannot make it ({shown(error, 200)})") from error
    removed = load_weights(model, weights)
    return LoadedModel(
        module=normalised(model.eval(), model.pretrained_cfg),
        name=f"{PREFIX}{name}",
        num_classes=model.num_classes,
        shape=tuple(model.pretrained_cfg.get("input_size", ())),
        removed_prefix=removed,
    )


def normalised(model: nn.Module, config: Mapping[str, Any]) -> nn.Module:
    """A network of timm for images in [0, 1], by the mean and std of its configuration."""
    mean, std = config.get("mean"), config.get("std")
    if mean is None or std is None:
        raise UsageError("the configuration of timm's network has no mean or no std")
    return nn.Sequential(Normalise(mean, std), model).eval()

"""Image classifiers of transformers: from a folder, or from the Hugging Face hub by name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

from torch import Tensor, nn

from smoothmix.errors import CheckpointError, UsageError, shown
from smoothmix.models.extras import import_extra
from smoothmix.models.loaded import LoadedModel
from smoothmix.networks.normalise import Normalise

PREFIX = "hf:"

COMMIT = re.compile("/snapshots/([0-9a-f]{40})/")
"""Where the files of a commit are kept."""

BYTES = 1 / 255
"""The factor that brings 8-bit pixels to [0, 1], which is the scale that networks get here."""


@final
class PretrainedNetwork(nn.Module):
    """An image classifier of transformers for images in [0, 1] of any size: logits come out."""

    def __init__(
        self, model: nn.Module, normalise: nn.Module, size: tuple[int, int] | None
    ) -> None:
        super().__init__()
        self.normalise = normalise
        self.model = model
        self.size = size
        self.training = False

    def forward(self, images: Tensor) -> Tensor:
        if self.size is not None and tuple(images.shape[-2:]) != self.size:
            images = nn.functional.interpolate(
                images, size=self.size, mode="bilinear", antialias=True
            )
        logits: Tensor = self.model(pixel_values=self.normalise(images)).logits
        return logits


def load_pretrained(
    name: str, *, revision: str | None = None, allow_pickle: bool = False
) -> LoadedModel:
    """The image classifier in a folder, or of that name on the hub, with its preprocessing inside.

    Code that comes with a model is never run. Weights are read from safetensors only, unless
    `allow_pickle` says otherwise; transformers then reads .bin files without running code.
    """
    transformers = import_extra("transformers", extra="hf", purpose=f"{PREFIX}{name}")
    with loading(transformers, f"{PREFIX}{name}"):
        commit = _commit(transformers, name, revision or "main")
        # All files of one commit, even if somebody pushes another one meanwhile.
        pinned = commit or revision or "main"
        model, report = transformers.AutoModelForImageClassification.from_pretrained(
            name,
            revision=pinned,
            trust_remote_code=False,
            use_safetensors=None if allow_pickle else True,
            output_loading_info=True,
        )
        settings, _ = transformers.ImageProcessingMixin.get_image_processor_dict(
            name, revision=pinned
        )
    _require_all_weights(name, report)
    size = size_in(settings, name)
    network = PretrainedNetwork(model, normalisation_in(settings, name), size)
    shape: tuple[int, ...] = ()
    if size is not None:
        shape = (getattr(model.config, "num_channels", 3), *size)
    names = model.config.id2label
    return LoadedModel(
        module=network.to(dtype=model.dtype).eval(),
        name=f"{PREFIX}{name}@{commit}" if commit else f"{PREFIX}{name}",
        num_classes=model.config.num_labels,
        class_names=class_names_in(names),
        shape=shape,
    )


@contextmanager
def loading(transformers: Any, name: str) -> Iterator[None]:
    """Load a model without bars and reports of the library, and with an error of ours."""
    logs = transformers.utils.logging
    shows_bars = logs.is_progress_bar_enabled()
    verbosity = logs.get_verbosity()
    # Beside our own messages they only confuse; the caller's choice is restored.
    logs.disable_progress_bar()
    logs.set_verbosity_error()
    try:
        yield
    except Exception as error:
        # The library raises errors of many kinds, for the network and for the files.
        raise CheckpointError(f"{name}: cannot be loaded ({shown(error, 300)})") from error
    finally:
        logs.set_verbosity(verbosity)
        if shows_bars:
            logs.enable_progress_bar()


def _commit(transformers: Any, name: str, revision: str) -> str:
    """The commit that a revision on the hub stands for; empty for a folder."""
    if Path(name).is_dir():
        return ""
    # The library keeps the files of each commit in a folder of that name. The model itself
    # carries its commit only in some versions of the library.
    kept = Path(transformers.utils.cached_file(name, "config.json", revision=revision))
    found = COMMIT.search(kept.as_posix())
    if found is None:
        return ""
    return found[1]


def class_names_in(names: Mapping[int, str]) -> tuple[str, ...]:
    """The names of a model's classes in their order; none if the model has only numbers for them.

    >>> class_names_in({1: "dog", 0: "cat"}), class_names_in({0: "LABEL_0", 1: "LABEL_1"})
    (('cat', 'dog'), ())
    """
    ordered = tuple(str(names[label]) for label in sorted(names))
    # What transformers writes where nobody has named the classes.
    if all(name == f"LABEL_{number}" for number, name in enumerate(ordered)):
        return ()
    return ordered


def _require_all_weights(name: str, report: Mapping[str, Any]) -> None:
    """Refuse a model of which a part would stay at random, such as a head for other classes."""
    missing = [*report.get("missing_keys", ()), *report.get("mismatched_keys", ())]
    if missing:
        raise CheckpointError(
            f"{PREFIX}{name}: has no weights for {shown(missing[0])}"
            f" (and {len(missing) - 1} others): it is no trained image classifier"
        )


def normalisation_in(settings: Mapping[str, Any], name: str) -> nn.Module:
    """The normalisation that the settings of an image processor ask for, for pixels in [0, 1]."""
    factor = settings.get("rescale_factor", BYTES)
    scaled_otherwise = abs(factor - BYTES) > 1e-6 or settings.get("rescale_offset", False)
    if settings.get("do_rescale", True) and scaled_otherwise:
        raise UsageError(
            f"{PREFIX}{name}: its processor scales pixels by {factor!r}, where only 1/255 is known "
            "here: load the network by transformers, and put its preprocessing into a module"
        )
    # Left out means yes, as in the library.
    if not settings.get("do_normalize", True):
        return nn.Identity()
    mean, std = settings.get("image_mean"), settings.get("image_std")
    if mean is None or std is None:
        raise UsageError(f"{PREFIX}{name}: its processor has no image_mean or no image_std")
    return Normalise(mean, std)


def size_in(settings: Mapping[str, Any], name: str) -> tuple[int, int] | None:
    """Height and width of the images that a network gets; None for any.

    Images of this size go in as they are, others are resized to it.
    """
    # Cropping comes last in these processors, so that its size is the network's.
    if settings.get("do_center_crop") and settings.get("crop_size"):
        size = settings["crop_size"]
    elif settings.get("do_resize", True):
        size = settings.get("size")
    else:
        size = None
    if size is None:
        return None
    if isinstance(size, int):
        return size, size
    if "height" in size and "width" in size:
        return size["height"], size["width"]
    # Their images keep their proportions; a certificate needs one size for all images.
    if "shortest_edge" in size:
        return size["shortest_edge"], size["shortest_edge"]
    raise UsageError(f"{PREFIX}{name}: its processor's size {shown(size)} is not known here")

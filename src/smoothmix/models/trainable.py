"""Networks of transformers and timm as they are trained further, with heads for other classes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple, final

from torch import Tensor, nn

from smoothmix.errors import CheckpointError, UsageError, shown
from smoothmix.models import hugging_face, timm_models
from smoothmix.models.extras import import_extra
from smoothmix.networks.normalise import Normalise
from smoothmix.networks.weights import state_hash

NOT_ARCHITECTURE = (
    *("id2label", "label2id", "_name_or_path", "transformers_version", "architectures"),
    *("auto_map", "problem_type", "_commit_hash", "dtype", "torch_dtype"),
)
"""Keys of a model's configuration that do not say how its network is made."""

SIZE = "smoothmix_image_size"
"""Our key for height and width that images are resized to within the network."""


class LibraryFacts(NamedTuple):
    """What a library knows about one of its networks."""

    settings: str
    """Its architecture as JSON, so that the network is made again without the library's files."""
    normalisation: str
    """Means and standard deviations, such as `0.5,0.4,0.3/0.25,0.25,0.25`."""


@final
class PretrainedBody(nn.Module):
    """An image classifier of transformers for normalised images of any size: logits come out."""

    def __init__(self, model: nn.Module, size: tuple[int, int] | None) -> None:
        super().__init__()
        self.model = model
        self.size = size

    def forward(self, images: Tensor) -> Tensor:
        # Resizing keeps constants, so that it may come after the normalisation.
        if self.size is not None and tuple(images.shape[-2:]) != self.size:
            images = nn.functional.interpolate(
                images, size=self.size, mode="bilinear", antialias=True
            )
        logits: Tensor = self.model(pixel_values=images).logits
        return logits


def library_facts(name: str) -> LibraryFacts:
    """What the library of `hf:NAME` or `timm:NAME` says about the network."""
    if name.startswith(timm_models.PREFIX):
        timm = import_extra("timm", extra="timm", purpose=name)
        known = timm.get_pretrained_cfg(name.removeprefix(timm_models.PREFIX))
        if known is None:
            raise UsageError(
                f"{name}: timm knows no network of that name: timm.list_models() has all of them"
            )
        return LibraryFacts("", _text(Normalise(known.mean, known.std)))
    short = name.removeprefix(hugging_face.PREFIX)
    transformers = import_extra("transformers", extra="hf", purpose=name)
    with hugging_face.loading(transformers, name):
        # Code that comes with a model is never run.
        config = transformers.AutoConfig.from_pretrained(short, trust_remote_code=False)
        processor, _ = transformers.ImageProcessingMixin.get_image_processor_dict(short)
    facts = {key: value for key, value in config.to_diff_dict().items() if _is_architecture(key)}
    # The library leaves out what is its default, but needs this to find the architecture.
    facts["model_type"] = config.model_type
    facts[SIZE] = hugging_face.size_in(processor, short)
    normalise = hugging_face.normalisation_in(processor, short)
    return LibraryFacts(json.dumps(facts, sort_keys=True), _text(normalise))


def _is_architecture(key: str) -> bool:
    return key not in NOT_ARCHITECTURE


def _text(normalise: nn.Module) -> str:
    """A normalisation as settings record it."""
    if not isinstance(normalise, Normalise):
        return "none"
    # Rounded to what a float32 tells apart.
    rows = []
    for values in (normalise.mean, normalise.std):
        rows.append(",".join(f"{value:.7g}" for value in values.flatten().tolist()))
    return "/".join(rows)


def build_hugging_face(library_name: str, settings: str = "", num_classes: int = 2) -> nn.Module:
    """The network of `hf:NAME` with fresh weights, from its settings or else from its files."""
    name = f"{hugging_face.PREFIX}{library_name}"
    transformers = import_extra("transformers", extra="hf", purpose=name)
    facts = _parsed(settings or library_facts(name).settings, name)
    size = facts.pop(SIZE, None)
    try:
        config = transformers.AutoConfig.for_model(**facts, num_labels=num_classes)
        model = transformers.AutoModelForImageClassification.from_config(config)
    except Exception as error:
        raise UsageError(
            f"{name}: this transformers cannot make the network that the settings describe "
            f"({shown(error, 300)})"
        ) from error
    return PretrainedBody(model, None if size is None else (int(size[0]), int(size[1])))


def _parsed(settings: str, name: str) -> dict[str, Any]:
    try:
        facts = json.loads(settings)
    except ValueError:
        facts = None
    if not isinstance(facts, dict):
        raise UsageError(f"{name}: the network's settings are not a JSON object")
    return facts


def build_timm(library_name: str, num_classes: int, channels: int = 3) -> nn.Module:
    """The network of `timm:NAME` with fresh weights."""
    name = f"{timm_models.PREFIX}{library_name}"
    timm = import_extra("timm", extra="timm", purpose=name)
    try:
        model: nn.Module = timm.create_model(
            library_name, pretrained=False, num_classes=num_classes, in_chans=channels
        )
    except Exception as error:
        raise UsageError(f"{name}: timm cannot make it ({shown(error, 200)})") from error
    return model


@final
@dataclass(frozen=True)
class LoadedWeights:
    """What a network was given."""

    fresh: str
    """The name of its head, if that stays as it was drawn; empty if all weights are loaded."""

    sha256: str
    """SHA-256 of the weights of the library, by name, type, shape and value."""


def load_hugging_face(body: PretrainedBody, name: str, *, whole: bool = False) -> LoadedWeights:
    """Give a network the weights of `hf:NAME`, all of them if `whole`."""
    short = name.removeprefix(hugging_face.PREFIX)
    transformers = import_extra("transformers", extra="hf", purpose=name)
    with hugging_face.loading(transformers, name):
        source, report = transformers.AutoModelForImageClassification.from_pretrained(
            short, trust_remote_code=False, use_safetensors=True, output_loading_info=True
        )
    theirs = source.state_dict()
    for key in theirs.keys() & set(report["missing_keys"]):
        # A head that the files lack is drawn at random: it is no part of what is loaded.
        theirs.pop(key).zero_()
    ours = body.model.state_dict()
    # A head for other classes has another shape; everything else must fit.
    other = [key for key in ours if key not in theirs or theirs[key].shape != ours[key].shape]
    heads = sorted({key.rpartition(".")[0] for key in other})
    if (whole and other) or len(heads) > 1:
        raise CheckpointError(f"{name}: does not fit the network: it lacks {shown(other[0])}")
    body.model.load_state_dict({key: theirs[key] for key in ours if key not in other}, strict=False)
    return LoadedWeights(fresh="".join(heads), sha256=state_hash(source))

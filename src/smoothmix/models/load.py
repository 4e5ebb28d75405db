"""Networks by what people have: a name with a prefix such as `hf:`, or a file by its ending."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from smoothmix.config import require
from smoothmix.errors import UsageError
from smoothmix.models import hugging_face, timm_models
from smoothmix.models.batches import FixedBatch
from smoothmix.models.loaded import LoadedModel
from smoothmix.models.onnx_files import Layout, OnnxNetwork
from smoothmix.models.outputs import Output, with_output
from smoothmix.models.programs import load_program
from smoothmix.networks.normalise import Statistics, normalise_layer

PREFIXES = (hugging_face.PREFIX, timm_models.PREFIX)
"""Beginnings of the names of models that a library has."""

ONNX = ".onnx"
PROGRAMS = (".pt", ".pt2", ".pth")
"""Endings of files that hold a network with its code."""


def is_model(name: str) -> bool:
    """Whether a name is a model that `load` knows, and not the address of a function.

    >>> is_model("hf:google/vit-base"), is_model("net.onnx"), is_model("nets:small")
    (True, True, False)
    """
    return name.startswith(PREFIXES) or Path(name).suffix in (ONNX, *PROGRAMS)


def load(
    name: str,
    *,
    weights: Path | str | None = None,
    output: Output | None = None,
    normalisation: str | Statistics | None = None,
    layout: Layout = "nchw",
    num_classes: int | None = None,
    allow_code: bool = False,
    revision: str | None = None,
    allow_pickle: bool = False,
) -> LoadedModel:
    """The network of a name or file, as a module that maps images in [0, 1] to logits.

    `hf:NAME` or `hf:FOLDER` is an image classifier of transformers, at a `revision`; `timm:NAME`
    one of timm with a file of `weights`; `file.onnx` runs by onnxruntime, with images in the order
    of `layout`; `file.pt` and `file.pt2` are a TorchScript file and an archive of torch.export,
    whose loading runs code of their author: `allow_code` says that it may. `output` names the
    logits in files with several outputs, and `normalisation` is put before the network of a file:
    the name of a data set, or a mean and a standard deviation for each channel.
    """
    # An option without an effect would let its user believe in one.
    _require_options_that_fit(
        name, weights=weights, normalisation=normalisation, layout=layout, revision=revision
    )
    if name.startswith(hugging_face.PREFIX):
        return hugging_face.load_pretrained(
            name.removeprefix(hugging_face.PREFIX), revision=revision, allow_pickle=allow_pickle
        )
    if name.startswith(timm_models.PREFIX):
        path = None if weights is None else Path(weights)
        short = name.removeprefix(timm_models.PREFIX)
        return timm_models.load_timm(short, weights=path, num_classes=num_classes)
    if name.endswith(ONNX):
        network = OnnxNetwork(Path(name), layout=layout)
        module = _for_any_batch(network, output, network.fixed_batch)
        # Outermost, since noise is added to the images before they are normalised.
        module = _with_normalisation(module, normalisation)
        return LoadedModel(module=module, name=name, shape=network.image_shape)
    if name.endswith(PROGRAMS):
        program, fixed_batch = load_program(Path(name), allow_code=allow_code)
        module = _for_any_batch(program, output, fixed_batch)
        return LoadedModel(module=_with_normalisation(module, normalisation), name=name)
    raise UsageError(
        f"{name!r} is no model that can be loaded: give hf:NAME, timm:NAME, or a file that ends "
        f"in {', '.join((ONNX, *PROGRAMS))}"
    )


def _require_options_that_fit(
    name: str,
    *,
    weights: Path | str | None,
    normalisation: str | Statistics | None,
    layout: Layout,
    revision: str | None,
) -> None:
    """Refuse options that would have no effect on this kind of model."""
    is_timm = name.startswith(timm_models.PREFIX)
    is_pretrained = name.startswith(hugging_face.PREFIX)
    require(
        weights is None or is_timm, f"--weights does not go with {name}, which has weights itself"
    )
    require(
        normalisation is None or not (is_timm or is_pretrained),
        f"{name} brings its own normalisation: leave it out",
    )
    require(revision is None or is_pretrained, "a revision goes with models of the hub, hf:NAME")
    require(layout == "nchw" or name.endswith(ONNX), "a layout goes with ONNX files")


def _for_any_batch(model: nn.Module, output: Output | None, batch: int | None) -> nn.Module:
    model = with_output(model, output)
    if batch is None:
        return model
    return FixedBatch(model, batch)


def _with_normalisation(model: nn.Module, normalisation: str | Statistics | None) -> nn.Module:
    if normalisation is None:
        return model
    layers = nn.Sequential(normalise_layer(normalisation, None), model)
    # Not by eval(): programs of torch.export refuse it, and are in this mode already.
    layers.training = False
    return layers

"""Networks built by name or address: images in [0, 1] go in, logits come out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import final

from torch import Tensor, nn

from smoothmix.errors import SmoothmixError, UsageError
from smoothmix.networks.lenet import MaxPool
from smoothmix.networks.modes import has_hooks
from smoothmix.networks.normalise import Normalise, Statistics, normalise_layer
from smoothmix.networks.registry import DENOISERS, NETWORKS, Architecture
from smoothmix.registry import load_object


@final
@dataclass(frozen=True)
class Split:
    """A network cut after its first convolution: the network is `rest(affine(images))`."""

    affine: Callable[[Tensor], Tensor]
    linear: Callable[[Tensor], Tensor]
    """The linear part of `affine`: affine(x + d) = affine(x) + linear(d)."""
    rest: nn.Module
    after_pooling: nn.Module | None
    """What is left of `rest` where it begins with 2x2 maxima and ReLU; None where it does not."""


@final
class Network(nn.Module):
    """A normalise layer (`Identity` if there is none), and the body that gets its output."""

    def __init__(self, normalise: nn.Module, body: nn.Module) -> None:
        super().__init__()
        self.normalise = normalise
        self.body = body

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.body(self.normalise(images))
        return logits

    def split(self) -> Split | None:
        """The network cut after its first convolution; None where that is not the first layer."""
        body = self.body
        normalise = self.normalise
        # Exactly these types: a subclass, or another kind of padding, need not be affine.
        if type(body) is not nn.Sequential or type(normalise) not in (nn.Identity, Normalise):
            return None
        first = body[0]
        if type(first) is not nn.Conv2d or first.padding_mode != "zeros":
            return None

        def affine(images: Tensor) -> Tensor:
            mapped: Tensor = first(normalise(images))
            return mapped

        def linear(noise: Tensor) -> Tensor:
            if isinstance(normalise, Normalise):
                noise = noise / normalise.std
            # Detached: autocast before torch 2.11 caches its bf16 copy of the weight, and later
            # forwards would get that copy, which has no gradient.
            return nn.functional.conv2d(
                noise,
                first.weight.detach(),
                None,
                first.stride,
                first.padding,
                first.dilation,
                first.groups,
            )

        after_pooling = None
        if _pools_next(body):
            after_pooling = body[3:]
        return Split(affine, linear, body[1:], after_pooling)


def _pools_next(body: nn.Sequential) -> bool:
    """Whether LeNet's 2x2 maxima and ReLU follow the first layer, without hooks to be called."""
    layers = list(body)[1:3]
    if [type(layer) for layer in layers] != [MaxPool, nn.ReLU]:
        return False
    return not any(has_hooks(layer) for layer in layers)


def build(
    name: str,
    *,
    num_classes: int | None = None,
    channels: int | None = None,
    size: int | None = None,
    normalisation: str | Statistics | None = None,
    settings: str = "",
) -> nn.Module:
    """The network of that name or address (`package.module:function`) with fresh weights.

    What is left out is as for the data set that the network is made for. A network of ours is a
    `Network`. One from outside is returned as its function made it, and wrapped in a `Network`
    only if a normalisation is given. Its function is called with those of `num_classes`,
    `channels` and `size` that are given here and that it has parameters for. `settings` describe
    the architecture of one of `hf:NAME`; without them it is read from the model's files.

    >>> import torch
    >>> build("lenet", num_classes=3)(torch.zeros(5, 1, 28, 28)).shape
    torch.Size([5, 3])
    >>> from smoothmix import trust
    >>> trust("torch.nn")
    >>> build("torch.nn:Identity")
    Identity()
    """
    architecture = NETWORKS[name]
    _check_size(name, architecture, size)
    num_classes = architecture.num_classes if num_classes is None else num_classes
    channels = architecture.channels if channels is None else channels
    _check_counts(num_classes, channels)
    if normalisation is None:
        normalisation = architecture.normalisation
    # Before the body: weights are drawn only after all options were accepted.
    normalise = normalise_layer(normalisation, channels)
    options: dict[str, object] = {"num_classes": num_classes, "channels": channels, "size": size}
    if architecture.library_name:
        options |= {"library_name": architecture.library_name, "settings": settings}
    body = _build_body(name, architecture, options)
    if name not in NETWORKS and isinstance(normalise, nn.Identity):
        # Its weights keep the names that its author knows.
        return body
    return Network(normalise, body)


def build_denoiser(name: str, *, channels: int | None = None, size: int | None = None) -> nn.Module:
    """The denoiser of that name or address, with fresh weights.

    >>> import torch
    >>> build_denoiser("unet", channels=1)(torch.zeros(5, 1, 28, 28)).shape
    torch.Size([5, 1, 28, 28])
    """
    return _build_body(name, DENOISERS[name], {"channels": channels, "size": size})


def _check_size(name: str, architecture: Architecture, size: int | None) -> None:
    usual = architecture.size
    if size in (None, usual) or architecture.any_size:
        return
    raise UsageError(f"{name} takes images of {usual}x{usual} pixels, not {size}x{size}")


def _check_counts(num_classes: int | None, channels: int | None) -> None:
    too_few_classes = num_classes is not None and num_classes < 2
    too_few_channels = channels is not None and channels < 1
    if too_few_classes or too_few_channels:
        raise UsageError(
            f"a network needs 2 classes and 1 channel or more, got {num_classes} and {channels}"
        )


def _build_body(name: str, architecture: Architecture, options: Mapping[str, object]) -> nn.Module:
    builder: object = architecture.builder
    if isinstance(builder, str):
        builder = load_object(builder)
    if isinstance(builder, nn.Module):
        raise UsageError(f"{name} is a network: name a function that builds and returns it")
    if not callable(builder):
        raise UsageError(f"{name} is not a function: name one that returns a network")
    accepted = _accepted(name, builder, options)
    try:
        body = builder(**accepted)
    except SmoothmixError:
        raise
    except Exception as error:
        # The function is anyone's code and may raise anything.
        raise UsageError(f"{name} raised {type(error).__name__}: {error}") from error
    if not isinstance(body, nn.Module):
        raise UsageError(f"{name} must return a torch.nn.Module, not {type(body).__name__}")
    return body


def _accepted(
    name: str, builder: Callable[..., object], options: Mapping[str, object]
) -> dict[str, object]:
    """The options that are given and that the function has parameters for."""
    try:
        parameters = inspect.signature(builder).parameters
    except (TypeError, ValueError):
        # Functions of compiled modules may have no signature.
        return {}
    known = _keywords(parameters)
    accepted = {}
    for option, value in options.items():
        if value is not None and option in known:
            accepted[option] = value
    missing = [option for option in _required(parameters) if option not in accepted]
    if missing:
        raise UsageError(
            f"{name} needs {' and '.join(missing)}, which cannot be known here: "
            "give the parameter a default value"
        )
    return accepted


def _keywords(parameters: Mapping[str, inspect.Parameter]) -> set[str]:
    """Names that the function can be called with."""
    names = set(parameters)
    for parameter in parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            # Constructors of torchvision and timm pass `num_classes` on without naming it. The
            # other options have no common name, and an unknown one would be an error there.
            names.add("num_classes")
    return names


def _required(parameters: Mapping[str, inspect.Parameter]) -> Iterator[str]:
    """Names that the function must be called with."""
    for name, parameter in parameters.items():
        variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if not variadic and parameter.default is parameter.empty:
            yield name

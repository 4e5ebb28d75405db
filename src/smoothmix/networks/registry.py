"""Which networks there are: facts that are known without building one. No torch.

A network of your own is used by its address, `package.module:function`, wherever a name is
accepted. An installed package can give it a name by an entry point of the group
`smoothmix.networks`, which points to such a function or to an `Architecture`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from smoothmix.errors import UsageError
from smoothmix.registry import Registry


@final
@dataclass(frozen=True, kw_only=True)
class Architecture:
    """One network: what builds it, and the images that it is made for."""

    builder: str | Callable[..., Any]
    """Function that returns a `torch.nn.Module`, or the address of one.

    It is called with those of `num_classes`, `channels` and `size` that it has parameters for.
    """

    library_name: str = ""
    """Its name in another library, if it is from one."""

    description: str = ""
    """What it is, and its number of parameters."""

    data: str = ""
    """Name of the data set that it is made for."""

    channels: int | None = None
    """Channels of its images."""

    size: int | None = None
    """Height and width of its images in pixels."""

    any_size: bool = True
    """Whether images of another size are accepted."""

    num_classes: int | None = None
    """Number of its outputs."""

    normalisation: str = "none"
    """How its images are normalised: `none`, or by the statistics of the data set named."""


class BuilderRegistry(Registry[Architecture]):
    """Modules by name; functions from outside become an `Architecture` without further facts."""

    calls_values = True

    def adopt(self, name: str, value: object) -> Architecture:
        if isinstance(value, Architecture):
            return value
        if callable(value):
            return Architecture(builder=value)
        raise UsageError(f"{name} is not a function: name one that returns a network")


OWN = "own"
"""The normalisation that a network's library knows; a run records what it is."""

LIBRARIES = {
    "hf:": "smoothmix.models.trainable:build_hugging_face",
    "timm:": "smoothmix.models.trainable:build_timm",
}
"""What builds the networks of other libraries, by the beginnings of their names."""


@final
class NetworkRegistry(BuilderRegistry):
    """Networks by name, also those of other libraries: `hf:NAME` and `timm:NAME`."""

    def __getitem__(self, name: str) -> Architecture:
        for prefix, builder in LIBRARIES.items():
            if name.startswith(prefix):
                short = name.removeprefix(prefix)
                return Architecture(builder=builder, library_name=short, normalisation=OWN)
        return super().__getitem__(name)


NETWORKS = NetworkRegistry(
    "network",
    group="smoothmix.networks",
    own={
        "lenet": Architecture(
            builder="smoothmix.networks.lenet:lenet",
            description="LeNet for MNIST, 0.43 M",
            data="mnist",
            channels=1,
            size=28,
            any_size=False,
            num_classes=10,
        ),
        "cifar_resnet20": Architecture(
            builder="smoothmix.networks.resnet:cifar_resnet20",
            description="CIFAR ResNet-20, 0.27 M",
            data="cifar10",
            channels=3,
            size=32,
            num_classes=10,
            normalisation="cifar10",
        ),
        "cifar_resnet110": Architecture(
            builder="smoothmix.networks.resnet:cifar_resnet110",
            description="CIFAR ResNet-110, 1.73 M",
            data="cifar10",
            channels=3,
            size=32,
            num_classes=10,
            normalisation="cifar10",
        ),
        "resnet18": Architecture(
            builder="smoothmix.networks.resnet:resnet18",
            description="ResNet-18, with a stem for small images up to 64 pixels, 11.7 M",
            data="imagenet",
            channels=3,
            size=224,
            num_classes=1000,
            normalisation="imagenet",
        ),
        "resnet50": Architecture(
            builder="smoothmix.networks.resnet:resnet50",
            description="ResNet-50 for ImageNet, 25.6 M",
            data="imagenet",
            channels=3,
            size=224,
            num_classes=1000,
            normalisation="imagenet",
        ),
    },
)
"""Every network by the name that presets, run folders and the command line use."""


DENOISERS = BuilderRegistry(
    "denoiser",
    group="smoothmix.denoisers",
    own={
        "unet": Architecture(
            builder="smoothmix.networks.denoisers:unet",
            description="small U-Net, 0.06 M",
        ),
        "dncnn": Architecture(
            builder="smoothmix.networks.denoisers:dncnn",
            description="DnCNN, 0.56 M",
        ),
    },
)
"""Every denoiser by its name: networks that return images of the shape that they get."""

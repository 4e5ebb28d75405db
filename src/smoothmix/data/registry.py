"""All data sets by name. Torch-free: help, lists and presets need the facts before torch.

A data set of your own is used by its address, `package.module:NAME`, wherever a name is
accepted; the address must be that of a `Source`.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import final

from smoothmix.data.cifar import CIFAR10
from smoothmix.data.folders import FOLDER, IMAGENET
from smoothmix.data.idx import FASHION_MNIST, MNIST
from smoothmix.data.npz import NPZ, SAMPLE
from smoothmix.data.source import Source
from smoothmix.errors import UsageError, unknown_name
from smoothmix.registry import Registry, is_address


@final
class DataRegistry(Registry[Source]):
    """Data sets by name, address, or kind and path (`folder:PATH`)."""

    def __getitem__(self, name: str) -> Source:
        kind, colon, path = name.partition(":")
        by_path = f"{kind}:PATH"
        # Before addresses, which look alike: folder:mine is the folder mine.
        if colon and by_path in self:
            if not path:
                raise UsageError(f"{name} needs a path after the colon, such as {kind}:my-data")
            return super().__getitem__(by_path)
        # A misspelled kind looks like an address too: zip:mine.
        if is_address(name) and "." not in kind and find_spec(kind) is None:
            unknown = unknown_name(self.kind, name, self)
            raise UsageError(f"{unknown}; nor is there a module {kind} to import")
        return super().__getitem__(name)

    def adopt(self, name: str, value: object) -> Source:
        if not isinstance(value, Source):
            raise UsageError(f"{name} is not a smoothmix.data.Source: name an instance of one")
        return value


DATASETS = DataRegistry(
    "data set",
    group="smoothmix.data",
    own={
        "sample": SAMPLE,
        "mnist": MNIST,
        "fashion-mnist": FASHION_MNIST,
        "cifar10": CIFAR10,
        "imagenet": IMAGENET,
        "folder:PATH": FOLDER,
        "npz:PATH": NPZ,
    },
)
"""Every data set; `PATH` stands for a path to the user's own files."""

"""torch.compile runs the network, with its weights frozen into the code. Needs a C++ compiler."""

from __future__ import annotations

import logging
import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from smoothmix._process.forks import ForkSafeLock
from smoothmix.config import EngineName, Precision
from smoothmix.errors import UsageError, shown
from smoothmix.inference.engines.base import Engine, UnfitError, WrittenNetwork
from smoothmix.inference.prepared import PreparedNetwork

_compiling = ForkSafeLock()
"""The compiler has state of the whole process, and one option is set while it works."""


@final
class Compiled(Engine):
    """Code that torch generates and compiles for one network and one size of batch."""

    name: ClassVar[EngineName] = "compiled"
    seconds: ClassVar[float] = 60.0

    @property
    def installed(self) -> bool:
        return _compiler() is not None

    def require_installed(self) -> None:
        if not self.installed:
            raise UsageError(
                "the engine compiled needs a C++ compiler, and there is neither g++ nor clang++: "
                "install one (for example: apt-get install g++), or choose another --engine"
            )

    def build(self, network: WrittenNetwork, precision: Precision) -> PreparedNetwork:
        size = network.plain.microbatch
        images = network.images[:1].expand(size, *network.images.shape[1:]).contiguous()
        try:
            run = _compile(network, images, precision)
        except UnfitError:
            raise
        except Exception as error:
            # The compiler raises errors of many kinds, for the network and for the machine.
            raise UnfitError(f"torch cannot compile it ({shown(error, 200)})") from error
        return replace(
            network.plain,
            engine=self.recorded,
            network=_FullBatches(run, size),
            precision=precision,
        )


def _compiler() -> str | None:
    return shutil.which("g++") or shutil.which("clang++")


def _compile(
    network: WrittenNetwork, images: Tensor, precision: Precision
) -> Callable[[Tensor], Tensor]:
    """The compiled forward pass for batches like these, which many threads can call at once."""
    with _compiling, warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        # The exported program has no state of its own, such as what a module keeps on itself.
        program = torch.export.export(network.copy(), (images,), strict=False).module()
        options: Any = {"freezing": True, "cpp.threads": 1}
        function: Any = torch.compile(program, dynamic=False, fullgraph=True, options=options)

        def run(pixels: Tensor) -> Tensor:
            # Freezing works only where no gradient is recorded, which the mode of inference is not
            # known to be.
            with torch.inference_mode(False), torch.no_grad():
                logits: Tensor = function(pixels)
            return logits

        logging.getLogger("torch._dynamo").setLevel(logging.ERROR)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            # Here the code is generated and compiled.
            run(images)
    return run


@final
class _FullBatches:
    """Runs batches of one size: each other size would be compiled once more.

    A smaller batch is filled up with black images, whose logits are dropped.
    """

    def __init__(self, run: Callable[[Tensor], Tensor], size: int) -> None:
        self._run = run
        self._size = size

    def __call__(self, images: Tensor) -> Tensor:
        missing = self._size - len(images)
        if not missing:
            return self._run(images)
        filled = torch.cat([images, images.new_zeros((missing, *images.shape[1:]))])
        return self._run(filled)[: len(images)]

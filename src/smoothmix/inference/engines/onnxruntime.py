"""ONNX Runtime runs the network: `pip install 'smoothmix[onnx]'`."""

from __future__ import annotations

import io
import warnings
from contextlib import redirect_stdout
from dataclasses import replace
from importlib import import_module
from importlib.metadata import version
from typing import Any, ClassVar, final

import numpy as np
import torch
from torch import Tensor

from smoothmix.config import EngineName, Precision
from smoothmix.errors import shown
from smoothmix.inference.engines.base import Engine, UnfitError, WrittenNetwork
from smoothmix.inference.engines.script import traced
from smoothmix.inference.prepared import PreparedNetwork
from smoothmix.models.onnx_files import session_of

IMAGES = "images"
LOGITS = "logits"


@final
class OnnxRuntime(Engine):
    """ONNX Runtime for processors, which computes convolutions in fp32 only."""

    name: ClassVar[EngineName] = "onnxruntime"
    needs: ClassVar[tuple[str, ...]] = ("onnx", "onnxruntime")
    extra: ClassVar[str] = "onnx"
    seconds: ClassVar[float] = 2.0
    precisions: ClassVar[tuple[Precision, ...]] = ("fp32",)

    @property
    def software(self) -> str:
        return f"onnxruntime {version('onnxruntime')}"

    def build(self, network: WrittenNetwork, precision: Precision) -> PreparedNetwork:
        try:
            run = _Session(_exported(network))
        except UnfitError:
            raise
        except Exception as error:
            # Two libraries in C++, with errors of their own for each operation they lack.
            raise UnfitError(f"it cannot be exported to ONNX ({shown(error, 200)})") from error
        return replace(network.plain, engine=self.recorded, network=run, precision=precision)


def _exported(network: WrittenNetwork) -> bytes:
    """The network as an ONNX file in memory, for batches of any size."""
    graph = traced(network)
    buffer = io.BytesIO()
    # Torch's own type leaves buffers out, which this exporter takes.
    export: Any = torch.onnx.export
    # What it cannot export, it prints as a graph of hundreds of lines.
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        # The newer exporter needs one more library and ten times as long.
        warnings.simplefilter("ignore")
        export(
            graph,
            (network.images,),
            buffer,
            dynamo=False,
            input_names=[IMAGES],
            output_names=[LOGITS],
            dynamic_axes={IMAGES: {0: "batch"}, LOGITS: {0: "batch"}},
        )
    return buffer.getvalue()


@final
class _Session:
    """A session, which threads share: it is made for that."""

    def __init__(self, model: bytes) -> None:
        self._session: Any = session_of(import_module("onnxruntime"), model)

    def __call__(self, images: Tensor) -> Tensor:
        pixels = np.ascontiguousarray(images.numpy())
        (logits,) = self._session.run([LOGITS], {IMAGES: pixels})
        return torch.from_numpy(logits)

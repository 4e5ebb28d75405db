"""OpenVINO runs the network: `pip install 'smoothmix[openvino]'`."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from importlib.metadata import version
from typing import Any, ClassVar, final

import numpy as np
import torch
from torch import Tensor

from smoothmix._process.forks import ForkSafeLock
from smoothmix.config import EngineName, Precision
from smoothmix.errors import shown
from smoothmix.inference.engines.base import Engine, UnfitError, WrittenNetwork
from smoothmix.inference.engines.script import traced
from smoothmix.inference.prepared import PreparedNetwork

_compiling = ForkSafeLock()
"""The runtime compiles for one thread at a time."""

HINTS: Mapping[Precision, str] = {"fp32": "f32", "bf16": "bf16"}
"""What OpenVINO calls the precisions."""


@final
class OpenVino(Engine):
    """OpenVINO's runtime for processors, which also fuses what follows convolutions."""

    name: ClassVar[EngineName] = "openvino"
    needs: ClassVar[tuple[str, ...]] = ("openvino",)
    extra: ClassVar[str] = "openvino"
    seconds: ClassVar[float] = 1.0

    @property
    def software(self) -> str:
        return f"openvino {version('openvino')}"

    def build(self, network: WrittenNetwork, precision: Precision) -> PreparedNetwork:
        try:
            model = _converted(network)
            run = _CompiledPerThread(model, precision)
        except UnfitError:
            raise
        except Exception as error:
            # A library in C++, which raises errors of its own for each operation it lacks.
            raise UnfitError(f"openvino cannot convert it ({shown(error, 200)})") from error
        return replace(network.plain, engine=self.recorded, network=run, precision=precision)


def _converted(network: WrittenNetwork) -> Any:
    """The network as a model of OpenVINO, for batches of any size."""
    openvino = import_module("openvino")
    # Not openvino.convert_model, which reports to its makers that it was called.
    manager = import_module("openvino.frontend").FrontEndManager()
    frontend = manager.load_by_framework("pytorch")
    decoders = import_module("openvino.frontend.pytorch.ts_decoder")
    # The frontend holds no reference to its input, which must live as long as the conversion.
    decoder = decoders.TorchScriptPythonDecoder(traced(network), example_input=(network.images,))
    loaded = frontend.load(decoder)
    model = frontend.convert(loaded)
    (images,) = model.inputs
    images.get_node().set_element_type(openvino.Type.f32)
    model.reshape({0: openvino.PartialShape([-1, *network.images.shape[1:]])})
    return model


@lru_cache(maxsize=1)
def _core() -> Any:
    """The one runtime of this process, which never ends.

    A runtime brings a stack for signals, and puts back the one before it when it ends. Of two that
    overlap, the second puts back what the first has freed: the next signal, such as Ctrl-C, would
    then end the process by a segmentation fault.
    """
    return import_module("openvino").Core()


@final
class _CompiledPerThread:
    """A model of which every thread that calls it has a compiled form.

    The stream of one compiled model serves one thread after the other; and a stream with a single
    thread computes in the thread of its caller, so that no forward pass uses more.
    """

    def __init__(self, model: Any, precision: Precision) -> None:
        self._model = model
        self._options = {
            "INFERENCE_PRECISION_HINT": HINTS[precision],
            "INFERENCE_NUM_THREADS": 1,
            "NUM_STREAMS": 1,
            # A thread bound to a core by us would fight with other programs for it.
            "ENABLE_CPU_PINNING": False,
        }
        self._local = threading.local()
        # Here, so that what the runtime lacks shows before any thread starts.
        self._request()

    def __call__(self, images: Tensor) -> Tensor:
        request = self._request()
        pixels = np.ascontiguousarray(images.numpy())
        request.infer({0: pixels}, share_inputs=True)
        # A copy: the next pass of this thread writes into the same memory.
        logits = np.array(request.get_output_tensor(0).data, dtype=np.float32)
        return torch.from_numpy(logits)

    def _request(self) -> Any:
        if not hasattr(self._local, "request"):
            with _compiling:
                compiled = _core().compile_model(self._model, "CPU", self._options)
            self._local.request = compiled.create_infer_request()
        return self._local.request

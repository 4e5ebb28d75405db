"""ONNX files, run by onnxruntime on the processor."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
import torch
from torch import Tensor

from smoothmix.errors import CheckpointError, UsageError, shown
from smoothmix.models.extras import import_extra
from smoothmix.models.outside import OutsideModule, Shared, require_no_gradient

Layout = Literal["nchw", "nhwc"]
"""The order of the dimensions of a batch: channels before or after height and width."""

INPUT_TYPES: Mapping[str, type[np.floating[Any]]] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
}

PURPOSE = "a model in an ONNX file"


@final
class OnnxNetwork(OutsideModule):
    """The network in an ONNX file; it returns a tensor, or a dict where it has several outputs."""

    engine = "onnxruntime"

    def __init__(self, path: Path, *, layout: Layout = "nchw") -> None:
        super().__init__(_content_hash(path))
        self.layout = layout
        session = _session(path)
        inputs = session.get_inputs()
        if len(inputs) != 1 or inputs[0].type not in INPUT_TYPES:
            kinds = ", ".join(f"{each.name}: {each.type}" for each in inputs)
            raise UsageError(
                f"{path}: a classifier has one input, a batch of images in floating point; "
                f"this file has {shown(kinds)}"
            )
        self._input_name = inputs[0].name
        self._input_type = INPUT_TYPES[inputs[0].type]
        self._output_names = [each.name for each in session.get_outputs()]
        # A batch of any size has a name, or no number, in place of the size.
        size = inputs[0].shape[0] if inputs[0].shape else None
        self.fixed_batch = size if isinstance(size, int) else None
        self.image_shape = _image_shape(inputs[0].shape, layout)
        # Threads share the session, which is made for that.
        self._session = Shared(session)

    @property
    def software(self) -> str:
        return (
            f"onnxruntime {import_extra('onnxruntime', extra='onnx', purpose=PURPOSE).__version__}"
        )

    def forward(self, images: Tensor) -> Any:
        require_no_gradient(images)
        if self.layout == "nhwc":
            images = images.permute(0, 2, 3, 1)
        # In one piece, which a permuted tensor is not, and of the type that the file wants.
        pixels = np.ascontiguousarray(images.cpu().numpy(), dtype=self._input_type)
        found = self._session.value.run(self._output_names, {self._input_name: pixels})
        tensors = [torch.from_numpy(each).to(images.device) for each in found]
        if len(tensors) == 1:
            return tensors[0]
        return dict(zip(self._output_names, tensors, strict=True))


def _image_shape(sizes: Sequence[object], layout: Layout) -> tuple[int, ...]:
    """Channels, height and width of the images that a file is made for; none if it takes any.

    >>> _image_shape(["batch", 32, 48, 3], "nhwc"), _image_shape([1, 3, "height", "width"], "nchw")
    ((3, 32, 48), ())
    """
    known = [size for size in sizes[1:] if isinstance(size, int)]
    if len(known) != 3:
        return ()
    if layout == "nhwc":
        height, width, channels = known
        return channels, height, width
    return tuple(known)


def _session(path: Path) -> Any:
    """The file opened by onnxruntime."""
    runtime = import_extra("onnxruntime", extra="onnx", purpose=PURPOSE)
    try:
        return session_of(runtime, str(path))
    except Exception as error:
        # A library in C++, which raises errors of its own for each kind of damage.
        raise CheckpointError(
            f"{path}: onnxruntime cannot open it ({shown(error, 200)})"
        ) from error


def session_of(runtime: Any, model: str | bytes) -> Any:
    """A model of onnxruntime, ready to run: one thread per forward pass, as everywhere."""
    options = runtime.SessionOptions()
    # Sums in another order round otherwise, and votes must not depend on the number of threads.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.use_deterministic_compute = True
    # Errors only: warnings are about the file's author.
    options.log_severity_level = 3
    return runtime.InferenceSession(model, sess_options=options, providers=["CPUExecutionProvider"])


def _content_hash(path: Path) -> bytes:
    """What tells two files apart: their content, and that of the files that hold their weights."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    digest = hashlib.sha256(content)
    # Weights above 2 GB must lie beside the file: other weights are another network.
    for beside in _external_files(path, content):
        with beside.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.digest()


def _external_files(path: Path, content: bytes) -> list[Path]:
    """The files beside an ONNX file that hold its weights; none may lie outside of its folder."""
    onnx = import_extra("onnx", extra="onnx", purpose=PURPOSE)
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:
        # The reader of protobuf has errors of its own.
        raise CheckpointError(f"{path} is damaged or no ONNX file") from error
    folder = path.parent.resolve()
    found = set()
    for location in _locations(model):
        # The file names them itself, and might name any file of this machine.
        beside = (folder / location).resolve()
        if not beside.is_relative_to(folder) or not beside.is_file():
            raise CheckpointError(
                f"{path}: its weights are in {shown(location)}, which is no file in its folder"
            )
        found.add(beside)
    return sorted(found)


def _locations(message: Any) -> Iterator[str]:
    """All names of external files in a message of protobuf, in subgraphs and functions too."""
    if message.DESCRIPTOR.name == "TensorProto":
        for entry in message.external_data:
            if entry.key == "location":
                yield entry.value
        return
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        parts = value if hasattr(value, "__len__") else [value]
        for part in parts:
            # Maps hold their keys, which are no messages.
            if hasattr(part, "ListFields"):
                yield from _locations(part)

"""Any function that maps a batch of images to labels, as a module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothmix._io.text import counted
from smoothmix.config import require, require_whole
from smoothmix.errors import UsageError, shown
from smoothmix.models.outside import OutsideModule, Shared, require_no_gradient

Arrays = Literal["numpy", "torch"]
"""What a function gets its images as."""

LabelsOf = Callable[[Any], object]
"""Gets images [B, ...] in float32, returns B whole numbers."""


@final
class BlackBox(OutsideModule):
    """A function that gives labels; a row of its output has a 1 for the label and 0 elsewhere.

    Smoothing counts labels and needs nothing else: the function may be a scikit-learn classifier,
    code of another framework, or a request to a remote service.
    """

    engine = "function"
    gives_labels = True

    def __init__(
        self,
        labels_of: LabelsOf,
        *,
        num_classes: int,
        arrays: Arrays = "numpy",
        concurrency: int = 1,
        version: str = "",
    ) -> None:
        """`labels_of` gets a batch in float32 as `arrays`, and returns a whole number per image.

        Up to `concurrency` threads call it at the same time. `version` names what the function
        runs, such as a hash of its weights: certificate files are resumed only with the same.
        """
        require(callable(labels_of), f"a black box is a function, not {type(labels_of).__name__}")
        require(arrays in ("numpy", "torch"), f"arrays must be numpy or torch, got {arrays!r}")
        require_whole("concurrency", concurrency)
        require(concurrency >= 1, f"concurrency must be at least 1, got {concurrency}")
        super().__init__(f"black box\0{version}".encode())
        self.num_classes = num_classes
        self.concurrency = concurrency
        self.arrays = arrays
        self.source_module = getattr(labels_of, "__module__", None) or ""
        # In a holder that copies share: a function may hold what has no copy, such as a connection.
        self._function = Shared(labels_of)

    def forward(self, images: Tensor) -> Tensor:
        require_no_gradient(images)
        batch: object = images
        if self.arrays == "numpy":
            batch = images.cpu().numpy()
        labels = _checked_labels(
            self._function.value(batch), count=len(images), num_classes=self.num_classes
        )
        # As logits, so that all that counts votes works on it: the largest one is the label.
        rows = torch.nn.functional.one_hot(torch.from_numpy(labels), self.num_classes)
        return rows.to(images.device, torch.float32)


def _checked_labels(found: object, *, count: int, num_classes: int) -> NDArray[np.int64]:
    """The labels as integers; what is not one label per image is refused."""
    if isinstance(found, Tensor):
        found = found.detach().cpu().numpy()
    # Lists, and arrays of other libraries, which know this protocol.
    labels = np.asarray(found)
    # The usual mistake gets a sentence of its own, before the general one.
    if labels.shape == (count, num_classes) and labels.dtype.kind == "f":
        raise UsageError(
            "the function returns a number for each class: return the label of each image, "
            "such as scores.argmax(1)"
        )
    require(
        labels.shape == (count,),
        f"the function must return one label for each of {counted(count, 'image')}, got an array "
        f"of shape {list(labels.shape)}",
    )
    require(
        labels.dtype.kind in "iu",
        f"labels must be whole numbers from 0 on, got {labels.dtype} (such as "
        f"{shown(labels.flat[0])}): return the position of each label in the list of classes",
    )
    low, high = int(labels.min()), int(labels.max())
    require(
        low >= 0 and high < num_classes,
        f"labels must lie between 0 and {num_classes - 1} for num_classes={num_classes}, but the "
        f"function gives labels from {low} to {high}",
    )
    return labels.astype(np.int64)

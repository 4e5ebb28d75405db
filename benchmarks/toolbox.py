"""IBM's adversarial-robustness-toolbox, installed for the benchmark alone where it can be."""

from __future__ import annotations

import subprocess
import sys
import warnings
from dataclasses import dataclass
from functools import cached_property
from importlib import invalidate_caches
from importlib.util import find_spec
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np
from torch import Tensor, nn

NAME = "adversarial-robustness-toolbox"
MISSING = (NAME, "statsmodels", "patsy", "pandas", "packaging", "six", "python-dateutil")
"""What it imports and this project does not need. Installed without what they depend on, so that
nothing of the environment, torch above all, is replaced."""

SELECTION_DRAWS = 100

BATCHES = (32, 256)
"""Images per forward pass: the toolbox's default for certification, and ours, which is faster."""


def name(batch: int) -> str:
    """What the table calls the toolbox with batches of so many images."""
    return f"{NAME}, batches of {batch}"


def folder() -> Path:
    """Where the benchmark keeps the toolbox."""
    return Path(gettempdir()) / "smoothmix-benchmark-toolbox"


def installed(folder: Path) -> bool:
    """Whether the toolbox can be imported, after an attempt to install it into a folder."""
    if find_spec("art") is None and str(folder) not in sys.path:
        # At the end: what the environment has comes first. Processes started later inherit this.
        sys.path.append(str(folder))
    if find_spec("art") is None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--target", str(folder), *MISSING], check=False, capture_output=True)
        # The first look was into a folder that did not exist yet, and Python remembers that.
        invalidate_caches()
    if find_spec("art") is None:
        print(f"{NAME} is not measured: it cannot be installed here")
        return False
    return True


@dataclass(eq=False)
class Counting:
    """Certifies an image by the toolbox when it is called, and returns its estimation votes."""

    model: nn.Module
    image: Tensor
    sigma: float
    draws: int
    batch: int

    def __call__(self) -> np.ndarray:
        classifier, counts = self._classifier
        classifier.certify(self.image[None].numpy(), n=self.draws, batch_size=self.batch)
        return counts[-1]

    @cached_property
    def _classifier(self) -> tuple[Any, list[np.ndarray]]:
        warnings.simplefilter("ignore")
        from art.estimators.certification.randomized_smoothing import PyTorchRandomizedSmoothing

        counts: list[np.ndarray] = []

        class Recording(PyTorchRandomizedSmoothing):
            """Keeps the votes, to be compared with those of others."""

            def _prediction_counts(self, *args: object, **options: object) -> np.ndarray:
                counts.append(super()._prediction_counts(*args, **options))
                return counts[-1]

        classifier = Recording(
            model=self.model,
            loss=nn.CrossEntropyLoss(),
            input_shape=tuple(self.image.shape),
            nb_classes=10,
            channels_first=True,
            clip_values=(0, 1),
            sample_size=SELECTION_DRAWS,
            scale=self.sigma,
            alpha=0.001,
            device_type="cpu",
        )
        return classifier, counts

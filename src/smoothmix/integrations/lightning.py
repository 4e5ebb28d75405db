"""A Lightning callback that certifies a sample of the validation set after each epoch.

Needs `pip install lightning`, and imports it: nothing else in the package imports this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, final

import torch
from torch import Tensor, nn

from smoothmix.analysis import average_certified_radius, certified_accuracy
from smoothmix.certify.smoothed import Smoothed
from smoothmix.config import require
from smoothmix.errors import UsageError
from smoothmix.noise import GRID, Noise
from smoothmix.tables import radius_text

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError as error:
    raise UsageError(
        f"smoothmix.integrations.lightning needs lightning, which cannot be imported ({error}): "
        "pip install lightning (or 'smoothmix[tracking]')"
    ) from error

__all__ = ["CertifySample"]


@final
class CertifySample(Callback):
    """Certifies some images of the first validation set, and logs what came out.

    Logged are `certified/acr`, the average certified radius, `certified/accuracy_0.50`, the share
    of images that are right with a radius of at least 0.5 (and so on for all `radii`), and
    `certified/abstained`. A checkpoint callback can monitor them.

    The module, or the part of it that `network` names, maps images in [0, 1] to logits and
    normalises inside; its validation set gives pairs of an image and its class. The images are
    spread over the set, and the same in every epoch. Votes change neither the weights nor the
    random numbers of the training. With several processes the first one certifies.
    """

    def __init__(
        self,
        *,
        sigma: float,
        num_classes: int,
        images: int = 50,
        radii: Sequence[float] = (0.25, 0.5, 1.0),
        n: int = 1_000,
        alpha: float = 0.001,
        seed: int = 0,
        noise: Noise | str = GRID,
        batch: int = 256,
        every_n_epochs: int = 1,
        network: str = "",
    ) -> None:
        super().__init__()
        require(images >= 1, f"images must be at least 1, got {images}")
        require(every_n_epochs >= 1, f"every_n_epochs must be at least 1, got {every_n_epochs}")
        self.sigma = sigma
        self.num_classes = num_classes
        self.images = images
        self.radii = tuple(radii)
        self.n = n
        self.alpha = alpha
        self.seed = seed
        self.noise = noise
        self.batch = batch
        self.every_n_epochs = every_n_epochs
        self.network = network

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Certify the sample, and log the results with those of the epoch."""
        is_due = (trainer.current_epoch + 1) % self.every_n_epochs == 0
        if trainer.sanity_checking or not is_due:
            return
        results: dict[str, float] = {}
        if trainer.is_global_zero:
            images, labels = self._sample(trainer)
            results = self._certified(pl_module, images, labels)
        # Processes that log nothing must not wait for the others.
        pl_module.log_dict(results, rank_zero_only=True)

    def _sample(self, trainer: Trainer) -> tuple[Tensor, Tensor]:
        """Images and classes, spread over the set: data sets may be sorted by class."""
        loaders: Any = trainer.val_dataloaders
        loader = loaders[0] if isinstance(loaders, (list, tuple)) else loaders
        dataset = loader.dataset
        count = min(self.images, len(dataset))
        step = len(dataset) // count
        images = []
        labels = []
        for position in range(count):
            image, label = dataset[position * step]
            images.append(torch.as_tensor(image))
            labels.append(int(label))
        return torch.stack(images), torch.tensor(labels)

    def _certified(
        self, module: LightningModule, images: Tensor, labels: Tensor
    ) -> dict[str, float]:
        network: nn.Module = module
        if self.network:
            network = attrgetter(self.network)(module)
        smoothed = Smoothed(
            network,
            sigma=self.sigma,
            num_classes=self.num_classes,
            noise=self.noise,
            batch=self.batch,
        )
        certified = smoothed.certify(images, n=self.n, alpha=self.alpha, seed=self.seed)
        radius = certified.radius.double().numpy()
        right = (certified.prediction == labels).numpy()
        accuracy = certified_accuracy(radius, right, at=self.radii)
        results = {
            "certified/acr": float(average_certified_radius(radius, right)),
            "certified/abstained": float((certified.prediction < 0).float().mean()),
        }
        for wanted, share in zip(self.radii, accuracy, strict=True):
            results[f"certified/accuracy_{radius_text(wanted)}"] = float(share)
        return results

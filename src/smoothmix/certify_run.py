"""Runs over a data set: certify it into a file that survives interruption, or classify it image by image."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import nn

from smoothmix import randomness
from smoothmix.certificates import Certificate, Certificates, FileSettings, read, writing
from smoothmix.certificates.settings import software_versions
from smoothmix.certify import Smoothed, certify_image, seed_or_fresh
from smoothmix.config import Certification, require
from smoothmix.data import Dataset
from smoothmix.errors import DataError
from smoothmix.randomness import Domain
from smoothmix.smoothing import Sampler, check_images, device_of, doubts
from smoothmix.stats import predicted, prediction_p_value, require_enough_draws, require_enough_to_predict
from smoothmix.weights import state_hash


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a run over a data set is."""

    done: int
    """Images in the file."""
    total: int
    """Images that it is to hold."""
    row: Certificate | None = None
    """The newest; None before the first of this run."""


def certify_dataset(
    model: nn.Module,
    dataset: Dataset,
    how: Certification,
    *,
    path: Path,
    model_name: str,
    num_classes: int | None = None,
    skip: int = 1,
    maximum: int | None = None,
    shard: str = "",
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Certificates:
    """Certify every `skip`-th image of a data set into a file, from where an earlier run with it stopped.

    The network tells `num_classes` apart, by default as many as the data set has. `shard` takes one part of the images,
    such as `2/3`, for as many processes as there are parts; `certificates.merge` puts them together.
    """
    settings = file_settings(
        model, dataset, how, model_name=model_name, num_classes=num_classes, skip=skip, maximum=maximum, shard=shard
    )
    sampler = Sampler(
        model=model,
        sigma=how.sigma,
        num_classes=settings.num_classes,
        seed=how.seed,
        block=how.block,
        precision=how.precision,
    )
    with writing(path, settings) as writer, sampler:
        total = len(settings.indices)
        on_progress(Progress(done=len(writer.done), total=total))
        _say_doubts(how.sigma, dataset)
        for index in writer.remaining:
            (image,) = dataset.images([index])
            check_images(image[None])
            row = certify_image(sampler, image, index, label=int(dataset.labels[index]), how=how)
            writer.append(row)
            on_progress(Progress(done=len(writer.done), total=total, row=row))
    return read(path)


def _say_doubts(sigma: float, dataset: Dataset) -> None:
    for doubt in doubts(sigma, dataset.images([0])):
        warnings.warn(doubt, stacklevel=3)


def file_settings(
    model: nn.Module,
    dataset: Dataset,
    how: Certification,
    *,
    model_name: str,
    num_classes: int | None = None,
    skip: int = 1,
    maximum: int | None = None,
    shard: str = "",
) -> FileSettings:
    """What the certificate file of this run says about itself; refuses what could never give a useful file."""
    num_classes = dataset.num_classes if num_classes is None else num_classes
    require(skip >= 1, f"skip must be at least 1, got {skip}")
    require(maximum is None or maximum >= 1, f"max must be at least 1, got {maximum}")
    require_enough_draws(how.n, alpha=how.alpha, sigma=how.sigma)
    available = -(-len(dataset) // skip)
    low, high = int(dataset.labels.min()), int(dataset.labels.max())
    if low < 0 or high >= num_classes:
        raise DataError(f"{dataset.name}: labels run from {low} to {high}, where the network tells {num_classes} apart")
    return FileSettings(
        certification=how,
        model=model_name,
        model_hash=state_hash(model),
        data=dataset.name,
        split=dataset.split,
        data_hash=dataset.fingerprint,
        num_classes=num_classes,
        skip=skip,
        images=available if maximum is None else min(available, maximum),
        shard=shard,
        engine=f"torch-{device_of(model).type}",
        noise=randomness.SCHEME,
        versions=software_versions(),
    )


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What the smoothed classifier says of one image of a data set."""

    idx: int
    label: int
    predict: int
    """The class, or -1 where the votes cannot tell the top two apart."""
    p_value: float
    counts: NDArray[np.int64]


def predict_dataset(
    smoothed: Smoothed, dataset: Dataset, indices: Iterable[int], *, n: int, alpha: float, seed: int | None = None
) -> Iterator[Prediction]:
    """Classify images of a data set one after the other."""
    require_enough_to_predict(n, alpha=alpha)
    _say_doubts(smoothed.sigma, dataset)
    with smoothed.sampler(seed=seed_or_fresh(seed)) as sampler:
        for index in indices:
            (image,) = dataset.images([index])
            check_images(image[None], any_range=smoothed.any_range)
            counts = sampler.votes(image, index, Domain.PREDICTION, n)
            second, first = np.sort(counts)[-2:]
            yield Prediction(
                idx=index,
                label=int(dataset.labels[index]),
                predict=int(predicted(counts, alpha=alpha)[0]),
                p_value=float(prediction_p_value(first, second)),
                counts=counts,
            )

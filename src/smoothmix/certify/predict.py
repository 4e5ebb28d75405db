"""Classify a data set with a smoothed network, image by image."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from smoothmix.certify.request import seed_or_fresh
from smoothmix.certify.smoothed import Smoothed
from smoothmix.data import Dataset
from smoothmix.inference.guards import check_images, check_noise, warn_of_doubts
from smoothmix.noise.streams import Domain
from smoothmix.stats.binomial import (
    predicted,
    prediction_p_value,
    require_enough_to_predict,
    top_two,
)


@final
@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The smoothed classifier's class for one image of a data set."""

    idx: int
    label: int
    """The true class."""
    predict: int
    """The predicted class, or -1 where the votes do not decide between the top two."""
    p_value: float
    counts: NDArray[np.int64]
    """Votes by class."""
    nobody: int = 0
    """Ambiguous draws, whose votes are for no class; the test counts them for the runner-up."""


def predict_dataset(
    smoothed: Smoothed,
    dataset: Dataset,
    indices: Iterable[int],
    *,
    n: int,
    alpha: float,
    seed: int | None = None,
) -> Iterator[Prediction]:
    """The predictions for images of a data set, one after the other."""
    # Before the first image: with fewer draws every answer would be an abstention.
    require_enough_to_predict(n, alpha=alpha)
    warn_of_doubts(smoothed.sigma, dataset)
    images = list(indices)
    if smoothed.engine == "auto":
        smoothed = smoothed.with_engine_for(dataset.shape, draws=n * len(images))
    with smoothed.open(dataset.shape, seed=seed_or_fresh(seed)) as sampler:
        for index in images:
            (image,) = dataset.images([index])
            check_images(image[None], any_range=smoothed.any_range)
            check_noise(image[None], smoothed.distribution, [index])
            votes = sampler.votes(image, index, Domain.PREDICTION, stop=n)
            counts = votes[:-1]
            nobody = int(votes[-1])
            # The test compares the top two classes (Hung and Fithian, 2019).
            (first,), (second,) = top_two(counts, nobody=nobody)
            yield Prediction(
                idx=index,
                label=int(dataset.labels[index]),
                predict=int(predicted(counts, alpha=alpha, nobody=nobody)[0]),
                p_value=float(prediction_p_value(first, second)),
                counts=counts,
                nobody=nobody,
            )

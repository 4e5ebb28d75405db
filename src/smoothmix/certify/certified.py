"""What certification gives for a batch of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from smoothmix.certificates import Certificate, dense


@final
@dataclass(frozen=True, kw_only=True)
class Certified:
    """The certificates of a batch, one entry per image."""

    prediction: Tensor
    """The certified class, or -1 where the classifier abstains."""
    radius: Tensor
    """L2 distance within which the prediction cannot change; 0 where the classifier abstains."""
    squared: Tensor | None
    """With grid noise, the largest certified sum of squared differences of pixels as integers; -1
    where nothing is certified. None with other noise."""
    p_lower: Tensor
    """Lower confidence bound on the probability of the selected class."""
    counts: Tensor
    """Estimation votes by class."""
    draws: Tensor
    """Estimation draws: the votes, and the draws that voted for no class."""
    selected: Tensor
    """The class that the selection draws chose; -1 where time ran out before them."""
    selection_counts: Tensor
    """Selection votes by class."""
    seed: int
    """The seed that gives the same votes again."""
    finished: Tensor
    """Whether an image has had all the draws that it was to have; false where time ran out."""


def as_tensors(
    rows: Sequence[Certificate],
    num_classes: int,
    seed: int,
    *,
    on_grid: bool,
    finished: Sequence[bool] | None = None,
) -> Certified:
    """The rows of a batch as tensors; all images are finished unless `finished` says otherwise."""
    if finished is None:
        finished = [True] * len(rows)
    return Certified(
        prediction=torch.tensor([row.predict for row in rows]),
        radius=torch.tensor([row.radius for row in rows], dtype=torch.float64),
        squared=_claims(rows) if on_grid else None,
        p_lower=torch.tensor([row.p_lower for row in rows], dtype=torch.float64),
        counts=_by_class([row.counts for row in rows], num_classes),
        draws=torch.tensor([row.n for row in rows]),
        selected=torch.tensor([-1 if row.selected is None else row.selected for row in rows]),
        selection_counts=_by_class([row.selection_counts for row in rows], num_classes),
        seed=seed,
        finished=torch.tensor(finished),
    )


def _claims(rows: Sequence[Certificate]) -> Tensor:
    """The claims in integers; -1 where nothing is certified."""
    return torch.tensor([-1 if row.squared is None else row.squared for row in rows])


def _by_class(votes: Sequence[Mapping[int, int] | None], num_classes: int) -> Tensor:
    """The votes of each image, one column per class."""
    # Without the last column, which counts the votes for nobody.
    columns = np.stack([dense(counts, num_classes) for counts in votes])[:, :-1]
    return torch.from_numpy(columns.copy())

"""Images that are being drawn for, and their votes so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from smoothmix.certificates import dense, sparse
from smoothmix.certificates.partial import PartialVotes


@final
@dataclass(kw_only=True, eq=False)
class ActiveImage:
    """An image with the votes it has so far, and when it is checked next."""

    index: int
    label: int
    pixels: Tensor
    selection: NDArray[np.int64]
    """Selection votes by class, and for nobody as the last element."""
    votes: NDArray[np.int64]
    """Estimation votes by class, and for nobody as the last element."""
    seconds: float = 0.0
    """Time spent on it, by all runs."""
    earlier_seconds: float = 0.0
    """Time spent under earlier stopping rules, which does not count for a limit per image."""
    active: bool = True
    """Whether it needs further draws."""
    next_check: int = 0
    """Draws after which it is checked next, or was checked last."""

    @property
    def selected(self) -> int:
        """The class that the selection draws chose."""
        # Nobody is never selected, however many votes it has.
        return int(self.selection[:-1].argmax())

    @property
    def selection_counts(self) -> dict[int, int]:
        """Selection votes by class, as files hold them."""
        return sparse(self.selection[:-1], nobody=self.selection[-1])

    @property
    def counts(self) -> dict[int, int]:
        """Estimation votes by class, as files hold them."""
        return sparse(self.votes[:-1], nobody=self.votes[-1])

    @property
    def partial(self) -> PartialVotes:
        """All of its votes, as a journal holds them."""
        return PartialVotes(
            selection_counts=self.selection_counts, counts=self.counts, seconds=self.seconds
        )

    def set_votes(self, votes: PartialVotes) -> None:
        """Take these votes in place of its own."""
        num_classes = len(self.votes) - 1
        self.selection = dense(votes.selection_counts, num_classes)
        self.votes = dense(votes.counts, num_classes)
        self.seconds = votes.seconds

    @property
    def drawn(self) -> int:
        """Estimation draws so far, ambiguous ones included."""
        return int(self.votes.sum())

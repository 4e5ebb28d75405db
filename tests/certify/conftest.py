"""Fixtures of the tests of certification."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from smoothmix.inference.sampler import ImageDraws, Sampler


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many draws were made, call by call."""
    spent, tally = [], Sampler.tally

    def counted(self: Sampler, ranges: Sequence[ImageDraws], **others: object) -> object:
        found = tally(self, ranges, **others)  # type: ignore[arg-type]
        spent.append(int(found.sum()))
        return found

    monkeypatch.setattr(Sampler, "tally", counted)
    return spent

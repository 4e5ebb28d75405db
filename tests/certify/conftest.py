"""Fixtures of the tests of certification."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from smoothmix.inference.sampler import Request, Sampler


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many draws were made, call by call."""
    spent, tally = [], Sampler.tally

    def counted(self: Sampler, requests: Sequence[Request], **others: object) -> object:
        found = tally(self, requests, **others)  # type: ignore[arg-type]
        spent.append(int(found.sum()))
        return found

    monkeypatch.setattr(Sampler, "tally", counted)
    return spent

"""Why a request is refused, with the status that says so."""

from __future__ import annotations

from smoothmix.errors import SmoothmixError


class Refused(SmoothmixError):  # noqa: N818 - a refusal is an answer
    """A request that gets no certificate."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status

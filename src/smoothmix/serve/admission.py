"""How many requests are worked on, and how many wait."""

from __future__ import annotations

import asyncio
import time
from typing import final

from smoothmix.serve.errors import Refused


@final
class Admission:
    """Lets in so many requests at once; so many more wait in the order in which they came."""

    def __init__(self, *, active: int, queue: int) -> None:
        self._places = asyncio.Semaphore(active)
        self._most_waiting = queue
        self.active = 0
        self.waiting = 0

    async def enter(self, deadline: float) -> bool:
        """Wait for a place until the deadline, by `time.monotonic`; whether there was one."""
        if self._places.locked() and self.waiting >= self._most_waiting:
            raise Refused(429, "too many requests are waiting: try again in a moment")
        self.waiting += 1
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                await self._places.acquire()
        except TimeoutError:
            return False
        finally:
            self.waiting -= 1
        self.active += 1
        return True

    def leave(self) -> None:
        """Give the place to the next one."""
        self.active -= 1
        self._places.release()

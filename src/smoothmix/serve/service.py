"""One request from its arrival to its answer: prepared, admitted, drawn for, recorded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, final

from smoothmix.certificates import Certificate
from smoothmix.certify.turns import TimedImage
from smoothmix.noise import fresh_seed
from smoothmix.serve.admission import Admission
from smoothmix.serve.answers import answer_of
from smoothmix.serve.classifier import Classifier
from smoothmix.serve.errors import Refused
from smoothmix.serve.images import PreparedImage, prepare_image
from smoothmix.serve.metrics import Metrics, resident_memory
from smoothmix.serve.row_log import Place, RowLog
from smoothmix.serve.settings import ANSWER_SECONDS, ServeSettings
from smoothmix.stats.guarantees import Anytime

DECODERS = 2
"""Images that are decoded at once: a large one takes much memory for a moment."""

SECONDS_BETWEEN_EVENTS = 0.1
"""Between two events that show how an image is getting on."""

NOT_STARTED = "deadline"


@final
class Service:
    """A classifier with its queue, its metrics and its log."""

    def __init__(
        self, classifier: Classifier, settings: ServeSettings, *, rows: RowLog | None = None
    ) -> None:
        self.classifier = classifier
        self.settings = settings
        self.metrics = Metrics()
        self.facts = classifier.settings()
        self.draining = False
        self._rows = rows
        self._admission = Admission(active=settings.active, queue=settings.queue)
        self._decoders = ThreadPoolExecutor(DECODERS, thread_name_prefix="decode")

    def deadline(self, arrival: float, seconds: float | None) -> float:
        """When the answer to a request is due, by `time.monotonic`."""
        if seconds is None:
            seconds = self.settings.seconds
        # nan fails the comparison as well.
        if not 0 < seconds <= self.settings.most_seconds:
            raise Refused(
                422, f"seconds must be above 0 and at most {self.settings.most_seconds:g}"
            )
        return arrival + seconds

    async def events(
        self, body: bytes, *, arrival: float, deadline: float
    ) -> AsyncIterator[dict[str, Any]]:
        """What holds of an image every moment, until the last event, whose `ended` says why."""
        if self.draining:
            raise Refused(503, "the service is stopping")
        image = await self._prepared(body)
        admitted = await self._admission.enter(deadline - ANSWER_SECONDS)
        queued = time.monotonic() - arrival
        try:
            place = None
            if self._rows is not None:
                place = self._rows.take()
            work = self._work(image, deadline, place)
            if admitted:
                self.classifier.resident.turns.start(work)
                done = asyncio.wrap_future(work.done)
                async for answer in self._while_drawing(work, done):
                    yield answer
            row = self.classifier.resident.row(work)
            if place is not None:
                self._keep(place, work, row)
        finally:
            if admitted:
                self._admission.leave()
        total = time.monotonic() - arrival
        ended = work.ended or NOT_STARTED
        self.metrics.certificate(ended=ended, draws=row.n or 0, seconds=total)
        yield {
            **answer_of(row, self.classifier, ended=ended),
            **_noise_of(work, place),
            "seconds": {
                "allowed": round(deadline - arrival, 4),
                "queued": round(queued, 4),
                "total": round(total, 4),
            },
            "image": {"width": image.size[0], "height": image.size[1], "note": image.note},
            "settings": self.facts,
        }

    async def certify(self, body: bytes, *, arrival: float, deadline: float) -> dict[str, Any]:
        """The answer at the deadline."""
        answer: dict[str, Any] = {}
        async for event in self.events(body, arrival=arrival, deadline=deadline):
            answer = event
        return answer

    def metrics_text(self) -> str:
        """All metrics."""
        return self.metrics.text(
            {
                "smoothmix_active_images": (
                    "Images that are drawn for.",
                    self._admission.active,
                ),
                "smoothmix_queued_requests": (
                    "Requests that wait for others to end.",
                    self._admission.waiting,
                ),
                "smoothmix_batch_seconds": (
                    "Estimated seconds of a batch of draws.",
                    self.classifier.resident.turns.seconds(self.classifier.certification.batch),
                ),
                "process_resident_memory_bytes": (
                    "Memory of the process.",
                    resident_memory(),
                ),
            }
        )

    def drain(self) -> None:
        """Take no further image. Those that are being drawn for keep their deadlines."""
        self.draining = True

    def close(self) -> None:
        """Wait for what is still being drawn."""
        self.classifier.resident.turns.wait()
        self._decoders.shutdown()

    async def _prepared(self, body: bytes) -> PreparedImage:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._decoders,
            lambda: prepare_image(
                body,
                shape=self.classifier.shape,
                trained_on=self.classifier.trained_on,
                max_pixels=self.settings.max_pixels,
                preparation=self.classifier.preparation,
            ),
        )

    def _work(self, image: PreparedImage, deadline: float, place: Place | None) -> TimedImage:
        """The image with noise that nobody could have prepared it for."""
        number = 0
        seed = fresh_seed()
        if place is not None:
            number = place.number
            seed = place.file.key
        return self.classifier.resident.timed_image(
            image.pixels,
            number,
            self.classifier.certification,
            seed=seed,
            deadline=deadline - ANSWER_SECONDS,
        )

    async def _while_drawing(
        self, work: TimedImage, done: asyncio.Future[TimedImage]
    ) -> AsyncIterator[dict[str, Any]]:
        """What holds every moment; drawing stops if nobody listens any more."""
        drawn = 0
        try:
            while not done.done():
                await asyncio.wait([done], timeout=SECONDS_BETWEEN_EVENTS)
                if done.done() or work.image.drawn == drawn:
                    continue
                drawn = work.image.drawn
                row = self.classifier.resident.row(work)
                yield answer_of(row, self.classifier, ended="")
            # Raises the error of a network that failed.
            await done
        finally:
            if not done.done():
                self.classifier.resident.turns.cancel(work)

    def _keep(self, place: Place, work: TimedImage, row: Certificate) -> None:
        """Write the row of a request to the log."""
        if row.n:
            place.file.add(row)
            return
        self._draw_one_batch(place, work)

    def _draw_one_batch(self, place: Place, work: TimedImage) -> None:
        """Certify an image by one batch after its answer: a file has a row for every number."""
        certification = work.certification
        guarantee = certification.guarantee
        assert isinstance(guarantee, Anytime)
        once = replace(
            guarantee, stopping=replace(guarantee.stopping, max_draws=certification.batch)
        )
        again = self.classifier.resident.timed_image(
            work.image.pixels,
            work.image.index,
            replace(certification, guarantee=once),
            seed=work.seed,
            deadline=float("inf"),
        )
        again.done.add_done_callback(
            lambda done: place.file.add(self.classifier.resident.row(done.result()))
        )
        self.classifier.resident.turns.start(again)


def _noise_of(work: TimedImage, place: Place | None) -> dict[str, str | int]:
    """What draws the same votes again, as far as it may be known."""
    if place is None:
        # As text: JavaScript would round a number of 63 bits.
        return {"seed": str(work.seed)}
    return {"seed_commitment": place.file.commitment, "idx": place.number}

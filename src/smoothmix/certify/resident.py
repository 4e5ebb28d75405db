"""A smoothed classifier that stays open: prepared, warm, and shared by any number of threads."""

from __future__ import annotations

import asyncio
import math
import time
import warnings
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack, final

from torch import Tensor

from smoothmix.certificates import Certificate, Certification
from smoothmix.certificates.row import dense
from smoothmix.certify.active import ActiveImage
from smoothmix.certify.certified import Certified, as_tensors
from smoothmix.certify.request import CertifyOptions, Request
from smoothmix.certify.turns import TimedImage, Turns
from smoothmix.config import UNLABELLED, require
from smoothmix.inference.positions import checked_positions
from smoothmix.inference.sampler import Sampler
from smoothmix.noise import GridNoise
from smoothmix.stats.anytime import Stopping
from smoothmix.stats.guarantees import Anytime

if TYPE_CHECKING:
    from smoothmix.certify.smoothed import Smoothed

BATCHES_PER_IMAGE = 8
"""Batches that images drawn for at once can have in the time left. Fewer images with certificates
are worth more than many with too few draws for one."""


@final
class Resident:
    """A smoothed classifier for images of one shape; `Smoothed.resident` opens it.

    Any number of threads may call it at once, and tasks may await it: their images share the cores
    by turns. It ends with the context that opened it, once all calls have returned.
    """

    def __init__(self, smoothed: Smoothed, sampler: Sampler, shape: tuple[int, ...]) -> None:
        self.smoothed = smoothed
        self.shape = shape
        self.sampler = sampler
        # Drawing may stop at any time here: every draw must be classified by the same classifier.
        self.positions = checked_positions(sampler.network, shape, self._certification())
        self.turns = Turns(sampler, shape)

    def _certification(self) -> Certification:
        return Certification(
            sigma=self.smoothed.sigma,
            guarantee=Anytime(Stopping()),
            noise=self.smoothed.distribution,
            batch=self.smoothed.batch,
            precision=self.smoothed.precision,
        )

    def certify(self, images: Tensor, **options: Unpack[CertifyOptions]) -> Certified:
        """What holds of each image after so many `seconds`.

        The options are those of `Smoothed.certify`; a fixed number of draws (`n`) and a `budget`
        are refused.
        """
        began = time.monotonic()
        request = self.smoothed.request(images, **_with_usual_rules(options))
        return self.answer(request, began=began)

    async def acertify(self, images: Tensor, **options: Unpack[CertifyOptions]) -> Certified:
        """The same as `certify`, without blocking the event loop; time counts from the call."""
        began = time.monotonic()
        request = self.smoothed.request(images, **_with_usual_rules(options))
        return await asyncio.to_thread(self.answer, request, began=began)

    def answer(self, request: Request, *, began: float) -> Certified:
        """Certify the images of a request whose time runs since `began`, by `time.monotonic`."""
        shape = tuple(request.images.shape[1:])
        require(
            shape == self.shape,
            f"this classifier is open for images of shape {list(self.shape)}, not {list(shape)}: "
            "open another one",
        )
        require(
            request.certification.guarantee.holds_at_any_time,
            "a classifier that stays open certifies with a guarantee that holds at any time (mode "
            "anytime): Smoothed.certify takes others",
        )
        require(
            request.certification.budget is None,
            "a classifier that stays open draws for the images of all its calls: Smoothed.certify "
            "takes a budget",
        )
        deadline = math.inf
        if request.seconds is not None:
            deadline = began + request.seconds
        works = []
        for number, pixels in zip(request.numbers, request.images, strict=True):
            work = self.timed_image(
                pixels, number, request.certification, seed=request.seed, deadline=deadline
            )
            works.append(work)
        self._draw(works, deadline)
        self._warn_if_too_short(works, request)
        return as_tensors(
            [self.row(work) for work in works],
            self.smoothed.num_classes,
            request.seed,
            on_grid=isinstance(self.smoothed.distribution, GridNoise),
            finished=[work.ended == "enough" for work in works],
        )

    def timed_image(
        self,
        pixels: Tensor,
        number: int,
        certification: Certification,
        *,
        seed: int,
        deadline: float,
    ) -> TimedImage:
        """An image that is ready for `turns.start`."""
        num_classes = self.smoothed.num_classes
        image = ActiveImage(
            index=number,
            label=UNLABELLED,
            pixels=pixels,
            selection=dense({}, num_classes),
            votes=dense({}, num_classes),
        )
        return TimedImage(
            image=image,
            certification=certification.in_whole_batches(),
            seed=seed,
            deadline=deadline,
        )

    def row(self, work: TimedImage) -> Certificate:
        """The certificate that follows from what is counted of an image now."""
        return self.turns.row(work)

    def _draw(self, works: Sequence[TimedImage], deadline: float) -> None:
        """Draw for these images until all have ended: for as many at once as the time allows."""
        waiting = deque(works)
        active: deque[TimedImage] = deque()
        try:
            while waiting or active:
                while waiting and len(active) < self._room(deadline):
                    work = waiting.popleft()
                    active.append(work)
                    self.turns.start(work)
                active.popleft().done.result()
        except BaseException:
            # Nobody gets an answer any more, for which the others would go on drawing.
            for work in works:
                self.turns.cancel(work)
            raise

    def _room(self, deadline: float) -> int:
        """How many images can be drawn for at once, so that some of them get certificates."""
        seconds = BATCHES_PER_IMAGE * self.turns.seconds(self.smoothed.batch)
        left = deadline - time.monotonic()
        # A call without an end has all the time it needs, in the order of its images.
        if left == math.inf:
            return BATCHES_PER_IMAGE * self.sampler.threads
        return max(1, int(self.sampler.threads * left / seconds))

    def _warn_if_too_short(self, works: Sequence[TimedImage], request: Request) -> None:
        if request.seconds is None or any(work.image.drawn for work in works):
            return
        batch = self.smoothed.batch
        warnings.warn(
            f"no image got a draw in {request.seconds:g} seconds, where a batch of {batch} takes "
            f"{self.turns.seconds(batch):.2g}: allow more time, or make Smoothed with a smaller "
            "batch",
            stacklevel=4,
        )


def _with_usual_rules(options: CertifyOptions) -> CertifyOptions:
    """The options, with the usual stopping rules where nothing else decides."""
    given = (options.get(name) for name in ("stopping", "guarantee", "n"))
    if any(value is not None for value in given):
        return options
    return {**options, "stopping": Stopping()}

"""Smoothed classifiers: certify or classify a batch of images with anyone's network."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from typing import Unpack, final

import numpy as np
import torch
from torch import Tensor, nn

from smoothmix.certificates import Certificate, Certification
from smoothmix.certificates.seeds import Seed, generator_key, require_any_seed
from smoothmix.certify.budget import UnreadImage, budget_rows
from smoothmix.certify.certified import Certified, as_tensors
from smoothmix.certify.loop import ImageToCertify, certified_rows
from smoothmix.certify.request import (
    CertifyOptions,
    Request,
    Rules,
    image_numbers,
    seed_or_fresh,
    timed_guarantee,
)
from smoothmix.certify.resident import Resident
from smoothmix.config import (
    EngineName,
    Precision,
    plain_numbers,
    require,
    require_engine,
    require_precision,
    require_sigma,
    require_whole,
)
from smoothmix.inference.choice import choose_engine
from smoothmix.inference.guards import check_images, check_network, check_noise, doubts
from smoothmix.inference.positions import checked_positions
from smoothmix.inference.prepare import prepare_network
from smoothmix.inference.sampler import Sampler
from smoothmix.inference.threads import one_thread_per_forward, set_threads_of_this_thread
from smoothmix.models.black_box import Arrays, BlackBox, LabelsOf
from smoothmix.models.hugging_face import load_pretrained
from smoothmix.models.outputs import Output, with_output
from smoothmix.models.outside import forwards_at_once
from smoothmix.noise import GRID, GridNoise, Noise, make_noise
from smoothmix.noise.streams import Domain
from smoothmix.stats.allocation import Budget
from smoothmix.stats.anytime import Stopping
from smoothmix.stats.binomial import predicted, require_enough_to_predict
from smoothmix.stats.guarantees import Guarantee

NOISE_THREADS = 8
"""Most threads that make noise for a network on another device, whose forward passes take turns."""


@final
@dataclass(frozen=True)
class Smoothed:
    """A classifier smoothed by noise: its most frequent class for noisy copies of an image.

    The network maps float32 images in [0, 1] to logits and normalises inside. It is never changed:
    copies that share its weights run in eval mode on its device, one per thread of a processor.
    """

    model: nn.Module
    """The base network."""
    _: KW_ONLY
    sigma: float
    """Standard deviation of the noise, in the [0, 1] scale of the pixels."""
    num_classes: int
    """Outputs of the network."""
    noise: Noise | str = GRID
    """Distribution of the noise, or its name. The default takes 8-bit images, as uint8 or as floats
    k / 255, and its certificates are exact; "gaussian" takes any floats."""
    batch: int = 256
    """Draws per forward pass."""
    precision: Precision = "fp32"
    """Arithmetic of the network."""
    engine: EngineName = "auto"
    """`auto` may fuse layers if the logits stay the same; `eager` runs the network as written.
    `fused`, `compiled`, `openvino` and `onnxruntime` are engines that must give the same logits, or
    are refused; the last two need the extras `smoothmix[openvino]` and `smoothmix[onnx]`."""
    output: Output | None = None
    """Where the logits are, for networks that return more: a key or attribute such as "logits", a
    position such as 0, or a function of what the network returns."""
    any_range: bool = False
    """Accept inputs outside [0, 1]; sigma and the radius are then in their scale. They lie on no
    grid, so this needs another noise than the default."""

    def __post_init__(self) -> None:
        # All of it here, where the caller is: opening and drawing come later, perhaps in a thread.
        check_network(self.model)
        plain_numbers(self)
        require_sigma(self.sigma)
        require_precision(self.precision)
        require_engine(self.engine)
        require_whole("num_classes", self.num_classes)
        require(self.num_classes >= 2, f"num_classes must be at least 2, got {self.num_classes}")
        require_whole("batch", self.batch)
        require(self.batch >= 1, f"batch must be at least 1, got {self.batch}")
        on_grid = isinstance(self.distribution, GridNoise)
        require(
            not (self.any_range and on_grid),
            'inputs outside [0, 1] lie on no grid: choose noise="gaussian" for any_range',
        )

    @property
    def network(self) -> nn.Module:
        """The network as one that returns logits and nothing else."""
        return with_output(self.model, self.output)

    @property
    def distribution(self) -> Noise:
        """The noise as a value, also where it was given by its name."""
        if isinstance(self.noise, str):
            return make_noise(self.noise)
        return self.noise

    @classmethod
    def from_function(
        cls,
        labels_of: LabelsOf,
        *,
        sigma: float,
        num_classes: int,
        noise: Noise | str = GRID,
        batch: int = 256,
        concurrency: int = 1,
        arrays: Arrays = "numpy",
        version: str = "",
        any_range: bool = False,
    ) -> Smoothed:
        """The smoothed form of any function that maps a batch of images to labels.

        `labels_of` gets float32 images [B, C, H, W] in the scale of yours, with noise on them, as
        `arrays`, and returns a label from 0 to `num_classes - 1` for each. Up to `concurrency`
        threads call it at once, each with up to `batch` images. `version` is recorded as a part of
        the classifier's hash.
        """
        model = BlackBox(
            labels_of,
            num_classes=num_classes,
            arrays=arrays,
            concurrency=concurrency,
            version=version,
        )
        return cls(
            model,
            sigma=sigma,
            num_classes=num_classes,
            noise=noise,
            batch=batch,
            any_range=any_range,
        )

    @classmethod
    def from_pretrained(
        cls,
        name: str,
        *,
        sigma: float,
        noise: Noise | str = GRID,
        batch: int = 256,
        revision: str | None = None,
        allow_pickle: bool = False,
    ) -> Smoothed:
        """The smoothed form of an image classifier of transformers, by its folder or its name.

        Resizing and normalisation are inside, and the number of classes is that of the model. Code
        that comes with a model is never run, and weights are read from safetensors only, unless
        `allow_pickle` says otherwise. Needs `smoothmix[hf]`.
        """
        loaded = load_pretrained(name, revision=revision, allow_pickle=allow_pickle)
        assert loaded.num_classes is not None
        return cls(
            loaded.module, sigma=sigma, num_classes=loaded.num_classes, noise=noise, batch=batch
        )

    @classmethod
    def for_certification(
        cls,
        model: nn.Module,
        certification: Certification,
        *,
        num_classes: int,
        engine: EngineName = "auto",
    ) -> Smoothed:
        """The classifier that these settings certify."""
        return cls(
            model,
            sigma=certification.sigma,
            num_classes=num_classes,
            noise=certification.noise,
            batch=certification.batch,
            precision=certification.precision,
            engine=engine,
        )

    def with_engine_for(self, shape: Sequence[int], *, draws: int) -> Smoothed:
        """The same with the fastest of the installed engines for so many draws.

        For long jobs this takes a measurement, which is then remembered; see docs/performance.md.
        """
        choice = choose_engine(
            self.network, shape, batch=self.batch, precision=self.precision, draws=draws
        )
        return replace(self, engine=choice.engine)

    @contextmanager
    def open(self, shape: Sequence[int], *, seed: Seed) -> Iterator[Sampler]:
        """The classifier ready to count votes for images of one shape, with the noise of one seed.

        Preparing a network takes several forward passes and a trace of its layers: open it once,
        and hand the sampler on. The worker threads end with the context.
        """
        require_any_seed(seed)
        # Before the network is prepared: a secret seed may lack its file.
        key = generator_key(seed)
        with one_thread_per_forward() as threads:
            model = self.network
            network = prepare_network(
                model,
                shape,
                batch=self.batch,
                precision=self.precision,
                engine=self.engine,
            )
            threads = forwards_at_once(model, threads)
            # Forward passes on another device take turns; only the noise gains from threads.
            if network.device.type != "cpu":
                threads = min(threads, NOISE_THREADS)
            # torch's limit holds for the thread that sets it, so each worker sets its own before
            # its first forward pass.
            workers = ThreadPoolExecutor(
                threads, initializer=set_threads_of_this_thread, initargs=(1,)
            )
            try:
                yield Sampler(
                    network=network,
                    model=model,
                    workers=workers,
                    threads=threads,
                    sigma=self.sigma,
                    noise=self.distribution,
                    num_classes=self.num_classes,
                    seed=key,
                    batch=self.batch,
                    draws_on_device=network.device.type != "cpu",
                )
            finally:
                # Nobody waits for batches that were left over by an error.
                workers.shutdown(wait=True, cancel_futures=True)

    @contextmanager
    def resident(self, shape: Sequence[int]) -> Iterator[Resident]:
        """The classifier open and warm for images of one shape, for many calls and threads.

        What `certify` does before its first draw is then done once: use it in a service, or
        wherever time is short.
        """
        # Each call has noise of its own seed.
        with self.open(shape, seed=0) as sampler:
            resident = Resident(self, sampler, tuple(shape))
            try:
                yield resident
            finally:
                resident.turns.wait()

    def certify(
        self,
        images: Tensor,
        *,
        seconds: float | None = None,
        n0: int | None = None,
        n: int | None = None,
        alpha: float | None = None,
        seed: int | None = None,
        index: Sequence[int] | None = None,
        stopping: Stopping | None = None,
        guarantee: Guarantee | None = None,
        budget: Budget | None = None,
    ) -> Certified:
        """Class and certified L2 radius of each image; each is wrong with chance at most alpha.

        Images are uint8, or floats in [0, 1]. With the default noise floats must lie on the grid
        of 8-bit images, k / 255.

        Each image gets n draws, 100,000 by default. With `stopping`, such as
        `Stopping(radii=(0.5,))`, each gets only those it needs and at most `stopping.max_draws`
        (rounded up to whole batches), under the anytime guarantee; n must then be left out. A
        `guarantee`, such as `FixedDraws()`,
        your own, or that of a file, decides all of this in place of n0, n, alpha and stopping.

        A `budget` for all images together, such as `Budget(draws=1_000_000)`, lets them take turns
        by expected gain in what it is for. It goes with `stopping` or a guarantee `Anytime`.

        Noise comes from the operating system's entropy unless a seed is given. `index` numbers the
        images for the noise (0, 1, ... by default): an image gets the same votes in any batch under
        the same seed and number. Give each batch of a larger set its own numbers (or its own seed):
        otherwise their certificates share noise, and err together.

        With `seconds`, or `Stopping(seconds=...)`, what holds by then is returned: `draws` and
        `finished` tell how far each image came. Certificates then have the anytime guarantee. A
        batch starts only if it can end in time, and one that was started is counted. Images whose
        time ran out before they had draws abstain. Opening the network takes a part of the time:
        `resident` does it once for many calls.
        """
        began = time.monotonic()
        request = self.request(
            images,
            seconds=seconds,
            n0=n0,
            n=n,
            alpha=alpha,
            seed=seed,
            index=index,
            stopping=stopping,
            guarantee=guarantee,
            budget=budget,
        )
        if request.seconds is not None:
            with self.resident(images.shape[1:]) as resident:
                return resident.answer(request, began=began)
        return self._all_draws(request)

    async def acertify(self, images: Tensor, **options: Unpack[CertifyOptions]) -> Certified:
        """The same as `certify`, in a thread: the event loop goes on meanwhile."""
        return await asyncio.to_thread(self.certify, images, **options)

    def request(
        self,
        images: Tensor,
        *,
        seed: int | None = None,
        index: Sequence[int] | None = None,
        budget: Budget | None = None,
        **rules: Unpack[Rules],
    ) -> Request:
        """The arguments of `certify` after all checks."""
        drawn_with = seed_or_fresh(seed)
        guarantee, seconds = timed_guarantee(**rules)
        certification = Certification(
            sigma=self.sigma,
            guarantee=guarantee,
            noise=self.distribution,
            seed=drawn_with,
            batch=self.batch,
            budget=budget,
        )
        certification.require_reach()
        require(
            budget is None or seconds is None,
            "a budget and seconds do not go together: a budget has hours of its own",
        )
        floats = self._checked(images)
        certification.require_budget_for(len(floats))
        return Request(
            images=floats,
            numbers=image_numbers(index, floats),
            # The positions of whole batches are the ones that are checked.
            certification=certification.in_whole_batches(),
            seed=drawn_with,
            seconds=seconds,
        )

    def _all_draws(self, request: Request) -> Certified:
        """Certify the images of a request that takes as long as it takes."""
        batch = []
        for number, pixels in zip(request.numbers, request.images, strict=True):
            # The true class is not known here; 0 stands for it, and no result depends on it.
            batch.append(ImageToCertify(index=number, label=0, pixels=pixels))
        shape = request.images.shape[1:]
        with self.open(shape, seed=request.seed) as sampler:
            checked_positions(sampler.network, shape, request.certification)
            rows = list(_rows(sampler, batch, request.certification))
        on_grid = isinstance(self.distribution, GridNoise)
        return as_tensors(rows, self.num_classes, request.seed, on_grid=on_grid)

    def predict(
        self,
        images: Tensor,
        *,
        n: int = 1_000,
        alpha: float = 0.001,
        seed: int | None = None,
        index: Sequence[int] | None = None,
    ) -> Tensor:
        """The smoothed classifier's class for each image, or -1 where n draws do not decide."""
        require_whole("n", n)
        require_enough_to_predict(n, alpha=alpha)
        votes = self.votes(images, n=n, seed=seed, index=index)
        # Draws that voted for no class are those that the votes lack.
        nobody = n - votes.sum(1)
        return torch.from_numpy(predicted(votes, alpha=alpha, nobody=nobody))

    def votes(
        self, images: Tensor, *, n: int, seed: int | None = None, index: Sequence[int] | None = None
    ) -> Tensor:
        """Votes by class of n draws for each image; those of ambiguous draws are in no column."""
        require_whole("n", n)
        require(n >= 1, f"n must be at least 1, got {n}")
        floats = self._checked(images)
        numbers = image_numbers(index, images)
        votes = []
        with self.open(images.shape[1:], seed=seed_or_fresh(seed)) as sampler:
            for number, image in zip(numbers, floats, strict=True):
                # A domain of its own: certificates of the same image and seed see other noise.
                counts = sampler.votes(image, number, Domain.PREDICTION, stop=n)
                # The last element counts the votes for nobody.
                votes.append(counts[:-1])
        return torch.from_numpy(np.stack(votes))

    def _checked(self, images: Tensor) -> Tensor:
        """The images as floats, after a check that they can be certified."""
        # In one thread, like all that follows: in a child that was forked from a process which ran
        # torch in several threads, torch would wait for threads that are not there.
        with one_thread_per_forward():
            # With any_range the scale of bytes would be a guess: these are refused below.
            if isinstance(images, Tensor) and images.dtype == torch.uint8 and not self.any_range:
                images = images.to(torch.float32) / 255
            check_images(images, any_range=self.any_range)
            # All images before the first draw: hours later would be too late.
            check_noise(images, self.distribution, range(len(images)))
            found = list(doubts(self.sigma, images))
        for doubt in found:
            warnings.warn(doubt, stacklevel=4)
        return images


def _rows(
    sampler: Sampler, images: Sequence[ImageToCertify], certification: Certification
) -> Iterator[Certificate]:
    """The certificates of these images, with a budget or without."""
    if certification.budget is None:
        return certified_rows(sampler, images, certification)

    def unread(image: ImageToCertify) -> UnreadImage:
        return UnreadImage(index=image.index, label=image.label, read=lambda: image.pixels)

    return budget_rows(
        sampler,
        [unread(image) for image in images],
        certification,
        draws=certification.budget.draws,
    )

"""Whether a network is a function of its input: the same logits at every position of a batch.

Certificates are about one classifier, so that every draw must be classified by the same one. Logits
that depend on the position in a batch, or on how many images it has, make it another classifier for
each position. With a fixed number of draws the votes are still independent, and the bound holds for
the average over positions (Hoeffding, 1956). A guarantee that lets drawing stop at any time does
not hold for such an average.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from smoothmix.certificates import Certification
from smoothmix.errors import UsageError
from smoothmix.inference.prepare import (
    logits_of,
    probe_images_for,
    require_independent_images,
    tolerance_on,
)
from smoothmix.inference.prepared import PreparedNetwork

AVERAGE = (
    "the network's logits for an image depend on its position in a batch (or on how many images "
    "the batch has)"
)


def checked_positions(
    network: PreparedNetwork, shape: Sequence[int], certification: Certification
) -> str:
    """How much logits depend on the position in a batch, as `FileSettings.positions` records it.

    More than rounding is refused where the guarantee holds at any time, and a warning elsewhere.
    """
    certification = certification.in_whole_batches()
    found = position_dependence(
        network,
        shape,
        forward_sizes(certification.batch, certification.guarantee.max_draws, network.microbatch),
    )
    if found != "average":
        return found
    if certification.guarantee.holds_at_any_time:
        raise UsageError(
            f"{AVERAGE}: a certificate that may stop drawing at any time (mode anytime) needs one "
            "and the same classifier for every draw; use a fixed number of draws (mode exact)"
        )
    warnings.warn(f"{AVERAGE}: its certificates are about the average over positions", stacklevel=2)
    return found


def forward_sizes(batch: int, draws: int, microbatch: int) -> list[int]:
    """How many images the forward passes have that make so many draws, the largest first.

    >>> forward_sizes(256, 100_000, 256), forward_sizes(100, 1000, 16), forward_sizes(256, 9, 256)
    ([256, 160], [16, 4], [9])
    """
    sizes = set()
    for draws_at_once in (min(batch, draws), draws % batch):
        sizes.add(min(draws_at_once, microbatch))
        sizes.add(draws_at_once % microbatch)
    return sorted(sizes - {0}, reverse=True)


def position_dependence(
    network: PreparedNetwork, shape: Sequence[int], sizes: Sequence[int]
) -> str:
    """Empty if logits have the same bits at all positions of passes of these sizes.

    Otherwise `rounding` or `average` (see `FileSettings.positions`). A network whose logits depend
    on the other images is refused.
    """
    if network.is_random:
        return ""
    images = probe_images_for(network, shape)
    generator = torch.Generator().manual_seed(1)
    orders = []
    passes = []
    for size in sizes:
        # In an order without a period: what mixes an image with another one far from it shows too.
        order = torch.randint(len(images), (size,), generator=generator)
        logits = logits_of(network, images[order])
        if logits is None or len(logits) != size:
            # The first real forward reports what is wrong with the network.
            return ""
        orders.append(order)
        passes.append(logits)

    if _same_for_each_image(torch.cat(orders), torch.cat(passes), tolerance=0.0):
        return ""
    if _same_for_each_image(torch.cat(orders), torch.cat(passes), tolerance=tolerance_on(network)):
        return "rounding"
    for order, logits in zip(orders, passes, strict=True):
        again = logits_of(network, images[order])
        require_independent_images(network, images[order], logits, again=again)
    return "average"


def _same_for_each_image(order: Tensor, logits: Tensor, *, tolerance: float) -> bool:
    """Whether all rows of each image are its first one, relative to the largest logit."""
    allowed = tolerance * float(logits.abs().max())
    order = order.to(logits.device)
    for image in sorted(set(order.tolist())):
        rows = logits[order == image]
        if not bool(((rows - rows[0]).abs() <= allowed).all()):
            return False
    return True

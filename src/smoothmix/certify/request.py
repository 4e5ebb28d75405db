"""What a caller asks for: images, their numbers, and how they are certified."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, TypedDict, final

from torch import Tensor

from smoothmix.certificates import Certification
from smoothmix.config import require, require_seed
from smoothmix.errors import UsageError
from smoothmix.noise import fresh_seed
from smoothmix.stats.allocation import Budget
from smoothmix.stats.anytime import Stopping
from smoothmix.stats.guarantees import Anytime, FixedDraws, Guarantee


class Rules(TypedDict, total=False):
    """The arguments of `Smoothed.certify` that decide on its guarantee."""

    seconds: float | None
    n0: int | None
    n: int | None
    alpha: float | None
    stopping: Stopping | None
    guarantee: Guarantee | None


class CertifyOptions(Rules, total=False):
    """All its arguments besides the images, for methods that hand them on."""

    seed: int | None
    index: Sequence[int] | None
    budget: Budget | None


@final
@dataclass(frozen=True, kw_only=True)
class Request:
    """Images to certify, after all checks."""

    images: Tensor
    """Floats, one image per entry."""
    numbers: Sequence[int]
    """The images' numbers, which decide their noise together with the seed."""
    certification: Certification
    seed: int
    seconds: float | None = None
    """Time after which what holds is returned; None for as long as it takes."""


def timed_guarantee(
    *,
    seconds: float | None = None,
    n0: int | None = None,
    n: int | None = None,
    alpha: float | None = None,
    stopping: Stopping | None = None,
    guarantee: Guarantee | None = None,
) -> tuple[Guarantee, float | None]:
    """The guarantee that `Rules` ask for, and the time for the whole call."""
    if stopping is not None and stopping.seconds is not None:
        require(seconds is None, "seconds is given twice: leave it out, or that of stopping")
        seconds = stopping.seconds
        stopping = replace(stopping, seconds=None)
    if guarantee is not None:
        require(
            (n0, n, alpha, stopping) == (None, None, None, None),
            "a guarantee has its own n0, n, alpha and stopping rules: leave these out",
        )
    if seconds is None:
        if guarantee is None:
            guarantee = _made_guarantee(n0=n0, n=n, alpha=alpha, stopping=stopping)
        return guarantee, None
    require_seconds(seconds)
    if guarantee is None and n is None:
        stopping = stopping or Stopping()
        guarantee = _made_guarantee(n0=n0, n=None, alpha=alpha, stopping=stopping)
    require(
        guarantee is not None and guarantee.holds_at_any_time,
        "a fixed number of draws (n, mode exact) and a time do not go together: the bound holds "
        "after exactly n draws, not after those that a clock allows; leave n out, or give "
        "stopping=Stopping(max_draws=...), whose bound holds at any time",
    )
    assert guarantee is not None
    return guarantee, seconds


def require_seconds(seconds: object) -> None:
    """Refuse what is no time to wait."""
    number = isinstance(seconds, Real) and not isinstance(seconds, bool)
    positive = number and 0 < float(seconds) < math.inf  # type: ignore[arg-type]
    require(positive, f"seconds must be a positive number, got {seconds!r}")


def _made_guarantee(
    *, n0: int | None, n: int | None, alpha: float | None, stopping: Stopping | None
) -> Guarantee:
    """The guarantee of these numbers; those that are None are as by default."""
    numbers: dict[str, Any] = {}
    for name, value in (("n0", n0), ("alpha", alpha)):
        if value is not None:
            numbers[name] = value
    if stopping is not None:
        require(
            n is None or n == stopping.max_draws,
            "with stopping, an image gets at most max_draws, which is "
            f"{stopping.max_draws:,} there: leave out n={n}",
        )
        return Anytime(stopping, **numbers)
    if n is not None:
        numbers["n"] = n
    return FixedDraws(**numbers)


def seed_or_fresh(seed: int | None) -> int:
    """The seed, or one that nobody could have prepared an input for."""
    if seed is None:
        return fresh_seed()
    require_seed(seed)
    return int(seed)


def image_numbers(index: Sequence[int] | None, images: Tensor) -> Sequence[int]:
    """The numbers of the images of a batch; 0, 1, ... by default."""
    if index is None:
        return range(len(images))
    # operator.index takes whole numbers of any library, such as those in a tensor.
    try:
        numbers = [operator.index(i) for i in index]
    except TypeError:
        raise UsageError(f"index must hold whole numbers, got {index!r}") from None
    require(
        len(numbers) == len(images),
        f"index numbers {len(numbers)} images, but there are {len(images)}",
    )
    # Numbers are part of the generator's counter, which has 64 bits for them.
    require(all(0 <= i < 2**64 for i in numbers), "index must be zero or more, and less than 2**64")
    return numbers

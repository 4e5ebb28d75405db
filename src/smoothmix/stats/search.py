"""The search for a bound: the largest probability that votes are seen to speak against."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import expit, logit

from smoothmix.stats.beta import Floats

Evidence = Callable[..., tuple[Floats, Floats]]
"""Evidence against p, by p and votes, and its derivative in the log-odds of p.

It falls in p, and is not above its exact value: whoever computes it subtracts what rounding may
have added.
"""

CLOSE = 1e-12
"""How far below the root, in log-odds, the search for a bound may end."""

TINY = 1e-300
"""A bound below this is returned as 0."""

MAX_STEPS = 200
"""Steps of the search for a bound. Newton's method takes about five."""


def largest_refuted(
    evidence: Evidence, votes: tuple[Floats, ...], *, threshold: Floats, guess: Floats, top: Floats
) -> Floats:
    """The largest p below `top` whose evidence reaches the threshold, approached from below.

    It is 0 where no p was seen to. All arrays have one shape and one dimension. Newton's method in
    the log-odds, kept between a point that is known to pass and one that is not.
    """
    low = np.zeros_like(guess)
    high = top.copy()
    p = guess.copy()
    todo = np.arange(guess.size)
    for _ in range(MAX_STEPS):
        if not todo.size:
            break
        here = p[todo]
        value, slope = evidence(here, *(part[todo] for part in votes))
        excess = value - threshold[todo]
        passes = excess >= 0
        low[todo] = np.where(passes, here, low[todo])
        high[todo] = np.where(passes, high[todo], here)
        # The second term is the spacing of floating-point numbers near 1.
        close = CLOSE + 4e-16 / (1.0 - here)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = -excess / slope
            next_guess = np.maximum(expit(logit(here) + step - close), TINY)
        inside = (low[todo] < next_guess) & (next_guess < high[todo])
        p[todo] = np.where(inside, next_guess, (low[todo] + high[todo]) / 2)
        near_root = passes & (step <= 2 * close)
        interval_closed = high[todo] - low[todo] <= 2 * close * here * (1 - here)
        todo = todo[~(near_root | interval_closed) & (high[todo] > TINY)]
    # Only points that were seen to pass are returned: a search cut short is still safe.
    return low

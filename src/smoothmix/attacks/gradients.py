"""How gradients of networks are computed: by PyTorch alone, or with faster convolutions.

`SMOOTHMIX_PLAIN_GRADIENTS=1` in the environment switches the faster convolutions off. Both ways
give the same gradients but for rounding.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext

from smoothmix.attacks._convolution import FastConvolutions

PLAIN = "SMOOTHMIX_PLAIN_GRADIENTS"
"""The environment variable that leaves convolutions to PyTorch."""


def fast_gradients(*, frozen_weights: bool = False) -> AbstractContextManager[object]:
    """A context within which convolutions get faster gradients with respect to their input.

    With `frozen_weights` the weights of these convolutions get no gradient, which saves its
    computation in an attack.
    """
    if os.environ.get(PLAIN, "0") not in ("", "0"):
        return nullcontext()
    return FastConvolutions(frozen_weights=frozen_weights)

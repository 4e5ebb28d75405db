"""How gradients of networks are computed: by PyTorch alone, or with faster convolutions.

`SMOOTHMIX_PLAIN_GRADIENTS=1` in the environment switches the faster convolutions off. Both ways
give the same gradients but for rounding.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from smoothmix.attacks._convolution import FastConvolutions
from smoothmix.networks.pooling import plain_gradients


def fast_gradients(*, frozen_weights: bool = False) -> AbstractContextManager[object]:
    """A context within which convolutions get faster gradients with respect to their input.

    With `frozen_weights` the weights of these convolutions get no gradient, which saves its
    computation in an attack.
    """
    if plain_gradients():
        return nullcontext()
    return FastConvolutions(frozen_weights=frozen_weights)

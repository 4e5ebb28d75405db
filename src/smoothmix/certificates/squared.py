"""The claim of a certificate in integers. No torch.

With noise on a grid, pixels are integers a in [0, L] that stand for a / L. A certified radius R
then says: the prediction is the same for every image whose sum of squared differences of pixels,
an integer S, satisfies S < (L R)^2. The column `squared` holds the largest such S.
"""

from __future__ import annotations

STEPS_PER_UNIT = 10**6
"""Files record radii as multiples of one millionth."""


def squared_claim(radius: float, *, levels: int) -> int | None:
    """The largest certified sum of squared differences of pixels; None for radius 0.

    The radius is one that a file records, with six decimals.

    >>> squared_claim(0.5, levels=255), squared_claim(0.0, levels=255)
    (16256, None)
    """
    # From the text, in whole numbers: no rounding of floats can lift the claim.
    whole, _, decimals = f"{radius:.6f}".partition(".")
    millionths = int(whole + decimals)
    if millionths == 0:
        return None
    numerator = (levels * millionths) ** 2
    # The largest integer below a / b is (a - 1) // b.
    return (numerator - 1) // STEPS_PER_UNIT**2

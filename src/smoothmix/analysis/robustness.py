"""Certificates beside attacks on the same images: what is certain, and what was found. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothmix.certificates import Certificate
from smoothmix.certificates.attack_file import Attack
from smoothmix.errors import UsageError

Floats = NDArray[np.float64]


@final
@dataclass(frozen=True, kw_only=True)
class Attacked:
    """An image that was certified and attacked."""

    certificate: Certificate
    attack: Attack

    @property
    def contradiction(self) -> bool:
        """Whether the attack found an example inside the certified radius."""
        return self.attack.contradicts(self.certificate)


def attacked_images(
    certificates: Sequence[Certificate], attacks: Sequence[Attack]
) -> list[Attacked]:
    """The images that are in both files, in the order of the certificates."""
    by_image = {row.idx: row for row in attacks}
    found = []
    for certificate in certificates:
        attack = by_image.get(certificate.idx)
        if attack is None:
            continue
        if attack.label != certificate.label:
            raise UsageError(
                f"image {certificate.idx} has label {certificate.label} in the certificates and "
                f"{attack.label} in the attacks: they are about other data"
            )
        found.append(Attacked(certificate=certificate, attack=attack))
    return found


def certified_share(images: Sequence[Attacked], radii: ArrayLike) -> Floats:
    """Share of images that are certified as their true class at each radius."""
    reached = [each.certificate.radius if each.certificate.correct else -1.0 for each in images]
    return _share_at_least(reached, radii)


def empirical_share(images: Sequence[Attacked], radii: ArrayLike) -> Floats:
    """Share of images that keep their true class against the attack at each radius.

    The true share lies between the certified and the empirical one.
    """
    reached = []
    for each in images:
        attack = each.attack
        right = attack.before == attack.label
        # An example at exactly this distance counts against the image.
        reached.append(np.nextafter(attack.robust_distance, 0) if right else -1.0)
    return _share_at_least(reached, radii)


def _share_at_least(reached: Sequence[float], radii: ArrayLike) -> Floats:
    values = np.asarray(reached)[:, None]
    return np.asarray((values >= np.asarray(radii)[None]).mean(axis=0))


def explained_by_alpha(images: Sequence[Attacked], *, certified: float, attacked: float) -> float:
    """How many contradictions the failure probabilities of both files allow on average.

    >>> explained_by_alpha([], certified=0.001, attacked=0.001)
    0.0
    """
    return len(images) * (certified + attacked)

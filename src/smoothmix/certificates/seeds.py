"""Seeds of certification: public ones, ones derived from a public text, and secret ones. No torch.

A seed decides all noise. Anyone can redraw the votes of a public seed, but could also have prepared
inputs or weights for it. A seed that is derived from a public text was not known before the text. A
secret seed is not known before its owner publishes it; until then its file holds a commitment.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, final

from smoothmix.config import require, require_seed
from smoothmix.errors import UsageError, shown

DEFAULT_SEED = 0
"""The seed of `certify` unless another is chosen: public, so that anyone can redraw."""

LONGEST_TEXT = 500
"""Characters that a seed may be derived from."""

SECRET_BYTES = 32
"""Bytes of a secret seed, and of its nonce."""

KEY_LABEL = b"smoothmix certification key 1\n"
"""Hashed before a secret seed: the key must have nothing in common with the commitment."""


@final
class DerivedSeed:
    """A public seed that a text decides, such as a public value that was not known before.

    The seed is the beginning of the text's SHA-256, as a number of 63 bits:

    >>> DerivedSeed("the first words of today's paper").number
    7575346658680018876
    """

    def __init__(self, text: str) -> None:
        require(bool(text.strip()), "a seed cannot be derived from an empty text")
        require(
            text.isprintable() and len(text) <= LONGEST_TEXT,
            f"a seed is derived from one line of printable text, with at most {LONGEST_TEXT} "
            f"characters, got {shown(text)!r}",
        )
        self.text = text

    @property
    def number(self) -> int:
        """The seed as a number."""
        digest = hashlib.sha256(self.text.encode()).digest()
        # 63 bits, like every public seed: TOML has no larger integers.
        return int.from_bytes(digest[:8], "big") >> 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DerivedSeed) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"{self.number} (from {self.text!r})"


# Not a dataclass, whose fields go into files, messages and pages by themselves: the key must not.
@final
class SecretSeed:
    """A seed of which only a commitment is public.

    Files hold the commitment alone. The key is there if the seed's own file was read.
    """

    def __init__(self, commitment: str, *, key: int | None = None) -> None:
        require(
            re.fullmatch(r"[0-9a-f]{64}", commitment) is not None,
            f"a commitment has 64 hexadecimal digits, got {shown(commitment)!r}",
        )
        self.commitment = commitment
        self._key = key

    @property
    def key(self) -> int:
        """The key of the random number generator; refused where only the commitment is known."""
        if self._key is None:
            raise UsageError(
                "the votes were drawn with a secret seed, which only its own file holds: "
                "name that file by --seed-file"
            )
        return self._key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretSeed) and self.commitment == other.commitment

    def __hash__(self) -> int:
        return hash(self.commitment)

    def __repr__(self) -> str:
        return f"secret (commitment {self.commitment[:12]}...)"


Seed = int | DerivedSeed | SecretSeed
"""A number is a public seed as it is."""


def require_any_seed(seed: object) -> None:
    """Refuse what is not a seed."""
    if not isinstance(seed, (DerivedSeed, SecretSeed)):
        require_seed(seed)  # type: ignore[arg-type]


def generator_key(seed: Seed) -> int:
    """The key that a seed gives the random number generator."""
    if isinstance(seed, DerivedSeed):
        return seed.number
    if isinstance(seed, SecretSeed):
        return seed.key
    return seed


def commitment_to(seed: bytes, nonce: bytes) -> str:
    """The commitment to a secret seed: SHA-256 of the seed, followed by its nonce."""
    return hashlib.sha256(seed + nonce).hexdigest()


def key_of_secret(seed: bytes) -> int:
    """The generator's key of a secret seed: 128 bits, which is all that a key of Philox holds."""
    digest = hashlib.sha256(KEY_LABEL + seed).digest()
    return int.from_bytes(digest[:16], "big")


def seed_to_value(seed: Seed) -> int | dict[str, Any]:
    """The seed as files record it; a secret seed by its commitment alone."""
    if isinstance(seed, DerivedSeed):
        return {"number": seed.number, "text": seed.text}
    if isinstance(seed, SecretSeed):
        return {"commitment": seed.commitment}
    return seed


def seed_from_value(value: object) -> Seed:
    """The seed that a file records."""
    if type(value) is int:
        require_seed(value)
        return value
    known = isinstance(value, Mapping) and all(type(each) in (str, int) for each in value.values())
    if known and value.keys() == {"commitment"}:  # type: ignore[attr-defined]
        return SecretSeed(str(value["commitment"]))  # type: ignore[index]
    if known and value.keys() == {"number", "text"}:  # type: ignore[attr-defined]
        return _derived(value)  # type: ignore[arg-type]
    raise UsageError(
        "seed must be a whole number, or a table with a commitment or with number and text, "
        f"got {shown(repr(value))}"
    )


def _derived(table: Mapping[str, Any]) -> DerivedSeed:
    seed = DerivedSeed(str(table["text"]))
    require(
        seed.number == table["number"],
        f"the text {seed.text!r} gives the seed {seed.number}, not {shown(table['number'])}",
    )
    return seed


def seed_options(seed: Seed) -> dict[str, object]:
    """The options of `certify` that choose this seed."""
    if isinstance(seed, DerivedSeed):
        return {"seed_from": seed.text}
    if isinstance(seed, SecretSeed):
        return {"seed": "secret"}
    return {"seed": seed}


def seed_words(seed: Seed) -> str:
    """The seed in a few words, with the public default marked as such."""
    if isinstance(seed, SecretSeed):
        return f"secret (commitment {seed.commitment})"
    if seed == DEFAULT_SEED:
        return f"{seed} (the public default)"
    return str(seed)


def seed_remark(seed: Seed) -> str:
    """What a reader of certificates should know about their seed."""
    if isinstance(seed, SecretSeed):
        return (
            "a secret seed: nobody else could prepare inputs for it, and votes can be drawn again "
            f"only with its file (commitment {seed.commitment})"
        )
    if isinstance(seed, DerivedSeed):
        return f"the public seed {seed.number}, derived from the text {seed.text!r}"
    if seed == DEFAULT_SEED:
        return (
            f"seed {seed}, the public default: anyone can draw the votes again, and inputs or "
            "weights could have been prepared for it"
        )
    return f"the public seed {seed}: anyone can draw the votes again"

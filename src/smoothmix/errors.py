"""Errors that a person can act on: one sentence, and the exit code of the command line."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class SmoothmixError(Exception):
    """Something went wrong that the message explains; the command line prints it without a traceback."""

    exit_code = 1


class UsageError(SmoothmixError, ValueError):
    """An option, argument or setting that cannot be used."""

    exit_code = 2


class DataError(SmoothmixError):
    """A data set that is missing, incomplete or altered."""


class CheckpointError(SmoothmixError):
    """Weights or training state that cannot be read or do not fit."""


class CertificateError(SmoothmixError):
    """A certificate file that cannot be read, or does not say what it must."""


def shown(text: object, length: int = 80) -> str:
    """What a file says, fit for a sentence: cut, and with escapes for what a terminal would obey.

    >>> shown("abcdef", length=4), shown("a\\nb")
    ('abcd…', 'a\\\\nb')
    """
    said = str(text)
    cut = said if len(said) <= length else f"{said[:length]}…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)


def unknown_name(kind: str, name: str, choices: Iterable[str]) -> UsageError:
    """The error for a name that is not among `choices`, with the nearest one that is.

    >>> str(unknown_name("data set", "minst", ["mnist", "cifar10"]))
    "unknown data set 'minst': did you mean 'mnist'? (there are: mnist, cifar10)"
    """
    names = list(choices)
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}? (there are: " if near else "there are: "
    return UsageError(
        f"unknown {kind} {shown(name)!r}: {hint}{', '.join(names)}{')' if near else ''}"
    )

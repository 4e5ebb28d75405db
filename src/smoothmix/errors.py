"""Errors that a person can act on: one sentence, and the exit code of the command line."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from smoothmix._io.text import for_terminal


class SmoothmixError(Exception):
    """An error that its message explains; the command line prints it without a traceback."""

    exit_code = 1


class UsageError(SmoothmixError, ValueError):
    """An option, argument or setting that cannot be used."""

    exit_code = 2


class DataError(SmoothmixError):
    """A data set that is missing, incomplete or altered."""


class CheckpointError(SmoothmixError):
    """Weights or training state that cannot be read or do not fit."""


class CertificateError(SmoothmixError):
    """A certificate file that cannot be read, or contradicts itself."""


def shown(text: object, length: int = 80) -> str:
    """Text from a file, fit for a message: shortened, and with control characters escaped.

    >>> shown("abcdef", length=4), shown("a\\nb")
    ('abcd…', 'a\\\\nb')
    """
    content = str(text)
    if len(content) > length:
        content = f"{content[:length]}…"
    return for_terminal(content)


def unknown_name(kind: str, name: str, choices: Iterable[str]) -> UsageError:
    """The error for a name that is not among `choices`, with the closest one that is.

    >>> str(unknown_name("data set", "minst", ["mnist", "cifar10"]))
    "unknown data set 'minst': did you mean 'mnist'? (choose from: mnist, cifar10)"
    """
    names = list(choices)
    problem = f"unknown {kind} {shown(name)!r}"
    every = f"choose from: {', '.join(names)}"
    close = get_close_matches(name, names, n=1)
    if close:
        return UsageError(f"{problem}: did you mean {close[0]!r}? ({every})")
    return UsageError(f"{problem}: {every}")

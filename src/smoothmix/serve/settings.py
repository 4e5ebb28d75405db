"""Limits of the service, checked when they are made."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import final

from smoothmix.certify.request import require_seconds
from smoothmix.config import require

ANSWER_SECONDS = 0.03
"""Time before a deadline at which drawing ends: the answer has to be computed and sent."""

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
"""Hosts that a client of a service on loopback may ask for."""


@final
@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """Who may ask for what, and how much of it at once."""

    host: str = "127.0.0.1"
    """Address to listen on."""

    port: int = 8000
    """Port to listen on; 0 takes a free one."""

    allow_host: tuple[str, ...] = ()
    """Further names by which clients reach the service, such as that of a proxy."""

    seconds: float = 0.5
    """Deadline of a request that names none, counted from its arrival."""

    most_seconds: float = 30.0
    """The longest deadline that a request may name."""

    active: int = 16
    """Images that are drawn for at once."""

    queue: int = 32
    """Requests that may wait for others to end; further ones are refused with status 429."""

    max_body: int = 8 * 2**20
    """Largest body of a request, in bytes."""

    max_pixels: int = 2**24
    """Largest image, in pixels."""

    read_seconds: float = 10.0
    """Time for a client to send its body."""

    def __post_init__(self) -> None:
        for name in ("seconds", "most_seconds", "read_seconds"):
            require_seconds(getattr(self, name))
        require(
            self.seconds <= self.most_seconds,
            f"seconds is {self.seconds:g}, which is more than most-seconds, {self.most_seconds:g}",
        )
        require(0 <= self.port < 2**16, f"port must be 0 to 65535, got {self.port}")
        for name, least in (("active", 1), ("queue", 0), ("max_body", 1), ("max_pixels", 1)):
            value = getattr(self, name)
            words = name.replace("_", "-")
            require(value >= least, f"{words} must be at least {least}, got {value}")
        require(
            not _is_wildcard(self.host) or bool(self.allow_host),
            f"{self.host} listens on all networks: name the hosts that clients ask for by "
            "--allow-host, or other websites could reach the service through their visitors",
        )

    @property
    def hosts(self) -> frozenset[str]:
        """The names, without ports, that a request may be addressed to."""
        names = {name.lower() for name in self.allow_host}
        if is_loopback(self.host):
            names.update(LOOPBACK_NAMES)
        if not _is_wildcard(self.host):
            names.add(_in_brackets(self.host.lower()))
        return frozenset(names)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        # The empty name listens everywhere too.
        return host == ""


def _in_brackets(host: str) -> str:
    """An address as the header Host writes it."""
    if ":" in host:
        return f"[{host}]"
    return host

"""A running service, asked by plain HTTP: for its tests and its benchmark."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PATIENCE = 120


@dataclass(frozen=True)
class Answer:
    """The status and the body of an answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    port: int,
    path: str,
    body: bytes | None = None,
    *,
    method: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """One request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    began = time.monotonic()
    try:
        verb = method or ("GET" if body is None else "POST")
        connection.request(verb, path, body, dict(headers or {}))
        response = connection.getresponse()
        content = response.read()
    finally:
        connection.close()
    found = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, found, content, time.monotonic() - began)


def port_in(log: str) -> int | None:
    """The port that a service listens on, by what it has printed; None before it does."""
    for line in log.splitlines():
        if line.startswith("{"):
            event = json.loads(line)
            if event["event"] == "listening":
                port: int = event["port"]
                return port
    return None


def problems(answer: Mapping[str, Any]) -> list[str]:
    """What is wrong with a certificate, by its own votes."""
    from smoothmix import certificates
    from smoothmix.certificates import Certification
    from smoothmix.noise import GridNoise
    from smoothmix.stats import Anytime, Stopping

    settings = answer["settings"]
    found = []
    votes = {int(name): count for name, count in answer["votes"].items()}
    selection = {int(name): count for name, count in answer["selection_votes"].items()}
    if sum(votes.values()) != answer["draws"]:
        found.append("votes do not add up to the draws")
    if answer["draws"] == 0:
        if not answer["abstained"]:
            found.append("a class without a draw")
        return found
    row = certificates.from_votes(
        0,
        -1,
        selection,
        votes,
        certification=Certification(
            sigma=settings["sigma"],
            guarantee=Anytime(Stopping(), n0=settings["n0"], alpha=settings["alpha"]),
            noise=GridNoise(settings["levels"]),
        ),
    )
    expected = (row.radius, row.p_lower, row.squared, row.selected)
    names = ("radius", "p_lower", "squared", "selected")
    if tuple(answer[name] for name in names) != expected:
        found.append("the certificate does not follow from the votes")
    if answer["class"] != (None if row.predict == -1 else row.predict):
        found.append("another class than that of the votes")
    if sum(selection.values()) != settings["n0"] or answer["draws"] % settings["batch"] != 0:
        found.append("no whole batches")
    return found

"""What every request passes first: its arrival time, Host and Origin, and the limit of its body.

Other websites reach a service on loopback through the browsers of their visitors. A browser tells
where a request comes from (Origin, Sec-Fetch-Site); a name that was pointed to 127.0.0.1 shows in
Host. What does not fit is refused before anything else is read.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, final
from urllib.parse import urlsplit

from smoothmix.serve.errors import Refused
from smoothmix.serve.json_log import log
from smoothmix.serve.metrics import Metrics
from smoothmix.serve.settings import ServeSettings

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Scope = MutableMapping[str, Any]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

PATHS = ("/", "/v1/certify", "/v1/certify/stream", "/v1/model", "/health", "/metrics")
"""Paths that metrics name; all others count as one."""

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""Sent with every answer."""


@final
class Guards:
    """The application behind all checks that do not depend on the path."""

    def __init__(self, app: App, settings: ServeSettings, metrics: Metrics) -> None:
        self._app = app
        self._settings = settings
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send, self._settings)
        try:
            _require_own_site(exchange.headers, self._settings.hosts)
            _require_length(exchange.headers, self._settings.max_body)
            await self._app(scope, exchange.receive, exchange.send)
        except Refused as refusal:
            await exchange.refuse(refusal)
        finally:
            self._record(exchange)

    def _record(self, exchange: _Exchange) -> None:
        path = str(exchange.scope["path"])
        known = path if path in PATHS else "other"
        self._metrics.request(known, exchange.status)
        client = exchange.scope.get("client") or ("", 0)
        log(
            "request",
            id=exchange.scope["state"]["id"],
            method=exchange.scope["method"],
            path=path[:200],
            status=exchange.status,
            seconds=round(time.monotonic() - exchange.arrival, 4),
            client=client[0],
            **exchange.scope["state"].get("log", {}),
        )


@final
class _Exchange:
    """One request and its answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, settings: ServeSettings) -> None:
        self.arrival = time.monotonic()
        self.scope = scope
        self.status = 0
        self.headers = {}
        for name, value in scope["headers"]:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")
        # Not those of the whole application, which all requests share.
        scope["state"] = {"arrival": self.arrival, "id": uuid.uuid4().hex[:16]}
        self._receive = receive
        self._send = send
        self._settings = settings
        self._read = 0
        self._whole = False

    async def receive(self) -> Message:
        """The next part of the body, within the limits of size and time."""
        if self._whole:
            # Only the end of the connection is left to wait for.
            return await self._receive()
        left = self.arrival + self._settings.read_seconds - time.monotonic()
        try:
            async with asyncio.timeout(max(0.0, left)):
                message = await self._receive()
        except TimeoutError:
            raise Refused(408, "the body did not arrive in time") from None
        if message["type"] == "http.request":
            self._read += len(message.get("body", b""))
            self._whole = not message.get("more_body", False)
        if self._read > self._settings.max_body:
            raise _too_large(self._settings.max_body)
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the answer, with our headers before the first."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            own.append((b"x-request-id", self.scope["state"]["id"].encode()))
            if not self._whole and self._read > 0:
                # The rest of a body that nobody reads is not the next request.
                own.append((b"connection", b"close"))
            message = {**message, "headers": [*message.get("headers", ()), *own]}
        await self._send(message)

    async def refuse(self, refusal: Refused) -> None:
        """Answer with an error, unless an answer has started."""
        if self.status:
            return
        content = json.dumps({"error": str(refusal)}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(content)).encode()),
        ]
        if refusal.status in (408, 413):
            headers.append((b"connection", b"close"))
        if refusal.status == 429:
            headers.append((b"retry-after", b"1"))
        await self.send(
            {"type": "http.response.start", "status": refusal.status, "headers": headers}
        )
        await self.send({"type": "http.response.body", "body": content})


def _require_own_site(headers: Mapping[str, str], hosts: frozenset[str]) -> None:
    """Refuse requests for other names, and those that other websites make."""
    host = headers.get("host", "")
    if _without_port(host) not in hosts:
        raise Refused(
            421, "the Host of the request is not a name of this service: see --allow-host"
        )
    origin = headers.get("origin")
    # A browser sends "null" for pages without an address of their own, such as files.
    if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
        raise Refused(403, "the request comes from another website")
    site = headers.get("sec-fetch-site", "none")
    navigates = headers.get("sec-fetch-mode") == "navigate"
    if site not in ("none", "same-origin") and not navigates:
        raise Refused(403, "the request comes from another website")


def _without_port(host: str) -> str:
    """The name in a header Host.

    >>> _without_port("LOCALHOST:8000"), _without_port("[::1]:8000"), _without_port("[::1]")
    ('localhost', '[::1]', '[::1]')
    """
    name, colon, port = host.lower().rpartition(":")
    if colon and port.isdigit():
        return name
    return host.lower()


def _require_length(headers: Mapping[str, str], most: int) -> None:
    length = headers.get("content-length", "0")
    if length.isascii() and length.isdigit() and int(length[:20]) > most:
        raise _too_large(most)


def _too_large(most: int) -> Refused:
    return Refused(413, f"the body has more than {most:,} bytes: send a smaller image")

"""The service in a process of its own: it listens until a signal stops it, and then drains."""

from __future__ import annotations

import signal
import socket
from types import FrameType
from typing import final

from smoothmix.models.extras import import_extra

import_extra("uvicorn", extra="serve", purpose="the service")

# ruff: noqa: E402
import uvicorn

from smoothmix.errors import UsageError
from smoothmix.serve.app import make_app
from smoothmix.serve.json_log import log, log_to_standard_error
from smoothmix.serve.service import Service
from smoothmix.serve.settings import ServeSettings

KEEP_ALIVE_SECONDS = 5
"""How long a connection may be idle."""

CONNECTIONS = 256
"""Connections beyond the limits of the queue get status 503 from the web server itself."""

DRAIN_SECONDS = 5
"""Time that answers may take beyond the longest deadline once the service stops."""


@final
class _Server(uvicorn.Server):
    """The web server; it ends with exit code 0 when a signal stops it."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop listening and drain; a second Ctrl-C does not wait."""
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        if not self.should_exit:
            log("stopping", signal=signal.Signals(sig).name)
        self._service.drain()
        self.should_exit = True


def listen(settings: ServeSettings) -> socket.socket:
    """A socket that listens where the settings say."""
    try:
        found = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {settings.host} port {settings.port} "
            f"({error.strerror or error}): choose another --port or --host"
        ) from error
    return listener


def make_server(service: Service) -> uvicorn.Server:
    """The web server of a service."""
    config = uvicorn.Config(
        make_app(service),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="off",
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(service.settings.most_seconds) + DRAIN_SECONDS,
    )
    return _Server(config, service)


def run(service: Service, listener: socket.socket) -> None:
    """Serve until SIGTERM or Ctrl-C; requests that have arrived are answered."""
    log_to_standard_error()
    host, port = listener.getsockname()[:2]
    log("listening", host=host, port=port, **_facts(service))
    make_server(service).run(sockets=[listener])
    service.close()
    log("stopped")


def _facts(service: Service) -> dict[str, object]:
    wanted = ("model", "sigma", "noise", "alpha", "batch", "engine")
    return {name: service.facts[name] for name in wanted}

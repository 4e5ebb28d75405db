"""The addresses of the service."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from importlib.resources import files
from typing import Any

from smoothmix.models.extras import import_extra

# First: the error then names the extra, instead of a module that nobody has heard of.
import_extra("fastapi", extra="serve", purpose="the service")
import_extra("python_multipart", extra="serve", purpose="the service")

# ruff: noqa: E402
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException

from smoothmix.serve.errors import Refused
from smoothmix.serve.guards import App, Guards
from smoothmix.serve.json_log import LOGGER
from smoothmix.serve.metrics import CONTENT_TYPE
from smoothmix.serve.service import Service
from smoothmix.version import __version__

FIELD = "image"
"""Name of the image in a form."""

ASSETS = {
    "/": ("smoothmix.serve", "page.html", "text/html"),
    "/page.js": ("smoothmix.serve", "page.js", "text/javascript"),
    "/page.css": ("smoothmix.serve", "page.css", "text/css"),
    "/look.css": ("smoothmix.report", "page.css", "text/css"),
}
"""The page and what it loads: package, file and type. The look is that of the reports."""


def make_app(service: Service) -> App:
    """The service as an ASGI application."""
    # Its own pages of documentation load scripts from elsewhere.
    app = FastAPI(title="smoothmix", version=__version__, docs_url=None, redoc_url=None)
    _add_certificates(app, service)
    _add_facts(app, service)
    _add_errors(app)
    for path, (package, name, kind) in ASSETS.items():
        _add_asset(app, path, package, name, kind)
    return Guards(app, service.settings, service.metrics)


def _add_certificates(app: FastAPI, service: Service) -> None:
    """The addresses that take an image."""

    @app.post("/v1/certify")
    async def certify(request: Request) -> JSONResponse:
        """The certificate of an image at the deadline: `?seconds=` after the request arrived."""
        arrival, deadline = _times(request, service)
        body = await _image(request)
        answer = await service.certify(body, arrival=arrival, deadline=deadline)
        _note(request, answer)
        return JSONResponse({"id": request.state.id, **answer})

    @app.post("/v1/certify/stream")
    async def stream(request: Request) -> StreamingResponse:
        """The same as server-sent events: what holds every moment, and the answer as the last."""
        arrival, deadline = _times(request, service)
        body = await _image(request)
        events = service.events(body, arrival=arrival, deadline=deadline)
        # Before the answer begins, an image that is refused can still get its status.
        first = await anext(events)

        async def lines() -> AsyncIterator[bytes]:
            yield _event(first)
            last = first
            try:
                async for last in events:
                    yield _event(last)
            finally:
                await events.aclose()  # type: ignore[attr-defined]
            _note(request, last)

        return StreamingResponse(lines(), media_type="text/event-stream")


def _add_facts(app: FastAPI, service: Service) -> None:
    """The addresses that tell about the service."""

    @app.get("/v1/model")
    async def model() -> dict[str, Any]:
        """What decides certificates, and the limits of requests."""
        limits = service.settings
        return {
            **service.facts,
            "limits": {
                "seconds": limits.seconds,
                "most_seconds": limits.most_seconds,
                "max_body": limits.max_body,
                "max_pixels": limits.max_pixels,
            },
        }

    @app.get("/health")
    async def health() -> JSONResponse:
        """Whether requests are taken."""
        if service.draining:
            return JSONResponse({"status": "stopping"}, status_code=503)
        return JSONResponse({"status": "ok", "version": __version__})

    @app.get("/metrics")
    async def metrics() -> PlainTextResponse:
        """Counters and gauges for Prometheus."""
        return PlainTextResponse(service.metrics_text(), media_type=CONTENT_TYPE)


def _add_errors(app: FastAPI) -> None:
    """Errors as JSON, with one sentence."""

    @app.exception_handler(HTTPException)
    async def failed(request: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"error": error.detail}, status_code=error.status_code)

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> JSONResponse:
        LOGGER.error("error", exc_info=error)
        return JSONResponse({"error": "the classifier failed"}, status_code=500)

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> Response:
        headers = {}
        if error.status == 429:
            headers["retry-after"] = "1"
        return JSONResponse({"error": str(error)}, status_code=error.status, headers=headers)


def _add_asset(app: FastAPI, path: str, package: str, name: str, kind: str) -> None:
    content = (files(package) / "assets" / name).read_bytes()

    @app.get(path, include_in_schema=False)
    async def asset() -> Response:
        return Response(content, media_type=kind)


def _times(request: Request, service: Service) -> tuple[float, float]:
    """When a request arrived and when its answer is due."""
    text = request.query_params.get("seconds")
    seconds = None
    if text is not None:
        try:
            seconds = float(text)
        except ValueError:
            raise Refused(422, "seconds must be a number") from None
    arrival: float = request.state.arrival
    return arrival, service.deadline(arrival, seconds)


async def _image(request: Request) -> bytes:
    """The bytes of the image: the body, or the file of that name in a form."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "multipart/form-data":
        return await request.body()
    try:
        async with request.form(max_files=1, max_fields=8) as form:
            part = form.get(FIELD)
            if part is None or isinstance(part, str):
                raise Refused(400, f"the form has no file named {FIELD!r}")
            return await part.read()
    except (HTTPException, MultiPartException) as error:
        raise Refused(400, f"the form cannot be read ({error})") from None


def _event(answer: dict[str, Any]) -> bytes:
    """An answer as a server-sent event."""
    name = "final" if answer["ended"] else "progress"
    return f"event: {name}\ndata: {json.dumps(answer)}\n\n".encode()


def _note(request: Request, answer: dict[str, Any]) -> None:
    """What the log says about an answer."""
    request.state.log = {
        "class": answer["class"],
        "radius": answer["radius"],
        "draws": answer["draws"],
        "ended": answer["ended"],
        "queued": answer["seconds"]["queued"],
    }

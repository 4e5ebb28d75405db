"""Logs of the service: one JSON object per line on standard error."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any, final

LOGGER = logging.getLogger("smoothmix.serve")


@final
class JsonLines(logging.Formatter):
    """A log record as one line of JSON; all text in it is escaped to ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        values: dict[str, Any] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        values.update(getattr(record, "values", {}))
        if record.exc_info:
            values["error"] = self.formatException(record.exc_info)
        return json.dumps(values)


def log(event: str, **values: object) -> None:
    """Write an event with its values."""
    LOGGER.info(event, extra={"values": values})


def log_to_standard_error() -> None:
    """Write our logs, and those of the web server, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("smoothmix.serve", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(logging.INFO)
    # It reports each start and stop, which we do ourselves.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)

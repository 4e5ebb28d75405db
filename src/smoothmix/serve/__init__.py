"""A web service that certifies images under deadlines; needs `smoothmix[serve]`.

Names are loaded when they are first used: the error of those that need the extra says so.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smoothmix.serve.app import make_app
    from smoothmix.serve.classifier import Classifier, open_classifier
    from smoothmix.serve.server import run
    from smoothmix.serve.service import Service
    from smoothmix.serve.settings import ServeSettings

_HOMES = {
    "Classifier": "smoothmix.serve.classifier",
    "ServeSettings": "smoothmix.serve.settings",
    "Service": "smoothmix.serve.service",
    "make_app": "smoothmix.serve.app",
    "open_classifier": "smoothmix.serve.classifier",
    "run": "smoothmix.serve.server",
}

__all__ = ["Classifier", "ServeSettings", "Service", "make_app", "open_classifier", "run"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'smoothmix.serve' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)

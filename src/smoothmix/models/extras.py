"""Libraries that smoothmix can use but does not need: imported when they are, or named."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from smoothmix.errors import UsageError


def import_extra(module: str, *, extra: str, purpose: str) -> ModuleType:
    """The module of an optional library, or an error that says what to install."""
    try:
        return import_module(module)
    except ImportError as error:
        reason = str(error)
    # timm imports torchvision, whose compiled part may not fit torch.
    except RuntimeError as error:
        reason = str(error)
    raise UsageError(
        f"{purpose} needs {module}, which cannot be imported ({reason}): "
        f"pip install 'smoothmix[{extra}]'"
    )

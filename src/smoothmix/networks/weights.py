"""Weights from and to files: ours, and those that the field has published. Nothing in a file is ever run."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any, final

import safetensors.torch
import torch
from torch import Tensor, nn

from smoothmix._io.files import atomic_write
from smoothmix._io.torch_files import load_plain
from smoothmix.errors import CheckpointError, UsageError, shown
from smoothmix.networks.registry import Network

CONTAINERS = (
    "state_dict",
    "model_state_dict",
    "net",
    "model",
)  # where a published checkpoint may have its weights
PREFIXES = ("", "1.", "1.module.", "module.", "module.1.", "body.")
"""Before a tensor's name in files of Sequential(normalise, network), of DataParallel, and of our own networks."""
PARALLEL = "module."
"""What DataParallel puts before every name."""
BATCH_COUNTER = (
    "num_batches_tracked"  # of BatchNorm: no part of the function, and old files do not have it
)
PLAIN_NUMBERS = frozenset(
    {
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
    }
    | {torch.uint8, torch.bool}
)
"""What weights are made of: other numbers are quantised or complex, or cannot be turned into these."""
Tensors = Mapping[str, Tensor]


def save_weights(model: nn.Module, path: str | Path) -> None:
    """Write parameters and buffers to a safetensors file, which is there whole or not at all."""
    # Copies, since safetensors takes neither other memory formats nor a tensor that two layers share.
    tensors = {name: value.cpu().contiguous().clone() for name, value in _state(model).items()}
    atomic_write(path, safetensors.torch.save(tensors, metadata={"format": "pt"}))


def load_weights(model: nn.Module, path: str | Path) -> None:
    """Put a file's weights into a network that has exactly the names and shapes of the file."""
    given, wanted = _tensors_in(_read(Path(path)), path), _state(model)
    if not wanted.keys() & given.keys() and all(name.startswith(PARALLEL) for name in given):
        given = {name.removeprefix(PARALLEL): value for name, value in given.items()}
    _put(model, given, {name: name for name in wanted if name in given}, path, exact=True)


def state_hash(model: nn.Module) -> str:
    """SHA-256 of names, precision, shapes and values, the same on any device and in any memory format."""
    # Buffers that are not saved count too: somebody's own normalise layer may have such.
    tensors = [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]
    digest = hashlib.sha256()
    for name, value in sorted(tensors, key=lambda pair: pair[0]):
        if not name.endswith(BATCH_COUNTER):
            digest.update(f"{name}\0{value.dtype}\0{tuple(value.shape)}\0".encode())
            digest.update(value.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


@final
@dataclass(frozen=True, kw_only=True)
class Imported:
    """What a published checkpoint says of itself, and what became of its tensors."""

    epoch: int | None
    arch: str | None
    placed: int
    """How many tensors of the network have got values."""
    unplaced: tuple[str, ...]
    """Names in the file that the network has no place for."""
    missing: tuple[str, ...]
    """Names in the network that the file has no value for: counts of batches only, which do not matter."""
    by_order: bool
    """Whether names did not match and tensors went by their order: then check the accuracy."""


def import_checkpoint(path: str | Path, model: nn.Module) -> Imported:
    """Put the weights that someone has published into the network's body.

    Names are matched; where that fails, but the file has the same kinds and shapes in order, the order decides.
    """
    content = _read(Path(path))
    given, body = _tensors_in(content, path), model.body if isinstance(model, Network) else model
    wanted = _state(body)
    places, by_order = _by_name(given, wanted), False
    if _lacking(wanted, places) and (ordered := _by_order(given, wanted)):
        places, by_order = ordered, True
    _put(body, given, places, path)
    epoch, arch, used = content.get("epoch"), content.get("arch"), set(places.values())
    return Imported(
        epoch=epoch if isinstance(epoch, int) and abs(epoch) < 2**63 else None,
        arch=arch if isinstance(arch, str) else None,
        placed=len(places),
        unplaced=tuple(name for name in given if name not in used),
        missing=tuple(name for name in wanted if name not in places),
        by_order=by_order,
    )


def load_function(spec: str) -> Callable[..., nn.Module]:
    """The function `package.module:function` that builds a network; the current folder can be imported from."""
    module, _, name = spec.partition(":")
    parts = module.removesuffix(".py").split(".")
    if not name or not all(part.isidentifier() for part in parts):
        raise UsageError(f"{spec!r} does not name a function: write package.module:function")
    if module.endswith(".py"):
        raise UsageError(
            f"{spec!r}: a module is named without its .py: write {'.'.join(parts)}:{name}"
        )
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        function = getattr(import_module(module), name, None)
    except (ImportError, SyntaxError) as error:
        raise UsageError(f"cannot import {module!r}: {error}") from error
    if isinstance(function, nn.Module):
        raise UsageError(f"{spec!r} is a network: name a function that makes and returns it")
    if not callable(function):
        raise UsageError(f"there is no function {name!r} in {module!r}")

    @wraps(function)
    def build(*args: Any, **options: Any) -> nn.Module:
        model = function(*args, **options)
        if not isinstance(model, nn.Module):
            raise UsageError(f"{spec!r} must return a torch.nn.Module, not {type(model).__name__}")
        return model

    return build


def _state(model: nn.Module) -> dict[str, Tensor]:
    """The tensors that are saved of a network (modules may have other things in their state)."""
    return {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}


def _lacking(wanted: Tensors, places: Mapping[str, str]) -> list[str]:
    return [name for name in wanted if name not in places and not name.endswith(BATCH_COUNTER)]


def _by_name(given: Tensors, wanted: Tensors) -> dict[str, str]:
    """Name in the network -> name in the file, for the prefix that finds most."""
    return max(
        ({name: start + name for name in wanted if start + name in given} for start in PREFIXES),
        key=len,
    )


def _by_order(given: Tensors, wanted: Tensors) -> dict[str, str] | None:
    """The same by position, if all kinds (weight, bias, ...) and shapes agree: not so where names were sorted."""
    sources, targets = (
        {
            name: (name.split(".")[-1], value.shape)
            for name, value in tensors.items()
            if BATCH_COUNTER not in name
        }
        for tensors in (given, wanted)
    )
    return (
        dict(zip(targets, sources, strict=True))
        if list(sources.values()) == list(targets.values())
        else None
    )


def _put(
    model: nn.Module, given: Tensors, places: dict[str, str], path: str | Path, exact: bool = False
) -> None:
    """Give the network the values from their `places` in the file, or say in one sentence why they do not fit."""
    wanted, used = _state(model), set(places.values())
    lacking = _lacking(wanted, places)
    faults = {
        "lacks {}": lacking,
        "has {} unknown": [name for name in given if name not in used] if exact or lacking else [],
        "has {} of another shape": [
            f"{name} {list(given[source].shape)} for {list(wanted[name].shape)}"
            for name, source in places.items()
            if given[source].shape != wanted[name].shape
        ],
    }
    told = [
        f"{k.format(len(n))} ({', '.join(map(shown, n[:3]))}{', ...' * (len(n) > 3)})"
        for k, n in faults.items()
        if n
    ]
    if told:
        raise CheckpointError(f"{path} does not fit the network: it {' and '.join(told)}")
    broken = [name for name, source in places.items() if not bool(given[source].isfinite().all())]
    if broken:
        raise CheckpointError(
            f"{path} holds weights that are not finite ({shown(broken[0])} and perhaps others)"
        )
    model.load_state_dict({name: given[source] for name, source in places.items()}, strict=False)


def _tensors_in(content: Mapping[Any, Any], path: str | Path) -> dict[str, Tensor]:
    """The weights in what a file holds."""
    inner = next(
        (content[key] for key in CONTAINERS if isinstance(content.get(key), Mapping)), content
    )
    tensors = {
        name: value for name, value in inner.items() if isinstance(name, str) and _is_plain(value)
    }
    if not tensors:
        there = ", ".join(shown(str(name)) for name in list(inner)[:5]) or "nothing"
        raise CheckpointError(f"{path} holds no weights (it holds {there})")
    return tensors


def _is_plain(value: object) -> bool:
    """Whether this is a tensor with numbers in it, neither sparse nor quantised nor of another sort."""
    return (
        isinstance(value, Tensor)
        and not value.is_nested
        and value.dtype in PLAIN_NUMBERS
        and value.layout == torch.strided
        and value.device.type == "cpu"
    )


def _read(path: Path) -> Mapping[Any, Any]:
    """What a file of weights or a checkpoint holds: tensors and plain values, by name."""
    try:
        content = _read_safetensors(path) if path.suffix == ".safetensors" else load_plain(path)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
    return content if isinstance(content, Mapping) else {}


def _read_safetensors(path: Path) -> Mapping[str, Tensor]:
    try:
        # This library compares all declared shapes with the size of the file before it takes memory.
        return safetensors.torch.load_file(path)
    except OSError:
        raise
    except Exception as error:
        # Sizes that overflow and types of numbers that torch does not have end in errors of many kinds.
        raise CheckpointError(
            f"{path} is damaged, cut short or no safetensors file ({shown(error, 200)})"
        ) from error

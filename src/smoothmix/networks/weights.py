"""Weights in files: saving and loading them, and a hash of them. No code in a file is ever run."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from smoothmix._io.files import atomic_write, open_to_read
from smoothmix._io.untrusted import load_plain
from smoothmix.errors import CheckpointError, shown

Tensors = Mapping[str, Tensor]

CONTAINERS = ("state_dict", "model_state_dict", "net", "model")
"""Keys under which checkpoints hold their weights, beside the epoch and the optimiser's state."""

COMPILED = "_orig_mod."
"""What torch.compile puts before the names of the module that it was called on."""

WRAPPERS = ("module.", "model.", "net.", "network.", COMPILED)
"""Prefixes of every name in the weights of a `DataParallel` network, of a Lightning module that
holds the network, and of a compiled one."""

BATCH_COUNTER = "num_batches_tracked"
"""A buffer of BatchNorm that does not change its function, and that old files do not have."""

NUMBER_TYPES = frozenset(
    {
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    }
)
"""Types that weights may have: other ones are quantised or complex, or convert to none of these."""

NAMES_SHOWN = 3
"""How many names an error message lists."""


def save_weights(model: nn.Module, path: str | Path) -> str:
    """Write parameters and buffers to a safetensors file, atomically; the file's SHA-256."""
    content = weights_content(model)
    atomic_write(path, content)
    return hashlib.sha256(content).hexdigest()


def weights_content(model: nn.Module) -> bytes:
    """Parameters and buffers as the content of a safetensors file."""
    tensors = {}
    for name, value in state_tensors(model).items():
        # Copies: safetensors refuses other memory formats, and tensors that two layers share.
        tensors[name] = value.cpu().contiguous().clone()
    return safetensors.torch.save(tensors, metadata={"format": "pt"})


def load_weights(model: nn.Module, path: str | Path) -> str:
    """Load a file of weights, whose names and shapes must be exactly those of the network.

    Prefixes of names that DataParallel, Lightning and torch.compile add are removed where the names
    fit without them. Returns what was removed, such as `model.`; usually that is nothing.
    """
    tensors = weights_in(read_content(Path(path)), path)
    wanted = state_tensors(model)
    tensors, removed = _without_wrappers(tensors, wanted)
    sources = {name: name for name in wanted if name in tensors}
    assign(model, tensors, sources, path, exact=True)
    return removed


def state_hash(model: nn.Module) -> str:
    """SHA-256 of names, types, shapes and values; the same on any device, in any memory format."""
    # Buffers that are not saved count too: anyone's own normalise layer may have such.
    parameters = model.named_parameters(remove_duplicate=False)
    buffers = model.named_buffers(remove_duplicate=False)
    digest = hashlib.sha256()
    for name, value in sorted([*parameters, *buffers], key=lambda pair: pair[0]):
        if name.endswith(BATCH_COUNTER):
            continue
        digest.update(f"{name}\0{value.dtype}\0{tuple(value.shape)}\0".encode())
        digest.update(value.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def state_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The tensors in a network's state dict."""
    # Modules may keep other things than tensors there (`get_extra_state`).
    return {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}


def read_content(path: Path) -> Mapping[Any, Any]:
    """The tensors and plain values in a file, by key; empty if the file holds something else."""
    try:
        if path.suffix == ".safetensors":
            return _read_safetensors(path)
        content = load_plain(path)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
    if not isinstance(content, Mapping):
        return {}
    return content


def _read_safetensors(path: Path) -> Mapping[str, Tensor]:
    try:
        # The library compares all declared shapes with the size of the file before it allocates.
        with open_to_read(path):
            return safetensors.torch.load_file(path)
    except OSError:
        raise
    except Exception as error:
        # Sizes that overflow and types that torch does not have end in errors of many kinds.
        raise CheckpointError(
            f"{path} is damaged, cut short or no safetensors file ({shown(error, 200)})"
        ) from error


def weights_in(content: Mapping[Any, Any], path: str | Path) -> dict[str, Tensor]:
    """The weights in the content of a file, by name."""
    state = _state_dict_in(content)
    tensors = {}
    for name, value in state.items():
        if isinstance(name, str) and _is_weight(value):
            tensors[name] = value
    if not tensors:
        keys = ", ".join(shown(str(key)) for key in list(state)[:5]) or "nothing"
        raise CheckpointError(f"{path} holds no weights (it holds {keys})")
    return tensors


def _state_dict_in(content: Mapping[Any, Any]) -> Mapping[Any, Any]:
    for key in CONTAINERS:
        inner = content.get(key)
        if isinstance(inner, Mapping):
            return inner
    return content


def _is_weight(value: object) -> bool:
    """Whether a value is an ordinary tensor of numbers: dense, not quantised, in main memory."""
    if not isinstance(value, Tensor) or value.is_nested:
        return False
    dense = value.layout == torch.strided
    return dense and value.dtype in NUMBER_TYPES and value.device.type == "cpu"


def _without_wrappers(tensors: dict[str, Tensor], wanted: Tensors) -> tuple[dict[str, Tensor], str]:
    """The tensors under names without the prefixes of wrappers, and what was removed."""
    removed = ""
    # A part of a network may be compiled too: its names then have the prefix in their middle.
    compiled = any(COMPILED in name and name not in wanted for name in tensors)
    if compiled:
        tensors = {name.replace(COMPILED, ""): value for name, value in tensors.items()}
        removed = COMPILED
    while not wanted.keys() & tensors.keys():
        prefix = _common_prefix(tensors)
        if not prefix:
            break
        tensors = {name.removeprefix(prefix): value for name, value in tensors.items()}
        removed = prefix + removed
    return tensors, removed


def _common_prefix(names: Collection[str]) -> str:
    """The prefix of a wrapper that all names have; empty if they have none in common."""
    for prefix in WRAPPERS:
        if names and all(name.startswith(prefix) for name in names):
            return prefix
    return ""


def assign(
    model: nn.Module,
    tensors: Tensors,
    sources: Mapping[str, str],
    path: str | Path,
    *,
    exact: bool = False,
    optional: str = "",
) -> None:
    """Copy a file's tensors into the network, or raise one sentence that says why they do not fit.

    `sources` has the name in the file for each name in the network. With `exact`, the file may
    hold no other tensors. The layer named `optional` may lack weights. A network that is refused
    its weights is not changed.
    """
    wanted = state_tensors(model)
    if optional:
        kept = f"{optional}."
        wanted = {name: value for name, value in wanted.items() if not name.startswith(kept)}
    problems = list(_problems(wanted, tensors, sources, exact=exact))
    if problems:
        raise CheckpointError(f"{path} does not fit the network: it {' and '.join(problems)}")
    for name, source in sources.items():
        if not bool(tensors[source].isfinite().all()):
            raise CheckpointError(
                f"{path} holds weights that are not finite ({shown(name)} and perhaps others)"
            )
    values = {name: tensors[source] for name, source in sources.items()}
    model.load_state_dict(values, strict=False)


def _problems(
    wanted: Tensors, given: Tensors, sources: Mapping[str, str], *, exact: bool
) -> Iterator[str]:
    """What keeps a file from fitting the network, each as the rest of a sentence."""
    missing = missing_weights(wanted, sources)
    if missing:
        yield f"lacks {len(missing)} {_listed(missing)}"

    # Published files may hold more than the network. But beside missing names, unknown ones often
    # show how the file names the same layers.
    used = set(sources.values())
    unknown = [name for name in given if name not in used]
    if unknown and (exact or missing):
        yield f"has {len(unknown)} unknown {_listed(unknown)}"

    reshaped = []
    for name, source in sources.items():
        found = list(given[source].shape)
        expected = list(wanted[name].shape)
        if found != expected:
            reshaped.append(f"{name} {found} for {expected}")
    if reshaped:
        yield f"has {len(reshaped)} of another shape {_listed(reshaped)}"


def missing_weights(wanted: Tensors, sources: Mapping[str, str]) -> list[str]:
    """Names in the network for which the file has no tensor, without counters of batches."""
    missing = set(wanted) - set(sources)
    return [name for name in wanted if name in missing and not name.endswith(BATCH_COUNTER)]


def _listed(names: Sequence[str]) -> str:
    """The first names, in brackets.

    >>> _listed(["a", "b", "c", "d"])
    '(a, b, c, ...)'
    """
    first = ", ".join(shown(name) for name in names[:NAMES_SHOWN])
    more = ", ..." if len(names) > NAMES_SHOWN else ""
    return f"({first}{more})"

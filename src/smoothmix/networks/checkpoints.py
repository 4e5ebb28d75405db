"""Checkpoints that other people published: their weights become those of a network of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch
from torch import nn

from smoothmix.errors import CheckpointError, shown
from smoothmix.networks.network import Network
from smoothmix.networks.weights import (
    BATCH_COUNTER,
    Tensors,
    assign,
    missing_weights,
    read_content,
    state_tensors,
    weights_in,
)

PREFIXES = (
    *("", "1.", "1.module.", "module.", "module.1.", "body."),
    *("model.", "_orig_mod.", "model._orig_mod.", "_orig_mod.module.", "module._orig_mod."),
)
"""Prefixes of names in files of Sequential(normalise, network), of DataParallel, of ours, of
Lightning and of torch.compile."""


@final
@dataclass(frozen=True, kw_only=True)
class Imported:
    """What a published checkpoint records about itself, and where its tensors went."""

    epoch: int | None
    arch: str | None
    placed: int
    """How many tensors of the network got values."""
    unplaced: tuple[str, ...]
    """Names in the file that the network has no place for."""
    missing: tuple[str, ...]
    """Names in the network that the file has no value for: only counters, which do not matter."""
    by_order: bool
    """Whether names did not match and tensors were placed by their order: check the accuracy."""


def import_checkpoint(path: str | Path, model: nn.Module) -> Imported:
    """Load published weights into the network's body, and return what was found.

    Tensors are matched by name. Where that fails, they are matched by order, if the file has the
    same kinds and shapes of tensors in the same order as the network.
    """
    content = read_content(Path(path))
    tensors = weights_in(content, path)
    # The published normalise layers have no tensors, or other names for them.
    body = model.body if isinstance(model, Network) else model
    wanted = state_tensors(body)

    sources = matched_by_name(tensors, wanted)
    by_order = False
    if missing_weights(wanted, sources):
        in_order = _matched_by_order(tensors, wanted)
        if in_order:
            sources = in_order
            by_order = True
    refuse_deeper_network(path, tensors, sources)
    assign(body, tensors, sources, path)

    used = set(sources.values())
    return Imported(
        epoch=_epoch(content.get("epoch")),
        arch=_text(content.get("arch")),
        placed=len(sources),
        unplaced=tuple(name for name in tensors if name not in used),
        missing=tuple(name for name in wanted if name not in sources),
        by_order=by_order,
    )


def refuse_deeper_network(path: str | Path, given: Tensors, sources: Mapping[str, str]) -> None:
    """Refuse a file that has more layers of the kinds that the network has.

    All tensors of a small network may be found in the file of a larger one of the same family: it
    would load, and classify at random.
    """
    used = set(sources.values())
    kinds = {_without_numbers(name) for name in used}
    more = []
    for name in given:
        if name not in used and _without_numbers(name) in kinds:
            more.append(name)
    # A layer without a number in its name is no further one of a sequence.
    more = [name for name in more if _without_numbers(name) != name and BATCH_COUNTER not in name]
    if more:
        raise CheckpointError(
            f"{path} does not fit the network: it has {len(more)} more tensors of the same kinds "
            f"of layers ({shown(more[0])} and others), as a deeper network of this family has; "
            "choose the network that the file was saved from"
        )


def _without_numbers(name: str) -> str:
    """The name of a tensor with its numbers of layers replaced.

    >>> _without_numbers("layer1.17.conv1.weight")
    'layer1.*.conv1.weight'
    """
    parts = name.split(".")
    return ".".join("*" if part.isdigit() else part for part in parts)


def matched_by_name(given: Tensors, wanted: Tensors) -> dict[str, str]:
    """Name in the network -> name in the file, for the prefix that matches most names."""
    best: dict[str, str] = {}
    for prefix in PREFIXES:
        matched = {name: prefix + name for name in wanted if prefix + name in given}
        if len(matched) > len(best):
            best = matched
    return best


def _matched_by_order(given: Tensors, wanted: Tensors) -> dict[str, str] | None:
    """The same by position; None unless the kinds and shapes of all tensors agree."""
    # A file whose names were sorted has them in another order, and must not match by accident.
    sources = _signatures(given)
    targets = _signatures(wanted)
    if list(sources.values()) != list(targets.values()):
        return None
    return dict(zip(targets, sources, strict=True))


def _signatures(tensors: Tensors) -> Mapping[str, tuple[str, torch.Size]]:
    """Kind (weight, bias, ...) and shape of each tensor, by its name."""
    signatures = {}
    for name, value in tensors.items():
        if BATCH_COUNTER not in name:
            kind = name.split(".")[-1]
            signatures[name] = (kind, value.shape)
    return signatures


def _epoch(value: object) -> int | None:
    # A file may hold an integer of any length, which TOML could not store.
    if isinstance(value, int) and abs(value) < 2**63:
        return value
    return None


def _text(value: object) -> str | None:
    if isinstance(value, str):
        return value
    return None

"""Weights of a trained network as the beginning of further training."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from smoothmix.networks.checkpoints import matched_by_name, refuse_deeper_network
from smoothmix.networks.network import Network
from smoothmix.networks.parts import head_of
from smoothmix.networks.weights import assign, read_content, state_tensors, weights_in


def load_start(model: nn.Module, path: Path, *, whole: bool = False) -> str:
    """Load the weights of a file into a network whose head may be for other classes.

    Returns the name of the head if it has kept its fresh weights, since those of the file have
    another shape. With `whole`, that is refused.
    """
    tensors = weights_in(read_content(path), path)
    # The normalisation is a setting of the run, and not taken from the file.
    body = model
    if isinstance(model, Network):
        body = model.body
    wanted = state_tensors(body)
    sources = matched_by_name(tensors, wanted)
    refuse_deeper_network(path, tensors, sources)
    if whole:
        assign(body, tensors, sources, path)
        return ""
    head = head_of(body)
    in_head = [name for name in wanted if name.startswith(f"{head}.")]
    fits = all(
        name in sources and tensors[sources[name]].shape == wanted[name].shape for name in in_head
    )
    if fits:
        assign(body, tensors, sources, path)
        return ""
    sources = {name: sources[name] for name in sources if name not in in_head}
    assign(body, tensors, sources, path, optional=head)
    return head

"""A network with fewer passes over its numbers: BatchNorm, ReLU and additions done by the convolution before them."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import final

import torch
from torch import Tensor, fx, nn

ADDITIONS: tuple[object, ...] = ("add", "add_", operator.add, operator.iadd, torch.add)
RELUS: tuple[object, ...] = ("relu", "relu_", torch.relu, torch.relu_, nn.functional.relu, nn.functional.relu_)


@final
class FusedConvolution(nn.Module):
    """A convolution, plus another tensor if one is given, and ReLU if asked for: one pass over the output."""

    def __init__(self, convolution: nn.Conv2d, norm: nn.BatchNorm2d | None, *, relu: bool) -> None:
        super().__init__()
        weight, bias = folded(convolution, norm)
        self.weight = nn.Parameter(weight.contiguous(memory_format=torch.channels_last), requires_grad=False)
        self.bias = nn.Parameter(bias, requires_grad=False)
        self.relu = "relu" if relu else "none"
        self.how = (convolution.padding, convolution.stride, convolution.dilation, convolution.groups)

    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        # What torch.compile makes of such a chain too, without its minutes.
        run = torch.ops.mkldnn._convolution_pointwise
        if other is None:
            out: Tensor = run(x, self.weight, self.bias, *self.how, self.relu, [], "")
        else:
            out = run.binary(x, other, self.weight, self.bias, *self.how, "add", 1.0, self.relu, [], "")
        return out


def folded(convolution: nn.Conv2d, norm: nn.BatchNorm2d | None) -> tuple[Tensor, Tensor]:
    """Weight and bias of the convolution that does both in eval mode."""
    weight = convolution.weight.detach().double()
    bias = weight.new_zeros(len(weight)) if convolution.bias is None else convolution.bias.detach().double()
    if norm is not None:
        assert norm.running_mean is not None
        assert norm.running_var is not None
        scale = (norm.running_var.double() + norm.eps).rsqrt()
        if norm.affine:
            scale = scale * norm.weight.detach().double()
        weight, bias = weight * scale.view(-1, 1, 1, 1), (bias - norm.running_mean.double()) * scale
        if norm.affine:
            bias = bias + norm.bias.detach().double()
    return weight.float(), bias.float()


def fused(model: nn.Module) -> nn.Module | None:
    """The network in eval mode, with its convolutions fused; None if there is nothing to gain, or it cannot be traced.

    The caller compares both on real input: tracing cannot see everything that Python code may do.
    """
    try:
        traced = fx.symbolic_trace(model)
    except Exception:  # noqa: BLE001 - networks are anyone's code, and most ways not to be traceable have no name
        return None
    modules = dict(traced.named_modules())
    gained = False
    for node in list(traced.graph.nodes):
        convolution = modules.get(node.target) if node.op == "call_module" else None
        if isinstance(convolution, nn.Conv2d) and _is_plain(convolution) and len(node.args) == 1 and not node.kwargs:
            gained |= _fuse(traced, modules, node, convolution)
    if not gained:
        return None
    traced.graph.lint()
    traced.recompile()
    return traced


def _is_plain(module: nn.Conv2d) -> bool:
    return type(module) is nn.Conv2d and module.padding_mode == "zeros" and not isinstance(module.padding, str)


def _fuse(traced: fx.GraphModule, modules: dict[str, nn.Module], node: fx.Node, convolution: nn.Conv2d) -> bool:
    """Replace a convolution and what follows it by one module; whether that spares a pass."""
    last, norm, other = node, None, None
    after = _only_user(last)
    found = modules.get(str(after.target)) if after and after.op == "call_module" else None
    if after and type(found) is nn.BatchNorm2d and found.track_running_stats:
        last, norm = after, found
    added = _only_user(last)
    if added and _calls(added, ADDITIONS) and len(added.args) == 2 and not added.kwargs:
        first, second = added.args
        partner = second if first is last else first
        if isinstance(partner, fx.Node) and partner is not last:
            last, other = added, partner
    rectified = _only_user(last)
    relu = rectified is not None and _is_relu(rectified, modules)
    last = rectified if rectified and relu else last
    name = f"{node.name}_fused"  # not by the module, which may be used twice with different norms
    traced.add_module(name, FusedConvolution(convolution, norm, relu=relu))
    with traced.graph.inserting_before(last):
        new = traced.graph.call_module(name, (node.args[0],) if other is None else (node.args[0], other))
    chain = list(_chain(node, last))
    last.replace_all_uses_with(new)
    for old in reversed(chain):
        traced.graph.erase_node(old)
    return len(chain) > 1


def _chain(first: fx.Node, last: fx.Node) -> Iterator[fx.Node]:
    """The nodes from the first to the last, each the only user of the one before."""
    node = first
    while node is not last:
        yield node
        (node,) = node.users
    yield last


def _only_user(node: fx.Node) -> fx.Node | None:
    users = list(node.users)
    return users[0] if len(users) == 1 else None


def _calls(node: fx.Node, targets: tuple[object, ...]) -> bool:
    return node.op in ("call_function", "call_method") and node.target in targets


def _is_relu(node: fx.Node, modules: dict[str, nn.Module]) -> bool:
    if node.op == "call_module":
        return type(modules.get(str(node.target))) is nn.ReLU
    return _calls(node, RELUS) and len(node.args) == 1 and not set(node.kwargs) - {"inplace"}

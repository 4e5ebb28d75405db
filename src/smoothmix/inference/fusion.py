"""A network with fewer passes over its numbers: BatchNorm, ReLU and additions done by the convolution before them."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterator
from typing import Any, final

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

How = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]
"""Padding, stride, dilation and groups of a convolution."""

ADDITIONS: tuple[object, ...] = ("add", "add_", operator.add, operator.iadd, torch.add)
RELUS: tuple[object, ...] = (
    "relu",
    "relu_",
    torch.relu,
    torch.relu_,
    nn.functional.relu,
    nn.functional.relu_,
)
IN_PLACE: tuple[object, ...] = (
    operator.iadd,
    operator.isub,
    operator.imul,
    operator.itruediv,
    operator.setitem,
)

LANES = 16
"""Numbers of float32 in the vectors of AVX512; oneDNN works on whole vectors of channels."""


@final
class FusedConvolution(nn.Module):
    """A convolution, plus another tensor if one is given, and ReLU if asked for: one pass over the output.

    One vector of output channels leaves a processor waiting for its input. Then two neighbouring pixels are computed as
    the channels of one, by a kernel that is one pixel wider and moves by two: with channels last, that is the same
    output in the same place.
    """

    def __init__(self, convolution: nn.Conv2d, norm: nn.BatchNorm2d | None, *, relu: bool) -> None:
        super().__init__()
        weight, bias = folded(convolution, norm)
        self.weight, self.bias = _frozen(weight), nn.Parameter(bias, requires_grad=False)
        self.relu = relu
        assert not isinstance(convolution.padding, str)
        padding, stride = convolution.padding, convolution.stride
        self.how: How = (padding, stride, convolution.dilation, convolution.groups)
        self.in_pairs = _gains_by_pairs(convolution)
        if self.in_pairs:
            self.pair_weight = _frozen(torch.cat([F.pad(weight, (0, 1)), F.pad(weight, (1, 0))]))
            self.pair_bias = nn.Parameter(bias.repeat(2), requires_grad=False)
            self.pair_how: How = (padding, (stride[0], 2), convolution.dilation, convolution.groups)
        self.into_other = False
        """Whether the output may take the other tensor's place, which spares memory and its traffic."""

    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        if self.in_pairs and not (x.shape[3] + 2 * self.how[0][1] - self.weight.shape[3] + 1) % 2:
            pairs = self._run(
                x,
                None if other is None else _as_pairs(other),
                self.pair_weight,
                self.pair_bias,
                self.pair_how,
            )
            return _as_pixels(pairs)
        return self._run(x, other, self.weight, self.bias, self.how)

    def _run(
        self, x: Tensor, other: Tensor | None, weight: Tensor, bias: Tensor, how: How
    ) -> Tensor:
        # What torch.compile makes of such a chain too, without its minutes.
        run = torch.ops.mkldnn._convolution_pointwise
        if other is None:
            out: Tensor = run(x, weight, bias, *how, "relu" if self.relu else "none", [], "")
        elif self.into_other:
            into = torch.ops.mkldnn._convolution_pointwise_.binary
            out = into(
                other, x, weight, bias, *how, "add", 1.0, "relu" if self.relu else None, [], ""
            )
        else:
            out = run.binary(
                x, other, weight, bias, *how, "add", 1.0, "relu" if self.relu else None, [], ""
            )
        return out


def _frozen(weight: Tensor) -> nn.Parameter:
    return nn.Parameter(weight.contiguous(memory_format=torch.channels_last), requires_grad=False)


def _gains_by_pairs(convolution: nn.Conv2d) -> bool:
    """Whether its output channels fill one vector and pixels may be computed two by two."""
    return (
        convolution.out_channels == LANES
        and convolution.groups == convolution.stride[1] == convolution.dilation[1] == 1
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
    )


def _as_pairs(pixels: Tensor) -> Tensor:
    """[images, channels, rows, columns] as [images, 2 channels, rows, columns / 2]; a view if channels are last."""
    images, channels, rows, columns = pixels.shape
    return (
        pixels.permute(0, 2, 3, 1)
        .reshape(images, rows, columns // 2, 2 * channels)
        .permute(0, 3, 1, 2)
    )


def _as_pixels(pairs: Tensor) -> Tensor:
    """The other way round."""
    images, channels, rows, columns = pairs.shape
    return (
        pairs.permute(0, 2, 3, 1)
        .reshape(images, rows, 2 * columns, channels // 2)
        .permute(0, 3, 1, 2)
    )


def folded(convolution: nn.Conv2d, norm: nn.BatchNorm2d | None) -> tuple[Tensor, Tensor]:
    """Weight and bias of the convolution that does both in eval mode."""
    weight = convolution.weight.detach().double()
    bias = (
        weight.new_zeros(len(weight))
        if convolution.bias is None
        else convolution.bias.detach().double()
    )
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


_tracing = threading.Lock()
"""Tracing puts wrappers round the methods of all modules, and takes them off in the order it knows of."""


@final
class _TracerOfOneThread(fx.Tracer):
    """A tracer that leaves alone the networks which other threads run meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.thread = threading.get_ident()

    def call_module(
        self,
        m: nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        if threading.get_ident() != self.thread:
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        if threading.get_ident() != self.thread:
            return attr_val
        return super().getattr(attr, attr_val, parameter_proxy_cache)


def fused(model: nn.Module) -> nn.Module | None:
    """The network in eval mode, with its convolutions fused; None if there is nothing to gain, or it cannot be traced.

    The caller compares both on real input: tracing cannot see everything that Python code may do.
    """
    if any(module._forward_hooks or module._forward_pre_hooks for module in model.modules()):
        return None  # those of layers that become one, and of the whole, would be lost
    try:
        with _tracing:
            traced = fx.GraphModule(model, _TracerOfOneThread().trace(model))
    except Exception:  # noqa: BLE001 - networks are anyone's code, and most ways not to be traceable have no name
        return None
    modules = dict(traced.named_modules())
    _drop_empty(traced, modules)
    gained = False
    for node in list(traced.graph.nodes):
        convolution = modules.get(node.target) if node.op == "call_module" else None
        if (
            isinstance(convolution, nn.Conv2d)
            and _is_plain(convolution)
            and len(node.args) == 1
            and not node.kwargs
        ):
            gained |= _fuse(traced, modules, node, convolution)
    if not gained:
        return None
    _reuse_memory(traced)
    traced.graph.lint()
    traced.recompile()
    return traced


def _drop_empty(traced: fx.GraphModule, modules: dict[str, nn.Module]) -> None:
    """Take out modules that pass on what they get, such as the shortcut of a residual block."""
    for node in list(traced.graph.nodes):
        module = (
            modules.get(str(node.target))
            if node.op == "call_module" and len(node.all_input_nodes) == 1
            else None
        )
        if type(module) is nn.Identity or (type(module) is nn.Sequential and not len(module)):
            node.replace_all_uses_with(node.all_input_nodes[0])
            traced.graph.erase_node(node)


def _is_plain(module: nn.Conv2d) -> bool:
    return (
        type(module) is nn.Conv2d
        and module.padding_mode == "zeros"
        and not isinstance(module.padding, str)
    )


def _fuse(
    traced: fx.GraphModule, modules: dict[str, nn.Module], node: fx.Node, convolution: nn.Conv2d
) -> bool:
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
    chain = list(_chain(node, last))
    for between in _from_to(node, last):
        overwritten = _overwritten(between, modules)
        if overwritten is node.args[0] or (overwritten is not None and between not in chain):
            return False  # done later, the convolution would see another input: what is overwritten may be a view of it
    name = f"{node.name}_fused"  # not by the module, which may be used twice with different norms
    traced.add_module(name, FusedConvolution(convolution, norm, relu=relu))
    with traced.graph.inserting_before(last):
        new = traced.graph.call_module(
            name, (node.args[0],) if other is None else (node.args[0], other)
        )
    last.replace_all_uses_with(new)
    for old in reversed(chain):
        traced.graph.erase_node(old)
    return len(chain) > 1


def _reuse_memory(traced: fx.GraphModule) -> None:
    """Add into what only fused convolutions have seen, all of them before: nobody else can hold its memory."""
    modules = dict(traced.named_modules())
    place = {node: number for number, node in enumerate(traced.graph.nodes)}

    def is_fused(node: fx.Node) -> bool:
        return node.op == "call_module" and isinstance(modules[str(node.target)], FusedConvolution)

    for node in place:
        other = node.args[1] if is_fused(node) and len(node.args) == 2 else None
        if isinstance(other, fx.Node) and is_fused(other) and other is not node.args[0]:
            earlier = [user for user in other.users if user is not node]
            module = modules[str(node.target)]
            assert isinstance(module, FusedConvolution)
            module.into_other = all(
                is_fused(user) and place[user] < place[node] for user in earlier
            )


def _chain(first: fx.Node, last: fx.Node) -> Iterator[fx.Node]:
    """The nodes from the first to the last, each the only user of the one before."""
    node = first
    while node is not last:
        yield node
        (node,) = node.users
    yield last


def _from_to(first: fx.Node, last: fx.Node) -> Iterator[fx.Node]:
    """The nodes from the first to the one before the last, in the order in which they run."""
    node = first
    while node is not last:
        yield node
        node = node.next


def _overwritten(node: fx.Node, modules: dict[str, nn.Module]) -> object:
    """The tensor that a node writes into, or None if it makes a new one."""
    if (out := node.kwargs.get("out")) is not None:
        return out
    if node.op == "call_module":
        in_place = getattr(modules.get(str(node.target)), "inplace", False) is True
    else:
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        by_name = name.endswith("_") and not name.endswith("__")
        in_place = by_name or node.target in IN_PLACE or bool(node.kwargs.get("inplace"))
    return (node.args[0] if node.args else node.kwargs.get("input")) if in_place else None


def _only_user(node: fx.Node) -> fx.Node | None:
    users = list(node.users)
    return users[0] if len(users) == 1 else None


def _calls(node: fx.Node, targets: tuple[object, ...]) -> bool:
    return node.op in ("call_function", "call_method") and node.target in targets


def _is_relu(node: fx.Node, modules: dict[str, nn.Module]) -> bool:
    if node.op == "call_module":
        return type(modules.get(str(node.target))) is nn.ReLU
    return _calls(node, RELUS) and len(node.args) == 1 and not set(node.kwargs) - {"inplace"}

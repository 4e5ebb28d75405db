"""Networks with fewer passes over their activations.

BatchNorm, ReLU and additions that follow a convolution are computed in its own pass. This is an
optional optimisation of certification on CPUs: `prepare` alone uses it, and only where the fused
network gives the same logits. `engine="eager"` switches it off.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from smoothmix._process.forks import ForkSafeLock

ADDITIONS: tuple[object, ...] = ("add", "add_", operator.add, operator.iadd, torch.add)
RELUS: tuple[object, ...] = ("relu", "relu_", torch.relu, torch.relu_, F.relu, F.relu_)
IN_PLACE: tuple[object, ...] = (
    operator.iadd,
    operator.isub,
    operator.imul,
    operator.itruediv,
    operator.setitem,
)
"""Functions that write into their first argument, though their names do not end in `_`."""

LANES = 16
"""Numbers of float32 in a vector of AVX512: oneDNN works on whole vectors of channels."""

Modules = Mapping[str, nn.Module]


def fused(model: nn.Module) -> nn.Module | None:
    """The network in eval mode with its convolutions fused; None if nothing can be fused.

    The caller compares both on real input: tracing does not see everything that Python code does.
    """
    if any(module._forward_hooks or module._forward_pre_hooks for module in model.modules()):
        # Hooks of layers that become one, and of the whole network, would be lost.
        return None
    try:
        with _tracing:
            traced = fx.GraphModule(model, _TracerOfOneThread().trace(model))
    except Exception:  # noqa: BLE001 - networks are anyone's code, and tracing fails in many ways
        return None
    modules = dict(traced.named_modules())
    _drop_identities(traced, modules)

    saves_passes = False
    for node in list(traced.graph.nodes):
        convolution = _plain_convolution(node, modules)
        if convolution is None:
            continue
        chain = _find_chain(node, modules)
        if _can_run_later(chain, modules):
            _replace(traced, chain, convolution)
            saves_passes |= len(chain.nodes) > 1
    if not saves_passes:
        return None

    _reuse_memory(traced)
    traced.graph.lint()
    traced.recompile()
    return traced


def in_bf16(twin: nn.Module) -> None:
    """Let the fused convolutions of a network compute in bf16, as autocast lets its other layers.

    They were folded in double precision: weights and biases are rounded once, here.
    """
    for module in twin.modules():
        if isinstance(module, FusedConvolution):
            module.to(torch.bfloat16)


# What runs in place of a chain of layers


class Geometry(NamedTuple):
    """How a convolution moves over its input."""

    padding: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


@final
class FusedConvolution(nn.Module):
    """A convolution, plus another tensor if one is given, and ReLU on request, in one pass.

    With 16 output channels, which fill only one vector, a CPU waits for its input. Then two
    neighbouring pixels are computed as the channels of one, by a kernel that is one pixel wider
    and moves by two: with channels last, that is the same output in the same place.
    """

    def __init__(self, convolution: nn.Conv2d, norm: nn.BatchNorm2d | None, *, relu: bool) -> None:
        super().__init__()
        weight, bias = folded(convolution, norm)
        self.weight = _frozen(weight)
        self.bias = nn.Parameter(bias, requires_grad=False)
        self.relu = relu
        assert not isinstance(convolution.padding, str)
        self.geometry = Geometry(
            convolution.padding, convolution.stride, convolution.dilation, convolution.groups
        )
        self.in_pairs = _gains_by_pairs(convolution)
        if self.in_pairs:
            # The wider kernel twice: for the left pixel of a pair, and for the right one.
            left_and_right = [F.pad(weight, (0, 1)), F.pad(weight, (1, 0))]
            self.pair_weight = _frozen(torch.cat(left_and_right))
            self.pair_bias = nn.Parameter(bias.repeat(2), requires_grad=False)
            self.pair_geometry = self.geometry._replace(stride=(convolution.stride[0], 2))
        self.into_other = False
        """Whether the output may overwrite the other tensor, which saves memory traffic."""

    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        x = x.to(self.weight.dtype)
        if other is not None:
            other = other.to(self.weight.dtype)
        if not self.in_pairs or self._columns(x) % 2:
            return self._run(x, other, self.weight, self.bias, self.geometry)
        if other is not None:
            other = _as_pairs(other)
        pairs = self._run(x, other, self.pair_weight, self.pair_bias, self.pair_geometry)
        return _as_pixels(pairs)

    def _columns(self, x: Tensor) -> int:
        """Columns of the output, for a stride and a dilation of 1 along a row."""
        return x.shape[3] + 2 * self.geometry.padding[1] - self.weight.shape[3] + 1

    def _run(
        self, x: Tensor, other: Tensor | None, weight: Tensor, bias: Tensor, geometry: Geometry
    ) -> Tensor:
        # The operators that torch.compile would choose for such a chain, without its minutes.
        if other is None:
            run = torch.ops.mkldnn._convolution_pointwise
            out: Tensor = run(x, weight, bias, *geometry, "relu" if self.relu else "none", [], "")
            return out
        sum_and_relu: tuple[Any, ...] = ("add", 1.0, "relu" if self.relu else None, [], "")
        if self.into_other:
            run_into = torch.ops.mkldnn._convolution_pointwise_.binary
            out = run_into(other, x, weight, bias, *geometry, *sum_and_relu)
        else:
            run_binary = torch.ops.mkldnn._convolution_pointwise.binary
            out = run_binary(x, other, weight, bias, *geometry, *sum_and_relu)
        return out


def folded(convolution: nn.Conv2d, norm: nn.BatchNorm2d | None) -> tuple[Tensor, Tensor]:
    """Weight and bias of the one convolution that computes both layers in eval mode."""
    # In double precision, so that folding rounds once, at the end.
    weight = convolution.weight.detach().double()
    if convolution.bias is None:
        bias = weight.new_zeros(len(weight))
    else:
        bias = convolution.bias.detach().double()
    if norm is not None:
        assert norm.running_mean is not None
        assert norm.running_var is not None
        scale = (norm.running_var.double() + norm.eps).rsqrt()
        if norm.affine:
            scale = scale * norm.weight.detach().double()
        weight = weight * scale.view(-1, 1, 1, 1)
        bias = (bias - norm.running_mean.double()) * scale
        if norm.affine:
            bias = bias + norm.bias.detach().double()
    return weight.float(), bias.float()


def _frozen(weight: Tensor) -> nn.Parameter:
    return nn.Parameter(weight.contiguous(memory_format=torch.channels_last), requires_grad=False)


def _gains_by_pairs(convolution: nn.Conv2d) -> bool:
    """Whether its output channels fill one vector, and two pixels may be computed as one."""
    if convolution.out_channels != LANES:
        return False
    if not convolution.groups == convolution.stride[1] == convolution.dilation[1] == 1:
        return False
    return torch.backends.cpu.get_cpu_capability() == "AVX512"


def _as_pairs(pixels: Tensor) -> Tensor:
    """[images, channels, rows, columns] as [images, 2 channels, rows, columns / 2].

    This and its inverse are views if channels are last.
    """
    images, channels, rows, columns = pixels.shape
    channels_last = pixels.permute(0, 2, 3, 1)
    pairs = channels_last.reshape(images, rows, columns // 2, 2 * channels)
    return pairs.permute(0, 3, 1, 2)


def _as_pixels(pairs: Tensor) -> Tensor:
    """The inverse of `_as_pairs`."""
    images, channels, rows, columns = pairs.shape
    channels_last = pairs.permute(0, 2, 3, 1)
    pixels = channels_last.reshape(images, rows, 2 * columns, channels // 2)
    return pixels.permute(0, 3, 1, 2)


# Tracing

_tracing = ForkSafeLock()
"""Tracing wraps the methods of all modules, and assumes that nobody else does so meanwhile."""


@final
class _TracerOfOneThread(fx.Tracer):
    """A tracer that does not record the networks which other threads run meanwhile."""

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


# The graph


@final
@dataclass
class _Chain:
    """A convolution, and the layers after it that can be computed in the same pass."""

    nodes: list[fx.Node]
    """From the convolution on, each the only user of the one before."""
    norm: nn.BatchNorm2d | None = None
    other: fx.Node | None = None
    """What is added to the convolution's output."""
    relu: bool = False

    @property
    def input(self) -> Any:
        return self.nodes[0].args[0]

    @property
    def last(self) -> fx.Node:
        return self.nodes[-1]


def _find_chain(node: fx.Node, modules: Modules) -> _Chain:
    """The convolution with, as far as they follow it, BatchNorm, an addition and ReLU."""
    chain = _Chain([node])
    user = _only_user(chain.last)
    norm = _called_module(user, modules)
    if user is not None and type(norm) is nn.BatchNorm2d and norm.track_running_stats:
        chain.nodes.append(user)
        chain.norm = norm

    user = _only_user(chain.last)
    partner = _added_to(chain.last, user)
    if user is not None and partner is not None:
        chain.nodes.append(user)
        chain.other = partner

    user = _only_user(chain.last)
    if user is not None and _is_relu(user, modules):
        chain.nodes.append(user)
        chain.relu = True
    return chain


def _can_run_later(chain: _Chain, modules: Modules) -> bool:
    """Whether the convolution has the same input if it runs in place of the chain's last layer."""
    node = chain.nodes[0]
    while node is not chain.last:
        overwritten = _overwritten(node, modules)
        if overwritten is chain.input:
            return False
        # What another node overwrites may be a view of the input.
        if overwritten is not None and node not in chain.nodes:
            return False
        node = node.next
    return True


def _replace(traced: fx.GraphModule, chain: _Chain, convolution: nn.Conv2d) -> None:
    """Put one fused convolution into the graph in place of the chain."""
    # Named by the node: the module may be used twice, with different norms.
    name = f"{chain.nodes[0].name}_fused"
    traced.add_module(name, FusedConvolution(convolution, chain.norm, relu=chain.relu))
    inputs = [chain.input]
    if chain.other is not None:
        inputs.append(chain.other)
    with traced.graph.inserting_before(chain.last):
        replacement = traced.graph.call_module(name, tuple(inputs))
    chain.last.replace_all_uses_with(replacement)
    # From the end: a node can be erased only when it has no user.
    for node in reversed(chain.nodes):
        traced.graph.erase_node(node)


def _reuse_memory(traced: fx.GraphModule) -> None:
    """Let additions overwrite what they add, where nothing else can hold its memory.

    That is the output of a fused convolution, of which all other users are fused convolutions
    that ran before.
    """
    modules = dict(traced.named_modules())
    order = {node: number for number, node in enumerate(traced.graph.nodes)}
    for node in order:
        module = _fused_module(node, modules)
        if module is None or len(node.args) != 2:
            continue
        x, other = node.args
        if not isinstance(other, fx.Node) or other is x or _fused_module(other, modules) is None:
            continue
        module.into_other = all(
            _fused_module(user, modules) is not None and order[user] < order[node]
            for user in other.users
            if user is not node
        )


def _fused_module(node: fx.Node, modules: Modules) -> FusedConvolution | None:
    module = _called_module(node, modules)
    if isinstance(module, FusedConvolution):
        return module
    return None


def _drop_identities(traced: fx.GraphModule, modules: Modules) -> None:
    """Remove modules that return their input, such as the shortcut of a residual block."""
    for node in list(traced.graph.nodes):
        module = _called_module(node, modules)
        is_empty = type(module) is nn.Sequential and not len(module)
        if len(node.all_input_nodes) == 1 and (type(module) is nn.Identity or is_empty):
            node.replace_all_uses_with(node.all_input_nodes[0])
            traced.graph.erase_node(node)


def _plain_convolution(node: fx.Node, modules: Modules) -> nn.Conv2d | None:
    """The convolution that a node calls with one input, if it is one without special padding."""
    module = _called_module(node, modules)
    if type(module) is not nn.Conv2d or len(node.args) != 1 or node.kwargs:
        return None
    if module.padding_mode != "zeros" or isinstance(module.padding, str):
        return None
    return module


def _overwritten(node: fx.Node, modules: Modules) -> object:
    """The tensor that a node writes into; None if it makes a new one."""
    out = node.kwargs.get("out")
    if out is not None:
        return out
    if not _is_in_place(node, modules):
        return None
    if node.args:
        return node.args[0]
    return node.kwargs.get("input")


def _is_in_place(node: fx.Node, modules: Modules) -> bool:
    if node.op == "call_module":
        return getattr(modules.get(str(node.target)), "inplace", False) is True
    if node.target in IN_PLACE or node.kwargs.get("inplace"):
        return True
    name = node.target
    if not isinstance(name, str):
        name = getattr(name, "__name__", "")
    # By torch's convention, a trailing underscore; Python's own methods have two.
    return name.endswith("_") and not name.endswith("__")


def _only_user(node: fx.Node) -> fx.Node | None:
    users = list(node.users)
    if len(users) == 1:
        return users[0]
    return None


def _called_module(node: fx.Node | None, modules: Modules) -> nn.Module | None:
    if node is None or node.op != "call_module":
        return None
    return modules.get(str(node.target))


def _added_to(node: fx.Node, user: fx.Node | None) -> fx.Node | None:
    """What the user adds to the node's output; None if it does something else."""
    if user is None or not _calls(user, ADDITIONS) or len(user.args) != 2 or user.kwargs:
        return None
    first, second = user.args
    partner = second if first is node else first
    if not isinstance(partner, fx.Node) or partner is node:
        return None
    return partner


def _is_relu(node: fx.Node, modules: Modules) -> bool:
    if node.op == "call_module":
        return type(modules.get(str(node.target))) is nn.ReLU
    return _calls(node, RELUS) and len(node.args) == 1 and not set(node.kwargs) - {"inplace"}


def _calls(node: fx.Node, targets: tuple[object, ...]) -> bool:
    return node.op in ("call_function", "call_method") and node.target in targets

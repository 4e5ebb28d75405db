"""A fused network reuses memory and computes pixels in pairs, and gives the same output."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothmix import networks
from smoothmix.inference import fusion, keep_freed_memory
from smoothmix.inference.fusion import FusedConvolution, fused


class Block(nn.Module):
    """A residual block; what else is done with its input is given from outside."""

    def __init__(
        self, after: Callable[[Tensor, Tensor], Tensor], before: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.first, self.second = (nn.Conv2d(4, 4, 3, padding=1) for _ in range(2))
        self.after, self.before = after, before

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        return self.after(torch.relu(self.second(self.first(self.before(x))) + x), x)


BLOCKS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor], Tensor], bool]] = {
    "nothing": (lambda out, _: out, lambda x: x, True),
    "used afterwards": (lambda out, x: out + x, lambda x: x, False),
    "a view is convolved": (lambda out, _: out, lambda x: x[:, :, :, :], False),
    "a view is used afterwards": (
        lambda out, x: out * x.flatten(2).mean(2)[:, :, None, None],
        lambda x: x,
        False,
    ),
}


def additions(network: nn.Module) -> list[FusedConvolution]:
    """The convolutions of a fused network that may write into what they add."""
    return [
        module
        for module in network.modules()
        if isinstance(module, FusedConvolution) and module.into_other
    ]


@pytest.mark.parametrize("name", BLOCKS)
def test_only_what_nobody_else_can_see_is_written_over(name: str) -> None:
    torch.manual_seed(0)
    after, before, reused = BLOCKS[name]
    model = Block(after, before).eval()
    twin = fused(model)
    assert twin is not None
    assert bool(additions(twin)) == reused
    x = torch.rand(3, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        torch.testing.assert_close(twin(x), model(x))


def test_every_block_of_a_residual_network_adds_in_place() -> None:
    twin = fused(networks.build("cifar_resnet20").eval())
    assert twin is not None
    assert len(additions(twin)) == 9


@pytest.mark.parametrize("columns", [7, 8])
@pytest.mark.parametrize("padding", [0, 1, (1, 0), 2])
@pytest.mark.parametrize("kernel", [1, 3, (3, 2), 4])
@pytest.mark.parametrize("stride", [1, (2, 1)])
@pytest.mark.parametrize("added", [False, True])
def test_pixels_may_be_computed_in_pairs(
    columns: int,
    padding: int | tuple[int, int],
    kernel: int | tuple[int, int],
    stride: int | tuple[int, int],
    *,
    added: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    convolution = nn.Conv2d(3, fusion.LANES, kernel, stride=stride, padding=padding)
    module = FusedConvolution(convolution, None, relu=True)
    assert module.in_pairs
    x = torch.rand(2, 3, 9, columns).contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        expected = convolution(x)
        other = torch.rand_like(expected) if added else None
        expected = F.relu(expected if other is None else expected + other)
        torch.testing.assert_close(module(x, other), expected)
        module.into_other = True
        torch.testing.assert_close(module(x, other), expected)


@pytest.mark.parametrize("options", [{"stride": 2}, {"groups": 2}, {"dilation": 2}])
def test_other_convolutions_are_not_computed_in_pairs(options: dict[str, int]) -> None:
    convolution = nn.Conv2d(4, fusion.LANES, 3, **options)  # type: ignore[arg-type]
    assert not FusedConvolution(convolution, None, relu=False).in_pairs


FAULTS = """
import resource, sys
import torch
from smoothmix import networks
from smoothmix.inference import keep_freed_memory, prepare_network

if sys.argv[1] == "kept":
    keep_freed_memory()
torch.set_num_threads(1)
images = torch.rand(64, 3, 32, 32)
ready = prepare_network(networks.build("cifar_resnet20"), (3, 32, 32), batch=64)
for number in range(14):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    ready(images)
    if number >= 3:
        print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def pages_cleared_per_forward(allocator: str) -> float:
    """Page faults of a forward in a process of its own: the median of several."""
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, allocator], check=True, capture_output=True, text=True
    )
    # The median: the heap may grow once more at any time, by as much as a tensor, and stay so.
    return float(np.median([int(faults) for faults in done.stdout.split()]))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's malloc")
def test_memory_is_kept_from_one_forward_to_the_next_on_request_only() -> None:
    """The first activations alone have 1,024 pages, which the system would clear each time."""
    assert pages_cleared_per_forward("kept") < 64
    assert pages_cleared_per_forward("plain") > 1024


def test_whoever_has_set_malloc_by_the_environment_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    assert not keep_freed_memory.__wrapped__()

"""What runs a network on noise computes what the network computes, whatever it does to be fast."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothmix import networks
from smoothmix.certify.smoothed import Smoothed
from smoothmix.config import FUSED, EngineName
from smoothmix.inference.fusion import FusedConvolution, folded, fused
from smoothmix.inference.prepare import engine_name, microbatch_size, prepare_network
from smoothmix.noise import streams as randomness
from smoothmix.noise.streams import Domain

TIE = 1e-4
"""Two logits closer than this, relative to the largest, may change places by rounding."""


def with_statistics(model: nn.Module, seed: int = 0) -> nn.Module:
    """The network with BatchNorm layers that do something, as after training."""
    torch.manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_(0, 0.2)
            module.running_var.uniform_(0.5, 2)
            if module.affine:
                nn.init.uniform_(module.weight, 0.5, 1.5)
                nn.init.normal_(module.bias, 0, 0.2)
    return model.eval()


class Residual(nn.Module):
    """A block as others write it, with the addition and ReLU given from outside."""

    def __init__(
        self, add: Callable[[Tensor, Tensor], Tensor], relu: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.conv, self.norm = (
            nn.Conv2d(8, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8, affine=False),
        )
        self.head = nn.Linear(8, 5)
        self.add, self.relu = add, relu

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.stem(x))
        x = self.relu(self.add(self.norm(self.conv(x)), x))
        return self.head(x.mean((2, 3)))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "cifar_resnet20": lambda: networks.build("cifar_resnet20", num_classes=5),
    "operators": lambda: Residual(lambda a, b: a + b, torch.relu),
    "other order": lambda: Residual(lambda a, b: b + a, F.relu),
    "in place": lambda: Residual(lambda a, b: a.add_(b), lambda a: a.relu_()),
    "functions": lambda: Residual(torch.add, nn.ReLU(inplace=True)),
    "no ReLU after": lambda: Residual(lambda a, b: a + b, nn.Identity()),
    "no addition": lambda: Residual(lambda a, _: a, nn.ReLU()),
    "twice itself": lambda: Residual(lambda a, _: a + a, nn.ReLU()),
    "a number": lambda: Residual(lambda a, _: a + 1.0, nn.ReLU()),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_fused_network_gives_the_same_logits(name: str) -> None:
    torch.manual_seed(1)
    model = with_statistics(NETWORKS[name]())
    twin = fused(model)
    assert twin is not None
    assert any(isinstance(module, FusedConvolution) for module in twin.modules())
    images = torch.rand(3, 3, 32, 32)
    with torch.inference_mode():
        torch.testing.assert_close(twin(images), model(images), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["cifar_resnet20", "in place"])
def test_votes_are_the_eager_votes_but_for_ties(name: str) -> None:
    """Draw by draw: where the fused network votes otherwise, the eager one was on the edge."""
    torch.manual_seed(2)
    model, image = with_statistics(NETWORKS[name]()), torch.rand(3, 32, 32)
    ready = prepare_network(model, image.shape, batch=256)
    assert ready.engine == FUSED
    noise = randomness.standard_normal(
        randomness.DrawRange(0, Domain.ESTIMATION, 0, 0, 512), (3, 32, 32)
    )
    noisy = torch.from_numpy(noise).mul_(0.5).add_(image)
    found = ready(noisy)
    with torch.inference_mode():
        expected = model(noisy)
    first, second = expected.topk(2).values.unbind(1)
    sure = (first - second) > TIE * expected.abs().max()
    assert sure.float().mean() > 0.9
    assert torch.equal(found.argmax(1)[sure], expected.argmax(1)[sure])


def test_a_sampler_counts_nearly_the_same_votes_with_either_engine() -> None:
    torch.manual_seed(3)
    model, image = with_statistics(NETWORKS["in place"]()), torch.rand(3, 32, 32)
    votes = []
    engines: tuple[EngineName, ...] = ("auto", "eager")
    for engine in engines:
        smoothed = Smoothed(model, sigma=0.5, num_classes=5, noise="gaussian", engine=engine)
        with smoothed.open(image.shape, seed=0) as sampler:
            votes.append(sampler.votes(image, 0, Domain.ESTIMATION, stop=1000))
    assert np.abs(votes[0] - votes[1]).sum() <= 4


def test_the_network_is_left_as_it_was() -> None:
    model = NETWORKS["in place"]().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    ready = prepare_network(model, (3, 32, 32), batch=8)
    ready(torch.rand(4, 3, 32, 32))
    assert all(module.training for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


class Branches(nn.Module):
    """Cannot be traced: what it does depends on what it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 5, 3), nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x).relu()
        return self.head(x.amax((2, 3)) if x.mean() > 0 else x.mean((2, 3)))


class Overwrites(nn.Module):
    """Changes a convolution's input before the addition that the convolution would move to."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 3, 3, padding=1), nn.Linear(3, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        self.overwrite(x)
        return self.head((y + x).relu().mean((2, 3)))

    def overwrite(self, x: Tensor) -> None:
        x.mul_(10)


class Clamps(Overwrites):
    """Changes nothing but where an image has noise."""

    def overwrite(self, x: Tensor) -> None:
        F.hardtanh(x, 0, 1, inplace=True)


class OverwritesAView(Overwrites):
    """By another name, which only a probe shows."""

    def overwrite(self, x: Tensor) -> None:
        x[:, 0].clamp_(0, 1)


@pytest.mark.parametrize("network", [Branches, Overwrites, Clamps, OverwritesAView])
def test_a_network_that_cannot_be_fused_runs_as_it_is_written(network: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model, images = network().eval(), torch.rand(4, 3, 8, 8) + torch.randn(4, 3, 8, 8)
    with torch.inference_mode():
        expected = model(images.clone())
    ready = prepare_network(model, (3, 8, 8), batch=4)
    assert ready.engine == "torch-cpu"
    torch.testing.assert_close(ready(images.clone()), expected)


@pytest.mark.parametrize("network", [Overwrites, Clamps])
def test_an_input_that_is_overwritten_is_seen_in_the_graph(network: type[nn.Module]) -> None:
    assert fused(network().eval()) is None


def test_one_convolution_with_two_norms_keeps_both() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv2d(3, 3, 3, padding=1), nn.Linear(3, 5)
            self.first, self.second = nn.BatchNorm2d(3), nn.BatchNorm2d(3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(
                self.second(self.conv(self.first(self.conv(x)).relu())).relu().mean((2, 3))
            )

    torch.manual_seed(0)
    model, images = with_statistics(Shared()), torch.rand(4, 3, 8, 8)
    twin = fused(model)
    assert twin is not None
    with torch.inference_mode():
        torch.testing.assert_close(twin(images), model(images), rtol=1e-4, atol=1e-5)


def test_folding_is_exact_to_rounding() -> None:
    """Against the definition, in double precision."""
    torch.manual_seed(0)
    convolution, norm = nn.Conv2d(2, 3, 3), with_statistics(nn.BatchNorm2d(3))
    assert isinstance(norm, nn.BatchNorm2d)
    weight, bias = folded(convolution, norm)
    x = torch.rand(2, 2, 6, 6, dtype=torch.float64)
    expected = norm.double()(convolution.double()(x))
    torch.testing.assert_close(
        F.conv2d(x, weight.double(), bias.double()), expected, rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize(
    ("name", "options", "engine"),
    [
        ("lenet", {"precision": "fp32"}, "torch-cpu"),
        ("cifar_resnet20", {"precision": "fp32"}, FUSED),
        ("cifar_resnet20", {"precision": "bf16"}, FUSED),
        ("cifar_resnet20", {"precision": "bf16", "engine": "eager"}, "torch-cpu"),
        ("cifar_resnet20", {"precision": "fp32", "engine": "eager"}, "torch-cpu"),
    ],
)
def test_the_engine_has_a_name(name: str, options: dict[str, str], engine: str) -> None:
    shape = (1, 28, 28) if name == "lenet" else (3, 32, 32)
    assert engine_name(networks.build(name), shape, **options) == engine  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 224, 224), (3, 2000, 2000), (7,)])
@pytest.mark.parametrize("batch", [1, 5, 256])
def test_microbatches_are_within_the_batch(shape: tuple[int, ...], batch: int) -> None:
    assert 1 <= microbatch_size(shape, batch) <= batch


def test_microbatches_do_not_change_what_is_computed() -> None:
    torch.manual_seed(0)
    model, images = with_statistics(NETWORKS["in place"]()), torch.rand(40, 3, 128, 128)
    ready = prepare_network(model, (3, 128, 128), batch=40)
    assert ready.microbatch == 16
    torch.testing.assert_close(ready(images), ready.network(images).detach(), rtol=1e-4, atol=1e-5)

"""A network runs faster only where its logits stay the same; what no probe can show is refused."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import smoothmix as sm
from smoothmix.errors import UsageError
from smoothmix.inference.fusion import fused
from smoothmix.inference.prepare import engine_name, prepare_network
from smoothmix.noise import streams as randomness
from smoothmix.noise.streams import Domain
from tests.conftest import Run

SHAPE = (3, 16, 16)


class Patches(nn.Module):
    """Cuts its input by strides, as if it were contiguous."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3 * 16 * 16, 5)

    def forward(self, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        cut = x.as_strided((n, c, h // 4, w // 4, 4, 4), (c * h * w, h * w, 4 * w, 4, w, 1))
        return self.head(cut.flatten(1))


class PatchesAfterConvolution(Patches):
    """The same behind what can be fused."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.norm(self.conv(x)).relu())


@pytest.mark.parametrize("network", [Patches, PatchesAfterConvolution])
def test_a_network_that_looks_at_strides_gets_the_memory_it_expects(
    network: type[nn.Module],
) -> None:
    torch.manual_seed(0)
    model, image = network().eval(), torch.rand(1, *SHAPE)
    votes = sm.Smoothed(model, sigma=0.5, num_classes=5, noise="gaussian").votes(
        image, n=500, seed=0
    )
    noise = torch.from_numpy(
        randomness.standard_normal(randomness.DrawRange(0, Domain.PREDICTION, 0, 0, 500), SHAPE)
    )
    with torch.inference_mode():
        own = model(image + 0.5 * noise).argmax(1)
    assert votes[0].tolist() == torch.bincount(own, minlength=5).tolist()


def convolutions() -> nn.Sequential:
    torch.manual_seed(0)
    layers = (
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Identity(),
        nn.Flatten(),
    )
    return nn.Sequential(*layers, nn.Linear(8 * 16 * 16, 5)).eval()


@pytest.mark.parametrize("where", ["0", "1", "2", "3", ""])
@pytest.mark.parametrize("before", [True, False], ids=["pre-hook", "hook"])
def test_hooks_are_heard_and_do_their_work(where: str, before: bool) -> None:
    """What they do on larger input only, the probe could not see."""
    model, heard = convolutions(), []

    def clamp_input(module: nn.Module, given: tuple[Tensor]) -> Tensor:
        heard.append(module)
        return given[0].clamp(-4, 4)

    def clamp_output(module: nn.Module, given: tuple[Tensor], found: Tensor) -> Tensor:
        heard.append(module)
        return found.clamp(-4, 4)

    module = model.get_submodule(where)
    _ = (
        module.register_forward_pre_hook(clamp_input)
        if before
        else module.register_forward_hook(clamp_output)
    )
    ready, images = prepare_network(model, SHAPE, batch=4), 9 * torch.randn(4, *SHAPE)
    heard.clear()
    found = ready(images)
    assert len(heard) == 1
    with torch.inference_mode():
        torch.testing.assert_close(found, model(images))


class CapsAView(nn.Module):
    """Overwrites large values of a convolution's input through a view, before the next addition."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 3, 3, padding=1), nn.Linear(3, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        x[:, :2].clamp_(max=6)
        return self.head((y + x).relu().mean((2, 3)))


class RectifiesAView(CapsAView):
    """The same by a function."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        F.threshold(x[:, :2], -6.0, -6.0, inplace=True)
        return self.head((y + x).relu().mean((2, 3)))


@pytest.mark.parametrize("network", [CapsAView, RectifiesAView])
def test_a_view_that_is_overwritten_is_seen_in_the_graph(network: type[nn.Module]) -> None:
    assert fused(network().eval()) is None


class Mode(nn.Module):
    """Keeps its own idea of its mode, as torch allows."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.turned = nn.Linear(12, 2), True

    def train(self, mode: bool = True) -> Mode:
        self.turned = mode
        return super().train(mode)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(x.flatten(1))
        return logits.flip(1) if self.turned else logits


def test_a_network_with_a_mode_of_its_own_must_be_put_into_eval_mode_by_its_owner() -> None:
    model = Mode()
    with pytest.raises(
        UsageError, match=r"Mode is in training mode .* call the network's eval\(\) first"
    ):
        sm.Smoothed(nn.Sequential(model), sigma=0.5, num_classes=2, noise="gaussian")
    smoothed = sm.Smoothed(model.eval(), sigma=0.01, num_classes=2, noise="gaussian")
    image = torch.rand(1, 3, 2, 2)
    assert smoothed.predict(image, n=100).tolist() == model(image).argmax(1).tolist()


def test_the_command_puts_a_network_into_eval_mode_itself(smoothmix: Run) -> None:
    options = ("--shape", "3,2,2", "--num-classes", 2, "--turns", 1)
    assert smoothmix("bench", "--model", "tests.inference.test_outcome:Mode", *options).code == 0


class Dropout(nn.Module):
    """Drops also when it should not."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(12, 2)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(F.dropout(x.flatten(1), 0.5, training=True))
        return logits


def test_a_network_that_draws_random_numbers_gets_a_warning() -> None:
    image = torch.rand(1, 3, 2, 2)
    with pytest.warns(UserWarning, match="gives other logits each time for the same images"):
        sm.Smoothed(Dropout(), sigma=0.5, num_classes=2, noise="gaussian").votes(image, n=10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sm.Smoothed(
            nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(12, 2)),
            sigma=0.5,
            num_classes=2,
            noise="gaussian",
        ).votes(image, n=10)


class MixesTheBatch(nn.Module):
    """Gives each image the answer for the mean of all."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(12, 2)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(x.mean(0, keepdim=True).expand_as(x).flatten(1))
        return logits


class NormalisesTheBatch(nn.Module):
    """BatchNorm by a function, without statistics of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(12, 2)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(F.batch_norm(x, None, None, training=True).flatten(1))
        return logits


class LeansOnItsBatch(nn.Module):
    """Adds a hundredth of what the others get."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(12, 2)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(x.flatten(1))
        return logits + 0.01 * logits.mean(0)


@pytest.mark.parametrize("network", [MixesTheBatch, NormalisesTheBatch, LeansOnItsBatch])
def test_a_network_whose_answer_depends_on_its_batch_is_refused(network: type[nn.Module]) -> None:
    # Weights by chance may make a hundredth of the batch too little to notice.
    torch.manual_seed(0)
    smoothed = sm.Smoothed(network(), sigma=0.5, num_classes=2, noise="gaussian")
    with pytest.raises(UsageError, match="depends on the others in its batch"):
        smoothed.certify(torch.rand(1, 3, 2, 2), n=1000)


@pytest.mark.parametrize("what", [lambda x: x, "network"], ids=["a function", "a name"])
def test_what_is_no_network_is_refused(what: object) -> None:
    with pytest.raises(UsageError, match=r"a network is a torch\.nn\.Module, not (function|str)"):
        sm.Smoothed(what, sigma=0.5, num_classes=2, noise="gaussian")  # type: ignore[arg-type]


class Squeezes(nn.Module):
    """Drops the batch of a single image, as `squeeze()` after a pooling does."""

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean((1, 2, 3))
        return torch.stack([mean, -mean, 0 * mean], 1).squeeze()


def test_a_network_that_squeezes_single_images_is_run_unless_it_meets_one() -> None:
    smoothed = sm.Smoothed(Squeezes(), sigma=0.5, num_classes=3, noise="gaussian")
    image = torch.rand(1, 1, 4, 4)
    assert int(smoothed.votes(image, n=256, seed=0).sum()) == 256
    with smoothed.open((1, 4, 4), seed=0) as sampler:
        sampler.check_network((1, 4, 4))
        assert sampler.engine == "torch-cpu"
    with pytest.raises(
        UsageError, match=r"shape \[3\] for 1 image, .* a squeeze\(\) in it drops the batch"
    ):
        smoothed.votes(image, n=257, seed=0)
    assert engine_name(Squeezes(), (1, 4, 4), precision="fp32") == "torch-cpu"

"""The networks: sizes derived by hand, initial weights, and the functions that they compute."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from smoothmix.data import DATASETS
from smoothmix.networks import NETWORKS, Network, Normalise, build
from smoothmix.networks.lenet import MaxPool

SMALL = ["lenet", "cifar_resnet20"]


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def convolution(inputs: int, outputs: int, kernel: int) -> int:
    """Weights of a convolution without bias, and scale and shift of the BatchNorm after it."""
    return inputs * outputs * kernel**2 + 2 * outputs


def cifar_resnet_size(depth: int) -> int:
    more = (depth - 2) // 6 - 1  # blocks of a stage after its first
    widths = 16, 32, 64
    total = convolution(3, 16, 3)
    for inputs, width in zip((16, 16, 32), widths, strict=True):
        total += convolution(inputs, width, 3) + (1 + 2 * more) * convolution(width, width, 3)
        total += convolution(inputs, width, 1) if inputs != width else 0
    return total + 64 * 10 + 10


def resnet18_size() -> int:
    total = 7 * 7 * 3 * 64 + 2 * 64
    inputs = 64
    for width in (64, 128, 256, 512):
        convolutions = 9 * inputs * width + 3 * 9 * width * width
        total += convolutions + 4 * 2 * width
        if inputs != width:
            total += inputs * width + 2 * width
        inputs = width
    return total + 513 * 1000


def resnet50_size() -> int:
    total = convolution(3, 64, 7)
    for inputs, width, count in (64, 64, 3), (256, 128, 4), (512, 256, 6), (1024, 512, 3):
        wide = 4 * width
        total += convolution(inputs, width, 1) + convolution(inputs, wide, 1)
        total += (count - 1) * convolution(wide, width, 1)
        total += count * (convolution(width, width, 3) + convolution(width, wide, 1))
    return total + 2048 * 1000 + 1000


@pytest.fixture(scope="module")
def fresh() -> dict[str, Network]:
    """Every network as it is built, with real weights: the "meta" device takes longer."""
    torch.manual_seed(0)
    return {name: build(name) for name in NETWORKS}


@pytest.mark.parametrize(
    ("name", "by_hand", "published"),
    [
        ("lenet", (25 + 1) * 20 + (20 * 25 + 1) * 50 + 801 * 500 + 501 * 10, 431_080),
        ("cifar_resnet20", cifar_resnet_size(20), 272_474),
        ("cifar_resnet110", cifar_resnet_size(110), 1_730_714),
        ("resnet18", resnet18_size(), 11_689_512),
        ("resnet50", resnet50_size(), 25_557_032),
    ],
)
def test_number_of_parameters(
    fresh: dict[str, Network], name: str, by_hand: int, published: int
) -> None:
    assert parameters(fresh[name]) == by_hand == published


def test_every_network_of_the_table_is_counted(fresh: dict[str, Network]) -> None:
    assert set(fresh) == {"lenet", "cifar_resnet20", "cifar_resnet110", "resnet18", "resnet50"}
    assert all(NETWORKS[name].description for name in NETWORKS)


def test_resnet50_has_the_names_and_shapes_that_torchvision_gives(
    fresh: dict[str, Network],
) -> None:
    def norm(name: str, width: int) -> dict[str, tuple[int, ...]]:
        shapes = {
            f"{name}.{part}": (width,) for part in ("weight", "bias", "running_mean", "running_var")
        }
        return {**shapes, f"{name}.num_batches_tracked": ()}

    expected = {"conv1.weight": (64, 3, 7, 7), **norm("bn1", 64)}
    inputs = 64
    for number, (width, count) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)], start=1):
        for index in range(count):
            block = f"layer{number}.{index}"
            expected |= {
                f"{block}.conv1.weight": (width, inputs, 1, 1),
                **norm(f"{block}.bn1", width),
            }
            expected |= {
                f"{block}.conv2.weight": (width, width, 3, 3),
                **norm(f"{block}.bn2", width),
            }
            expected |= {
                f"{block}.conv3.weight": (4 * width, width, 1, 1),
                **norm(f"{block}.bn3", 4 * width),
            }
            if index == 0:
                expected |= {f"{block}.downsample.0.weight": (4 * width, inputs, 1, 1)}
                expected |= norm(f"{block}.downsample.1", 4 * width)
            inputs = 4 * width
    expected |= {"fc.weight": (1000, 2048), "fc.bias": (1000,)}
    state = fresh["resnet50"].body.state_dict()
    assert [(name, tuple(value.shape)) for name, value in state.items()] == list(expected.items())


def test_resnet50_strides_in_its_3x3_convolutions(fresh: dict[str, Network]) -> None:
    block = fresh["resnet50"].body.get_submodule("layer2.0")
    assert [
        block.get_submodule(name).stride for name in ("conv1", "conv2", "conv3", "downsample.0")
    ] == [
        (1, 1),
        (2, 2),
        (1, 1),
        (2, 2),
    ]


def test_cifar_resnet_bears_the_fields_names(fresh: dict[str, Network]) -> None:
    names = list(fresh["cifar_resnet110"].body.state_dict())
    assert {"conv1.weight", "bn1.running_var", "layer1.17.conv2.weight", "fc.bias"} <= set(names)
    shortcuts = [name for name in names if "downsample.0" in name]
    assert shortcuts == ["layer2.0.downsample.0.weight", "layer3.0.downsample.0.weight"]


@pytest.mark.parametrize("name", ["cifar_resnet20", "resnet50"])
def test_initial_weights_of_a_resnet(fresh: dict[str, Network], name: str) -> None:
    for module in fresh[name].modules():
        if isinstance(module, nn.Conv2d):
            values, fan_out = (
                module.weight.detach(),
                module.out_channels * math.prod(module.kernel_size),
            )
            std = math.sqrt(2 / fan_out)
            # Five standard errors: one seed in ten thousand would fail.
            assert abs(values.std().item() / std - 1) < 5 / math.sqrt(2 * values.numel())
            assert abs(values.mean().item()) < 5 * std / math.sqrt(values.numel())
        if isinstance(module, nn.BatchNorm2d):
            assert torch.all(module.weight == 1)
            assert torch.all(module.bias == 0)


def test_initial_weights_of_lenet_are_those_of_pytorch() -> None:
    torch.manual_seed(0)
    body = build("lenet").body
    torch.manual_seed(0)
    plain = [nn.Conv2d(1, 20, 5), nn.Conv2d(20, 50, 5), nn.Linear(800, 500), nn.Linear(500, 10)]
    expected = [value for layer in plain for value in layer.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(body.parameters(), expected, strict=True))


def relu_before_pool(body: nn.Module, x: Tensor) -> Tensor:
    """LeNet in the order in which papers write it."""
    for name in ("conv1", "conv2"):
        x = torch.max_pool2d(torch.relu(body.get_submodule(name)(x)), 2)
    hidden = torch.relu(body.get_submodule("fc1")(x.flatten(1)))
    logits: Tensor = body.get_submodule("fc2")(hidden)
    return logits


def test_lenet_pools_before_relu_and_is_the_same_function() -> None:
    network, images = build("lenet"), torch.rand(16, 1, 28, 28, requires_grad=True)
    ours, theirs = network(images), relu_before_pool(network.body, images)
    assert torch.equal(ours, theirs)
    gradients = [torch.autograd.grad(logits.square().sum(), images)[0] for logits in (ours, theirs)]
    assert torch.equal(*gradients)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("training", [False, True])
def test_memory_format_does_not_change_the_logits(name: str, training: bool) -> None:
    torch.manual_seed(0)
    network = build(name).train(training)
    images = torch.rand(4, NETWORKS[name].channels, NETWORKS[name].size, NETWORKS[name].size)
    with torch.no_grad():
        usual = network(images)
        network = network.to(memory_format=torch.channels_last)
        torch.testing.assert_close(
            network(images.contiguous(memory_format=torch.channels_last)), usual, rtol=0, atol=1e-5
        )


@pytest.mark.parametrize("name", ["cifar10", "imagenet"])
def test_normalise_is_its_formula(name: str) -> None:
    statistics = DATASETS[name].pixel_statistics
    assert statistics is not None
    images = torch.rand(4, 3, 5, 5)
    normalised = Normalise(*statistics)(images)
    for channel, (mean, std) in enumerate(zip(*statistics, strict=True)):
        torch.testing.assert_close(normalised[:, channel], (images[:, channel] - mean) / std)


def test_network_is_its_body_after_normalising() -> None:
    network, images = build("cifar_resnet20").eval(), torch.rand(2, 3, 32, 32)
    mean = torch.tensor([0.4914, 0.4822, 0.4465]).view(3, 1, 1)
    std = torch.tensor([0.2023, 0.1994, 0.2010]).view(3, 1, 1)
    torch.testing.assert_close(network(images), network.body((images - mean) / std))


def test_statistics_of_normalisation_are_saved() -> None:
    assert {"normalise.mean", "normalise.std"} <= set(build("cifar_resnet20").state_dict())
    assert not any(name.startswith("normalise") for name in build("lenet").state_dict())
    assert isinstance(build("lenet").normalise, nn.Identity)


def test_resnet18_keeps_small_images_large() -> None:
    small = build("resnet18", num_classes=10, size=32).body
    assert small.conv1.kernel_size == (3, 3)
    assert small.layer4(small.layer3(torch.rand(1, 128, 16, 16))).shape == (1, 512, 4, 4)
    assert "maxpool" not in dict(small.named_children())
    assert build("resnet18", num_classes=10, size=96).body.conv1.kernel_size == (7, 7)


def test_one_mean_and_std_serve_all_channels() -> None:
    normalise = build("cifar_resnet20", normalisation="0.5/0.25").normalise
    assert normalise.mean.flatten().tolist() == [0.5] * 3
    assert normalise.std.flatten().tolist() == [0.25] * 3


def test_normalisation_can_be_chosen() -> None:
    assert isinstance(build("cifar_resnet20", normalisation="none").normalise, nn.Identity)
    network = build("cifar_resnet20", channels=1, normalisation=((0,), (2,)))
    torch.testing.assert_close(
        network.normalise(torch.ones(1, 1, 2, 2)), torch.full((1, 1, 2, 2), 0.5)
    )


@pytest.mark.parametrize("name", SMALL)
def test_other_classes_channels_and_precision(name: str) -> None:
    network = build(name, num_classes=7, channels=2, normalisation="none").double().eval()
    size = NETWORKS[name].size
    logits = network(torch.rand(3, 2, size, size, dtype=torch.float64))
    assert logits.shape == (3, 7)
    assert logits.dtype == torch.float64


def test_double_precision_goes_through_the_normalise_layer() -> None:
    assert (
        build("cifar_resnet20").double().eval()(torch.rand(1, 3, 32, 32).double()).dtype
        == torch.float64
    )


@pytest.mark.parametrize("size", [8, 28, 48])
def test_resnet_takes_images_of_other_sizes(size: int) -> None:
    assert build("cifar_resnet20", size=size).eval()(torch.rand(1, 3, size, size)).shape == (1, 10)


def test_gradient_reaches_every_weight_and_the_image() -> None:
    for name in SMALL:
        network, size = build(name), NETWORKS[name].size
        images = torch.rand(2, NETWORKS[name].channels, size, size, requires_grad=True)
        network(images).logsumexp(1).sum().backward()
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())
        assert images.grad is not None


def test_pooling_without_a_gradient_gives_the_same_numbers() -> None:
    x = torch.randn(3, 4, 8, 6)
    x[0, 0, 0, 0] = torch.nan
    for images in (x, x.contiguous(memory_format=torch.channels_last)):
        expected = nn.functional.max_pool2d(images, 2)
        with_gradient = MaxPool()(images.clone().requires_grad_()).detach()
        for pooled in (MaxPool()(images.clone()), with_gradient):
            torch.testing.assert_close(pooled, expected, rtol=0, atol=0, equal_nan=True)

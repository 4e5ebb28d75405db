"""What every method of the table keeps to, whichever it is."""

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

import smoothmix.methods
from smoothmix import methods
from smoothmix.errors import UsageError
from smoothmix.methods import METHODS, SmoothMix, make
from smoothmix.methods.base import in_format_of
from tests.helpers.methods import CASES, PROBLEMS, Problem, build, run_reference

WITH_BATCHNORM = PROBLEMS["batchnorm"]


def test_every_method_file_is_in_the_table():
    files = {path.stem for path in Path(smoothmix.methods.__file__).parent.glob("*.py")} - {
        "__init__",
        "base",
        "log_folders",
        "registry",
    }
    assert files == set(METHODS)
    assert all(METHODS[name].load().__name__.lower() == name for name in METHODS)
    assert all(METHODS[name].load().__name__ in methods.__all__ for name in METHODS)


@pytest.fixture(params=CASES)
def case(request):
    return request.param


@pytest.mark.parametrize("problem", ["batchnorm", "rgb-3-classes"])
def test_same_randomness_same_loss(case, problem):
    problem = PROBLEMS[problem]
    first, second = (problem.loss(build(case), problem.network()) for _ in range(2))
    assert torch.equal(first.total, second.total)
    assert first.total.isfinite()


def test_randomness_is_drawn_where_none_is_given(case):
    x, y = WITH_BATCHNORM.images()
    losses = []
    for seed in 0, 0, 1:
        network = WITH_BATCHNORM.network()
        torch.manual_seed(seed)
        losses.append(float(build(case).loss(network, x, y, epoch=0).total.detach()))
    assert losses[0] == losses[1] != losses[2]


def test_gradient_reaches_every_weight_and_only_by_backward(case):
    network, computed = WITH_BATCHNORM.network(), []
    for name, parameter in network.named_parameters():
        parameter.register_hook(lambda gradient, name=name: computed.append(name))
    loss = WITH_BATCHNORM.loss(build(case), network)
    assert computed == []
    assert all(parameter.grad is None for parameter in network.parameters())
    loss.total.backward()
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())
    assert all(
        parameter.grad.any()
        for name, parameter in network.named_parameters()
        if name.endswith("weight")
    )


def test_parts_add_up_and_are_detached(case):
    loss = WITH_BATCHNORM.loss(build(case), WITH_BATCHNORM.network())
    assert loss.total.shape == ()
    assert "classification" in loss.parts
    assert not any(part.requires_grad for part in loss.parts.values())
    torch.testing.assert_close(sum(loss.parts.values()), loss.total.detach())


def test_modes_and_flags_are_as_before(case):
    network = nn.Sequential(WITH_BATCHNORM.network(), nn.Dropout(0.1))
    network[0][4].eval()
    network[0][0].weight.requires_grad_(False)
    modes = [module.training for module in network.modules()]
    flags = [parameter.requires_grad for parameter in network.parameters()]
    WITH_BATCHNORM.loss(build(case), network)
    assert [module.training for module in network.modules()] == modes
    assert [parameter.requires_grad for parameter in network.parameters()] == flags


def test_batchnorm_sees_only_the_training_forwards(case):
    network = WITH_BATCHNORM.network()
    before = copy.deepcopy(network.state_dict())
    method = build(case)
    WITH_BATCHNORM.loss(method, network)
    reference = WITH_BATCHNORM.network()
    run_reference(case, method, WITH_BATCHNORM, reference)
    assert int(network[1].num_batches_tracked) == int(reference[1].num_batches_tracked) > 0
    assert not torch.equal(network[1].running_mean, before["1.running_mean"])


def test_a_network_in_eval_mode_stays_as_it_is(case):
    network = WITH_BATCHNORM.network().eval()
    before = copy.deepcopy(network.state_dict())
    WITH_BATCHNORM.loss(build(case), network).total.backward()
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


def test_images_and_noise_are_not_written_to(case):
    method, (x, y) = build(case), WITH_BATCHNORM.images()
    noise, ratios = WITH_BATCHNORM.randomness(method.copies, method.sigma)
    before = [tensor.clone() for tensor in (x, y, noise, ratios)]
    method.loss(WITH_BATCHNORM.network(), x, y, epoch=0, noise=noise, mix=ratios)
    assert all(torch.equal(*pair) for pair in zip(before, (x, y, noise, ratios), strict=True))
    assert not x.requires_grad


@pytest.mark.parametrize("channels", [1, 3])
def test_channels_last_images_stay_so_and_give_the_same_loss(case, channels):
    problem, method = Problem(channels=channels), build(case)
    x, y = problem.images()
    noise, ratios = problem.randomness(method.copies, method.sigma)
    network, formats = problem.network().to(memory_format=torch.channels_last), []
    for layer in network[0], network[3]:
        layer.register_forward_hook(
            lambda module, inputs, output: formats.append(
                output.is_contiguous(memory_format=torch.channels_last)
            )
        )
        layer.register_forward_pre_hook(
            lambda module, inputs: formats.append(
                inputs[0].is_contiguous(memory_format=torch.channels_last)
            )
        )
    fast = method.loss(
        network, x.to(memory_format=torch.channels_last), y, epoch=3, noise=noise, mix=ratios
    )
    assert all(formats)
    torch.testing.assert_close(fast.total, problem.loss(method, problem.network()).total)


def test_noise_takes_the_format_of_the_images():
    method = make("smoothadv", sigma=0.5)
    x = torch.rand(2, 3, 5, 5).to(memory_format=torch.channels_last)
    noise = torch.randn(4, 2, 3, 5, 5)
    for adapted in in_format_of(x, noise), in_format_of(x, method.draw_noise(x)):
        assert adapted.shape == noise.shape
        assert adapted.flatten(0, 1).is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(in_format_of(x, noise), noise)
    assert in_format_of(x.contiguous(), noise) is noise


def test_losses_are_in_single_precision_when_the_network_is_not(case):
    problem = Problem(dtype=torch.float32, batchnorm=True)
    network = problem.network()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = problem.loss(build(case), network)
    loss.total.backward()
    assert {loss.total.dtype} | {part.dtype for part in loss.parts.values()} == {torch.float32}
    assert loss.total.isfinite()
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())


@pytest.mark.parametrize("name", METHODS)
def test_bad_input_is_refused(name):
    x, y = PROBLEMS["plain"].images()
    network, method = PROBLEMS["plain"].network(), make(name, sigma=0.5)
    with pytest.raises(UsageError, match=r"noise must have the shape \[copies, batch, ...\]"):
        method.loss(network, x, y, epoch=0, noise=torch.zeros(method.copies + 1, *x.shape))
    with pytest.raises(UsageError, match="5 images need as many labels"):
        method.loss(network, x, y[:-1], epoch=0)
    with pytest.raises(UsageError, match=r"mix must have the shape \[batch\]"):
        method.loss(network, x, y, epoch=0, mix=torch.zeros(2))
    with pytest.raises(UsageError, match=r"mix must lie in \[0, 1/2\], got 0.6 to 0.6"):
        method.loss(network, x, y, epoch=0, mix=torch.full(y.shape, 0.6))
    for epoch in (-1, 0.5, None):
        with pytest.raises(UsageError, match="epoch must be a whole number from 0 on"):
            method.loss(network, x, y, epoch=epoch)
    with pytest.raises(UsageError, match=r"must lie in \[0, 1\].*look normalised already"):
        method.loss(network, (x - 0.45) / 0.2, y, epoch=0)
    with pytest.raises(UsageError, match="divide by 255"):
        method.loss(network, x * 255, y, epoch=0)
    with pytest.raises(UsageError, match="not finite"):
        method.loss(network, x.index_fill(0, torch.tensor([1]), torch.nan), y, epoch=0)


@pytest.mark.parametrize("kind", [torch.int32, torch.uint8])
def test_labels_of_any_whole_kind_will_do(case, kind):
    x, y = WITH_BATCHNORM.images()
    losses = []
    for labels in (y, y.to(kind)):
        torch.manual_seed(0)
        losses.append(build(case).loss(WITH_BATCHNORM.network(), x, labels, epoch=0).total)
    assert torch.equal(*losses)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("sigma", [0, -0.5, float("nan"), float("inf"), "0.5", None, True])
def test_bad_sigma_is_refused(name, sigma):
    with pytest.raises(UsageError, match="sigma must be a positive number"):
        make(name, sigma=sigma)


@pytest.mark.parametrize("name", METHODS)
def test_names_and_fidelity_are_checked(name):
    with pytest.raises(
        UsageError, match=f"unknown setting of {name} 'sigmaa': did you mean 'sigma'"
    ):
        make(name, sigmaa=0.5)
    with pytest.raises(UsageError, match=f"{name} needs sigma"):
        make(name)
    with pytest.raises(UsageError, match="fidelity must be one of official, paper, got 'papers'"):
        make(name, sigma=0.5, fidelity="papers")
    with pytest.raises(UsageError, match=f"did you mean '{name}'"):
        make(name[:-1] + "_", sigma=0.5)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("gaussian", {"copies": 2}, "unknown setting of gaussian 'copies'"),
        ("stability", {"weight": -1}, "weight must be a number of zero or more"),
        ("smoothadv", {"copies": 0}, "copies must be a whole number, at least 1"),
        ("smoothadv", {"copies": 2.0}, "copies must be a whole number"),
        ("smoothadv", {"epsilon": 0.0}, "epsilon must be a positive number"),
        ("smoothadv", {"steps": 0}, "steps must be a whole number, at least 1"),
        ("smoothadv", {"attack": "pdg"}, "unknown attack 'pdg': did you mean 'pgd'"),
        ("smoothadv", {"warmup_epochs": -1}, "warmup_epochs must be a whole number"),
        ("macer", {"beta": 0}, "beta must be a positive number"),
        ("macer", {"gamma": -8}, "gamma must be a positive number"),
        ("macer", {"defer_epochs": 1.5}, "defer_epochs must be a whole number"),
        (
            "consistency",
            {"entropy_weight": float("nan")},
            "entropy_weight must be a number of zero or more",
        ),
        ("consistency", {"epsilon": -1.0}, "epsilon must be a number of zero or more"),
        ("smoothmix", {"stepsize": 1.0}, "did you mean 'step_size'"),
        ("smoothmix", {"step_size": 0.0}, "step_size must be a positive number"),
        ("smoothmix", {"limit": 0.0}, "limit must be a positive number"),
        ("smoothmix", {"one_step_radius": 1.0}, "one_step_radius has an effect only with one_step"),
        ("smoothmix", {"one_step": True, "steps": 0}, "steps must be at least 1"),
        ("smoothmix", {"eta": "5"}, "eta must be a number of zero or more"),
    ],
)
def test_bad_settings_are_refused(name, settings, message):
    with pytest.raises(UsageError, match=message):
        make(name, sigma=0.5, **settings)


def test_methods_are_frozen_keyword_only_values():
    assert make("smoothmix", sigma=0.5, eta=1) == SmoothMix(sigma=0.5, eta=1)
    assert "copies" not in repr(make("gaussian", sigma=0.5))
    with pytest.raises(AttributeError):
        make("gaussian", sigma=0.5).sigma = 1.0
    with pytest.raises(TypeError):
        SmoothMix(0.5)


def test_which_methods_are_chunked():
    assert {name for name in METHODS if METHODS[name].load().chunked} == {
        "smoothadv",
        "consistency",
        "smoothmix",
    }

"""Draws per second: what is counted, which setups are measured, and what `bench` prints."""

from __future__ import annotations

import re
import time
from contextlib import AbstractContextManager
from dataclasses import replace

import torch
from torch import Tensor, nn

from smoothmix import networks
from smoothmix.certify.smoothed import Smoothed
from smoothmix.inference.sampler import Sampler
from smoothmix.inference.speed import SETUPS, Setup, Speed, measure
from tests.conftest import Run

SECONDS_A_DRAW = 0.001


class Sleeper(nn.Module):
    """Takes at least a millisecond a draw, whatever the machine."""

    def forward(self, images: Tensor) -> Tensor:
        time.sleep(SECONDS_A_DRAW * len(images))
        return images.flatten(1)[:, :3]


def speeds(
    model: nn.Module, shape: tuple[int, ...], *, num_classes: int, **options: object
) -> list[Speed]:
    """The speeds of a network, which is opened with each setup."""
    smoothed = Smoothed(model, sigma=0.5, num_classes=num_classes, noise="gaussian")

    def open_sampler(setup: Setup) -> AbstractContextManager[Sampler]:
        classifier = replace(smoothed, engine=setup.engine, precision=setup.precision)
        return classifier.open(shape, seed=0)

    return measure(open_sampler, shape, **options)  # type: ignore[arg-type]


def test_the_rate_is_draws_a_second_of_all_threads() -> None:
    threads = torch.get_num_threads()
    (found,) = speeds(
        Sleeper(), (1, 2, 2), num_classes=3, setups=[Setup("auto", "fp32")], turns=2, seconds=0.1
    )
    most = threads / SECONDS_A_DRAW  # sleep never ends early
    assert 0.1 * most < found.rate <= most
    assert found.ratio == 1
    assert torch.get_num_threads() == threads


def test_a_batch_is_not_drawn_where_a_part_of_it_takes_long_enough() -> None:
    drawn: list[int] = []

    class Counting(Sleeper):
        def forward(self, images: Tensor) -> Tensor:
            drawn.append(len(images))
            return super().forward(images)

    speeds(
        Counting(),
        (3, 224, 224),
        num_classes=3,
        setups=[Setup("eager", "fp32")],
        turns=1,
        seconds=0.01,
    )
    assert max(drawn) == 8
    assert sum(drawn) <= 4 * 8 + 3 * 8 * torch.get_num_threads(), (
        "four passes of eight probe images, warming up, and a turn"
    )


def test_setups_that_run_the_same_are_measured_once() -> None:
    lenet = speeds(networks.build("lenet"), (1, 28, 28), num_classes=10, turns=1, seconds=0.01)
    assert [(x.engine, x.setup.precision) for x in lenet] == [
        ("torch-cpu", "fp32"),
        ("torch-cpu", "bf16"),
    ]
    resnet = speeds(
        networks.build("cifar_resnet20"), (3, 16, 16), num_classes=10, turns=1, seconds=0.01
    )
    assert [x.setup for x in resnet] == list(SETUPS)
    assert [x.engine for x in resnet] == ["torch-cpu-fused", "torch-cpu"] * 2


def test_the_command_prints_how_long_certification_takes(
    smoothmix: Run, untrained_run: str
) -> None:
    done = smoothmix("bench", untrained_run, "--turns", 1, "--n", 1000, "--images", 1)
    assert done.code == 0, done.err
    assert "lenet, images of 1x28x28, 1,000 draws each, cpu on" in done.out
    lines = [
        line.split() for line in done.out.splitlines() if line.strip().startswith(("fp32", "bf16"))
    ]
    assert [line[:2] for line in lines] == [
        ["fp32", "torch-cpu"],
        ["fp32", "openvino-cpu"],
        ["fp32", "onnxruntime-cpu"],
        ["bf16", "torch-cpu"],
        ["bf16", "openvino-cpu"],
    ]
    first = float(lines[0][3].replace(",", ""))
    for line in lines:
        rate = float(line[3].replace(",", ""))
        assert abs(rate / first - float(line[2])) < 0.01, "the ratio is that of the rates"
    for line in lines:
        a_second, an_hour = (float(number.replace(",", "")) for number in line[3:5])
        assert abs(an_hour / (3.6 * a_second) - 1) < 0.01
    assert re.search(r"bf16 (is \d+\.\d times as fast|gains nothing here)", done.out)
    assert "--mode anytime" not in done.out, "a second of work needs no advice"


def test_the_command_takes_anyones_network(smoothmix: Run) -> None:
    done = smoothmix(
        "bench",
        "--model",
        "torch.nn:Flatten",
        "--shape",
        "1",
        "2",
        "5",
        "--num-classes",
        10,
        "--turns",
        1,
    )
    assert done.code == 0, done.err
    assert "torch.nn:Flatten, images of 1x2x5" in done.out


def test_the_command_takes_shape_and_classes_from_a_data_set(
    smoothmix: Run, untrained_run: str
) -> None:
    done = smoothmix("bench", untrained_run, "--data", "sample", "--turns", 1)
    assert done.code == 0, done.err
    assert "images of 1x28x28" in done.out

"""Training in several processes: places, shares, gradients, and torchrun on one and two nodes."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from smoothmix import data, methods
from smoothmix._process.world import ReportedByRankZero, World, current_world
from smoothmix.config import RunConfig
from smoothmix.errors import UsageError
from smoothmix.inference.devices import own_device
from smoothmix.networks.noisy import noisy_accuracy
from smoothmix.runs.load import load_run
from smoothmix.training.batches import Epoch
from smoothmix.training.parallel import synchronised
from tests.conftest import ROOT, Run, command, small_convnet
from tests.helpers import gradients as gradient_cases
from tests.helpers.processes import Jobs, tiny_run


def test_the_world_comes_from_the_environment() -> None:
    assert current_world({}) == World() == current_world({"WORLD_SIZE": "1", "RANK": "0"})
    found = current_world(
        {"WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    )
    assert (found.rank, found.size, found.local_rank, found.local_size) == (3, 4, 1, 2)
    assert not found.is_main
    for environment, message in (
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE is 2, but RANK is not set"),
        ({"WORLD_SIZE": "2", "RANK": "2"}, "there is no rank 2 among 2 processes"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE must be a whole number, got 'two'"),
    ):
        with pytest.raises(UsageError, match=message):
            current_world(environment)


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_shares_of_a_step_are_the_step(world_size: int) -> None:
    sample, method = data.load("sample", "test"), methods.make("smoothmix", sigma=0.5, copies=3)
    whole = Epoch(sample, method, 4, 1, 12)[2]
    parts = [
        Epoch(sample, method, 4, 1, 12, World(rank, world_size))[2] for rank in range(world_size)
    ]
    assert whole.counted == whole.total == 4
    assert [part.total for part in parts] == [4] * world_size
    assert sum(part.counted for part in parts) == 4
    assert parts[0].seed == whole.seed
    assert len({part.seed for part in parts}) == world_size
    shared = [part for part in parts if part.counted]
    for name, dim in {"x": 0, "y": 0, "noise": 1, "mix": 0}.items():
        assert torch.equal(
            torch.cat([getattr(part.batch, name) for part in shared], dim),
            getattr(whole.batch, name),
        ), name
    for part in parts:
        assert part.counted or torch.equal(part.batch.x, whole.batch.x[:1]), (
            "a process without a share sees an image of another"
        )


@pytest.mark.parametrize("case", [*gradient_cases.METHODS, *gradient_cases.ROUNDING])
def test_losses_are_means_over_images(case: str) -> None:
    """In double precision the weighted gradients of the shares add up to that of the step."""
    settings = {**gradient_cases.METHODS, **gradient_cases.ROUNDING}[case]
    method = methods.make(**{"sigma": 0.5, **settings})
    network = small_convnet(batch_norm=False).double()

    def gradient(where: World) -> list[torch.Tensor]:
        share = Epoch(data.load("sample", "test"), method, 0, 0, 16, where)[1]
        single = share.batch
        batch = replace(
            single, x=single.x.double(), noise=single.noise.double(), mix=single.mix.double()
        )
        loss = method.batch_loss(network, batch).total
        weighted = loss * share.counted / share.total
        return list(torch.autograd.grad(weighted, list(network.parameters())))

    parts = [gradient(World(rank, 3)) for rank in range(3)]
    for whole, *shares in zip(gradient(World()), *parts, strict=True):
        torch.testing.assert_close(sum(shares), whole, atol=1e-12, rtol=1e-9)


def test_gradients_are_those_of_one_process(tmp_path: Path, jobs: Jobs) -> None:
    """Three processes share steps of 8 and 2 images, or chunks of 4 and 1: unevenly, some none."""
    config = tiny_run(tmp_path, images=18, epochs=1, batch=8)
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "3",
    ]
    script = str(ROOT / "tests" / "helpers" / "gradients.py")
    job = jobs.start([*launcher, script, str(tmp_path)], PYTHONPATH=str(ROOT))
    assert job.wait() == 0, job.output
    many = torch.load(tmp_path / "gradients.pt")
    for name, case in gradient_cases.METHODS.items():
        alone = gradient_cases.gradients(config, case, tmp_path / f"one {name}")
        assert len(alone) == len(many[name]) >= 3
        for ours, theirs in zip(alone, many[name], strict=True):
            for a, b in zip(ours, theirs, strict=True):
                torch.testing.assert_close(
                    a, b, atol=1e-5, rtol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
                )
        one, more = (
            json.loads((tmp_path / f"{kind} {name}" / "metrics.jsonl").read_text())
            for kind in ("one", "many")
        )
        assert more["accuracy"] == pytest.approx(one["accuracy"], abs=0.06), (
            "an image of 18 may be on the edge"
        )
        assert more["loss"] == pytest.approx(one["loss"], abs=1e-4)
        assert more["parts"] == pytest.approx(one["parts"], abs=1e-4)


def test_the_accuracy_is_that_of_the_saved_network(tmp_path: Path, jobs: Jobs) -> None:
    """Two processes see a part of the images each."""
    config = tiny_run(tmp_path, images=1100, epochs=1)
    settings = ("--config", "config.toml", "--out", "run", "--device", "cpu")
    job = jobs.torchrun("--standalone --nproc-per-node 2", "train", *settings)
    assert job.wait() == 0, job.output
    said = json.loads((tmp_path / "run" / "metrics.jsonl").read_text())["accuracy"]
    network = load_run(tmp_path / "run")[1]
    images = data.load(config.data, "test")
    assert said == pytest.approx(
        noisy_accuracy(network, images, sigma=0.5, seed=config.recipe.seed), abs=1e-9
    )


def test_processes_with_other_settings_are_refused(tmp_path: Path, jobs: Jobs) -> None:
    tiny_run(tmp_path)
    settings = ("train", "--config", "config.toml", "--out", "run", "--device", "cpu")
    ranks = jobs.ranks([list(command(*settings, "--seed", rank)) for rank in range(2)])
    assert [job.wait() for job in ranks] == [ReportedByRankZero.exit_code, UsageError.exit_code]
    assert ranks[0].output == ""
    assert (
        "smoothmix: rank 1: rank 0 was started with other settings: seed is 0 there and 1 here"
        in ranks[1].output
    )
    assert not (tmp_path / "run").exists()


def test_synchronised_batchnorm_is_refused_where_it_cannot_work(
    smoothmix: Run, tmp_path: Path
) -> None:
    tiny_run(tmp_path)
    alone = smoothmix("train", "--config", "config.toml", "--out", "run", "--sync-batchnorm")
    assert alone.code == 2
    assert "--sync-batchnorm is for several processes" in alone.err
    cpu, gpu, two = torch.device("cpu"), torch.device("cuda"), World(0, 2)
    with pytest.raises(UsageError, match="needs GPUs: torch cannot do it on the device 'cpu'"):
        synchronised(small_convnet(), two, cpu)
    with pytest.raises(UsageError, match="the network has no BatchNorm"):
        synchronised(small_convnet(batch_norm=False), two, gpu)
    network = synchronised(small_convnet(), two, gpu)
    assert any(isinstance(module, torch.nn.SyncBatchNorm) for module in network.modules())
    assert network.state_dict().keys() == small_convnet().state_dict().keys()


def test_each_process_takes_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    chosen: list[int] = []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    assert own_device(cuda, World(3, 4, 1, 2)) == torch.device("cuda", 1)
    assert chosen == [1]
    assert own_device(cuda, World()) == cuda
    assert own_device(cpu, World(3, 4, 1, 2)) == cpu
    with pytest.raises(
        UsageError, match="process 3 on this machine has no GPU of its own, there are 2"
    ):
        own_device(cuda, World(2, 3, 2, 3))


def test_one_process_of_torchrun_is_alone(
    monkeypatch: pytest.MonkeyPatch, smoothmix: Run, tmp_path: Path
) -> None:
    config = tiny_run(tmp_path, epochs=1)
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    done = smoothmix("train", "--config", "config.toml", "--out", "run")
    assert done.code == 0, done.err
    assert "processes" not in done.err
    assert RunConfig.load(tmp_path / "run" / "config.toml").recipe == config.recipe

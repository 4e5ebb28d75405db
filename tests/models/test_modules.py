"""Networks of torch as people have them: what they return, their precision, and their files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import smoothmix as sm
from smoothmix.models import with_output
from smoothmix.networks import build, import_checkpoint, load_weights, save_weights, state_hash
from tests.conftest import Run

SHAPE = (3, 8, 8)
IMAGES = torch.randint(0, 256, (2, *SHAPE), dtype=torch.uint8)


def small() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)).eval()


@dataclass
class Answer:
    logits: Tensor


class Returns(nn.Module):
    """A network that returns its logits inside of something."""

    def __init__(self, wrap: Any) -> None:
        super().__init__()
        self.body = small()
        self.wrap = wrap

    def forward(self, images: Tensor) -> Any:
        return self.wrap(self.body(images))


def votes(model: nn.Module, **options: Any) -> Tensor:
    return sm.Smoothed(model, sigma=0.5, num_classes=10, **options).votes(IMAGES, n=300, seed=1)


@pytest.mark.parametrize(
    ("wrap", "output", "hint"),
    [
        (lambda logits: {"logits": logits, "loss": 0}, "logits", 'output="logits"'),
        (Answer, "logits", 'output="logits"'),
        (lambda logits: (None, logits), 1, "output=0"),
        (lambda logits: {"scores": logits}, lambda found: found["scores"], "it has scores"),
    ],
)
def test_logits_inside_of_something_are_named(wrap: Any, output: Any, hint: str) -> None:
    expected = votes(small())
    assert int((expected > 0).sum()) > 3
    assert torch.equal(votes(Returns(wrap), output=output), expected)
    assert torch.equal(votes(with_output(Returns(wrap), output)), expected)
    with pytest.raises(sm.SmoothmixError, match=hint):
        votes(Returns(wrap))


def test_a_name_that_the_output_does_not_have_is_refused() -> None:
    with pytest.raises(sm.SmoothmixError, match="a dict with the keys scores"):
        votes(Returns(lambda logits: {"scores": logits}), output="logits")
    with pytest.raises(sm.SmoothmixError, match="a tuple of 1"):
        votes(Returns(lambda logits: (logits,)), output=1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_networks_run_in_their_own_precision(dtype: torch.dtype) -> None:
    model = small().to(dtype)
    smoothed = sm.Smoothed(model, sigma=0.5, num_classes=10, batch=100)
    noise = smoothed.distribution
    with smoothed.open(SHAPE, seed=1) as sampler:
        assert sampler.engine == f"torch-cpu-{str(dtype).removeprefix('torch.')}"
    found = smoothed.votes(IMAGES, n=300, seed=1)
    for row, image in enumerate(IMAGES):
        expected = torch.zeros(10, dtype=torch.int64)
        for start in range(0, 300, 100):
            draws = sm_draws(row, start)
            pixels = noise.noisy_images((image / 255).numpy(), draws, sigma=0.5).pixels
            with torch.inference_mode():
                classes = model(torch.from_numpy(pixels).to(dtype)).argmax(1)
            expected += torch.bincount(classes, minlength=10)
        assert torch.equal(found[row], expected)
    with pytest.raises(sm.SmoothmixError, match="leave out precision bf16"):
        sm.Smoothed(model, sigma=0.5, num_classes=10, precision="bf16").votes(IMAGES, n=10)


def sm_draws(image: int, start: int) -> Any:
    from smoothmix.noise import Domain, DrawRange

    return DrawRange(1, Domain.PREDICTION, image, start, 100)


@pytest.mark.parametrize("prefix", ["module.", "model.", "_orig_mod.", "model._orig_mod."])
def test_prefixes_of_wrappers_are_removed_and_named(tmp_path: Path, prefix: str) -> None:
    source, target = small(), small()
    nn.init.zeros_(target[0].weight)
    path = tmp_path / "weights.pt"
    torch.save({"state_dict": {prefix + name: v for name, v in source.state_dict().items()}}, path)
    assert load_weights(target, path) == prefix
    assert state_hash(target) == state_hash(source)
    save_weights(source, tmp_path / "plain.safetensors")
    assert load_weights(target, tmp_path / "plain.safetensors") == ""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_names_that_a_real_compiled_network_saves_are_read(tmp_path: Path) -> None:
    source, target = small(), small()
    nn.init.zeros_(target[0].weight)
    source[0] = torch.compile(source[0])
    torch.save(source.state_dict(), tmp_path / "weights.pt")
    assert load_weights(target, tmp_path / "weights.pt") == "_orig_mod."
    assert not torch.equal(target[0].weight, torch.zeros_like(target[0].weight))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_programs_given_as_weights_are_called_what_they_are(tmp_path: Path) -> None:
    torch.jit.save(torch.jit.trace(small(), torch.rand(1, *SHAPE)), tmp_path / "script.pt")
    program = torch.export.export(small(), (torch.rand(1, *SHAPE),))
    torch.export.save(program, tmp_path / "program.pt2")
    for name, kind in (("script.pt", "a TorchScript file"), ("program.pt2", "torch.export")):
        with pytest.raises(sm.SmoothmixError, match=f"{kind}.*which holds a network"):
            load_weights(small(), tmp_path / name)


def test_a_deeper_network_of_the_same_family_is_refused(tmp_path: Path, smoothmix: Run) -> None:
    path = tmp_path / "deep.pt"
    torch.save({"state_dict": build("cifar_resnet110").state_dict()}, path)
    with pytest.raises(sm.SmoothmixError, match=r"450 more tensors .*deeper network"):
        import_checkpoint(path, build("cifar_resnet20"))
    out = tmp_path / "run"
    command = ("import", str(path), "--network", "cifar_resnet20", "--sigma", "0.25")
    done = smoothmix(*command, "--data", "cifar10", "--out", str(out))
    assert done.code != 0
    assert not out.exists()


def test_a_data_set_of_torch_gets_a_sentence(tmp_path: Path) -> None:
    dataset: Any = torch.utils.data.TensorDataset(IMAGES, torch.tensor([0, 1]))
    certification = sm.Certification(sigma=0.5, guarantee=sm.FixedDraws(100))
    with pytest.raises(sm.SmoothmixError, match=r"images of yours into sm\.data\.MemoryData"):
        sm.certify_dataset(
            small(), dataset, certification, path=tmp_path / "c.tsv", model_name="mine"
        )


def test_a_loaded_run_is_in_eval_mode() -> None:
    _, model = sm.load_run("zoo:mnist-0.50-gaussian")
    assert not any(module.training for module in model.modules())


def test_normalise_is_the_first_layer_of_a_network() -> None:
    model = nn.Sequential(sm.Normalise([0.5] * 3, [0.25] * 3), small())
    pixels = np.float32(IMAGES / 255)
    expected = small()(torch.from_numpy((pixels - 0.5) / 0.25))
    assert torch.equal(model(torch.from_numpy(pixels)), expected)

"""ONNX files, TorchScript files and archives of torch.export against the networks they are of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import smoothmix as sm
from smoothmix import models
from tests.conftest import Run
from tests.helpers.draws import counted_votes, is_close, logits_of, noisy_inputs

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

ZOO = "zoo:mnist-0.50-gaussian"
SIGMA = 0.5
SHAPE = (1, 28, 28)
DRAWS = 600


def lenet() -> nn.Module:
    _, network = sm.load_run(ZOO)
    return network


def some_images() -> Tensor:
    generator = torch.Generator().manual_seed(2)
    coarse = torch.rand((2, 1, 4, 4), generator=generator)
    return (nn.functional.interpolate(coarse, size=(28, 28)) * 255).round() / 255


def votes(model: nn.Module, **options: Any) -> Tensor:
    smoothed = sm.Smoothed(model, sigma=SIGMA, num_classes=10, **options)
    return smoothed.votes(some_images(), n=DRAWS, seed=4)


def doubtful_draws(model: nn.Module) -> Tensor:
    """How many draws of each image have two highest logits that nearly tie."""
    found = []
    for row, image in enumerate(some_images()):
        inputs = noisy_inputs(image, row, n=DRAWS, seed=4, sigma=SIGMA)
        found.append(int(is_close(logits_of(model, inputs, batch=DRAWS)).sum()))
    return torch.tensor(found)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The LeNet of the zoo, exported by torch for batches of any size."""
    pytest.importorskip("onnxruntime", reason="needs smoothmix[onnx]")
    pytest.importorskip("onnxscript", reason="torch exports to ONNX by onnxscript")
    path = tmp_path_factory.mktemp("onnx") / "lenet.onnx"
    batch = torch.export.Dim("batch")
    torch.onnx.export(
        lenet(),
        (torch.rand(2, *SHAPE),),
        path,
        dynamic_shapes=({0: batch},),
        external_data=False,
        verbose=False,
    )
    return path


def edited(path: Path, out: Path, edit: Any) -> Path:
    """A copy of an ONNX file with a change."""
    import onnx

    model = onnx.load(path)
    edit(model)
    onnx.save(model, out)
    return out


def test_an_onnx_file_votes_like_the_network_it_was_exported_from(exported: Path) -> None:
    expected = votes(lenet())
    assert int((expected > 0).sum()) >= 4
    found = votes(models.load(str(exported)).module)
    # Each doubtful draw moves one vote, which changes two counts.
    assert ((found - expected).abs().sum(1) <= 2 * doubtful_draws(lenet())).all()
    again = votes(models.load(str(exported)).module, batch=100)
    assert ((again - found).abs().sum(1) <= 2 * doubtful_draws(lenet())).all()


def test_an_onnx_file_gives_each_draw_the_vote_of_the_original(exported: Path) -> None:
    """Draw by draw on the real noisy images: counts could hide votes that changed places."""
    original = lenet()
    loaded = models.load(str(exported)).module
    both = {"original": original, "loaded": loaded}
    counts = {name: votes(model) for name, model in both.items()}
    compared = 0
    for row, image in enumerate(some_images()):
        inputs = noisy_inputs(image, row, n=DRAWS, seed=4, sigma=SIGMA)
        logits = {name: logits_of(model, inputs) for name, model in both.items()}
        clear = ~is_close(logits["original"])
        compared += int(clear.sum())
        same = logits["loaded"].argmax(1) == logits["original"].argmax(1)
        assert same[clear].all()
        # These draws are those that were counted, in whatever order and cut of batches.
        for name in both:
            moved = (counts[name][row] - counted_votes(logits[name])).abs().sum()
            assert int(moved) <= 2 * int((~clear).sum()), name
    assert compared >= 2 * DRAWS - 10


def test_a_fixed_batch_another_layout_and_a_normalisation(exported: Path, tmp_path: Path) -> None:
    import onnx

    expected = votes(models.load(str(exported)).module)
    allowed = 2 * doubtful_draws(lenet())

    def fix_batch(model: Any) -> None:
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 7
        model.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 7

    fixed = models.load(str(edited(exported, tmp_path / "fixed.onnx", fix_batch))).module
    assert ((votes(fixed) - expected).abs().sum(1) <= allowed).all()

    def channels_last(model: Any) -> None:
        graph = model.graph
        old = graph.input[0].name
        graph.input[0].name = "last"
        dims = graph.input[0].type.tensor_type.shape.dim
        for position, size in ((1, 28), (2, 28), (3, 1)):
            dims[position].dim_value = size
        node = onnx.helper.make_node("Transpose", ["last"], [old], perm=[0, 3, 1, 2])
        graph.node.insert(0, node)

    last = str(edited(exported, tmp_path / "last.onnx", channels_last))
    assert (
        (votes(models.load(last, layout="nhwc").module) - expected).abs().sum(1) <= allowed
    ).all()

    shifted = models.load(str(exported), normalisation="0.25/0.5").module
    torch_shifted = nn.Sequential(sm.Normalise([0.25], [0.5]), lenet())
    moved = (votes(shifted) - votes(torch_shifted)).abs().sum(1)
    assert (moved <= 2 * doubtful_draws(torch_shifted)).all()
    assert not torch.equal(votes(shifted), expected)


def test_weights_in_another_file_stay_within_the_folder(exported: Path, tmp_path: Path) -> None:
    import onnx

    folder = tmp_path / "inside"
    folder.mkdir()
    beside = folder / "lenet.onnx"
    onnx.save(
        onnx.load(exported),
        beside,
        save_as_external_data=True,
        location="w.bin",
        size_threshold=1024,
    )
    assert (folder / "w.bin").exists()
    plain = votes(models.load(str(exported)).module)
    assert torch.equal(votes(models.load(str(beside)).module), plain)

    # The same file, whose weights are said to be in the folder above, or behind a link to it.
    (folder / "w.bin").rename(tmp_path / "w.bin")
    with pytest.raises(sm.SmoothmixError, match=r"w\.bin, which is no file in its folder"):
        models.load(str(beside))
    (folder / "w.bin").symlink_to(tmp_path / "w.bin")
    with pytest.raises(sm.SmoothmixError, match=r"w\.bin, which is no file in its folder"):
        models.load(str(beside))
    outside = beside.read_bytes().replace(b"w.bin", b"../ww")
    beside.write_bytes(outside)
    (tmp_path / "ww").write_bytes((tmp_path / "w.bin").read_bytes())
    with pytest.raises(sm.SmoothmixError, match="which is no file in its folder"):
        models.load(str(beside))


def test_what_is_no_onnx_file_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs smoothmix[onnx]")
    with pytest.raises(sm.SmoothmixError, match="cannot read"):
        models.load(str(tmp_path / "none.onnx"))
    (tmp_path / "bad.onnx").write_bytes(b"\xff" * 100)
    with pytest.raises(sm.SmoothmixError, match="damaged or no ONNX file"):
        models.load(str(tmp_path / "bad.onnx"))
    (tmp_path / "empty.onnx").write_bytes(b"")
    with pytest.raises(sm.SmoothmixError, match="onnxruntime cannot open it"):
        models.load(str(tmp_path / "empty.onnx"))


def test_what_needs_gradients_refuses_an_onnx_file(
    exported: Path, tmp_path: Path, smoothmix: Run
) -> None:
    own = ("--model", exported, "--sigma", SIGMA, "--data", "sample", "--max", 1)
    for command in (("attack",), ("study", "mixing")):
        done = smoothmix(*command, *own)
        assert done.code == 2
        assert "gives outputs and no gradients" in done.err


def test_the_command_certifies_an_onnx_file_and_resumes_only_with_the_same(
    exported: Path, tmp_path: Path, smoothmix: Run
) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(exported.read_bytes())
    command = ["certify", "--model", str(path), "--data", "sample", "--sigma", "0.5"]
    command += ["--n", "200", "--max", "2", "--out", str(tmp_path / "c.tsv")]
    done = smoothmix(*command)
    assert done.code == 0, done.err
    settings = sm.certificates.read(tmp_path / "c.tsv").settings
    assert settings is not None
    assert settings.engine == "onnxruntime"
    assert "onnxruntime 1." in settings.probe
    assert smoothmix(*command).code == 0

    def one_weight(model: Any) -> None:
        import onnx

        weight = model.graph.initializer[0]
        values = onnx.numpy_helper.to_array(weight).copy()
        values.flat[0] = np.nextafter(values.flat[0], np.float32(9), dtype=values.dtype)
        weight.CopyFrom(onnx.numpy_helper.from_array(values, weight.name))

    edited(path, path, one_weight)
    refused = smoothmix(*command)
    assert refused.code == 2
    assert "model_hash" in refused.err


def test_torchscript_and_export_vote_alike_once_code_is_allowed(tmp_path: Path) -> None:
    network = lenet()
    expected = votes(network, engine="eager")
    example = torch.rand(3, *SHAPE)
    torch.jit.save(torch.jit.trace(network, example, check_trace=False), tmp_path / "script.pt")
    torch.export.save(torch.export.export(network, (example,)), tmp_path / "fixed.pt2")
    batch = torch.export.Dim("batch")
    program = torch.export.export(network, (example,), dynamic_shapes=({0: batch},))
    torch.export.save(program, tmp_path / "any.pt2")
    allowed = 2 * doubtful_draws(network)
    for name in ("script.pt", "fixed.pt2", "any.pt2"):
        path = str(tmp_path / name)
        with pytest.raises(sm.SmoothmixError, match=r"runs code of its author.*--allow-code"):
            models.load(path)
        found = votes(models.load(path, allow_code=True).module)
        assert ((found - expected).abs().sum(1) <= allowed).all(), name


def test_weights_given_as_a_network_get_advice(tmp_path: Path, smoothmix: Run) -> None:
    torch.save(lenet().state_dict(), tmp_path / "weights.pt")
    (tmp_path / "text.pt").write_text("nothing")
    for name in ("weights.pt", "text.pt"):
        with pytest.raises(sm.SmoothmixError, match=r"if it holds weights.*--weights"):
            models.load(str(tmp_path / name), allow_code=True)
    done = smoothmix("certify", "--model", "net.h5", "--data", "sample", "--sigma", "0.5")
    assert done.code == 2

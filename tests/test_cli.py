"""Commands as a person types them, in an empty folder, and what they answer to mistakes."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from smoothmix import certificates, models
from smoothmix.config import RunConfig
from smoothmix.weights import save_weights, state_hash

from conftest import Run, command

QUICK = ("--n0", 20, "--n", 200, "--max", 3)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A person's own network: a module in the current folder, its weights, and data."""
    (tmp_path / "mynets.py").write_text(
        "import torch\n"
        "def tiny():\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3))\n"
        "def number():\n"
        "    return 7\n"
    )
    torch.manual_seed(1)
    save_weights(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3)), tmp_path / "mine.safetensors")
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "mine.npz", x=rng.integers(0, 256, (9, 1, 3, 4), dtype=np.uint8), y=np.arange(9) % 3)
    return tmp_path


OWN = ("--model", "mynets:tiny", "--weights", "mine.safetensors", "--data", "npz:mine.npz", "--sigma", 0.25)


def test_ones_own_network_is_certified_from_the_command_line(smoothmix: Run, mine: Path) -> None:
    done = smoothmix("certify", *OWN, "--n", 500, "--skip", 2, "--max", 4)
    assert done.code == 0, done.err
    assert "certified accuracy" in done.out
    assert "average certified radius (ACR)" in done.out
    file = certificates.read(mine / "certificates.tsv")
    assert [row.idx for row in file.rows] == [0, 2, 4, 6]
    assert file.settings is not None
    assert (file.settings.model, file.settings.num_classes) == ("mynets:tiny", 3)
    checked = smoothmix("certificates", "verify", "certificates.tsv")
    assert (checked.code, checked.out) == (0, "certificates.tsv: 4 rows, 4 follow from their votes\n")


def test_predictions_are_lines_with_votes(smoothmix: Run, mine: Path) -> None:
    done = smoothmix("predict", *OWN, "--n", 300, "--seed", 1, "--max", 2)
    lines = [line.split("\t") for line in done.out.splitlines()]
    assert lines[0] == ["idx", "label", "predict", "p_value", "counts"]
    assert [line[0] for line in lines[1:]] == ["0", "1"]
    assert sum(int(pair.partition(":")[2]) for pair in lines[1][4].split(",")) == 300
    assert "of 2 right" in done.err
    assert smoothmix("predict", *OWN, "--n", 300, "--seed", 1, "--max", 2).out == done.out
    assert smoothmix("predict", *OWN, "--n", 300, "--max", 2).out != done.out, "fresh noise without a seed"
    assert smoothmix("predict", *OWN, "--max", 2, "--num-classes", 5, "--out", "p.tsv").code != 0
    again = smoothmix("predict", *OWN, "--n", 300, "--seed", 1, "--max", 2, "--out", "p.tsv")
    assert again.code == 0, "what failed has left no file"
    assert (mine / "p.tsv").read_text() == done.out


def test_an_interrupted_prediction_leaves_nothing(mine: Path) -> None:
    out = mine / "p.tsv"
    job = subprocess.Popen(command("predict", *OWN, "--n", 5_000_000, "--out", out), cwd=mine, stderr=subprocess.PIPE)
    while not list(mine.glob(".p.tsv.*.tmp")):
        time.sleep(0.01)
    job.send_signal(signal.SIGINT)
    assert "no file was written, and the same command begins anew" in job.communicate()[1].decode()
    assert job.returncode == 130
    assert not list(mine.glob("*p.tsv*"))


def test_a_file_of_other_settings_is_refused_in_words(smoothmix: Run, mine: Path) -> None:
    assert smoothmix("certify", *OWN, *QUICK).code == 0
    other = smoothmix("certify", *OWN, *QUICK, "--mode", "anytime", "--radii", 0.1)
    assert other.code == 2
    there, here = "exact, n 200 there", "anytime, radii 0.1 decided and at most 256 draws here"
    assert f"was begun with other settings: the guarantee is {there} and {here}; use them" in other.err
    whole = smoothmix("certify", *OWN, *QUICK[:-1], 1)
    assert "note: the file was there with more images than --max 1" in whole.err


def test_a_part_without_images_is_no_failure(smoothmix: Run, mine: Path) -> None:
    for part in (3, 1, 2):
        done = smoothmix("certify", *OWN, *QUICK[:-1], 2, "--shard", f"{part}/3")
        assert done.code == 0, done.err
        assert ("part 3 of 3 holds no images" in done.err) == (part == 3)
    assert len(certificates.read(mine / "certificates.tsv").rows) == 2


def test_tools_of_the_file(smoothmix: Run, mine: Path) -> None:
    smoothmix("certify", *OWN, "--n", 500)
    again = smoothmix("certificates", "recompute", "certificates.tsv", "--alpha", 0.01)
    assert again.code == 0
    assert certificates.verify(certificates.read(mine / "certificates-alpha0.01.tsv")).ok
    log = smoothmix("certificates", "export", "certificates.tsv", "--format", "cohen").out
    assert log.startswith("idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t0\t")
    for again in (
        ("certificates", "merge", "certificates-alpha0.01.tsv", "--out", "certificates-alpha0.01.tsv"),
        ("certificates", "recompute", "certificates.tsv", "--alpha", 0.01),
        ("certificates", "export", "certificates.tsv", "--out", "certificates.toml"),
        ("predict", *OWN, "--out", "certificates.tsv"),
    ):
        refused = smoothmix(*again)
        assert (refused.code, "is there already; choose another --out" in refused.err) == (2, True)
    text = (mine / "certificates.tsv").read_text()
    (mine / "certificates.tsv").write_text(text.replace("\n3\t0\t", "\n3\t1\t"))
    bad = smoothmix("certificates", "verify", "certificates.tsv")
    assert bad.code == 1


@pytest.mark.parametrize("layout", ["1.", "1.module.", "module."])
def test_a_published_checkpoint_is_imported_and_certified(smoothmix: Run, tmp_path: Path, layout: str) -> None:
    torch.manual_seed(3)
    network = models.build("lenet")
    weights = {layout + name: value for name, value in network.body.state_dict().items()}
    content = {"epoch": 90, "arch": "lenet", "state_dict": {**weights, "extra": torch.zeros(1)}, "optimizer": {}}
    torch.save(content, tmp_path / "theirs.pth.tar")
    options = ("--network", "lenet", "--sigma", 0.5, "--data", "sample", "--out", "theirs")
    done = smoothmix("import", "theirs.pth.tar", *options)
    assert done.code == 0, done.err
    assert "8 tensors placed (arch lenet, epoch 90)" in done.err
    assert "not placed: extra" in done.err
    assert smoothmix("certify", "theirs", *QUICK).code == 0
    settings = certificates.read(tmp_path / "theirs" / "certificates.tsv").settings
    assert settings is not None
    assert settings.model_hash == state_hash(network)
    assert RunConfig.load(tmp_path / "theirs" / "config.toml").notes == ("imported from theirs.pth.tar",)
    assert "holds a run already" in smoothmix("import", "theirs.pth.tar", *options).err


class Bomb:
    """Runs code when it is unpickled by anything that allows it."""

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (Path("boom"),))


def test_a_checkpoint_that_holds_code_is_refused(smoothmix: Run, tmp_path: Path) -> None:
    torch.save({"state_dict": Bomb()}, tmp_path / "bomb.pth.tar")
    options = ("--network", "lenet", "--sigma", 0.5, "--data", "sample", "--out", "theirs")
    done = smoothmix("import", "bomb.pth.tar", *options)
    assert done.code == 1
    assert "never runs code from a file" in done.err
    assert not (tmp_path / "boom").exists()
    assert not (tmp_path / "theirs").exists()


@pytest.fixture
def run(tmp_path: Path, smoothmix: Run) -> str:
    """An imported run of an untrained network, sigma 0.5, sample."""
    torch.manual_seed(0)
    torch.save(models.build("lenet").body.state_dict(), tmp_path / "x.pt")
    options = ("--network", "lenet", "--sigma", 0.5, "--data", "sample", "--out", "run")
    assert smoothmix("import", "x.pt", *options).code == 0
    return "run"


def test_another_sigma_and_another_data_set_are_warned_of(smoothmix: Run, run: str, tmp_path: Path) -> None:
    done = smoothmix("certify", run, "--sigma", 0.25, *QUICK)
    assert done.code == 0
    assert "warning: sigma 0.25 is not the 0.5 that the network was trained with" in done.err
    done = smoothmix("certify", run, "--sigma", 3, *QUICK, "--out", "large.tsv")
    assert "warning: sigma 3 is very large" in done.err
    assert "warning: sigma 3 is very large" in smoothmix("predict", run, "--sigma", 3, "--max", 1).err
    x = np.zeros((3, 28, 28), dtype=np.uint8)
    x[:, 5:9, 5:9] = 255
    np.savez(tmp_path / "other.npz", x=x, y=[0, 1, 9])
    done = smoothmix("certify", run, "--data", "npz:other.npz", *QUICK, "--out", "other.tsv")
    assert "warning: the network was trained on sample, not on npz:other.npz" in done.err


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["certify"], 2, "give either a run folder or --model"),
        (["certify", "nowhere"], 2, "nowhere: is no run folder"),
        (["certify", "run", "--weights", "x.pt"], 2, "--weights goes with --model"),
        (["certify", "run", "--n", "5"], 2, "n=5 draws at alpha=0.001 can never certify anything"),
        (["certify", "run", "--radius", "3"], 2, "can never certify the radius 3 at sigma 0.5"),
        (["certify", "run", "--n", "0"], 2, "n must be at least 1"),
        (["certify", "run", "--n0", "0"], 2, "n0 must be at least 1"),
        (["certify", "run", "--alpha", "1"], 2, "alpha must lie strictly between 0 and 1"),
        (["certify", "run", "--skip", "0"], 2, "skip must be at least 1"),
        (["certify", "run", "--max", "0"], 2, "max must be at least 1"),
        (["certify", "run", "--sigma", "0"], 2, "sigma must be a positive number"),
        (["certify", "run", "--data", "minst"], 2, "unknown data set 'minst': did you mean 'mnist'?"),
        (["certify", "run", "--split", "exam"], 2, "exam"),
        (["certify", "run", "--data", "mnist", "--data-dir", "."], 1, "smoothmix data fetch mnist"),
        (["certify", "run", "--device", "tpu9"], 2, "device 'tpu9' cannot be used here"),
        (["certify", "run", "--precision", "fp16"], 2, 'Choose from: "fp32", "bf16"'),
        (["certify", "run", "--sgima", "1"], 2, "Did you mean --sigma?"),
        (["certify", "--model", "nowhere:f", "--data", "sample", "--sigma", "1"], 2, "cannot import 'nowhere'"),
        (["certify", "--model", "json:dumps", "--data", "sample"], 2, "json:dumps raised TypeError"),
        (["certify", "--model", "torch.nn:Identity", "--data", "sample"], 2, "--sigma is needed"),
        (["certify", "--model", "torch.nn:Identity", "--sigma", "1"], 2, "--data is needed"),
        (["certify", "--model", "torch.nn:Flatten", "--data", "sample", "--sigma", "1"], 2, "10 classes need"),
        (["certify", "run", "--out", "c.toml"], 2, "must be named something.tsv"),
        (["certify", "run", "--shard", "3/2"], 2, "a shard is written part/parts"),
        (["certify", "run", "--shard", "3/3", "--max", "2", "--out", "c.tsv"], 2, "3/3 holds none of the 2 images"),
        (["certify", "run", "--batch", "0"], 2, "batch must be at least 1, got 0"),
        (["certify", "run", "--num-classes", "-5"], 2, "num-classes must be at least 1, got -5"),
        (["certify", "run", "--mode", "anytime", "--n", "1000", "--radius", "1.22"], 2, "1,024 draws in mode anytime"),
        (["certify", "run", "more"], 2, "there is no use for 'more' (see `smoothmix certify --help`)"),
        (["certificates", "merge", "x.tsv"], 2, "(see `smoothmix certificates merge --help`)"),
        (["presets", "quick/gaussian", "--sigma", "0.5"], 2, "quick/gaussian is one preset: leave out --sigma"),
        (["reproduce", "quick", "--n", "3"], 2, "n=3 draws at alpha=0.001 can never certify anything"),
        (["reproduce", "quick", "--n", "3", "--dry-run"], 2, "n=3 draws at alpha=0.001 can never certify anything"),
        (["reproduce", "quick", "--radii", "-1"], 2, "radii must be zero or more"),
        (["reproduce", "quick", "--from-logs", ".", "--out", "x"], 2, "--out: nothing is run with --from-logs"),
        (["predict", "run", "--n", "5"], 2, "n=5 draws at alpha=0.001 can never tell two classes apart: it takes n=11"),
        (["predict", "run", "--alpha", "2"], 2, "alpha must lie strictly between 0 and 1"),
        (["train", "quick/gaussian", "--workers", "-4"], 2, "workers must be zero or more"),
        (["import", "x.pt", "--network", "lenet", "--sigma", "1", "--data", "smple", "--out", "o"], 2, "'sample'"),
        (["crtify"], 2, 'Did you mean "certify"?'),
        (["train"], 2, "give a preset"),
        (["train", "mnist/0.50/smoothmx"], 2, "unknown preset 'mnist/0.50/smoothmx'"),
        (["train", "quick/gaussian", "--epochs", "1", "--epochs-scale", "2"], 2, "not both"),
        (["train", "quick/gaussian", "--set", "weight"], 2, "--set wants name=value"),
        (["train", "quick/smoothmix", "--set", "etta=5"], 2, "did you mean 'eta'"),
        (["train", "--data", "sample", "--sigma", "0.5", "--method", "smoothmux"], 2, "did you mean 'smoothmix'"),
        (["train", "--data", "sample", "--sigma", "0.5", "--network", "lennet"], 2, "did you mean 'lenet'"),
        (["data", "check", "nothing"], 2, "unknown data set"),
        (["certificates", "verify", "nothing.tsv"], 2, "there is no such certificate file"),
        (
            ["import", "nothing.pt", "--network", "lenet", "--sigma", "1", "--data", "sample", "--out", "o"],
            1,
            "nothing.pt",
        ),
        (
            ["import", "x.pt", "--network", "lnet", "--sigma", "1", "--data", "sample", "--out", "o"],
            2,
            "did you mean 'lenet'",
        ),
        (
            ["import", "x.pt", "--network", "cifar_resnet20", "--sigma", "1", "--data", "cifar10", "--out", "o"],
            1,
            "x.pt",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_get_one_sentence(smoothmix: Run, run: str, arguments: list[str], code: int, sentence: str) -> None:
    done = smoothmix(*arguments)
    assert done.code == code, done.err
    assert sentence in done.err
    assert done.err.count("\n") == 1, done.err
    assert "Traceback" not in done.err


def test_debug_shows_the_traceback(smoothmix: Run) -> None:
    assert "Traceback" in smoothmix("certify", "nowhere", "--debug").err


def test_labels_out_of_range_and_other_shapes_are_refused(smoothmix: Run, run: str, tmp_path: Path) -> None:
    x = np.full((3, 28, 28), 99, dtype=np.uint8)
    np.savez(tmp_path / "labels.npz", x=x, y=[0, 1, 99])
    done = smoothmix("certify", run, "--data", "npz:labels.npz", *QUICK, "--out", "l.tsv")
    assert done.code == 1
    assert "labels run from 0 to 99, where the network tells 10 apart" in done.err
    np.savez(tmp_path / "few.npz", x=x, y=[0, 1, 2])
    assert smoothmix("certify", run, "--data", "npz:few.npz", *QUICK, "--out", "f.tsv").code == 0, "fewer labels do"
    np.savez(tmp_path / "shape.npz", x=x[:, :20], y=[0, 1, 9])
    done = smoothmix("certify", run, "--data", "npz:shape.npz", *QUICK, "--out", "s.tsv")
    assert done.code == 1
    assert "the network fails on 20 images of shape [1, 20, 28]" in done.err


def test_data_is_listed_and_checked(smoothmix: Run) -> None:
    listed = smoothmix("data", "list").out
    assert all(
        name in listed for name in ("sample", "mnist", "fashion-mnist", "cifar10", "imagenet", "folder:", "npz:")
    )
    fine = smoothmix("data", "check", "sample")
    assert (fine.code, fine.out.count("fine")) == (0, 2)
    missing = smoothmix("data", "check", "mnist", "--data-dir", ".")
    assert (missing.code, missing.out.count("NOT USABLE")) == (1, 2)
    assert "needs no download" in smoothmix("data", "fetch", "sample").err


@pytest.mark.shared
def test_real_mnist_is_fine(smoothmix: Run, shared_data: Path) -> None:
    done = smoothmix("data", "check", "mnist", "--data-dir", shared_data)
    assert done.code == 0
    assert "60,000 images" in done.out


def test_presets_are_listed_and_shown(smoothmix: Run) -> None:
    assert "mnist/0.50/smoothmix-eta5" in smoothmix("presets", "mnist/0.50/*").out
    assert "mnist/0.50/smoothmix-eta5" in smoothmix("presets", "mnist/0.50").out
    assert "unknown preset" in smoothmix("presets", "mnist/0.60").err
    shown = smoothmix("presets", "mnist/0.50/gaussian").out
    assert 'name = "gaussian"' in shown

"""What commands answer to mistakes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.conftest import Run

QUICK = ("--n0", 20, "--n", 200, "--max", 3)


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
        (
            ["certify", "run", "--data", "minst"],
            2,
            "unknown data set 'minst': did you mean 'mnist'?",
        ),
        (["certify", "run", "--split", "exam"], 2, "exam"),
        (["certify", "run", "--data", "mnist", "--data-dir", "."], 1, "smoothmix data fetch mnist"),
        (["certify", "run", "--device", "tpu9"], 2, "device 'tpu9' cannot be used here"),
        (["certify", "run", "--precision", "fp16"], 2, 'Choose from: "fp32", "bf16"'),
        (["certify", "run", "--sgima", "1"], 2, "Did you mean --sigma?"),
        (
            ["certify", "--model", "nowhere:f", "--data", "sample", "--sigma", "1"],
            2,
            "cannot import nowhere",
        ),
        (
            ["certify", "--model", "nets.py:f", "--data", "sample", "--sigma", "1"],
            2,
            "give the module without .py, nets:f",
        ),
        (
            ["report", "run", "--data-dir", "nowhere", "--out", "r.html"],
            2,
            "--data-dir nowhere: there is no such folder",
        ),
        (
            ["certify", "--model", "json:dumps", "--data", "sample"],
            2,
            "json:dumps needs obj",
        ),
        (["certify", "--model", "torch.nn:Identity", "--data", "sample"], 2, "--sigma is needed"),
        (["certify", "--model", "torch.nn:Identity", "--sigma", "1"], 2, "--data is needed"),
        (
            ["certify", "--model", "torch.nn:Flatten", "--data", "sample", "--sigma", "1"],
            2,
            "10 classes need",
        ),
        (
            ["certify", "--model", "torch.nn:Flatten", "--data", "sample", "--sigma", "1"],
            2,
            "(--num-classes 784)",
        ),
        (
            ["certify", "run", "--mode", "anytime", "--n", "200", "--radii", "8,9"],
            2,
            "can never certify the radius 8",
        ),
        (
            ["certify", "run", "--mode", "anytime", "--n", "1000", "--radii", "1.34,0.5"],
            2,
            "can never certify the radius 1.34",
        ),
        (
            ["report", "run"],
            2,
            "there is no such certificate file; certify it first: smoothmix certify run",
        ),
        (["report", "nowhere"], 2, "nowhere: there is no such certificate file"),
        (["presets", "--sigma", "0.3"], 2, "no preset fits --sigma 0.3"),
        (["train", "quick/gaussian", "--epochs", "0"], 2, "--epochs must be at least 1, got 0"),
        (["certify", "run", "--out", "c.toml"], 2, "must be named something.tsv"),
        (["certify", "run", "--shard", "3/2"], 2, "a shard is written number/count"),
        (
            ["certify", "run", "--shard", "3/3", "--max", "2", "--out", "c.tsv"],
            2,
            "3/3 holds none of the 2 images",
        ),
        (["certify", "run", "--batch", "0"], 2, "batch must be at least 1, got 0"),
        (["certify", "run", "--num-classes", "-5"], 2, "num-classes must be at least 2, got -5"),
        (
            ["certify", "run", "--mode", "anytime", "--n", "1000", "--radius", "1.22"],
            2,
            "1,024 draws in mode anytime",
        ),
        (
            ["certify", "run", "more"],
            2,
            "unexpected argument 'more' (see `smoothmix certify --help`)",
        ),
        (["certificates", "merge", "x.tsv"], 2, "(see `smoothmix certificates merge --help`)"),
        (
            ["presets", "quick/gaussian", "--sigma", "0.5"],
            2,
            "quick/gaussian is one preset: leave out --sigma",
        ),
        (
            ["reproduce", "quick", "--n", "3"],
            2,
            "n=3 draws at alpha=0.001 can never certify anything",
        ),
        (
            ["reproduce", "quick", "--n", "3", "--dry-run"],
            2,
            "n=3 draws at alpha=0.001 can never certify anything",
        ),
        (["reproduce", "quick", "--radii", "-1"], 2, "radii must be zero or more"),
        (
            ["reproduce", "quick", "--from-logs", ".", "--out", "x"],
            2,
            "--out: nothing is run with --from-logs",
        ),
        (
            ["predict", "run", "--n", "5"],
            2,
            "n=5 draws at alpha=0.001 can never predict a class: it takes n=11",
        ),
        (["predict", "run", "--alpha", "2"], 2, "alpha must lie strictly between 0 and 1"),
        (["train", "quick/gaussian", "--workers", "-4"], 2, "workers must be zero or more"),
        (
            [
                "import",
                "x.pt",
                "--network",
                "lenet",
                "--sigma",
                "1",
                "--data",
                "smple",
                "--out",
                "o",
            ],
            2,
            "'sample'",
        ),
        (
            [
                "import",
                "x.pt",
                "--network",
                "lenet",
                "--sigma",
                "1",
                "--data",
                "cifar10",
                "--out",
                "o",
            ],
            2,
            "lenet takes images of 28x28 pixels, not 32x32",
        ),
        (["import", "x.pt"], 2, "smoothmix: --network is missing (see `smoothmix import --help`)"),
        (["import", "x.pt", "--netwrk", "lenet"], 2, "Did you mean --network instead of --netwrk?"),
        (
            ["certify", "run", "--n"],
            2,
            "smoothmix: --n needs a value (see `smoothmix certify --help`)",
        ),
        (["bench"], 2, "give either a run folder or --model"),
        (["bench", "run", "--images", "0"], 2, "images must be at least 1, got 0"),
        (
            ["bench", "run", "--shape", "3,32"],
            2,
            "a shape is written like --shape 3,224,224, got 3,32",
        ),
        (
            ["bench", "run", "--shape", "1,28,28", "--data", "sample"],
            2,
            "give --shape or --data, not both",
        ),
        (["bench", "--model", "torch.nn:Flatten"], 2, "--shape 3,224,224 or --data is needed"),
        (
            ["bench", "--model", "torch.nn:Flatten", "--shape", "1,4,4"],
            2,
            "--num-classes is needed with --shape",
        ),
        (["bench", "--model", "torch.nn:Flatten", "--data", "sample"], 2, "10 classes need"),
        (["bench", "run", "--shape", "3,99,99"], 1, "the network fails on"),
        (["crtify"], 2, 'Did you mean "certify"?'),
        (["train"], 2, "give a preset"),
        (["train", "mnist/0.50/smoothmx"], 2, "unknown preset 'mnist/0.50/smoothmx'"),
        (["train", "quick/gaussian", "--epochs", "1", "--epochs-scale", "2"], 2, "not both"),
        (["train", "quick/gaussian", "--set", "weight"], 2, "--set takes name=value"),
        (["train", "quick/smoothmix", "--set", "etta=5"], 2, "did you mean 'eta'"),
        (
            ["train", "--data", "sample", "--sigma", "0.5", "--method", "smoothmux"],
            2,
            "did you mean 'smoothmix'",
        ),
        (
            ["train", "--data", "sample", "--sigma", "0.5", "--network", "lennet"],
            2,
            "did you mean 'lenet'",
        ),
        (
            ["train", "--data", "sample", "--sigma", "0.5", "--network", "a.b:c"],
            2,
            "cannot import a.b (No module named 'a')",
        ),
        (["data", "check", "nothing"], 2, "unknown data set"),
        (["certificates", "verify", "nothing.tsv"], 2, "there is no such certificate file"),
        (
            [
                "import",
                "nothing.pt",
                "--network",
                "lenet",
                "--sigma",
                "1",
                "--data",
                "sample",
                "--out",
                "o",
            ],
            1,
            "nothing.pt",
        ),
        (
            [
                "import",
                "x.pt",
                "--network",
                "lnet",
                "--sigma",
                "1",
                "--data",
                "sample",
                "--out",
                "o",
            ],
            2,
            "did you mean 'lenet'",
        ),
        (
            [
                "import",
                "x.pt",
                "--network",
                "cifar_resnet20",
                "--sigma",
                "1",
                "--data",
                "cifar10",
                "--out",
                "o",
            ],
            1,
            "x.pt",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_get_one_sentence(
    smoothmix: Run, untrained_run: str, arguments: list[str], code: int, sentence: str
) -> None:
    done = smoothmix(*arguments)
    assert done.code == code, done.err
    assert sentence in done.err
    assert done.err.count("\n") == 1, done.err
    assert "Traceback" not in done.err


def test_debug_shows_the_traceback(smoothmix: Run) -> None:
    assert "Traceback" in smoothmix("certify", "nowhere", "--debug").err


def test_labels_out_of_range_and_other_shapes_are_refused(
    smoothmix: Run, untrained_run: str, tmp_path: Path
) -> None:
    x = np.full((3, 28, 28), 99, dtype=np.uint8)
    np.savez(tmp_path / "labels.npz", x=x, y=[0, 1, 99])
    done = smoothmix("certify", untrained_run, "--data", "npz:labels.npz", *QUICK, "--out", "l.tsv")
    assert done.code == 1
    assert "labels run from 0 to 99, where the network has 10 classes" in done.err
    np.savez(tmp_path / "from-one.npz", x=x, y=[1, 2, 10])
    done = smoothmix(
        "certify", untrained_run, "--data", "npz:from-one.npz", *QUICK, "--out", "l.tsv"
    )
    assert "has 10 classes: they count from 0, so subtract 1" in done.err
    np.savez(tmp_path / "few.npz", x=x, y=[0, 1, 2])
    assert (
        smoothmix("certify", untrained_run, "--data", "npz:few.npz", *QUICK, "--out", "f.tsv").code
        == 0
    ), "fewer labels do"
    np.savez(tmp_path / "shape.npz", x=x[:, :20], y=[0, 1, 9])
    done = smoothmix("certify", untrained_run, "--data", "npz:shape.npz", *QUICK, "--out", "s.tsv")
    assert done.code == 1
    assert "has images 1x20x28" in done.err
    assert "the network was trained on 1x28x28: resize them" in done.err

"""Commands as a person types them, in an empty folder."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from smoothmix import certificates, networks
from smoothmix.certificates.seeds import seed_remark
from smoothmix.config import RunConfig
from smoothmix.networks.weights import save_weights, state_hash
from tests.conftest import Run, command
from tests.helpers.certificates import our_file
from tests.helpers.processes import until

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
    save_weights(
        torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3)),
        tmp_path / "mine.safetensors",
    )
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "mine.npz",
        x=rng.integers(0, 256, (9, 1, 3, 4), dtype=np.uint8),
        y=np.arange(9) % 3,
    )
    return tmp_path


OWN = (
    "--model",
    "mynets:tiny",
    "--weights",
    "mine.safetensors",
    "--data",
    "npz:mine.npz",
    "--sigma",
    0.25,
)


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
    assert checked.code == 0
    assert checked.out.splitlines()[:5] == [
        f"certificates.tsv: {seed_remark(0)}",
        "certificates.tsv: 4 rows, 4 follow from their votes",
        "certificates.tsv: what was checked, and what was not:",
        "  checked: the arithmetic: bounds, radii and predictions from the votes of each row",
        "  checked: digests of the settings and of 4 rows",
    ]


def test_predictions_are_lines_with_votes(smoothmix: Run, mine: Path) -> None:
    done = smoothmix("predict", *OWN, "--n", 300, "--seed", 1, "--max", 2)
    lines = [line.split("\t") for line in done.out.splitlines()]
    assert lines[0] == ["idx", "label", "predict", "p_value", "counts"]
    assert [line[0] for line in lines[1:]] == ["0", "1"]
    assert sum(int(pair.partition(":")[2]) for pair in lines[1][4].split(",")) == 300
    assert "of 2 right" in done.err
    assert smoothmix("predict", *OWN, "--n", 300, "--seed", 1, "--max", 2).out == done.out
    many = ("predict", *OWN, "--n", 5000)
    assert smoothmix(*many).out != smoothmix(*many).out, "fresh noise without a seed"
    assert smoothmix("predict", *OWN, "--max", 2, "--num-classes", 5, "--out", "p.tsv").code != 0
    again = smoothmix("predict", *OWN, "--n", 300, "--seed", 1, "--max", 2, "--out", "p.tsv")
    assert again.code == 0, "what failed has left no file"
    assert (mine / "p.tsv").read_text() == done.out


def test_an_interrupted_prediction_leaves_nothing(mine: Path) -> None:
    out = mine / "p.tsv"
    job = subprocess.Popen(
        command("predict", *OWN, "--n", 5_000_000, "--out", out), cwd=mine, stderr=subprocess.PIPE
    )
    until(
        lambda: list(mine.glob(".p.tsv.*.tmp")) or job.poll() is not None,
        "the beginning of the file",
    )
    job.send_signal(signal.SIGINT)
    assert (
        "no file was written: run the same command to start from the beginning"
        in job.communicate()[1].decode()
    )
    assert job.returncode == 130
    assert not list(mine.glob("*p.tsv*"))


def test_a_file_of_other_settings_is_refused_in_words(smoothmix: Run, mine: Path) -> None:
    assert smoothmix("certify", *OWN, *QUICK).code == 0
    other = smoothmix("certify", *OWN, *QUICK, "--mode", "anytime", "--radii", 0.1)
    assert other.code == 2
    there = "exact, n 200 there"
    here = "anytime, radii 0.1 decided and at most 256 draws, foresight 0.02 here"
    assert "was started with other settings: " in other.err
    assert f"settings: the guarantee is {there} and {here}; use them" in other.err
    whole = smoothmix("certify", *OWN, *QUICK[:-1], 1)
    assert "note: the file has more images than --max 1" in whole.err


def test_a_part_without_images_is_no_failure(smoothmix: Run, mine: Path) -> None:
    for part in (3, 1, 2):
        done = smoothmix("certify", *OWN, *QUICK[:-1], 2, "--shard", f"{part}/3")
        assert done.code == 0, done.err
        assert ("shard 3 of 3 holds no images" in done.err) == (part == 3)
    assert len(certificates.read(mine / "certificates.tsv").rows) == 2


def test_tools_of_the_file(smoothmix: Run, mine: Path) -> None:
    smoothmix("certify", *OWN, "--n", 500)
    again = smoothmix("certificates", "recompute", "certificates.tsv", "--alpha", 0.01)
    assert again.code == 0
    assert certificates.verify(certificates.read(mine / "certificates-alpha0.01.tsv")).ok
    assert smoothmix("certificates", "recompute", ".", "--alpha", 0.02).code == 0, (
        "a folder stands for the file in it"
    )
    assert (mine / "certificates-alpha0.02.tsv").exists()
    log = smoothmix("certificates", "export", "certificates.tsv", "--format", "cohen").out
    assert log.startswith("idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t0\t")
    for again in (
        (
            "certificates",
            "merge",
            "certificates-alpha0.01.tsv",
            "--out",
            "certificates-alpha0.01.tsv",
        ),
        ("certificates", "recompute", "certificates.tsv", "--alpha", 0.01),
        ("certificates", "export", "certificates.tsv", "--out", "certificates.toml"),
        ("predict", *OWN, "--out", "certificates.tsv"),
    ):
        refused = smoothmix(*again)
        assert (refused.code, "exists already; choose another --out" in refused.err) == (2, True)
    text = (mine / "certificates.tsv").read_text()
    (mine / "certificates.tsv").write_text(text.replace("\n3\t0\t", "\n3\t1\t"))
    bad = smoothmix("certificates", "verify", "certificates.tsv")
    assert bad.code == 1


@pytest.mark.parametrize("layout", ["1.", "1.module.", "module."])
def test_a_published_checkpoint_is_imported_and_certified(
    smoothmix: Run, tmp_path: Path, layout: str
) -> None:
    torch.manual_seed(3)
    network = networks.build("lenet")
    weights = {layout + name: value for name, value in network.body.state_dict().items()}
    content = {
        "epoch": 90,
        "arch": "lenet",
        "state_dict": {**weights, "extra": torch.zeros(1)},
        "optimizer": {},
    }
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
    assert RunConfig.load(tmp_path / "theirs" / "config.toml").notes == (
        "imported from theirs.pth.tar",
    )
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


def test_another_sigma_and_another_data_set_are_warned_of(
    smoothmix: Run, untrained_run: str, tmp_path: Path
) -> None:
    done = smoothmix("certify", untrained_run, "--sigma", 0.25, *QUICK)
    assert done.code == 0
    assert "warning: sigma 0.25 is not the 0.5 that the network was trained with" in done.err
    done = smoothmix("certify", untrained_run, "--sigma", 3, *QUICK, "--out", "large.tsv")
    assert "warning: sigma 3 is very large" in done.err
    assert (
        "warning: sigma 3 is very large"
        in smoothmix("predict", untrained_run, "--sigma", 3, "--max", 1).err
    )
    x = np.zeros((3, 28, 28), dtype=np.uint8)
    x[:, 5:9, 5:9] = 255
    np.savez(tmp_path / "other.npz", x=x, y=[0, 1, 9])
    done = smoothmix(
        "certify", untrained_run, "--data", "npz:other.npz", *QUICK, "--out", "other.tsv"
    )
    assert "warning: the network was trained on sample, not on npz:other.npz" in done.err


def test_data_is_listed_and_checked(smoothmix: Run) -> None:
    listed = smoothmix("data", "list").out
    assert all(
        name in listed
        for name in ("sample", "mnist", "fashion-mnist", "cifar10", "imagenet", "folder:", "npz:")
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


def test_a_network_with_other_weights_each_time_is_warned_of(smoothmix: Run, mine: Path) -> None:
    warning = "mynets:tiny gives other weights each time: name a file with trained weights by"
    without = [word for word in OWN if word not in ("--weights", "mine.safetensors")]
    assert warning in smoothmix("certify", *without, *QUICK, "--out", "random.tsv").err
    assert warning not in smoothmix("certify", *OWN, *QUICK).err


def test_what_ends_because_nobody_reads_is_not_called_done(mine: Path) -> None:
    words = " ".join(map(str, command("predict", *OWN, "--n", 2000)))
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {words} | head -1"],
        cwd=mine,
        capture_output=True,
        check=False,
    )
    assert done.stdout.startswith(b"idx\tlabel")
    assert done.returncode == 141


def test_files_are_written_even_if_nobody_reads_the_table(tmp_path: Path) -> None:
    file = our_file(tmp_path / "one.tsv", [900, 990])
    words = " ".join(map(str, command("report", file, "--out", "page.html", "--figures", "drawn")))
    subprocess.run(["bash", "-c", f"{words} | true"], cwd=tmp_path, check=True)
    assert "</html>" in (tmp_path / "page.html").read_text()
    assert list((tmp_path / "drawn").glob("*.pdf"))

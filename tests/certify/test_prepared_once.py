"""A network is prepared once per command: probing and fusing it takes many forward passes."""

from __future__ import annotations

from pathlib import Path

import pytest

import smoothmix
from smoothmix.certify import smoothed
from smoothmix.inference.prepared import PreparedNetwork
from smoothmix.inference.speed import all_setups
from tests.conftest import Run
from tests.helpers.certification import OPTIONS, put_network

FEW = (*OPTIONS, "--max", 4)
ANYTIME = (*FEW, "--mode", "anytime")


@pytest.fixture
def preparations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The engine of every network that was prepared."""
    engines: list[str] = []
    prepare = smoothed.prepare_network

    def counted(*args: object, **options: object) -> PreparedNetwork:
        network = prepare(*args, **options)  # type: ignore[arg-type]
        engines.append(network.engine)
        return network

    monkeypatch.setattr(smoothed, "prepare_network", counted)
    return engines


@pytest.mark.parametrize(
    "arguments",
    [
        ("certify", *FEW),
        ("certify", *FEW, "--shard", "1,2/2"),
        ("certify", *FEW, "--shard", "1/2", "--out", "a.tsv"),
        ("certify", *ANYTIME, "--radii", "0.1"),
        ("predict", *FEW[: FEW.index("--n0")], "--max", 2, "--n", 100),
    ],
    ids=lambda arguments: " ".join(map(str, arguments[len(FEW) - 1 :])),
)
def test_one_command_prepares_its_network_once(
    smoothmix: Run, tmp_path: Path, preparations: list[str], arguments: tuple[object, ...]
) -> None:
    put_network(tmp_path)
    done = smoothmix(*arguments)
    assert done.code == 0, done.err
    assert preparations == ["torch-cpu"]


def test_an_extension_prepares_its_network_once(
    smoothmix: Run, tmp_path: Path, preparations: list[str]
) -> None:
    put_network(tmp_path)
    assert smoothmix("certify", *ANYTIME, "--radii", "0.1").code == 0
    preparations.clear()
    assert smoothmix("certify", *ANYTIME, "--extend").code == 0
    assert len(preparations) == 1


def test_a_measurement_prepares_each_setup_once(
    smoothmix: Run, tmp_path: Path, preparations: list[str]
) -> None:
    put_network(tmp_path)
    model = ("--model", "digits:make", "--data", "sample", "--turns", 1)
    assert smoothmix("bench", *model).code == 0
    assert len(preparations) == len(all_setups())


def test_only_smoothed_makes_a_sampler() -> None:
    """Whoever needs one opens the classifier, and thereby prepares it once."""
    package = Path(smoothmix.__file__).parent
    makers = [path.name for path in package.rglob("*.py") if "= Sampler(" in path.read_text()]
    makers += [path.name for path in package.rglob("*.py") if "yield Sampler(" in path.read_text()]
    assert makers == ["smoothed.py"]

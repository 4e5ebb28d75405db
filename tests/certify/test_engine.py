"""The engine of a file is decided once; whoever continues or checks the file uses the same."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from smoothmix.certificates import read
from smoothmix.certificates.settings import load_settings
from smoothmix.certify import engine as engines
from smoothmix.certify.engine import engine_for_file, forget_agreement
from smoothmix.certify.redraw import redraw_dataset
from smoothmix.config import EngineName
from smoothmix.errors import UsageError
from smoothmix.inference.choice import Choice
from smoothmix.inference.engines import ENGINES
from tests.conftest import Run
from tests.helpers.certification import OPTIONS, images, network, put_network

CERTIFY = ("certify", *OPTIONS, "--max", 3)


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The draws of every job that an engine was chosen for; it is always OpenVINO."""
    found: list[int] = []

    def choose(*args: object, draws: int, **options: object) -> Choice:
        found.append(draws)
        return Choice(engine="openvino", note="--engine openvino is chosen")

    monkeypatch.setattr(engines, "choose_engine", choose)
    return found


def recorded(path: Path) -> str:
    settings = load_settings(path)
    assert settings is not None
    return settings.engine


def test_the_chosen_engine_is_recorded_and_kept(
    smoothmix: Run, tmp_path: Path, chosen: list[int]
) -> None:
    put_network(tmp_path)
    done = smoothmix(*CERTIFY)
    assert done.code == 0, done.err
    assert "note: --engine openvino is chosen" in done.err
    path = tmp_path / "certificates.tsv"
    assert recorded(path) == "openvino-cpu"
    assert chosen == [3 * 320]
    # More images, by the same engine without a choice; and its votes can be drawn again.
    assert smoothmix("certify", *OPTIONS, "--max", 5).code == 0
    assert (len(chosen), len(read(path).rows)) == (1, 5)
    again = redraw_dataset(network(), images(), read(path), rows=5)
    assert [row.differing for row in again.rows] == [0] * 5
    assert not again.edited


def test_an_extension_keeps_the_engine(smoothmix: Run, tmp_path: Path) -> None:
    put_network(tmp_path)
    anytime = (*CERTIFY, "--mode", "anytime", "--radii", "0.1")
    assert smoothmix(*anytime, "--engine", "openvino").code == 0
    path = tmp_path / "certificates.tsv"
    refused = smoothmix(*anytime, "--extend", "--engine", "eager")
    assert "was made with --engine openvino" in refused.err
    done = smoothmix(*anytime, "--extend", "--max-draws", 1000)
    assert done.code == 0, done.err
    assert recorded(path) == "openvino-cpu"


def test_another_engine_is_refused(smoothmix: Run, tmp_path: Path) -> None:
    put_network(tmp_path)
    assert smoothmix(*CERTIFY, "--engine", "eager").code == 0
    done = smoothmix("certify", *OPTIONS, "--max", 5, "--engine", "openvino")
    assert done.code == 2
    assert "engine is torch-cpu there and openvino-cpu here" in done.err


def test_a_file_whose_engine_is_not_installed_says_what_to_install(
    smoothmix: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_network(tmp_path)
    assert smoothmix(*CERTIFY, "--engine", "openvino").code == 0
    monkeypatch.setattr(type(ENGINES["openvino"]), "needs", ("no_such_module",))
    done = smoothmix("certify", *OPTIONS, "--max", 5)
    assert done.code == 2
    assert "its votes are drawn by openvino-cpu" in done.err
    assert "pip install 'smoothmix[openvino]'" in done.err
    with pytest.raises(UsageError, match="pip install"):
        redraw_dataset(network(), images(), read(tmp_path / "certificates.tsv"))


def test_shards_agree_on_an_engine(smoothmix: Run, tmp_path: Path, chosen: list[int]) -> None:
    put_network(tmp_path)
    assert smoothmix(*CERTIFY, "--shard", "1/2").code == 0
    assert smoothmix(*CERTIFY, "--shard", "2/2").code == 0
    assert len(chosen) == 1
    assert recorded(tmp_path / "certificates.tsv") == "openvino-cpu"
    assert sorted(path.suffix for path in tmp_path.glob("certificates*")) == [".toml", ".tsv"]


def test_a_part_that_is_merged_elsewhere_is_not_measured(
    smoothmix: Run, tmp_path: Path, chosen: list[int]
) -> None:
    put_network(tmp_path)
    assert smoothmix(*CERTIFY, "--shard", "1/2", "--out", "part.tsv").code == 0
    assert not chosen
    assert recorded(tmp_path / "part.tsv") == "torch-cpu"


def test_processes_that_start_together_use_what_the_first_of_them_chooses(tmp_path: Path) -> None:
    path = tmp_path / "certificates.tsv"
    measured: list[EngineName] = []

    def choose() -> EngineName:
        # Two measurements may end differently.
        names: tuple[EngineName, ...] = ("openvino", "onnxruntime", "eager")
        measured.append(names[len(measured)])
        time.sleep(0.2)
        return measured[-1]

    def start(_: int) -> EngineName:
        return engine_for_file(path, "auto", choose, together="one job")

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(start, range(4))) == {"openvino"}
    assert engine_for_file(path, "auto", choose, together="another job") == "onnxruntime"
    forget_agreement(path)
    assert measured == ["openvino", "onnxruntime"]
    assert (tmp_path / "certificates-engine.txt").exists(), "no row says yet what was chosen"

"""A training that the version before the redesign left unfinished ends with the same weights."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from pathlib import Path

import pytest
import torch

from smoothmix.runs.folder import RunFolder
from tests.conftest import Run
from tests.helpers.processes import weights_in

OLD = Path(__file__).parent / "old_version"
EXPECTED = tomllib.loads((OLD / "expected.toml").read_text())


def same_arithmetic() -> bool:
    """Whether sums round here as they did where the expected weights were trained."""
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text() if cpuinfo.exists() else ""
    processor = re.search(r"^model name\s*: (.*)$", text, flags=re.MULTILINE)
    here = (
        torch.__version__,
        processor[1] if processor else "",
        torch.backends.cpu.get_cpu_capability(),
    )
    return here == (EXPECTED["torch"], EXPECTED["processor"], EXPECTED["instructions"])


def test_a_run_interrupted_under_the_old_version_resumes_exactly(
    tmp_path: Path, smoothmix: Run
) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.state.parent.mkdir(parents=True)
    shutil.copy(OLD / "digits.npz", tmp_path)
    shutil.copy(OLD / "config.toml", folder.config)
    shutil.copy(OLD / "metrics.jsonl", folder.metrics)
    shutil.copy(OLD / "state.pt", folder.state)

    done = smoothmix("train", "--config", "run/config.toml", "--out", "run", "--device", "cpu")
    assert done.code == 0, done.err
    assert "resuming with epoch 2, after step 1\n" in done.err

    lines = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    # Elsewhere only rounding differs, which a few steps do not make large.
    assert [line["loss"] for line in lines] == pytest.approx(EXPECTED["loss"], rel=1e-3)
    if same_arithmetic():
        assert [line["loss"] for line in lines] == EXPECTED["loss"]
        assert weights_in(tmp_path / "run") == EXPECTED["weights"]

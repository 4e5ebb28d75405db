"""The working folder may hold networks, and never replaces a module that is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

# Of the standard library and of our dependencies; all are imported by the command below.
SHADOWED = (
    "json",
    "csv",
    "tomllib",
    "cyclopts",
    "numpy",
    "scipy",
    "torch",
    "tomli_w",
    "safetensors",
)

START = {
    "command": [str(Path(sys.executable).with_name("smoothmix"))],
    "module": [sys.executable, "-m", "smoothmix"],
}


@pytest.mark.parametrize("start", START)
def test_a_module_in_the_working_folder_replaces_none_that_is_installed(
    tmp_path: Path, start: str
) -> None:
    for name in SHADOWED:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from the folder')\n")
    (tmp_path / "nets.py").write_text(
        "import json, torch\ndef flat():\n    return torch.nn.Flatten()\n"
    )
    pixels = np.zeros((2, 1, 2, 2), np.uint8)
    np.savez(tmp_path / "data.npz", x=pixels, y=np.arange(2))
    arguments = "certify --model nets:flat --data npz:data.npz --num-classes 4 --sigma 0.5 --n 100"
    if not Path(START[start][0]).exists():
        pytest.skip("smoothmix is not installed beside this Python")
    done = subprocess.run(
        [*START[start], *arguments.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "nets:flat on npz:data.npz" in done.stdout


def test_help_says_where_modules_are_looked_for(capsys: pytest.CaptureFixture[str]) -> None:
    from smoothmix.cli import main

    main(["certify", "--help"])
    words = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "found, after all installed ones" in words

"""Networks of timm, in a process of their own.

timm imports torchvision. Where that does not fit torch, transformers would fail in the process
that has it, so `make install` puts both into a folder that only these tests look into.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.helpers.torchvision import has_timm


@pytest.mark.skipif(not has_timm(), reason="`make install` installs timm")
def test_networks_of_timm() -> None:
    tests = "tests/models/timm_apart.py"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout

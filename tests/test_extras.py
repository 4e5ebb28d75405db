"""The core without any extra: every module imports, and what needs an extra names it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

from tests.conftest import ROOT
from tests.test_surface import NAMES, NEEDS_EXTRA

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

WITHOUT_EXTRAS = """
import sys
from importlib import import_module

blocked = set(BLOCKED)

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""

WALK = """
failed = {}
for name in NAMES:
    try:
        import_module(name)
    except Exception as error:
        failed[name] = f"{type(error).__name__}: {error}"
import json
print(json.dumps(failed))
"""

ASK = """
from pathlib import Path

import smoothmix as sm
from smoothmix.cli import main

Path("net.onnx").touch()
Path("w.safetensors").touch()
for name in ("net.onnx", "hf:vit", "timm:resnet18"):
    try:
        sm.models.load(name, weights=Path("w.safetensors") if "timm" in name else None)
    except sm.SmoothmixError as error:
        print(error)
sys.stderr = sys.stdout
main(["report", RESULT, "--figures", "figures"])
main(["train", "quick/gaussian", "--tensorboard"])
"""


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def of_the_core() -> set[str]:
    """The distributions that installing the core installs, by its requirements and theirs."""
    found = {"smoothmix"}
    waiting = list(PROJECT["dependencies"])
    while waiting:
        requirement = waiting.pop()
        if "extra ==" in requirement:
            continue
        match = re.match(r"[\w.-]+", requirement)
        assert match is not None
        name = normalised(match[0])
        if name in found:
            continue
        found.add(name)
        try:
            waiting += requires(name) or []
        except PackageNotFoundError:
            # For another platform.
            continue
    return found


def run_without_extras(script: str, folder: Path) -> str:
    """What the script prints in an interpreter that has the core's requirements only."""
    core = of_the_core()
    blocked = []
    for module, distributions in packages_distributions().items():
        if not core & set(map(normalised, distributions)):
            blocked.append(module)
    assert {"transformers", "onnxruntime", "matplotlib", "sklearn"} <= set(blocked)
    head = WITHOUT_EXTRAS.replace("BLOCKED", repr(blocked))
    done = subprocess.run(
        [sys.executable, "-c", head + script],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_imports_without_any_extra_and_what_needs_one_names_it(
    tmp_path: Path,
) -> None:
    names = [f"smoothmix.{name}" for name in sorted(NAMES - {"", "__main__"})]
    assert len(names) > 100
    result = str(ROOT / "results" / "mnist-0.50-gaussian")
    script = WALK.replace("NAMES", repr(names)) + ASK.replace("RESULT", repr(result))
    first, _, printed = run_without_extras(script, tmp_path).partition("\n")
    failed = json.loads(first)
    assert failed.keys() == {f"smoothmix.{name}" for name in NEEDS_EXTRA}
    for message in failed.values():
        assert message.startswith("UsageError")
        assert "pip install" in message
    for extra in ("onnx", "hf", "timm"):
        assert f"pip install 'smoothmix[{extra}]'" in printed
    for package in ("matplotlib", "tensorboard"):
        assert f"pip install {package}" in printed, printed

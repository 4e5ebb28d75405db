"""The examples of docs/tracking.md on the real libraries, in processes of their own."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "tracking.md").read_text()


def run_example(library: str, folder: Path, *, then: str) -> dict[str, Any]:
    """What the example of a library left, as JSON that the lines `then` print."""
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"needs {library}: pip install 'smoothmix[tracking]'")
    (block,) = re.findall(rf"```python {library}\n(.*?)```", PAGE, flags=re.DOTALL)
    # A process of its own: these libraries leave threads, handlers and settings behind.
    done = subprocess.run(
        [sys.executable, "-c", f"{block}\n{then}"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def metrics_of(folder: Path) -> dict[str, Any]:
    (line,) = (folder / "metrics.jsonl").read_text().splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def test_mlflow_gets_every_metric_of_an_epoch(tmp_path: Path) -> None:
    logged = run_example(
        "mlflow",
        tmp_path,
        then="import json\n"
        "(run,) = mlflow.search_runs(['1'], output_format='list')\n"
        "print(json.dumps({'metrics': run.data.metrics, 'params': run.data.params}))",
    )
    written = metrics_of(tmp_path / "runs" / "mlflow")
    assert logged["metrics"]["accuracy"] == pytest.approx(written["accuracy"])
    assert logged["metrics"]["loss"] == pytest.approx(written["loss"])
    assert logged["params"]["epochs"] == "1"


def test_wandb_gets_certificates_offline(tmp_path: Path) -> None:
    run_example("wandb", tmp_path, then="print('{}')")
    (file,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    # Offline, wandb keeps what was logged as JSON within records of its own format.
    kept = file.read_bytes()
    accuracy = metrics_of(tmp_path / "runs" / "wandb")["accuracy"]
    assert b"certified/acr" in kept
    assert f"{accuracy}".encode() in kept


def test_lightning_logs_what_certify_gives_for_the_same_images(tmp_path: Path) -> None:
    logged = run_example(
        "lightning",
        tmp_path,
        then="import json\n"
        "logged = {name: float(value) for name, value in trainer.callback_metrics.items()}\n"
        "numbers = range(0, 1000, 50)\n"
        "images = sm.data.load('sample', 'test').images(numbers)\n"
        "labels = torch.from_numpy(sm.data.load('sample', 'test').labels[numbers])\n"
        "smoothed = sm.Smoothed(trainer.model.net, sigma=0.25, num_classes=10)\n"
        "certified = smoothed.certify(images, n=200, seed=0)\n"
        "right = certified.prediction == labels\n"
        "logged['expected'] = float((certified.radius * right).mean())\n"
        "print(json.dumps(logged))",
    )
    assert logged["certified/acr"] == pytest.approx(logged["expected"], rel=1e-5)
    assert 0 < logged["certified/accuracy_0.25"] <= 1
    assert logged["accuracy"] > 0.5


def test_a_missing_lightning_is_named(tmp_path: Path) -> None:
    (tmp_path / "lightning.py").write_text("raise ImportError('not here')")
    done = subprocess.run(
        [sys.executable, "-c", "import smoothmix.integrations.lightning"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "pip install lightning" in done.stderr

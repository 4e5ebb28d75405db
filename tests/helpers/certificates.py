"""Certificate files made by hand: Cohen-style logs and ours."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

from smoothmix.certificates import FileSettings, from_votes, save
from smoothmix.certificates.file import Certificates
from smoothmix.config import RunConfig
from tests.helpers.guarantees import certification_of

COHEN_HEADER = "idx\tlabel\tpredict\tradius\tcorrect\ttime\n"


def zipped(content: bytes, name: str = "log") -> bytes:
    """A .zip archive with one file."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return stream.getvalue()


def cohen_log(path: Path, radii: list[object], *, predict: list[int] | None = None) -> Path:
    """A Cohen-style log, all images of class 1."""
    answers = predict or [1] * len(radii)
    rows = [
        f"{i}\t1\t{p}\t{r}\t{int(p == 1)}\t0:00:01.5\n"
        for i, (r, p) in enumerate(zip(radii, answers, strict=True))
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(COHEN_HEADER + "".join(rows))
    return path


def our_file(
    path: Path,
    right: list[int],
    *,
    n: int = 1000,
    data: str = "sample",
    data_hash: str = "d",
    model: str = "lenet",
    weights: str = "",
    engine: str = "torch-cpu",
    **settings: Any,
) -> Path:
    """A file of ours: image i has right[i] of n votes for its label 1, the others for class 0."""
    certification = certification_of(0.5, n=n, **settings)
    rows = tuple(
        from_votes(
            i,
            1,
            {1: 100},
            {c: k for c, k in ((0, n - votes), (1, votes)) if k},
            certification=certification,
            seconds=1.0,
        )
        for i, votes in enumerate(right)
    )
    made = FileSettings(
        certification=certification,
        model=model,
        model_hash="m",
        weights=weights,
        data=data,
        split="test",
        data_hash=data_hash,
        num_classes=2,
        images=len(right),
        engine=engine,
        noise_scheme="philox",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    save(Certificates(path, rows, made), path)
    return path


def run_folder(path: Path, right: list[int], config: RunConfig, **settings: object) -> Path:
    """A run folder as training and certification leave it, but for the weights."""
    our_file(path / "certificates.tsv", right, **settings)
    config.save(path / "config.toml")
    line = {
        "epoch": 1,
        "loss": 0.5,
        "parts": {"natural": 0.5},
        "accuracy": 0.9,
        "learning_rate": 0.01,
    }
    (path / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    return path

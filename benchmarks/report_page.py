"""Time and memory of a report of 20 runs x 10,000 images: `python -m benchmarks.report_page`."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from smoothmix.certificates import Certificates, Certification, FileSettings, from_votes, save
from smoothmix.stats.guarantees import FixedDraws

RUNS, IMAGES, N = 20, 10_000, 100_000


def make_run(folder: Path, seed: int) -> None:
    """A certificate file with votes as a network of ten classes casts them."""
    rng = np.random.default_rng(seed)
    certification = Certification(sigma=0.5, guarantee=FixedDraws(N))
    truth = np.clip(rng.beta(6, 0.5, IMAGES), 0.3, 1.0)
    rows = []
    for idx, p in enumerate(truth):
        shares = np.full(10, (1 - p) / 9)
        shares[idx % 10] = p
        selection, votes = rng.multinomial(100, shares), rng.multinomial(N, shares)
        counts = [{c: int(k) for c, k in enumerate(part) if k} for part in (selection, votes)]
        rows.append(from_votes(idx, idx % 10, *counts, certification=certification, seconds=1.0))
    settings = FileSettings(
        certification=certification,
        model="lenet",
        model_hash="0",
        data="mnist",
        split="test",
        data_hash="0",
        num_classes=10,
        images=IMAGES,
        engine="torch-cpu",
        noise_scheme="philox",
    )
    folder.mkdir()
    save(
        Certificates(folder / "certificates.tsv", tuple(rows), settings),
        folder / "certificates.tsv",
    )


def main() -> None:
    with TemporaryDirectory() as name:
        folders = [Path(name) / f"run-{number:02}" for number in range(RUNS)]
        for number, folder in enumerate(folders):
            make_run(folder, number)
        out = Path(name) / "report.html"
        started = time.perf_counter()
        command = [
            sys.executable,
            "-m",
            "smoothmix",
            "report",
            *map(str, folders),
            "--out",
            str(out),
        ]
        subprocess.run(command, check=True, capture_output=True)
        seconds = time.perf_counter() - started
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        size = out.stat().st_size / 1e6
        cost = f"{seconds:.1f} s, {peak:.0f} MB, a page of {size:.2f} MB"
        print(f"{RUNS} runs x {IMAGES:,} images: {cost}")


if __name__ == "__main__":
    main()

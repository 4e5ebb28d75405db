"""Time and memory of a report: `python -m benchmarks.report_page [RUNS] [IMAGES] [--keep PAGE]`.

By default 20 runs of 10,000 images: five methods at four sigmas, with votes as networks cast them.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from scipy.stats import norm

from smoothmix.certificates import Certificates, Certification, FileSettings, save, sparse
from smoothmix.certificates.row import ImageVotes, certificates_of
from smoothmix.stats.guarantees import FixedDraws

N = 100_000
METHODS = 5
SIGMAS = (0.12, 0.25, 0.5, 1.0)


def make_run(folder: Path, number: int, images: int) -> None:
    """A certificate file with votes as a network of ten classes casts them."""
    # The difficulty of an image is the same for all; methods and sigmas shift it.
    difficulty = np.random.default_rng(0).normal(1.6, 1.2, images)
    rng = np.random.default_rng(number)
    sigma = SIGMAS[number // METHODS % len(SIGMAS)]
    gain = 0.15 * (number % METHODS) - 0.8 * sigma
    truth = norm.cdf(difficulty + gain + rng.normal(0, 0.3, images))
    certification = Certification(sigma=sigma, guarantee=FixedDraws(N))
    votes = []
    for idx, p in enumerate(truth):
        shares = np.full(10, (1 - p) / 9)
        shares[idx % 10] = p
        votes.append(
            ImageVotes(
                idx=idx,
                label=idx % 10,
                selection_counts=sparse(rng.multinomial(100, shares)),
                counts=sparse(rng.multinomial(N, shares)),
                seconds=1.0,
            )
        )
    rows = certificates_of(votes, certification)
    settings = FileSettings(
        certification=certification,
        model="lenet",
        model_hash="0",
        data="mnist",
        split="test",
        data_hash="0",
        num_classes=10,
        images=images,
        engine="torch-cpu",
        noise_scheme="philox",
    )
    folder.mkdir(parents=True)
    save(
        Certificates(folder / "certificates.tsv", tuple(rows), settings),
        folder / "certificates.tsv",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=int, nargs="?", default=20)
    parser.add_argument("images", type=int, nargs="?", default=10_000)
    parser.add_argument("--keep", type=Path, help="write the page here")
    options = parser.parse_args()
    with TemporaryDirectory() as name:
        inputs = []
        for number in range(options.runs):
            # A method has one name at every sigma.
            method = number % METHODS + METHODS * (number // (METHODS * len(SIGMAS)))
            folder = Path(name) / f"run-{number:03}"
            make_run(folder, number, options.images)
            inputs.append(f"method {method + 1}={folder}")
        out = options.keep or Path(name) / "report.html"
        command = [sys.executable, "-m", "smoothmix", "report", *inputs, "--out", str(out)]
        started = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        seconds = time.perf_counter() - started
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        # On a machine that does other work, the time on the processor tells more.
        cpu = used.ru_utime + used.ru_stime
        peak = used.ru_maxrss / 1024
        size = out.stat().st_size / 1e6
        cost = f"{seconds:.1f} s ({cpu:.1f} s of processor time), {peak:.0f} MB"
        cost = f"{cost}, a page of {size:.2f} MB"
        print(f"{options.runs} runs x {options.images:,} images: {cost}")


if __name__ == "__main__":
    main()

"""Made-up logs, laid out as the paper's release, that the tests of its tables share."""

from __future__ import annotations

import bz2
import csv
import gzip
import lzma
from pathlib import Path

from smoothmix.reproduce.table import Reproduced, reproduction_grid
from smoothmix.tables import FORMATS

GAUSSIAN = "mnist/cohen"
ONE_STEP = "mnist/smoothmix/smix_1.0_8_m1/tau_5.0/num_4"

# A place for every row at sigma 1.00, spelled as in the release.
PLACES = {
    "mnist/1.00/gaussian": "mnist/cohen/noise_1.00_{}",
    "mnist/1.00/stability": "mnist/stab/lbd_2/noise_1.0_{}",
    "mnist/1.00/smoothadv": "mnist/salman/pgd_255.0_10_10/num_4/noise_1.00_{}",
    "mnist/1.00/macer": "mnist/macer_deferred30/num_16/lbd_6.0/gamma_8.0/beta_16.0/noise_1.00_{}",
    "mnist/1.00/consistency": "mnist/consistency/cohen/num_2/lbd_5.0/eta_0.5/noise_1.00_{}",
    "mnist/1.00/smoothmix-eta1": "mnist/smoothmix/smix_1.0_8_m0/tau_1.0/num_4/{}/noise_1.0",
    "mnist/1.00/smoothmix-eta1-onestep": "mnist/smoothmix/smix_1.0_8_m1/tau_1.0/num_4/{}/noise_1.0",
    "mnist/1.00/smoothmix-eta5": "mnist/smoothmix/smix_1.0_8_m0/tau_5.0/num_4/{}/noise_1.0",
    "mnist/1.00/smoothmix-eta5-onestep": "mnist/smoothmix/smix_1.0_8_m1/tau_5.0/num_4/{}/noise_1.0",
}


def log_text(*radii: float) -> str:
    """A log: a correct image per radius, a misclassified one with radius 2, and an abstention."""
    right = [(3, radius) for radius in radii]
    rows = [(3, predict, radius) for predict, radius in (*right, (5, 2.0), (-1, 0.0))]
    lines = [f"{i}\t{y}\t{p}\t{r:.3}\t{int(p == y)}\t0:00:00.3" for i, (y, p, r) in enumerate(rows)]
    return "\n".join(["idx\tlabel\tpredict\tradius\tcorrect\ttime", *lines]) + "\n"


def write_log(folder: Path, path: str, *radii: float) -> Path:
    """Such a log below a folder, packed as its name says."""
    file, data = folder / path, log_text(*radii).encode()
    file.parent.mkdir(parents=True, exist_ok=True)
    packers = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}
    file.write_bytes(packers[file.suffix](data) if file.suffix in packers else data)
    return file


def csv_rows(rows: list[Reproduced], radii: list[float] | None = None) -> list[dict[str, str]]:
    """The table as a program reads it."""
    grid = reproduction_grid(rows, title="made", radii=radii, wide=True)
    return list(csv.DictReader(FORMATS["csv"](grid).splitlines()))


def two_seeds(folder: Path) -> Path:
    """Gaussian and SmoothMix with two seeds each.

    Gaussian: of four images two are correct, (1.5 + 0.5)/4 = 0.5 and (1.7 + 0.7)/4 = 0.6, so 0.55
    with a standard deviation of 0.1/sqrt(2); at 0.50, both correct images count, so 50 % in both.
    Their lower ends are 1.495 + 0.4995 and 1.695 + 0.6995: 0.498625 and 0.598625; at 0.50 one image
    of the first falls out: 25 % and 50 %.
    """
    write_log(folder, f"{GAUSSIAN}/noise_1.00_11", 1.5, 0.5)
    write_log(folder, f"{GAUSSIAN}/noise_1.00_12", 1.7, 0.7)
    write_log(folder, f"{ONE_STEP}/21/noise_1.0", 1.9, 0.5)
    write_log(folder, f"{ONE_STEP}/22/noise_1.0", 1.9, 0.5)
    return folder


ROWS = ["mnist/1.00/gaussian", "mnist/1.00/smoothmix-eta5-onestep"]

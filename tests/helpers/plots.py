"""Runs to draw, and how the tests of the figures read off what was drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from smoothmix import analysis
from smoothmix.analysis import Measured
from smoothmix.analysis.sources import Source
from smoothmix.certificates import Certificate, Certification, FileSettings, from_votes
from smoothmix.certificates.file import Certificates
from smoothmix.stats.guarantees import FixedDraws

EPOCHS = [
    {
        "epoch": e,
        "loss": 2.0 / e,
        "parts": {},
        "accuracy": 0.9 - 0.5 / e,
        "learning_rate": 0.1 if e < 3 else 0.01,
    }
    for e in range(1, 6)
]


def run(
    name: str = "gaussian",
    *,
    sigma: float = 0.5,
    images: int = 40,
    n: int = 1000,
    seed: int = 0,
    training: Sequence[Mapping[str, Any]] = EPOCHS,
    skip_wrong: bool = False,
) -> Measured:
    """A file with random votes: correct, misclassified and undecided images, some unanimous."""
    generator = np.random.default_rng(seed)
    how = Certification(sigma=sigma, guarantee=FixedDraws(n=n), skip_wrong=skip_wrong)
    rows = []
    for i in range(images):
        label, chosen = int(generator.integers(3)), int(generator.integers(3)) if i % 5 == 0 else -1
        chosen = label if chosen < 0 else chosen
        votes = n if i % 7 == 0 else int(generator.binomial(n, generator.uniform(0.4, 1.0)))
        counts = {c: k for c, k in ((chosen, votes), ((chosen + 1) % 3, n - votes)) if k}
        rows.append(from_votes(i, label, {chosen: 100}, counts, certification=how))
    settings = FileSettings(
        certification=how,
        model="lenet",
        model_hash="m",
        data="sample",
        split="test",
        data_hash="d",
        num_classes=3,
        images=images,
        engine="torch-cpu",
        noise_scheme="philox",
    )
    file = Certificates(Path(f"{name}/certificates.tsv"), tuple(rows), settings)
    return analysis.from_file(file, name=name, training=training)


def log(
    radii: Sequence[float], *, name: str = "log", sigma: float | None = None, wrong: int = 0
) -> Measured:
    """A Cohen-style log: no votes, no settings; the first `wrong` images are misclassified."""
    rows = [
        Certificate(idx=i, label=1, predict=int(i >= wrong), radius=r, correct=i >= wrong)
        for i, r in enumerate(radii)
    ]
    file = Certificates(Path("log"), tuple(rows))
    return analysis.from_file(file, name=name, source=Source(path="log", sigma=sigma))


def lines_of(figure: Figure | Axes) -> dict[str, Line2D]:
    """The curves of a figure by the runs' names; of one name in several panels, the last."""
    axes = figure.axes if isinstance(figure, Figure) else [figure]
    return {
        str(line.get_label()): line
        for ax in axes
        for line in ax.get_lines()
        if line.get_drawstyle() != "default"
    }


def legend_of(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def texts_of(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


def read_off(line: Line2D, at: float) -> float:
    """What the step curve shows at a place: up to each corner, that corner's value."""
    assert line.get_drawstyle() == "steps-pre"
    x, y = line.get_data()
    return next((float(b) for a, b in zip(x, y, strict=True) if a >= at), 0.0)

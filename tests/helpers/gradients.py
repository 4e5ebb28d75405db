"""Gradients of every step of a short run: `torchrun gradients.py FOLDER`, or in one process."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from smoothmix._process.world import current_world
from smoothmix.config import RunConfig
from smoothmix.training.metrics import Listeners
from smoothmix.training.run import open_run

METHODS: dict[str, dict[str, Any]] = {
    "gaussian": {"name": "gaussian"},
    "stability": {"name": "stability"},
    "smoothadv": {"name": "smoothadv", "copies": 2, "steps": 2},
    "macer": {"name": "macer", "copies": 4},
    "consistency": {"name": "consistency", "copies": 2},
    "consistency on smoothadv": {"name": "consistency", "copies": 2, "epsilon": 1.0, "steps": 2},
    "smoothmix": {"name": "smoothmix", "copies": 2, "steps": 2, "one_step": True},
    "smoothmix, as the text says": {
        "name": "smoothmix",
        "copies": 2,
        "steps": 2,
        "fidelity": "paper",
    },
}
"""Settings by the name of the case."""


ROUNDING = {"smoothadv with ddn": {"name": "smoothadv", "copies": 2, "steps": 3, "attack": "ddn"}}
"""Equal but for rounding, which DDN enlarges: 1e-7 may decide to which level a pixel goes."""


def gradients(config: RunConfig, method: dict[str, Any], folder: Path) -> list[list[Tensor]]:
    """The gradient of each weight in each step of a run."""
    found: list[list[Tensor]] = []

    def on_step(progress: object) -> None:
        found.append(
            [
                weight.grad.clone()
                for weight in trainer.model.parameters()
                if weight.grad is not None
            ]
        )

    case = replace(config, method={"sigma": 0.5, **method})
    with open_run(case, folder, listeners=Listeners(on_step=on_step)) as trainer:
        trainer.run()
    return found


if __name__ == "__main__":
    here = Path(sys.argv[1])
    loaded = RunConfig.load(here / "config.toml")
    every = {name: gradients(loaded, case, here / f"many {name}") for name, case in METHODS.items()}
    threads = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    assert not [name for name in threads if "gloo" in name], (
        f"could make the process abort at its end: {threads}"
    )
    if current_world().is_main:
        torch.save(every, here / "gradients.pt")

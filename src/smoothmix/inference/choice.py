"""Which of the installed engines is the fastest for a network: measured once, then remembered.

Only engines that are installed in addition to torch make a measurement worth its time, and only
for jobs that take much longer. What was measured is kept in this user's cache folder. It may be
deleted at any time: it saves a few seconds, and nothing else depends on it.
"""

from __future__ import annotations

import hashlib
import math
import statistics
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch
from torch import Tensor, nn

from smoothmix._io.files import atomic_write
from smoothmix.config import ENGINE_NAMES, EngineName, Precision
from smoothmix.errors import UsageError
from smoothmix.inference.engines import ENGINES
from smoothmix.inference.positions import position_dependence
from smoothmix.inference.prepare import own_dtype, prepare_network, processor_of
from smoothmix.inference.prepared import PreparedNetwork
from smoothmix.inference.threads import one_thread_per_forward
from smoothmix.models.outside import outside_parts
from smoothmix.networks.modes import device_of
from smoothmix.version import __version__

WORTH = 60.0
"""Seconds of a job, for each second that an engine takes to prepare, from which on it is tried."""

GAIN = 1.03
"""How many times as fast as torch another engine must be to be chosen: less may be chance."""

LEAST_INPUT = 2**24
"""Numbers of input in all draws of a job, below which it is short whatever the network: such a job
is not delayed by a look at its speed."""

TURNS = 7
TURN_SECONDS = 0.05
"""How often each engine is timed, and for how long at least."""

MOST_REMEMBERED = 500
"""Files in the cache; of more, the oldest are deleted."""

DEFAULT: EngineName = "auto"
"""What needs no measurement: fused layers where they fit, and else the network as written."""


@final
@dataclass(frozen=True, kw_only=True)
class Choice:
    """The engine for a network, and how it was found."""

    engine: EngineName
    note: str = ""
    """A sentence for the person, where another engine than the default is chosen."""


def choose_engine(
    model: nn.Module,
    shape: Sequence[int],
    *,
    batch: int,
    precision: Precision,
    draws: int,
    cache: Path | None = None,
) -> Choice:
    """The fastest of the installed engines for so many draws of images of this shape."""
    if draws * math.prod(shape) < LEAST_INPUT:
        return Choice(engine=DEFAULT)
    candidates = [name for name in ENGINES if _is_candidate(name, precision)]
    if not candidates or not _can_be_run_by_engines(model, shape):
        return Choice(engine=DEFAULT)
    with one_thread_per_forward() as threads:
        usual = prepare_network(model, shape, batch=batch, precision=precision)
        # A network that fails or draws random numbers has no engine but torch.
        if not usual.probe or usual.is_random:
            return Choice(engine=DEFAULT)
        images = torch.rand((usual.microbatch, *shape), generator=torch.Generator().manual_seed(0))
        seconds = _seconds(usual, images) / len(images) * draws / threads
        candidates = [name for name in candidates if seconds > WORTH * ENGINES[name].seconds]
        if not candidates:
            return Choice(engine=DEFAULT)
        memory = _Memory(cache or _cache_folder())
        key = network_key(model, shape, batch=batch, precision=precision)[:32]
        key += _machine_key(candidates)[:32]
        found = memory.read(key)
        if found is None:
            found = _fastest(model, shape, usual, candidates, images, batch=batch)
            memory.write(key, found)
    return found


def network_key(model: nn.Module, shape: Sequence[int], *, batch: int, precision: Precision) -> str:
    """What tells two networks apart that may not take the same time, as 64 hexadecimal digits.

    The values of the weights are no part of it.
    """
    parts = [precision, str(batch), str(tuple(shape)), repr(model)]
    parts += [f"{name} {tuple(weight.shape)}" for name, weight in model.named_parameters()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _machine_key(candidates: Sequence[EngineName]) -> str:
    """The same for two machines, or two versions of the software on one."""
    parts = [__version__, processor_of(torch.device("cpu"))]
    parts += [f"{name} {ENGINES[name].software}" for name in candidates]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _is_candidate(name: EngineName, precision: Precision) -> bool:
    """Whether an engine is none of the default ones, and could run networks here."""
    engine = ENGINES[name]
    return bool(engine.seconds) and precision in engine.precisions and engine.installed


def _can_be_run_by_engines(model: nn.Module, shape: Sequence[int]) -> bool:
    on_cpu = device_of(model).type == "cpu"
    in_torch = not any(outside_parts(model)) and own_dtype(model) == torch.float32
    return on_cpu and in_torch and len(shape) == 3


def _fastest(
    model: nn.Module,
    shape: Sequence[int],
    usual: PreparedNetwork,
    candidates: Sequence[EngineName],
    images: Tensor,
    *,
    batch: int,
) -> Choice:
    """The fastest engine of those that give the network's logits, measured in turns."""
    runs = {DEFAULT: usual}
    for name in candidates:
        # What cannot run this network is no candidate.
        with suppress(UsageError):
            prepared = prepare_network(
                model, shape, batch=batch, precision=usual.precision, engine=name
            )
            # Mode anytime refuses such a dependence, and mode exact warns of it.
            if position_dependence(prepared, shape, [len(images)]) != "average":
                runs[name] = prepared
    seconds: dict[EngineName, list[float]] = {name: [] for name in runs}
    for _ in range(TURNS):
        for name, prepared in runs.items():
            seconds[name].append(_seconds(prepared, images))
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    fastest = min(medians, key=lambda name: medians[name])
    gain = medians[DEFAULT] / medians[fastest]
    if gain < GAIN:
        return Choice(engine=DEFAULT)
    return Choice(
        engine=fastest,
        note=(
            f"--engine {fastest} is chosen: it runs this network {gain:.2f} times as fast as torch "
            "here"
        ),
    )


def _seconds(network: PreparedNetwork, images: Tensor) -> float:
    """Seconds of one forward pass of this thread, after one that warms up."""
    network(images)
    passes = 0
    started = time.thread_time()
    while True:
        network(images)
        passes += 1
        # Seconds of this thread: other programs do not count.
        passed = time.thread_time() - started
        if passed > TURN_SECONDS or passes >= 2**12:
            return passed / passes


@final
@dataclass(frozen=True)
class _Memory:
    """Choices of earlier measurements, one small file each."""

    folder: Path

    def read(self, key: str) -> Choice | None:
        """What was chosen before; None if that is not known, or its file is damaged."""
        try:
            name, _, note = (self.folder / key).read_text(encoding="utf-8").partition("\n")
        except (OSError, UnicodeError):
            return None
        for known in ENGINE_NAMES:
            if name == known and len(note) < 200:
                return Choice(engine=known, note=note.strip())
        return None

    def write(self, key: str, choice: Choice) -> None:
        """Remember a choice; where that is not possible, the next job measures again."""
        with suppress(OSError):
            atomic_write(self.folder / key, f"{choice.engine}\n{choice.note}\n".encode())
            files = sorted(self.folder.iterdir(), key=lambda file: file.stat().st_mtime)
            for old in files[:-MOST_REMEMBERED]:
                old.unlink(missing_ok=True)


def _cache_folder() -> Path:
    # Imported here: it takes long to load, and only this needs it.
    import pooch  # type: ignore[import-untyped]

    return Path(pooch.os_cache("smoothmix")) / "engines"

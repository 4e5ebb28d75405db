"""Real processes for tests that kill them, found by a mark in their environment."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from smoothmix import data, presets
from smoothmix.config import RunConfig
from smoothmix.networks.weights import state_hash
from smoothmix.runs.folder import RunFolder
from smoothmix.runs.load import load_run
from smoothmix.training.run import open_run
from tests.conftest import command

TRAIN = ("train", "--config", "config.toml", "--device", "cpu", "--out")
"""The command that trains the run of `tiny_run`, but for the name of its folder."""

PATIENCE = 90.0
"""Seconds after which a process that should have done something has not."""


def tiny_run(
    folder: Path, *, images: int = 160, epochs: int = 3, batch: int = 32, method: str = "gaussian"
) -> RunConfig:
    """Settings of a run on a few images of the sample; both are saved in `folder`."""
    quick = presets.get("quick/gaussian").config
    sample = data.load("sample", "train")
    pixels = (sample.images(range(images)).numpy() * 255).round().astype(np.uint8)
    np.savez(folder / "tiny.npz", x=pixels, y=sample.labels[:images])
    recipe = replace(quick.recipe, epochs=epochs, batch=batch)
    config = replace(quick, data=f"npz:{folder / 'tiny.npz'}", recipe=recipe, preset="")
    config.save(folder / "config.toml")
    return config


def train_here(config: RunConfig, folder: Path) -> str:
    """Train to the end in this process; the hash of the weights."""
    with open_run(config, folder) as trainer:
        trainer.run()
    return weights_in(folder)


def weights_in(folder: Path) -> str:
    """The hash of the trained weights in a run folder."""
    return state_hash(load_run(folder)[1])


def until(happened: Callable[[], object], what: str) -> None:
    """Wait for something."""
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.01)


def until_saved(folder: Path) -> None:
    """Wait until there is a checkpoint to resume."""
    until(RunFolder(folder).state.exists, f"a checkpoint in {folder}")


@dataclass
class Job:
    """A process that a test has started, and its standard error."""

    process: subprocess.Popen[bytes]
    log: Path

    def wait(self) -> int:
        """Its exit code."""
        return self.process.wait(timeout=PATIENCE)

    @property
    def output(self) -> str:
        return self.log.read_text()


@dataclass
class Jobs:
    """Starts processes that bear a mark, which their children inherit."""

    folder: Path
    mark: str = field(default_factory=lambda: f"SMOOTHMIX_TEST_MARK={secrets.token_hex(8)}")
    started: list[Job] = field(default_factory=list)

    def start(
        self, argv: list[str], *, before: Callable[[], None] | None = None, **environment: str
    ) -> Job:
        """Start a process; `before` runs in it first."""
        log = self.folder / f"log-{len(self.started)}.txt"
        name, _, value = self.mark.partition("=")
        # Sums round differently on more threads than the tests have.
        marked = {**os.environ, "OMP_NUM_THREADS": "1", name: value, **environment}
        with log.open("wb") as stream:
            process = subprocess.Popen(
                argv,
                cwd=self.folder,
                stdout=stream,
                stderr=stream,
                env=marked,
                preexec_fn=before,  # noqa: PLW1509 - sets a limit of the process, and nothing else
            )
        job = Job(process, log)
        self.started.append(job)
        return job

    def smoothmix(
        self, *args: object, before: Callable[[], None] | None = None, **environment: str
    ) -> Job:
        """Start a command."""
        return self.start(list(command(*args)), before=before, **environment)

    def torchrun(self, options: str, *args: object) -> Job:
        """Start a command in several processes."""
        launcher = [sys.executable, "-m", "torch.distributed.run", *options.split()]
        return self.start([*launcher, "-m", "smoothmix", *map(str, args)])

    def ranks(self, commands: list[list[str]], **environment: str) -> list[Job]:
        """Start the processes of one job without torchrun, which would end them together."""
        common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), **environment}
        size = str(len(commands))
        common |= {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
        return [
            self.start(command, RANK=str(rank), LOCAL_RANK=str(rank), **common)
            for rank, command in enumerate(commands)
        ]

    def alive(self) -> dict[int, dict[str, str]]:
        """The environment of every process that bears the mark, by process number."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                lines = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
                dead = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            except OSError:  # it has ended meanwhile
                continue
            if self.mark in lines and not dead:
                found[int(entry.name)] = dict(line.split("=", 1) for line in lines if "=" in line)
        return found

    def rank(self, number: int) -> int:
        """The process number of a rank."""
        (found,) = (
            pid
            for pid, environment in self.alive().items()
            if environment.get("RANK") == str(number)
        )
        return found


@contextmanager
def jobs_in(folder: Path) -> Iterator[Jobs]:
    """Processes for one test, which must leave none behind."""
    jobs = Jobs(folder)
    try:
        yield jobs
        deadline = time.monotonic() + 5
        while jobs.alive() and time.monotonic() < deadline:
            time.sleep(0.05)
        left = jobs.alive()
        assert not left, f"processes left behind: {sorted(left)}"
    finally:
        for pid in jobs.alive():
            os.kill(pid, signal.SIGKILL)
        for job in jobs.started:
            job.process.wait(timeout=30)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port

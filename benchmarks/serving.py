"""`python -m benchmarks.serving`: many clients of one service at once, under their deadlines.

It starts `smoothmix serve` on loopback, lets clients ask at once, and prints what they waited, what
they got, and what the service's memory did. It also sends what must be refused, and ends the
service by SIGTERM while requests are under way.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from smoothmix import data
from tests.helpers.serving import Answer, ask, port_in, problems

MODEL = "zoo:mnist-0.50-smoothmix"
LATE = 0.2
"""How much later than its deadline an answer may arrive."""

REFUSED_PIXELS = (10_000, 5_000)


@dataclass(frozen=True)
class Load:
    """What the clients saw."""

    answers: Sequence[Answer]
    memory: Sequence[float]
    """Bytes of the service's memory, about twice per second."""

    def report(self, deadline: float) -> str:
        """The figures in a few lines."""
        seconds = np.array([answer.seconds for answer in self.answers])
        valid = sum(answer.status == 200 and not problems(answer.json) for answer in self.answers)
        certified = [answer.json for answer in self.answers if answer.status == 200]
        draws = np.array([answer["draws"] for answer in certified])
        radii = np.array([answer["radius"] for answer in certified])
        in_time = float((seconds <= deadline + LATE).mean())
        median, most, longest = np.quantile(seconds, [0.5, 0.99, 1])
        megabytes = np.array(self.memory) / 2**20
        half = len(megabytes) // 2
        memory = (
            f"memory: {megabytes[:half].mean():.0f} MiB in the first half, "
            f"{megabytes[half:].mean():.0f} in the second, {megabytes.max():.0f} at most"
        )
        return "\n".join(
            [
                f"answers that are valid: {valid} of {len(self.answers)}",
                f"within {deadline + LATE:g} s: {100 * in_time:.1f} %",
                f"seconds: median {median:.3f}, 99 % {most:.3f}, longest {longest:.3f}",
                f"draws: median {np.median(draws):,.0f}, least {draws.min():,}",
                f"radius: median {np.median(radii):.3f}; abstained {int((radii == 0).sum())}",
                memory,
            ]
        )


@contextmanager
def service(model: str, log: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A service in a process of its own, and its port."""
    argv = [sys.executable, "-m", "smoothmix", "serve", model, "--port", "0"]
    with log.open("wb") as stream:
        process = subprocess.Popen(argv, stderr=stream, env=dict(os.environ))
    try:
        port = None
        while port is None and process.poll() is None:
            time.sleep(0.1)
            text = log.read_text()
            port = port_in(text[: text.rfind("\n") + 1])
        if port is None:
            raise SystemExit(log.read_text())
        yield process, port
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def digits(count: int) -> list[bytes]:
    """Images of the embedded sample as PNG."""
    test = data.load("sample", "test")
    bodies = []
    for index in range(count):
        pixels = (test.images([index % len(test)])[0, 0] * 255).round().byte().numpy()
        stream = io.BytesIO()
        Image.fromarray(pixels).save(stream, "PNG")
        bodies.append(stream.getvalue())
    return bodies


def load(port: int, *, requests: int, clients: int, deadline: float) -> Load:
    """Ask with so many clients at once; each sends its next request after its last answer."""
    bodies = digits(requests)
    path = f"/v1/certify?seconds={deadline:g}"
    memory: list[float] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.5):
            text = ask(port, "/metrics").body.decode()
            found = re.search(r"^process_resident_memory_bytes (\S+)$", text, re.MULTILINE)
            assert found
            memory.append(float(found[1]))

    def client(number: int) -> list[Answer]:
        return [ask(port, path, body) for body in bodies[number::clients]]

    watcher = threading.Thread(target=watch)
    watcher.start()
    with ThreadPoolExecutor(clients) as pool:
        answers = [answer for each in pool.map(client, range(clients)) for answer in each]
    ended.set()
    watcher.join()
    return Load(answers, memory)


def refusals(port: int) -> str:
    """What becomes of a malformed body and of an image with 50 million pixels."""
    stream = io.BytesIO()
    Image.new("L", REFUSED_PIXELS).save(stream, "PNG")
    large = ask(port, "/v1/certify", stream.getvalue())
    malformed = ask(port, "/v1/certify", digits(1)[0][:100])
    return (
        f"50 million pixels: status {large.status} in {large.seconds:.3f} s "
        f"({large.json['error']})\n"
        f"malformed body: status {malformed.status} ({malformed.json['error']})"
    )


def drained(process: subprocess.Popen[bytes], port: int) -> str:
    """Stop the service while eight requests of two seconds are under way."""
    bodies = digits(8)
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask, port, "/v1/certify?seconds=2", body) for body in bodies]
        time.sleep(0.7)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        answers = [future.result() for future in asked]
    code = process.wait(60)
    valid = sum(answer.status == 200 and not problems(answer.json) for answer in answers)
    return (
        f"SIGTERM: {valid} of {len(answers)} requests under way answered, exit code {code} after "
        f"{time.monotonic() - began:.2f} s"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=0.5, help="deadline of each request")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        service(options.model, Path(folder) / "log.txt") as (process, port),
    ):
        settings = ask(port, "/v1/model").json
        print(f"{options.model}, batches of {settings['batch']}, {os.cpu_count()} cores")
        # As a service has run for a while.
        load(port, requests=16, clients=options.clients, deadline=options.seconds)
        found = load(
            port, requests=options.requests, clients=options.clients, deadline=options.seconds
        )
        print(found.report(options.seconds))
        print(refusals(port))
        print(drained(process, port))


if __name__ == "__main__":
    main()

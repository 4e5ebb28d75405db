"""The service as a process: asked by HTTP on loopback, killed for real, stopped by SIGTERM."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from smoothmix import certificates, networks
from smoothmix.cli import main
from tests.conftest import Run, command
from tests.helpers.serving import PATIENCE, Answer, ask, port_in, problems
from tests.serve.conftest import png, png_header

BOUNDARY = "----part"


class Server:
    """A service in a process of its own, in one folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.log = folder / f"{name}.txt"
        argv = command("serve", "run", "--port", 0, "--log", "log.tsv", "--queue", 200)
        with self.log.open("wb") as stream:
            self.process = subprocess.Popen(
                argv, cwd=folder, stderr=stream, env={**os.environ, "OMP_NUM_THREADS": "2"}
            )
        until(lambda: self._port is not None or self.process.poll() is not None)
        assert self._port is not None, self.log.read_text()
        self.port = self._port

    @property
    def _port(self) -> int | None:
        # A line may be half written.
        text = self.log.read_text()
        return port_in(text[: text.rfind("\n") + 1])

    def ask(self, path: str, body: bytes | None = None, **options: object) -> Answer:
        return ask(self.port, path, body, **options)  # type: ignore[arg-type]


def until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an imported run."""
    found = tmp_path_factory.mktemp("serve")
    torch.manual_seed(0)
    torch.save(networks.build("lenet").body.state_dict(), found / "x.pt")
    options = ("--network", "lenet", "--sigma", "0.5", "--data", "sample")
    argv = ["import", str(found / "x.pt"), *options, "--out", str(found / "run")]
    assert main(argv) == 0
    return found


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    started = Server(folder, "first")
    yield started
    if started.process.poll() is None:
        started.process.kill()
    started.process.wait(PATIENCE)


def form(body: bytes, *, field: str = "image") -> tuple[bytes, dict[str, str]]:
    head = (
        f"--{BOUNDARY}\r\ncontent-disposition: form-data; name={field}; filename=x.png\r\n"
        "content-type: image/png\r\n\r\n"
    )
    content = head.encode() + body + f"\r\n--{BOUNDARY}--\r\n".encode()
    return content, {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}


def test_an_image_gets_a_certificate_that_follows_from_its_votes(server: Server) -> None:
    answer = server.ask("/v1/certify?seconds=1.5", png())
    assert answer.status == 200
    assert problems(answer.json) == []
    assert answer.json["settings"]["model"] == "lenet"
    assert answer.headers["x-request-id"] == answer.json["id"]
    assert "script-src 'self'" in answer.headers["content-security-policy"]


def test_a_form_is_taken_as_well(server: Server) -> None:
    content, headers = form(png(form="JPEG"))
    answer = server.ask("/v1/certify", content, headers=headers)
    assert answer.status == 200
    assert problems(answer.json) == []
    content, headers = form(png(), field="other")
    assert server.ask("/v1/certify", content, headers=headers).status == 400


def test_events_end_with_the_answer(server: Server) -> None:
    answer = server.ask("/v1/certify/stream?seconds=1", png())
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = answer.body.decode().strip().split("\n\n")
    names = [event.splitlines()[0] for event in events]
    assert names == ["event: progress"] * (len(names) - 1) + ["event: final"]
    assert problems(json.loads(events[-1].splitlines()[1].removeprefix("data: "))) == []


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/certify", b"", 400),
        ("/v1/certify", b"not an image", 415),
        ("/v1/certify/stream", b"not an image", 415),
        ("/v1/certify", png_header(10_000, 5_000), 413),
        ("/v1/certify?seconds=1e9", png(), 422),
        ("/v1/certify?seconds=soon", png(), 422),
        ("/nothing", None, 404),
        ("/v1/certify", None, 405),
    ],
)
def test_what_cannot_be_answered_is_refused(
    server: Server, path: str, body: bytes | None, status: int
) -> None:
    answer = server.ask(path, body)
    assert answer.status == status
    assert answer.json["error"]
    assert b"Traceback" not in answer.body


def test_a_body_that_is_too_large_is_refused_before_it_is_sent(server: Server) -> None:
    head = f"POST /v1/certify HTTP/1.1\r\nHost: localhost\r\nContent-Length: {2**23 + 1}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
        connection.sendall(head.encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 413 ")


def test_a_body_without_a_length_is_limited_as_well(server: Server) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(9 * 16):
            yield b"x" * 2**16

    try:
        answer = server.ask("/v1/certify", endless())  # type: ignore[arg-type]
    except (BrokenPipeError, ConnectionResetError):
        # The service has closed the connection before the client was done.
        return
    assert answer.status == 413


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Host": "localhost"}, 200),
    ],
)
def test_other_websites_do_not_reach_it(
    server: Server, headers: dict[str, str], status: int
) -> None:
    assert server.ask("/v1/model", headers=headers).status == status


def test_its_own_page_does(server: Server) -> None:
    origin = f"http://127.0.0.1:{server.port}"
    assert server.ask("/v1/certify", png(), headers={"Origin": origin}).status == 200
    assert server.ask("/").body.startswith(b"<!DOCTYPE html>")


def test_health_and_metrics(server: Server) -> None:
    assert server.ask("/health").json["status"] == "ok"
    text = server.ask("/metrics").body.decode()
    assert 'smoothmix_requests_total{path="/v1/certify",status="200"}' in text
    assert "evil" not in text


def test_clients_share_it_under_their_deadlines(server: Server) -> None:
    """Smaller than benchmarks/serving.py, which has the figures."""

    def client(number: int) -> list[Answer]:
        return [server.ask("/v1/certify", png(seed=number)) for _ in range(3)]

    with ThreadPoolExecutor(8) as clients:
        found = [answer for answers in clients.map(client, range(8)) for answer in answers]
    assert [answer.status for answer in found] == [200] * 24
    assert [problems(answer.json) for answer in found] == [[]] * 24
    numbers = [answer.json["idx"] for answer in found]
    assert len(set(numbers)) == 24, "no two answers share noise"


def test_a_killed_service_continues_its_log_and_sigterm_drains(
    server: Server, folder: Path, smoothmix: Run
) -> None:
    until(lambda: len(certificates.read(folder / "log.tsv").rows) > 20)
    server.process.kill()
    server.process.wait(PATIENCE)
    kept = len(certificates.read(folder / "log.tsv").rows)
    assert kept > 20
    second = Server(folder, "second")
    answers: list[Answer] = []
    thread = threading.Thread(
        target=lambda: answers.append(second.ask("/v1/certify?seconds=3", png()))
    )
    thread.start()
    until(lambda: b"smoothmix_active_images 1" in second.ask("/metrics").body)
    second.process.send_signal(signal.SIGTERM)
    thread.join(PATIENCE)
    assert second.process.wait(PATIENCE) == 0
    # What had arrived was answered, with all the time that it had asked for.
    assert answers[0].status == 200
    assert problems(answers[0].json) == []
    assert answers[0].json["idx"] == kept
    events = [json.loads(line)["event"] for line in second.log.read_text().splitlines()[2:]]
    assert events[-1] == "stopped"
    with pytest.raises(ConnectionRefusedError):
        second.ask("/health")
    file = certificates.read(folder / "log.tsv")
    assert file.finished
    assert len(file.rows) == kept + 1
    checked = smoothmix("certificates", "verify", folder / "log.tsv")
    assert checked.code == 0, checked.err


def test_every_line_of_the_log_is_json(server: Server) -> None:
    """Last: it reads what all the others have caused."""
    lines = [line for line in server.log.read_text().splitlines() if line.startswith("{")]
    events = [json.loads(line) for line in lines]
    requests = [event for event in events if event["event"] == "request"]
    assert len(requests) > 30
    assert {"id", "path", "status", "seconds", "client"} <= requests[0].keys()
    assert not [event for event in events if event["level"] == "error"]

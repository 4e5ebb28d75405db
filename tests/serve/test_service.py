"""The service without a network: answers, queue, limits, metrics and the log of certificates."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from smoothmix import certificates
from smoothmix.certificates import Certificate
from smoothmix.certificates.secret_seeds import read_secret_seed, seed_path
from smoothmix.certify import Resident
from smoothmix.config import Preparation
from smoothmix.data.photos import load_images
from smoothmix.errors import SmoothmixError, UsageError
from smoothmix.noise.streams import Domain
from smoothmix.serve import Classifier, ServeSettings, Service
from smoothmix.serve.admission import Admission
from smoothmix.serve.answers import answer_of, equivalents
from smoothmix.serve.errors import Refused
from smoothmix.serve.images import prepare_image
from smoothmix.serve.metrics import Metrics
from smoothmix.serve.row_log import row_log
from tests.serve.conftest import SHAPE, classifier_of, png, png_header

HANG = 60
SETTINGS = ServeSettings(seconds=1.0)


def ask(service: Service, body: bytes, seconds: float | None = None) -> dict[str, Any]:
    arrival = time.monotonic()
    deadline = service.deadline(arrival, seconds)
    return asyncio.run(service.certify(body, arrival=arrival, deadline=deadline))


def test_an_answer_holds_all_that_its_certificate_rests_on(resident: Resident) -> None:
    service = Service(classifier_of(resident, max_draws=640), SETTINGS)
    answer = ask(service, png(), HANG / 2)
    assert (answer["ended"], answer["draws"], answer["alpha"]) == ("enough", 640, 0.001)
    assert sum(answer["votes"].values()) == 640
    assert sum(answer["selection_votes"].values()) == 100
    assert answer["image"] == {"width": 28, "height": 28, "note": "certified as they are"}
    assert answer["settings"]["sigma"] == 0.1
    assert answer["settings"]["mode"] == "anytime"
    if answer["class"] is not None:
        assert answer["name"] == service.facts["classes"][answer["class"]]
    # Anyone can draw the votes again.
    image = decode(png())
    with resident.smoothed.open(SHAPE, seed=int(answer["seed"])) as sampler:
        votes = sampler.votes(image, 0, Domain.ESTIMATION, stop=640)
    assert answer["votes"] == {str(c): v for c, v in enumerate(votes[:-1].tolist()) if v}


def decode(body: bytes) -> torch.Tensor:
    return prepare_image(body, shape=SHAPE, trained_on="", max_pixels=10**6).pixels


def test_every_answer_has_fresh_noise(resident: Resident) -> None:
    service = Service(classifier_of(resident, max_draws=64), SETTINGS)
    seeds = {ask(service, png(), HANG / 2)["seed"] for _ in range(3)}
    assert len(seeds) == 3


def test_events_grow_until_the_last(resident: Resident) -> None:
    service = Service(classifier_of(resident), SETTINGS)

    async def collect(seconds: float) -> list[dict[str, Any]]:
        arrival = time.monotonic()
        events = service.events(png(), arrival=arrival, deadline=arrival + seconds)
        return [event async for event in events]

    events = asyncio.run(collect(1.0))
    # On a machine that is too busy for more than the answer.
    if len(events) == 1:
        events = asyncio.run(collect(20.0))
    assert [event["ended"] for event in events[:-1]] == [""] * (len(events) - 1)
    assert events[-1]["ended"] == "deadline"
    draws = [event["draws"] for event in events]
    assert draws == sorted(draws)
    assert len(events) > 1


def test_drawing_stops_if_nobody_listens(resident: Resident) -> None:
    service = Service(classifier_of(resident), SETTINGS)

    async def leave() -> None:
        arrival = time.monotonic()
        events = service.events(png(), arrival=arrival, deadline=arrival + HANG)
        await anext(events)
        await events.aclose()  # type: ignore[attr-defined]

    asyncio.run(leave())
    resident.turns.wait()
    assert resident.turns.active == 0
    assert service._admission.active == 0


def test_requests_beyond_the_queue_are_refused_and_waiting_ones_end_in_time() -> None:
    async def scene() -> None:
        admission = Admission(active=1, queue=1)
        assert await admission.enter(time.monotonic() + HANG)
        waiting = asyncio.create_task(admission.enter(time.monotonic() + HANG))
        await asyncio.sleep(0)
        with pytest.raises(Refused, match="too many requests") as refusal:
            await admission.enter(time.monotonic() + HANG)
        assert refusal.value.status == 429
        admission.leave()
        assert await waiting
        assert not await admission.enter(time.monotonic() + 0.05)
        assert (admission.active, admission.waiting) == (1, 0)

    asyncio.run(scene())


def test_an_image_that_waited_to_its_deadline_abstains(resident: Resident) -> None:
    service = Service(classifier_of(resident), ServeSettings(active=1))

    async def scene() -> dict[str, Any]:
        await service._admission.enter(time.monotonic() + HANG)
        arrival = time.monotonic()
        return await service.certify(png(), arrival=arrival, deadline=arrival + 0.3)

    answer = asyncio.run(scene())
    assert (answer["abstained"], answer["draws"], answer["ended"]) == (True, 0, "deadline")
    assert answer["selected"] is None
    assert answer["radius"] == answer["p_lower"] == 0


@pytest.mark.parametrize("seconds", [0, -1, 31, float("nan"), float("inf")])
def test_deadlines_that_cannot_be_are_refused(resident: Resident, seconds: float) -> None:
    service = Service(classifier_of(resident), SETTINGS)
    with pytest.raises(Refused, match="seconds must be above 0"):
        service.deadline(0.0, seconds)


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (b"", 400, "has no image"),
        (b"no image", 415, "not a readable image"),
        (png()[:200], 415, "the image: damaged"),
        (png(form="BMP"), 415, "not a readable image"),
        (png_header(10_000, 5_000), 413, "10000x5000 pixels"),
    ],
)
def test_bodies_that_are_no_image_are_refused(body: bytes, status: int, sentence: str) -> None:
    with pytest.raises(Refused, match=sentence) as refusal:
        prepare_image(body, shape=SHAPE, trained_on="", max_pixels=2**24)
    assert refusal.value.status == status


@pytest.mark.parametrize("preparation", [None, Preparation(resize=40, crop=28)])
@pytest.mark.parametrize("size", [(28, 28), (90, 60), (30, 200)])
def test_images_are_prepared_as_those_of_certify(
    size: tuple[int, int], preparation: Preparation | None, tmp_path: Path
) -> None:
    body = png(size, seed=3)
    (tmp_path / "photo.png").write_bytes(body)
    dataset = load_images(
        [str(tmp_path)],
        shape=SHAPE,
        class_names="ab",
        trained_on="mnist",
        preparation=preparation,
    )
    ours = prepare_image(
        body, shape=SHAPE, trained_on="mnist", max_pixels=10**6, preparation=preparation
    )
    assert torch.equal(ours.pixels, dataset.images([0])[0])
    assert ours.note == dataset.note


def test_an_image_too_small_for_the_crop_of_its_run_is_refused() -> None:
    way = Preparation(crop=28)
    with pytest.raises(Refused, match="20x30 pixels are too few to crop 28x28") as refusal:
        prepare_image(png((20, 30)), shape=SHAPE, trained_on="", max_pixels=10**6, preparation=way)
    assert refusal.value.status == 415


def test_a_radius_in_other_words_is_never_more_than_the_radius() -> None:
    shown = equivalents(2.0, SHAPE)
    # Three values switched are at distance sqrt(3) < 2; four would be at 2.
    assert shown == {"levels_everywhere": 18.2, "values_switched": 3}
    assert 784 * (18.2 / 255) ** 2 <= 4
    assert equivalents(0.0, SHAPE) == {"levels_everywhere": 0.0, "values_switched": 0}


def test_the_runner_up_is_the_class_with_most_other_votes(resident: Resident) -> None:
    classifier = classifier_of(resident)
    row = certificates.from_votes(
        0, -1, {3: 100}, {3: 900, 7: 60, 8: 30, -1: 10}, certification=classifier.certification
    )
    answer = answer_of(row, classifier, ended="")
    assert answer["runner_up"] == {"class": 7, "name": "seven", "share": 0.06}
    assert answer["votes"] == {"-1": 10, "3": 900, "7": 60, "8": 30}


def test_metrics_are_in_the_format_of_prometheus() -> None:
    metrics = Metrics()
    metrics.request("/v1/certify", 200)
    metrics.certificate(ended="deadline", draws=640, seconds=0.5)
    lines = metrics.text({"gauge": ("What it is.", 2.0)}).splitlines()
    assert 'smoothmix_requests_total{path="/v1/certify",status="200"} 1' in lines
    assert 'smoothmix_certificate_seconds_bucket{le="0.5"} 1' in lines
    assert 'smoothmix_certificate_seconds_bucket{le="0.25"} 0' in lines
    assert 'smoothmix_certificate_seconds_bucket{le="+Inf"} 1' in lines
    assert "gauge 2" in lines
    for line in lines:
        assert line.startswith(("#", "smoothmix_", "gauge"))


def test_the_log_is_a_certificate_file_that_verifies_and_continues(
    resident: Resident, tmp_path: Path
) -> None:
    path = tmp_path / "log.tsv"
    classifier = classifier_of(resident, max_draws=640)
    for start in (0, 4):
        with row_log(path, classifier.file_settings()) as rows:
            service = Service(classifier, SETTINGS, rows=rows)
            answers = [ask(service, png(seed=n), HANG / 2) for n in range(3)]
            # This one has no time for a draw, and a row all the same.
            answers.append(ask(service, png(), 0.001))
            service.close()
        assert [answer["idx"] for answer in answers] == list(range(start, start + 4))
        assert answers[-1]["draws"] == 0
        seed = read_secret_seed(seed_path(path))
        assert {answer["seed_commitment"] for answer in answers} == {seed.commitment}
        assert "seed" not in answers[0]
        file = certificates.read(path)
        assert file.finished
        assert certificates.verify(file).problems == ()
        assert [row.n for row in file.rows[start:]] == [640, 640, 640, 64]
        assert file.rows[start].radius == answers[0]["radius"]


def test_a_full_file_is_finished_and_the_log_goes_on_in_the_next(
    resident: Resident, tmp_path: Path
) -> None:
    path = tmp_path / "log.tsv"
    classifier = classifier_of(resident, max_draws=64)
    settings = replace(classifier.file_settings(), images=3)
    notes: list[str] = []

    def served(requests: int) -> list[dict[str, Any]]:
        with row_log(path, settings, on_note=notes.append) as rows:
            service = Service(classifier, SETTINGS, rows=rows)
            answers = [ask(service, png(seed=n), HANG / 2) for n in range(requests)]
            service.close()
        return answers

    answers = served(7)
    assert [answer["idx"] for answer in answers] == [0, 1, 2, 0, 1, 2, 0]
    files = [path, tmp_path / "log-2.tsv", tmp_path / "log-3.tsv"]
    assert [len(certificates.read(file).rows) for file in files] == [3, 3, 1]
    # A restart continues the last file, whose room is that of any.
    answers += served(3)
    assert [answer["idx"] for answer in answers[7:]] == [1, 2, 0]
    files.append(tmp_path / "log-4.tsv")
    seeds = set()
    for number, file in enumerate(files):
        found = certificates.read(file)
        assert found.finished
        assert certificates.verify(found).problems == ()
        commitment = read_secret_seed(seed_path(file)).commitment
        seeds.add(commitment)
        of_file = answers[3 * number : 3 * number + 3]
        assert {answer["seed_commitment"] for answer in of_file} == {commitment}
        assert [row.radius for row in found.rows] == [answer["radius"] for answer in of_file]
    assert len(seeds) == 4
    assert sum("log-3.secret-seed: keep it" in note for note in notes) == 1
    assert sum("log-3.secret-seed is used" in note for note in notes) == 1


def row_of(classifier: Classifier, number: int) -> Certificate:
    """A row that nobody has drawn."""
    return certificates.from_votes(
        number, -1, {3: 100}, {3: 960, 7: 64}, certification=classifier.certification
    )


def test_a_next_file_that_cannot_be_begun_is_tried_again(
    resident: Resident, tmp_path: Path
) -> None:
    classifier = classifier_of(resident)
    in_the_way = tmp_path / "log-2.tsv"
    settings = replace(classifier.file_settings(), images=1)
    with row_log(tmp_path / "log.tsv", settings) as rows:
        rows.take().file.add(row_of(classifier, 0))
        in_the_way.mkdir()
        for _ in range(2):
            with pytest.raises(SmoothmixError, match=r"log-2\.tsv"):
                rows.take()
        in_the_way.rmdir()
        rows.take().file.add(row_of(classifier, 0))
    assert certificates.read(in_the_way).finished
    assert not (tmp_path / "log-3.tsv").exists()


def test_rows_of_a_full_file_may_come_after_the_next_has_begun(
    resident: Resident, tmp_path: Path
) -> None:
    path = tmp_path / "log.tsv"
    classifier = classifier_of(resident)

    def row(number: int) -> Certificate:
        return row_of(classifier, number)

    with row_log(path, replace(classifier.file_settings(), images=2)) as rows:
        places = [rows.take() for _ in range(5)]
        assert [place.number for place in places] == [0, 1, 0, 1, 0]
        for place in reversed(places):
            place.file.add(row(place.number))
        rows.take().file.add(row(1))
    for name, count in (("log", 2), ("log-2", 2), ("log-3", 2)):
        found = certificates.read(tmp_path / f"{name}.tsv")
        assert (len(found.rows), found.finished) == (count, True)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"host": "0.0.0.0"}, "listens on all networks"),
        ({"host": "::"}, "listens on all networks"),
        ({"port": 70_000}, "port must be 0 to 65535"),
        ({"active": 0}, "active must be at least 1"),
        ({"seconds": 60.0}, "more than most-seconds"),
        ({"seconds": float("nan")}, "seconds must be a positive number"),
    ],
)
def test_settings_that_cannot_be_are_refused(changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        ServeSettings(**changed)


def test_the_hosts_of_a_service() -> None:
    assert ServeSettings().hosts == {"127.0.0.1", "localhost", "[::1]"}
    assert ServeSettings(host="0.0.0.0", allow_host=("Mine.example",)).hosts == {"mine.example"}
    assert ServeSettings(host="fd00::1").hosts == {"[fd00::1]"}

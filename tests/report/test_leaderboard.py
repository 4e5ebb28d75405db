"""The leaderboard: what is found in a tree, what is ranked, and its page in a real browser."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser

from smoothmix.analysis import Source, measure
from smoothmix.cli import main
from smoothmix.noise import make_noise
from smoothmix.report import Choices
from smoothmix.report.leaderboard import Board, Found, find, make_board, render_board
from tests.helpers.certificates import our_file
from tests.helpers.pages import HOSTILE

HEADER = "idx\tlabel\tpredict\tradius\tcorrect\ttime\n"
REACH = 3.81
"""The largest radius in sigmas of n = 100,000 with alpha = 0.001."""


def log_text(sigma: float, shift: float, *, images: int = 40, reach: float = REACH) -> str:
    """A log whose largest radius, which several images share, tells n and alpha."""
    rng = np.random.default_rng(0)
    radii = np.clip(rng.normal(shift, 0.4, images), 0, reach * sigma)
    radii[:4] = reach * sigma
    lines = []
    for idx, radius in enumerate(radii):
        predict = 1 if radius > 0 else -1
        lines.append(f"{idx}\t1\t{predict}\t{radius:.3}\t{int(radius > 0)}\t0:00:01\n")
    return HEADER + "".join(lines)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Logs of two data sets, a log with other draws, and files that are no logs."""
    folder = tmp_path / "logs"
    write(folder / "mnist/cohen/noise_0.25_1", log_text(0.25, 0.5))
    write(folder / "mnist/cohen/noise_1.0_1", log_text(1.0, 0.6))
    write(folder / "mnist/smoothmix/noise_0.25_1", log_text(0.25, 0.6))
    write(folder / "mnist/smoothmix/noise_1.0_1", log_text(1.0, 1.2))
    write(folder / "mnist/few/noise_1.0_1", log_text(1.0, 2.5, reach=3.09))
    write(folder / "cifar10/resnet110/consistency/noise_0.5_2", log_text(0.5, 0.4))
    write(folder / "mnist/README.md", "about noise_0.5")
    return folder


def board_of(folder: Path) -> Board:
    return make_board(find(folder, stated=Source(path="")), Choices(), title="logs")


def test_every_log_of_the_tree_is_entered_with_its_numbers(tree: Path) -> None:
    board = board_of(tree)
    assert board.others == 1
    assert not board.unread
    by_place = {entry.place: entry for entry in board.entries}
    assert len(by_place) == 6
    for place, entry in by_place.items():
        measured = measure(tree / place)
        # The ends come from matrix products, whose sums differ in the last digit.
        alone = measured.acr()
        assert entry.acr.value == alone.value
        assert (entry.acr.low, entry.acr.high) == pytest.approx((alone.low, alone.high))
        assert entry.accuracy == measured.accuracy_at(board.radii).tolist()
        assert (entry.sigma, entry.images) == (measured.sigma, len(measured))
    entry = by_place["cifar10/resnet110/consistency/noise_0.5_2"]
    assert (entry.data.text, entry.method.text, entry.network.text) == (
        "cifar10",
        "consistency",
        "resnet110",
    )
    assert entry.data.from_path
    assert (entry.n, entry.alpha, entry.origin) == (100_000, 0.001, "inferred")


def test_the_best_at_each_radius_is_taken_over_sigma_among_runs_certified_alike(
    tree: Path,
) -> None:
    board = board_of(tree)
    groups = board.groups
    group, largest = next(iter(groups.items()))
    assert (group.data, len(largest)) == ("mnist", 4)
    # The run with other draws has the highest ACR of all, and is not among them.
    assert board.entries[0].place == "mnist/few/noise_1.0_1"
    assert board.entries[0] not in largest
    for best in board.best(largest):
        column = list(board.radii).index(best.radius)
        assert best.accuracy == max(entry.accuracy[column] for entry in largest)
    # Beyond the reach of sigma 0.25 only the other sigma has anything.
    assert {best.entry.sigma for best in board.best(largest) if best.radius > 1} == {1.0}


def test_runs_of_ours_are_entered_with_what_they_record(zoo_results: Path) -> None:
    board = board_of(zoo_results)
    for entry in board.entries:
        assert entry.data.text == "mnist"
        assert not entry.data.from_path
        assert entry.origin == "recorded"
        assert entry.method.text in ("gaussian", "smoothmix")
        assert entry.network.text == "lenet"
        assert entry.acr.value == pytest.approx(measure(zoo_results / entry.place).counted.mean())


@pytest.fixture
def zoo_results(tmp_path: Path) -> Path:
    """Two of the committed runs."""
    results = Path(__file__).parents[2] / "results"
    folder = tmp_path / "results"
    folder.mkdir()
    for name in ("mnist-0.25-gaussian", "mnist-0.25-smoothmix"):
        run = folder / name
        run.mkdir()
        for file in ("certificates.toml", "certificates.tsv.xz", "config.toml"):
            (run / file).write_bytes((results / name / file).read_bytes())
    return folder


def test_a_file_that_cannot_be_read_is_listed_and_stops_nothing(tree: Path) -> None:
    write(tree / "bad/noise_0.5_1", "")
    write(tree / "bad/noise_0.5_2", HEADER + "0\t1\t1\tnan\t1\t0\n")
    write(tree / "bad/noise_0.5_3.xz", "no archive")
    write(tree / "bad/all.tar.gz", "no archive")
    (tree / "bad/noise_0.5_4").write_bytes(HEADER.encode() + b"\xff\xfe")
    write(tree / "bad/certificates.toml", "no = settings")
    write(tree / "bad/certificates.tsv", log_text(0.5, 1))
    # Opening a pipe would wait for ever.
    os.mkfifo(tree / "bad/noise_0.5_5")
    board = board_of(tree)
    assert len(board.entries) == 6
    reasons = {Path(each.place).name: each.reason for each in board.unread}
    assert set(reasons) == {
        "noise_0.5_1",
        "noise_0.5_2",
        "noise_0.5_3.xz",
        "noise_0.5_4",
        "all.tar.gz",
        "certificates.tsv",
    }
    assert reasons["noise_0.5_1"].startswith("is empty")
    assert reasons["noise_0.5_2"].startswith("line 2: radius must be a number")
    html = render_board(board)
    for reason in reasons.values():
        assert reason.split("(")[0].split("'")[0] in html


def test_a_tar_archive_is_read_like_the_folder_it_was_made_of(tree: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    packed.mkdir()
    with tarfile.open(packed / "logs.tar.xz", "w:xz") as archive:
        archive.add(tree, arcname=".")
        # A name that leads elsewhere is only shown, and a link is not followed.
        evil = tarfile.TarInfo("../../noise_0.5_evil")
        content = log_text(0.5, 1).encode()
        evil.size = len(content)
        archive.addfile(evil, io.BytesIO(content))
        link = tarfile.TarInfo("noise_0.5_link")
        link.type = tarfile.SYMTYPE
        link.linkname = "/etc/passwd"
        archive.addfile(link)
    board = board_of(packed)
    numbers = sorted(entry.acr.value for entry in board.entries if "evil" not in entry.place)
    assert numbers == sorted(entry.acr.value for entry in board_of(tree).entries)
    assert len(board.entries) == 7
    assert not [entry.place for entry in board.entries if ".." in entry.place]


def test_unknown_draws_and_data_are_not_ranked_unless_stated(tmp_path: Path) -> None:
    folder = tmp_path / "some"
    write(folder / "noise_0.5_1", log_text(0.5, 1, reach=3.3))
    write(folder / "noise_0.5_2", log_text(0.5, 1.1, reach=3.3))
    assert not board_of(folder).groups
    stated = Source(path="", n=50_000, alpha=0.01, data="mnist")
    board = make_board(find(folder, stated=stated), Choices(), title="some")
    assert [len(entries) for entries in board.groups.values()] == [2]


def test_runs_of_other_noise_are_not_ranked_with_each_other(tmp_path: Path) -> None:
    folder = tmp_path / "some"
    for name, noise in (("one", "gaussian"), ("two", "gaussian"), ("three", "laplace")):
        certificates = folder / name / "certificates.tsv"
        our_file(certificates, [990] * 30, data="mnist", noise=make_noise(noise))
    board = board_of(folder)
    assert [(group.noise, len(entries)) for group, entries in board.groups.items()] == [
        ("gaussian noise", 2),
        ("laplace noise (L1 radii)", 1),
    ]
    html = render_board(board)
    assert "n 1,000, alpha 0.001, laplace noise (L1 radii)" in html


def test_the_column_of_networks_is_there_where_one_is_known(tree: Path, zoo_results: Path) -> None:
    assert 'data-name="Network"' not in render_board(board_of(tree / "mnist"))
    assert 'data-name="Network"' in render_board(board_of(tree))
    assert 'data-name="Network"' in render_board(board_of(zoo_results))


def test_the_page_sorts_filters_and_marks_the_best_of_what_is_shown(
    tree: Path, tmp_path: Path, browser: Browser
) -> None:
    write(tree / f"mnist/{HOSTILE.replace('/', '')}\u202e/noise_0.5_1", log_text(0.5, 0.3))
    out = tmp_path / "board.html"
    assert main(["report", "--leaderboard", str(tree), "--out", str(out)]) == 0
    assert "\u202e" not in out.read_text()
    complaints: list[str] = []
    tab = browser.new_page(viewport={"width": 360, "height": 800})
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("dialog", lambda dialog: complaints.append(dialog.message))
    tab.goto(out.as_uri())
    # A phone scrolls the table and not the page.
    assert tab.evaluate("document.documentElement.scrollWidth") == 360

    def shown() -> list[str]:
        return [
            text.strip()
            for text in tab.locator("#runs tbody tr:visible th small").all_inner_texts()
        ]

    assert len(shown()) == 7
    tab.select_option("[data-filter=sigma]", "0.25")
    assert shown() == ["mnist/smoothmix/noise_0.25_1", "mnist/cohen/noise_0.25_1"]
    assert tab.locator("output").inner_text() == "2 of 7 runs"
    # The best of these two is marked, though sigma 1 has a higher ACR.
    best = tab.locator("#runs tbody tr:visible td.best").first
    assert best.locator("xpath=..").get_attribute("data-method") == "smoothmix"
    tab.select_option("[data-filter=sigma]", "")
    tab.fill("[data-search]", "cohen 1.0")
    assert shown() == ["mnist/cohen/noise_1.0_1"]
    tab.fill("[data-search]", "")
    tab.click("#runs thead [data-name=ACR] button")
    tab.click("#runs thead [data-name=ACR] button")
    assert shown()[-1] == "mnist/few/noise_1.0_1"
    tab.close()
    assert not complaints


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--leaderboard", "."], "name its file with --out"),
        (["--leaderboard", "nowhere", "--out", "a.html"], "there is no such folder"),
        (["some", "--leaderboard", ".", "--out", "a.html"], "name no others"),
        (["--leaderboard", "empty", "--out", "a.html"], "no log or certificate file"),
        ([], "name runs to compare"),
    ],
)
def test_misuse_is_explained(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    assert main(["report", *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_six_hundred_logs_take_seconds(tmp_path: Path) -> None:
    text = log_text(0.5, 0.8, images=200)
    for number in range(600):
        write(tmp_path / f"mnist/cohen/lbd_{number % 20}/seed_{number}/noise_0.50", text)
    found: Found = find(tmp_path, stated=Source(path=""))
    assert len(found.runs) == 600
    board = make_board(found, Choices(), title="many")
    assert len({entry.name for entry in board.entries}) == 600
    assert len(render_board(board)) < 2.5e6

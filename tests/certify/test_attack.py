"""Files of attacks: resumed after a kill, refused where settings differ, beside certificates."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from smoothmix.analysis.robustness import attacked_images, certified_share, empirical_share
from smoothmix.certificates import (
    Attack,
    Attacks,
    Certificate,
    Certification,
    SearchSettings,
    Selection,
    read_attacks,
)
from smoothmix.certificates.attack_file import (
    HEADER,
    attack_line,
    attacks_beside,
    round_up,
    writing_attacks,
)
from smoothmix.certificates.attack_shards import merge_attacks, rows_of_all
from smoothmix.certify import Smoothed, attack_dataset, certify_dataset
from smoothmix.errors import CertificateError, UsageError
from smoothmix.noise import GAUSSIAN, GRID, Noise
from smoothmix.stats import FixedDraws
from tests.conftest import Run
from tests.helpers.certification import images, network, put_network
from tests.helpers.processes import Jobs, until

SIGMA = 0.5
QUICK = SearchSettings(n=500, search_draws=100, copies=4, steps=4, rounds=6)
INDICES = range(0, 200, 80)
OPTIONS = shlex.split(
    "--n 500 --search-draws 100 --copies 4 --steps 4 --rounds 6 --skip 80 --max 3 "
    "--model digits:make --data sample --sigma 0.5"
)


def attack(path: Path, *, noise: Noise = GRID, search: SearchSettings = QUICK) -> Attacks:
    smoothed = Smoothed(network(), sigma=SIGMA, num_classes=10, noise=noise)
    return attack_dataset(
        smoothed, images(), INDICES, path=path, model_name="digits:make", search=search
    )


def without_time(path: Path) -> list[str]:
    return [line.rpartition("\t")[0] for line in path.read_text().splitlines()]


@pytest.mark.parametrize("noise", [GRID, GAUSSIAN], ids=["grid", "gaussian"])
def test_no_adversarial_example_lies_inside_a_certified_radius(
    noise: Noise, tmp_path: Path
) -> None:
    certification = Certification(sigma=SIGMA, guarantee=FixedDraws(2_000), noise=noise)
    selection = Selection(skip=80, maximum=3)
    certified = certify_dataset(
        network(),
        images(),
        certification,
        path=tmp_path / "certificates.tsv",
        model_name="digits:make",
        selection=selection,
    )
    attack(tmp_path / "attacks.tsv", noise=noise)
    attacks = attacks_beside(certified.path, certified.settings)
    assert attacks is not None
    found = attacked_images(certified.rows, attacks.rows)
    assert len(found) == 3
    # Some images lie so near a boundary that these few draws do not decide their class.
    assert all((row.before < 0) == (row.distance is None) for row in attacks.rows)
    assert sum(row.distance is not None for row in attacks.rows) >= 2
    assert not any(each.contradiction for each in found)
    radii = np.linspace(0, 3, 50)
    assert np.all(certified_share(found, radii) <= empirical_share(found, radii))

    # Certificates of another classifier are not compared with these attacks.
    assert certified.settings is not None
    other = replace(certified.settings, model_hash="0" * 64)
    assert attacks_beside(certified.path, other) is None


def test_a_killed_attack_is_resumed_to_the_same_file(
    tmp_path: Path, jobs: Jobs, smoothmix: Run, finished: Path
) -> None:
    put_network(tmp_path)
    path = tmp_path / "attacks.tsv"
    job = jobs.smoothmix("attack", *OPTIONS, "--device", "cpu")
    until(lambda: path.exists() and path.read_bytes().count(b"\n") >= 2, "a row")
    os.kill(job.process.pid, signal.SIGKILL)
    job.wait()
    kept = path.read_text().splitlines()
    # A line that was being written.
    with path.open("a") as stream:
        stream.write("160\t9\t9")
    again = smoothmix("attack", *OPTIONS, "--device", "cpu")
    assert again.code == 0, again.err
    assert path.read_text().splitlines()[: len(kept)] == kept
    assert without_time(path) == without_time(finished / "attacks.tsv")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a whole file of attacks."""
    folder = tmp_path_factory.mktemp("finished")
    attack(folder / "attacks.tsv")
    return folder


@pytest.fixture
def path(finished: Path, tmp_path: Path) -> Path:
    """A copy of it for one test."""
    for name in ("attacks.tsv", "attacks.toml"):
        shutil.copy(finished / name, tmp_path)
    return tmp_path / "attacks.tsv"


def test_a_file_grows_by_other_images_only(path: Path) -> None:
    first = read_attacks(path)
    before = path.read_bytes()
    assert attack(path).rows == first.rows
    assert path.read_bytes() == before


def test_other_settings_are_refused_by_what_differs(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(UsageError, match="other settings: seed was 0 and is now 1; use another"):
        attack(path, search=replace(QUICK, seed=1))
    with pytest.raises(UsageError, match="noise was grid and is now gaussian"):
        attack(path, noise=GAUSSIAN)
    assert path.read_bytes() == before


def test_rows_of_another_search_are_not_mixed_with_these(path: Path) -> None:
    settings = path.with_suffix(".toml")
    text = settings.read_text()
    assert "search_version = 2\n" in text
    settings.write_text(text.replace("search_version = 2\n", ""))
    # They can be read and shown, but not continued.
    assert read_attacks(path).settings.search_version == 1
    with pytest.raises(UsageError, match="search_version was 1 and is now 2; use another"):
        attack(path)


def test_shards_are_merged_into_the_file_of_one_process(
    tmp_path: Path, smoothmix: Run, finished: Path
) -> None:
    put_network(tmp_path)
    first = smoothmix("attack", *OPTIONS, "--shard", "1/2")
    assert first.code == 0, first.err
    assert "unfinished shards: 2/2" in first.err
    assert not (tmp_path / "attacks.tsv").exists()
    shard = tmp_path / "attacks-1-of-2.tsv"
    assert [line.split("\t")[0] for line in shard.read_text().splitlines()[1:]] == ["0", "160"]
    other = smoothmix("attack", *OPTIONS, "--shard", "2/2", "--seed", "1")
    assert other.code == 2
    assert "seed was 0 and is now 1" in other.err
    last = smoothmix("attack", *OPTIONS, "--shard", "2/2")
    assert last.code == 0, last.err
    assert without_time(tmp_path / "attacks.tsv") == without_time(finished / "attacks.tsv")
    assert [file.name for file in sorted(tmp_path.glob("attacks*"))] == [
        "attacks.toml",
        "attacks.tsv",
    ]
    # All is done: any further command finds nothing to do.
    again = smoothmix("attack", *OPTIONS, "--shard", "1/2")
    assert again.code == 0
    assert "unfinished" not in again.err


def test_processes_of_torchrun_share_the_images_and_take_over_what_a_killed_one_left(
    tmp_path: Path, jobs: Jobs, finished: Path
) -> None:
    put_network(tmp_path)
    # What a process of an earlier start has left: a shard of another split with one row, a line
    # that was cut off, and the settings.
    lines = (finished / "attacks.tsv").read_text().splitlines(keepends=True)
    left = tmp_path / "attacks-1-of-3.tsv"
    left.write_text(lines[0] + lines[1] + lines[2][:10])
    shutil.copy(finished / "attacks.toml", left.with_suffix(".toml"))
    job = jobs.torchrun("--standalone --nproc-per-node 2", "--", "attack", *OPTIONS)
    assert job.wait() == 0, job.log.read_text()
    assert without_time(tmp_path / "attacks.tsv") == without_time(finished / "attacks.tsv")
    assert not list(tmp_path.glob("attacks-*"))
    # The row that was there is the same one, with its time.
    assert lines[1] in (tmp_path / "attacks.tsv").read_text()


def test_a_row_that_two_files_tell_differently_stops_the_merge(path: Path) -> None:
    settings = read_attacks(path).settings
    shard = path.with_name("attacks-1-of-2.tsv")
    lines = path.read_text().splitlines(keepends=True)
    shard.with_suffix(".toml").write_text(path.with_suffix(".toml").read_text())
    shard.write_text(lines[0] + lines[1].replace("\t", "\t1", 1))
    with pytest.raises(CertificateError, match="image 0 has two different rows"):
        rows_of_all(path, settings)
    # Only the time may differ.
    shard.write_text(lines[0] + lines[1].rpartition("\t")[0] + "\t9.5\n")
    assert len(rows_of_all(path, settings)) == len(lines) - 1
    # A process that was killed leaves its lock file, which nobody holds any more.
    left = path.with_name(f"{path.stem}-2-of-2.lock")
    left.touch()
    assert merge_attacks(path, settings)
    assert not left.exists()
    assert path.read_text() == "".join(lines)
    assert not shard.exists()


def test_shards_of_a_running_process_are_not_merged(path: Path) -> None:
    settings = read_attacks(path).settings
    before = path.read_bytes()
    with writing_attacks(path.with_name("attacks-1-of-2.tsv"), settings):
        assert not merge_attacks(path, settings)
    assert path.read_bytes() == before


def test_a_certificate_file_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "certificates.tsv"
    certification = Certification(sigma=SIGMA, guarantee=FixedDraws(100))
    certify_dataset(
        network(),
        images(),
        certification,
        path=path,
        model_name="digits:make",
        selection=Selection(maximum=1),
    )
    before = path.read_bytes()
    with pytest.raises(UsageError, match=r"certificates\.toml"):
        attack(path)
    assert path.read_bytes() == before


def test_noise_of_another_norm_is_refused(tmp_path: Path, smoothmix: Run) -> None:
    put_network(tmp_path)
    done = smoothmix("attack", *OPTIONS, "--noise", "uniform")
    assert done.code == 2
    assert "uniform noise certifies L1 radii" in done.err
    assert not (tmp_path / "attacks.tsv").exists()


def row(**changed: object) -> Attack:
    plain = Attack(
        idx=3, label=7, before=7, adversarial=9, distance=0.5, squared=16256,
        votes={7: 40, 9: 60}, draws=900, seconds=1.5,
    )  # fmt: skip
    return replace(plain, **changed)  # type: ignore[arg-type]


def certificate(**changed: object) -> Certificate:
    plain = Certificate(idx=3, label=7, predict=7, radius=0.4, correct=True, seconds=1.0)
    return replace(plain, **changed)  # type: ignore[arg-type]


def test_what_contradicts_a_certificate() -> None:
    nearer = row(squared=None)
    assert not nearer.contradicts(certificate())
    assert nearer.contradicts(certificate(radius=0.6))
    # At the radius itself nothing is promised.
    assert not nearer.contradicts(certificate(radius=0.5))
    # On a grid, whole numbers decide.
    assert row().contradicts(certificate(radius=0.5, squared=16256))
    assert not row().contradicts(certificate(radius=0.5, squared=16255))
    # Another class at the image itself, an abstention, and the certified class far away.
    assert row(before=9).contradicts(certificate(radius=0.1))
    assert not row().contradicts(certificate(predict=-1, radius=0.0))
    assert not row(adversarial=7, before=-1).contradicts(certificate(radius=1.0))


def test_distances_are_rounded_up() -> None:
    for value in (0.1234561, 0.1, 2 / 3, 1e-9):
        assert value <= round_up(value) < value + 1.1e-6


@pytest.mark.parametrize(
    "line",
    [
        "3\t7\t7\t9\t\t\t9:60\t900\t1.5",
        "3\t7\t7\t9\t0.500000\t16256\t9:60",
        "3\t7\t7\t9\tnan\t16256\t9:60\t900\t1.5",
        f"{'9' * 5000}\t7\t7\t9\t0.500000\t16256\t9:60\t900\t1.5",
        "3\t7\t7\t9\t0.500000\t16256\t9:60,9:1\t900\t1.5",
        attack_line(row(idx=0)).strip() + "\n" + attack_line(row(idx=0)).strip(),
    ],
)
def test_a_damaged_file_is_refused_by_its_line(line: str, path: Path) -> None:
    path.write_text(HEADER + line + "\n")
    with pytest.raises(CertificateError, match=r"line [23]"):
        read_attacks(path)

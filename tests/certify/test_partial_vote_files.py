"""The file of images in work: whose votes it holds, and where these go when a run is cut otherwise or drawn further."""

from __future__ import annotations

import errno
import resource
from dataclasses import replace
from pathlib import Path

import pytest
from torch import Tensor

from smoothmix._io.locks import allow_open_files
from smoothmix._process.world import World
from smoothmix.analysis import measure, what_differs
from smoothmix.certificates import Certificate, FileSettings, read, tools
from smoothmix.certificates.partial import begun_path, keep_begun, load_begun
from smoothmix.certificates.settings import load_settings, settings_path
from smoothmix.certificates.shards import divide
from smoothmix.certify.dataset import certify_dataset, certify_file, file_settings
from smoothmix.certify.extend import extend_dataset
from smoothmix.certify.loop import Budget
from smoothmix.certify.workers import certify_together
from smoothmix.config import Certification
from smoothmix.errors import SmoothmixError, UsageError
from smoothmix.stats.anytime import Stopping
from tests.certify.test_partial_votes import HOW, IsBright, images
from tests.helpers.certification import without_time

EXACT = Certification(sigma=0.5, n=2000)
RULES = Stopping(radii=(0.5,), max_draws=2560)


def settings(how: Certification = EXACT, rules: Stopping | None = None) -> FileSettings:
    return file_settings(
        IsBright(), images(), how, model_name="bright", weights="bright.pt", stopping=rules
    )


@pytest.fixture
def row(tmp_path: Path) -> Certificate:
    """Image 0 with two blocks of its votes."""
    how = replace(EXACT, n=512)
    whole = certify_dataset(
        IsBright(), images(), how, path=tmp_path / "row" / "r.tsv", model_name="bright", maximum=1
    )
    return whole.rows[0]


def test_votes_of_another_run_are_not_taken_up(tmp_path: Path, row: Certificate) -> None:
    path, other = tmp_path / "a.tsv", settings(replace(EXACT, seed=7))
    keep_begun(path, other, [row])
    assert load_begun(path, settings()) == {}
    keep_begun(path, settings(), [row])
    assert load_begun(path, settings()) == {
        0: replace(row, seconds=load_begun(path, settings())[0].seconds)
    }
    begun_path(path).write_text("nonsense")
    with pytest.warns(UserWarning, match="a-begun.tsv.*the images that it held are begun anew"):
        assert load_begun(path, settings()) == {}


def test_a_full_disk_leaves_no_votes_under_the_settings_of_others(
    tmp_path: Path, row: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = tmp_path / "a.tsv", settings(replace(EXACT, seed=7))
    keep_begun(path, other, [row])

    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(tools, "atomic_write", full)
        with pytest.raises(
            SmoothmixError,
            match=r"a-begun.tsv: the images in work could not be kept \(No space left",
        ):
            keep_begun(path, settings(), [row])
    assert load_settings(begun_path(path)) == settings(), (
        "the settings were written, and the rows were not"
    )
    assert load_begun(path, settings()) == {}


def test_damaged_settings_give_way_to_new_ones(tmp_path: Path, row: Certificate) -> None:
    path = tmp_path / "a.tsv"
    keep_begun(path, settings(), [row])
    settings_path(begun_path(path)).write_text("[[[")
    with pytest.warns(UserWarning, match="begun anew"):
        assert load_begun(path, settings()) == {}
    keep_begun(path, settings(), [row])
    assert set(load_begun(path, settings())) == {0}


@pytest.mark.parametrize(
    "wrong",
    [
        {"counts": {12: 512}},
        {"selection_counts": {0: 1}},
        {"n": 511, "counts": {1: 511}},
        {"n": 2560, "counts": {1: 2560}},
        {"idx": 77},
    ],
    ids=str,
)
def test_images_that_no_run_can_have_left_are_begun_anew(
    wrong: dict[str, object], tmp_path: Path, row: Certificate
) -> None:
    path = tmp_path / "a.tsv"
    keep_begun(path, settings(), [replace(row, **wrong)])  # type: ignore[arg-type]
    assert load_begun(path, settings()) == {}
    found = certify_file(IsBright(), images(), settings(), path=path)
    assert found.rows[0].n == EXACT.n


def test_parts_go_on_with_what_a_single_process_had_in_work(
    tmp_path: Path,
    row: Certificate,
    drawn: list[int],
) -> None:
    whole = certify_file(IsBright(), images(), settings(), path=tmp_path / "whole.tsv")
    expected, path = sum(drawn), tmp_path / "a.tsv"
    keep_begun(path, settings(), [row])
    drawn.clear()
    certify_together(IsBright(), images(), settings(), path=path, world=World(), shards="1/2")
    certify_together(IsBright(), images(), settings(), path=path, world=World(), shards="2/2")
    assert sum(drawn) == expected - EXACT.n0 - (row.n or 0)
    assert without_time(path) == without_time(whole.path)
    assert not begun_path(path).exists()


def a_look_and_two_in_work(path: Path) -> FileSettings:
    """A file with the first two of 20 images, and two blocks of votes of images 6 and 7, which others will come to."""
    every, short = settings(), settings(replace(EXACT, n=512))
    certify_file(IsBright(), images(), replace(every, images=2), path=path)
    rows = certify_file(
        IsBright(), images(), replace(short, images=8), path=path.with_name("short.tsv")
    ).rows
    keep_begun(path, every, rows[6:8])
    return every


def test_a_look_at_fewer_images_in_parts_keeps_what_a_larger_run_has_in_work(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.tsv"
    every = a_look_and_two_in_work(path)
    every.save(settings_path(path))
    certify_together(
        IsBright(), images(), replace(every, images=3), path=path, world=World(), shards="1,2/2"
    )
    assert [row.idx for row in read(path).rows] == [0, 1, 2]
    assert load_begun(path, every).keys() == {6, 7}


def test_parts_of_a_larger_run_outlive_a_look_at_fewer_images(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    every = a_look_and_two_in_work(path)
    division = divide(path, every, asked=2, usual=2)
    assert all(division.deal(part) for part in division.parts)
    before = {file.name: file.read_bytes() for file in tmp_path.glob("a-*-of-2*.t*")}
    assert {
        "a-1-of-2.tsv",
        "a-1-of-2-begun.tsv",
        "a-2-of-2.tsv",
        "a-2-of-2-begun.tsv",
    } < before.keys()
    certify_together(IsBright(), images(), replace(every, images=2), path=path, world=World())
    assert {file.name: file.read_bytes() for file in tmp_path.glob("a-*-of-2*.t*")} == before


def test_an_extension_goes_on_with_images_in_work_and_keeps_the_name_of_the_weights(
    tmp_path: Path,
    drawn: list[int],
) -> None:
    path, few = tmp_path / "a.tsv", Budget(seconds=1e-6)
    with pytest.raises(SmoothmixError, match="those in work are kept"):
        certify_file(IsBright(), images(), settings(HOW, RULES), path=path, budget=few)
    for _ in range(200):
        if path.exists():
            break
        try:
            certify_file(
                IsBright(), images(), settings(HOW, RULES), path=path, budget=Budget(seconds=1e-3)
            )
        except SmoothmixError:
            continue
    spent = sum(row.n or 0 for row in load_begun(path, settings(HOW, RULES)).values())
    spent += sum(row.n or 0 for row in read(path).rows)
    drawn.clear()
    extended = extend_dataset(
        IsBright(), images(), HOW, path=path, stopping=Stopping(max_draws=2560)
    )
    assert {row.n for row in extended.rows} == {2560}
    assert 20 * 2560 - spent <= sum(drawn) <= 20 * 2560 - spent + 20 * HOW.n0
    assert extended.settings is not None
    assert extended.settings.weights == "bright.pt"
    assert not begun_path(path).exists()


def test_a_file_that_does_not_follow_from_its_votes_is_not_extended(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    certify_file(IsBright(), images(), settings(HOW, RULES), path=path)
    path.write_text(path.read_text().replace("1:", "12:"))
    with pytest.raises(UsageError, match="cannot be extended: image 0: has a class of 2 or more"):
        extend_dataset(IsBright(), images(), HOW, path=path, stopping=Stopping(max_draws=5120))


def test_many_parts_may_be_held_at_once() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
        allow_open_files(400)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= 400
        allow_open_files(3)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= 400
        if hard != resource.RLIM_INFINITY:
            with pytest.raises(SmoothmixError, match=r"open files, and this system allows"):
                allow_open_files(hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Shifted(IsBright):
    """The same with a number that no file of weights holds, as somebody's own normalise layer may have."""

    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = by

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + self.by)


def test_votes_of_two_networks_with_the_same_weights_are_never_mixed(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"

    def run(by: float, maximum: int) -> None:
        certify_dataset(
            Shifted(by), images(), EXACT, path=path, model_name="shifted", maximum=maximum
        )

    run(0.0, 1)
    run(1e-5, 2)  # what another machine's rounding may do
    with pytest.raises(
        UsageError, match="the same weights and gives other logits: its code or its settings have"
    ):
        run(0.2, 3)
    assert len(read(path).rows) == 2
    first = read(path).settings
    assert first is not None
    keep_begun(path, first, [replace(read(path).rows[0], idx=2)])
    other = file_settings(Shifted(0.2), images(), EXACT, model_name="shifted", maximum=3)
    same = file_settings(Shifted(0.0), images(), EXACT, model_name="shifted", maximum=3)
    assert (list(load_begun(path, other)), list(load_begun(path, same))) == ([], [2])


def test_own_data_that_was_moved_is_the_same_data(tmp_path: Path) -> None:
    path, moved = tmp_path / "a.tsv", replace(images(), name="npz:elsewhere.npz")
    certify_dataset(IsBright(), images(), EXACT, path=path, model_name="bright", maximum=1)
    assert (
        len(
            certify_dataset(
                IsBright(), moved, EXACT, path=path, model_name="bright", maximum=2
            ).rows
        )
        == 2
    )
    other = certify_dataset(
        IsBright(), moved, EXACT, path=tmp_path / "b.tsv", model_name="bright", maximum=2
    )
    assert other.settings is not None
    assert other.settings.data == "npz:elsewhere.npz"
    assert what_differs([measure(path), measure(tmp_path / "b.tsv")]) == []

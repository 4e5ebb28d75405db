"""The journal of partial votes: whose votes it holds, and who resumes them."""

from __future__ import annotations

import errno
import re
import resource
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from torch import Tensor

from smoothmix._io.locks import allow_open_files
from smoothmix.analysis import measure, what_differs
from smoothmix.certificates import Certificate, Certification, FileSettings, Selection, read
from smoothmix.certificates.partial import Journal, PartialVotes, journal_path
from smoothmix.certificates.settings import settings_path
from smoothmix.certificates.shards import split_run
from smoothmix.certify.dataset import certify_dataset
from smoothmix.certify.extend import extend_dataset
from smoothmix.certify.loop import TimeLimit
from smoothmix.errors import SmoothmixError, UsageError
from smoothmix.stats.anytime import Stopping
from smoothmix.stats.guarantees import FixedDraws
from tests.certify.test_partial_votes import HOW, IsBright, images
from tests.conftest import Run
from tests.helpers.certification import (
    certify_settings,
    certify_shards,
    journals,
    save_votes,
    saved_votes,
    settings_for,
    without_time,
)
from tests.helpers.guarantees import with_draws, with_stopping

EXACT = Certification(sigma=0.5, guarantee=FixedDraws(n=2000))
RULES = Stopping(radii=(0.5,), max_draws=2560)


def settings(how: Certification = EXACT, rules: Stopping | None = None) -> FileSettings:
    return settings_for(IsBright(), images(), how, weights="bright.pt", stopping=rules)


@pytest.fixture
def row(tmp_path: Path) -> Certificate:
    """Image 0 with two blocks of its votes."""
    how = with_draws(EXACT, n=512)
    whole = certify_dataset(
        IsBright(),
        images(),
        how,
        path=tmp_path / "row" / "r.tsv",
        model_name="bright",
        selection=Selection(maximum=1),
    )
    return whole.rows[0]


def test_votes_of_another_run_are_not_resumed(tmp_path: Path, row: Certificate) -> None:
    path, other = tmp_path / "a.tsv", settings(replace(EXACT, seed=7))
    save_votes(path, other, [row])
    assert saved_votes(path, settings()) == {}
    save_votes(path, settings(), [row])
    found = saved_votes(path, settings())[0]
    assert found == replace(PartialVotes.of_row(row), seconds=found.seconds)
    journal_path(path, settings()).write_text("nonsense")
    with pytest.warns(UserWarning, match="holds no partial votes that can be read"):
        assert saved_votes(path, settings()) == {}


@pytest.mark.parametrize(
    "other",
    [
        with_draws(EXACT, n=5120),
        with_draws(EXACT, alpha=0.01),
        with_draws(EXACT, stop_abstaining=True),
    ],
    ids=str,
)
def test_other_rules_see_the_same_votes_only_in_an_extension(
    tmp_path: Path, row: Certificate, other: Certification
) -> None:
    """They share the journal, since every draw votes the same, but may have stopped earlier."""
    path = tmp_path / "a.tsv"
    save_votes(path, settings(other), [row])
    assert len(journals(path)) == 1
    assert saved_votes(path, settings()) == {}
    assert Journal(path, settings()).read(any_rules=True).keys() == {0}


def test_a_full_disk_is_reported_and_leaves_what_was_saved_before(
    tmp_path: Path, row: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.tsv"
    save_votes(path, settings(), [row])
    write = Journal._write

    def write_half(self: Journal, chunk: bytes) -> None:
        write(self, chunk[: len(chunk) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    other = replace(row, idx=1)
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "_write", write_half)
        with pytest.raises(
            SmoothmixError, match=r"the partial votes could not be saved \(No space left"
        ):
            save_votes(path, settings(), [other])
    assert set(saved_votes(path, settings())) == {0}
    save_votes(path, settings(), [other])
    assert set(saved_votes(path, settings())) == {0, 1}


def test_a_line_that_was_cut_off_costs_its_own_draws_only(tmp_path: Path, row: Certificate) -> None:
    path = tmp_path / "a.tsv"
    save_votes(path, settings(), [row])
    save_votes(path, settings(), [replace(row, idx=1)])
    journal = journal_path(path, settings())
    whole = journal.read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for length in range(last, len(whole) - 1):
        journal.write_bytes(whole[:length])
        found = saved_votes(path, settings())
        assert found[0].drawn == row.n
        assert found[1].drawn == 0, "the selection stands in a line of its own"
        save_votes(path, settings(), [replace(row, idx=2)])
        assert saved_votes(path, settings())[2].drawn == row.n, "no line is glued to the cut one"


def test_damage_anywhere_loses_draws_and_never_changes_a_vote(
    tmp_path: Path, row: Certificate
) -> None:
    path = tmp_path / "a.tsv"
    save_votes(path, settings(), [row])
    journal = journal_path(path, settings())
    whole = journal.read_bytes()
    right = saved_votes(path, settings())[0]
    for position in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        journal.write_bytes(damaged)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = saved_votes(path, settings()).get(0)
        assert found is None or found.drawn == 0 or found.counts == right.counts


def ranges(path: Path, *stops: int) -> None:
    """Append votes of image 0 up to each stop in turn, by a process each, that all begin at 0."""
    for stop in stops:
        votes = PartialVotes(selection_counts={1: 100}, counts={1: stop}, seconds=1.0)
        Journal(path, settings()).append({0: votes})


def test_no_draw_is_counted_twice_whoever_drew_it(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    ranges(path, 512, 256, 1024, 768, 1024)
    found = saved_votes(path, settings())[0]
    assert (found.counts, found.drawn, found.seconds) == ({1: 1024}, 1024, 1.0)


def test_ranges_of_several_processes_are_joined(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    ranges(path, 512)
    for stop in (768, 1280):
        later = Journal(path, settings())
        later.read()
        later.append({0: PartialVotes(selection_counts={1: 100}, counts={1: stop - 9, 0: 9})})
    ranges(path, 1024)
    found = saved_votes(path, settings())[0]
    assert found.counts == {1: 1271, 0: 9}


@pytest.mark.parametrize(("n", "resumed"), [(2000, 2000), (2560, 0), (1000, 0)])
def test_only_whole_batches_can_be_drawn_further(tmp_path: Path, n: int, resumed: int) -> None:
    """Rounding depends on the batch: draws 1,792 to 1,999 came in one that was not full."""
    path = tmp_path / "a.tsv"
    ranges(path, 2000)
    found = Journal(path, settings(with_draws(EXACT, n=n))).read(any_rules=True)
    assert found[0].drawn == resumed


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
def test_votes_that_no_run_can_have_left_are_drawn_again(
    wrong: dict[str, object], tmp_path: Path, row: Certificate
) -> None:
    path = tmp_path / "a.tsv"
    save_votes(path, settings(), [replace(row, **wrong)])  # type: ignore[arg-type]
    found = saved_votes(path, settings())
    assert 0 not in found or found[0].drawn == 0
    whole = certify_settings(IsBright(), images(), settings(), path=path)
    assert whole.rows[0].n == EXACT.guarantee.max_draws


def test_the_suffix_of_journals_is_reserved(smoothmix: Run, untrained_run: str) -> None:
    for arguments in (["certify", untrained_run, "--max", 1], ["predict", untrained_run]):
        refused = smoothmix(*arguments, "--out", "a.partial-votes")
        assert refused.code == 2
    assert "reserved for partial votes; choose another --out" in refused.err


def test_shards_resume_the_votes_of_a_single_process(
    tmp_path: Path,
    row: Certificate,
    drawn: list[int],
) -> None:
    whole = certify_settings(IsBright(), images(), settings(), path=tmp_path / "whole.tsv")
    expected, path = sum(drawn), tmp_path / "a.tsv"
    save_votes(path, settings(), [row])
    drawn.clear()
    certify_shards(IsBright(), images(), settings(), path=path, shards="1/2")
    certify_shards(IsBright(), images(), settings(), path=path, shards="2/2")
    assert sum(drawn) == expected - EXACT.guarantee.n0 - (row.n or 0)
    assert without_time(path) == without_time(whole.path)
    assert not journals(path)


def two_rows_and_two_unfinished(path: Path) -> FileSettings:
    """A file with the first two of 20 images, and two batches of votes of images 6 and 7."""
    every, short = settings(), settings(with_draws(EXACT, n=512))
    certify_settings(IsBright(), images(), replace(every, images=2), path=path)
    rows = certify_settings(
        IsBright(), images(), replace(short, images=8), path=path.with_name("short.tsv")
    ).rows
    save_votes(path, every, rows[6:8])
    return every


def test_shards_of_fewer_images_keep_the_votes_of_a_larger_run(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.tsv"
    every = two_rows_and_two_unfinished(path)
    every.save(settings_path(path))
    certify_shards(IsBright(), images(), replace(every, images=3), path=path, shards="1,2/2")
    assert [row.idx for row in read(path).rows] == [0, 1, 2]
    assert saved_votes(path, every).keys() == {6, 7}


def test_shards_of_a_larger_run_outlive_a_run_of_fewer_images(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    every = two_rows_and_two_unfinished(path)
    run = split_run(path, every, requested=2, default=2)
    assert all(run.start(shard) for shard in run.shards)
    before = {
        file.name: file.read_bytes() for file in [*tmp_path.glob("a-*-of-2*"), *journals(path)]
    }
    assert {"a-1-of-2.tsv", "a-2-of-2.tsv", journal_path(path, every).name} < before.keys()
    certify_shards(IsBright(), images(), replace(every, images=2), path=path)
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


def test_an_extension_resumes_unfinished_images_and_keeps_the_name_of_the_weights(
    tmp_path: Path,
    drawn: list[int],
) -> None:
    path, few = tmp_path / "a.tsv", TimeLimit(seconds=1e-6)
    with pytest.raises(SmoothmixError, match="partial votes are saved"):
        certify_settings(IsBright(), images(), settings(HOW, RULES), path=path, time_limit=few)
    for _ in range(200):
        if path.exists():
            break
        try:
            certify_settings(
                IsBright(),
                images(),
                settings(HOW, RULES),
                path=path,
                time_limit=TimeLimit(seconds=1e-3),
            )
        except SmoothmixError:
            continue
    # The journal may still hold what an image had before it got its row.
    spent = {index: votes.drawn for index, votes in saved_votes(path, settings(HOW, RULES)).items()}
    spent |= {row.idx: row.n or 0 for row in read(path).rows}
    left = 20 * 2560 - sum(spent.values())
    drawn.clear()
    extended = extend_dataset(
        IsBright(), images(), with_stopping(HOW, Stopping(max_draws=2560)), path=path
    )
    assert {row.n for row in extended.rows} == {2560}
    assert left <= sum(drawn) <= left + 20 * HOW.guarantee.n0
    assert extended.settings is not None
    assert extended.settings.weights == "bright.pt"
    assert not journals(path)


def test_a_file_that_does_not_follow_from_its_votes_is_not_extended(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    certify_settings(IsBright(), images(), settings(HOW, RULES), path=path)
    longer = with_stopping(HOW, Stopping(max_draws=5120))
    path.write_text(path.read_text().replace("1:", "12:"))
    with pytest.raises(UsageError, match="cannot be extended: image 0: the row was edited"):
        extend_dataset(IsBright(), images(), longer, path=path)
    # Files of earlier versions have no digests, and show the edit by the votes alone.
    lines = [line.rpartition("\t")[0] for line in path.read_text().splitlines()]
    path.write_text("".join(f"{line}\n" for line in lines))
    toml = path.with_suffix(".toml")
    text, found = re.subn(r"\[digests\]\n(.+\n)+", "", toml.read_text() + "\n")
    assert found == 1
    toml.write_text(text)
    with pytest.raises(UsageError, match="cannot be extended: image 0: has a class of 2 or more"):
        extend_dataset(IsBright(), images(), longer, path=path)


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
    """The same with a number that is not among the weights, as in someone's own normalisation."""

    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = by

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + self.by)


def test_votes_of_two_networks_with_the_same_weights_are_never_mixed(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"

    def run(by: float, maximum: int) -> None:
        certify_dataset(
            Shifted(by),
            images(),
            EXACT,
            path=path,
            model_name="shifted",
            selection=Selection(maximum=maximum),
        )

    run(0.0, 1)
    # On the same processor the logits must be the same to the bit ...
    with pytest.raises(UsageError, match="on the same processor with the same software"):
        run(1e-5, 2)
    # ... and on another one they may differ as its rounding does.
    toml = path.with_suffix(".toml")
    text, changed = re.subn(r"logits on [^:]*:", "logits on another one:", toml.read_text())
    assert changed == 1
    toml.write_text(text)
    run(1e-5, 2)
    with pytest.raises(
        UsageError, match="the same weights and gives other logits: its code or its settings have"
    ):
        run(0.2, 3)
    assert len(read(path).rows) == 2
    first = read(path).settings
    assert first is not None
    save_votes(path, first, [replace(read(path).rows[0], idx=2)])
    other = settings_for(Shifted(0.2), images(), EXACT, selection=Selection(maximum=3))
    same = settings_for(Shifted(0.0), images(), EXACT, selection=Selection(maximum=3))
    assert (list(saved_votes(path, other)), list(saved_votes(path, same))) == ([], [2])


def test_own_data_that_was_moved_is_the_same_data(tmp_path: Path) -> None:
    path, moved = tmp_path / "a.tsv", replace(images(), name="npz:elsewhere.npz")
    certify_dataset(
        IsBright(), images(), EXACT, path=path, model_name="bright", selection=Selection(maximum=1)
    )
    assert (
        len(
            certify_dataset(
                IsBright(),
                moved,
                EXACT,
                path=path,
                model_name="bright",
                selection=Selection(maximum=2),
            ).rows
        )
        == 2
    )
    other = certify_dataset(
        IsBright(),
        moved,
        EXACT,
        path=tmp_path / "b.tsv",
        model_name="bright",
        selection=Selection(maximum=2),
    )
    assert other.settings is not None
    assert other.settings.data == "npz:elsewhere.npz"
    assert what_differs([measure(path), measure(tmp_path / "b.tsv")]) == []

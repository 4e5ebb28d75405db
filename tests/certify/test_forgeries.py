"""Edits whose author has computed all digests again: `verify` or drawing votes again finds each."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from smoothmix.certificates import (
    Certificate,
    Certificates,
    Certification,
    Selection,
    read,
    save,
    verify,
)
from smoothmix.certificates.row import from_votes
from smoothmix.certificates.squared import squared_claim
from smoothmix.certificates.tools import bound
from smoothmix.certify import certify_dataset, redraw_dataset
from smoothmix.noise import GridNoise
from smoothmix.stats import FixedDraws
from tests.certificates.test_digests import EDITS
from tests.conftest import Run
from tests.helpers.certification import images, network, put_network

N = 300
ROWS = 5


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished file with grid noise."""
    path = tmp_path_factory.mktemp("honest") / "c.tsv"
    certify_dataset(
        network(),
        images(),
        Certification(sigma=0.5, guarantee=FixedDraws(N, n0=20), noise=GridNoise(), batch=64),
        path=path,
        model_name="digits:make",
        selection=Selection(skip=20, maximum=ROWS),
    )
    return path


def with_votes(file: Certificates, row: Certificate, counts: Mapping[int, int]) -> Certificate:
    """The row with other estimation votes, and all that follows from them."""
    assert file.settings is not None
    return from_votes(
        row.idx,
        row.label,
        row.selection_counts or {},
        counts,
        certification=file.settings.certification,
        seconds=row.seconds,
    )


def with_row(file: Certificates, row: Certificate) -> Certificates:
    """The file with this row in the place of that of the same image."""
    rows = [row if each.idx == row.idx else each for each in file.rows]
    return replace(file, rows=tuple(rows))


def uncertain(file: Certificates) -> Certificate:
    """A row that has votes for several classes."""
    return next(row for row in file.rows if len(row.counts or {}) > 1)


def with_certification(file: Certificates, **changes: object) -> Certificates:
    """The file under other settings, and what follows from its votes under them."""
    assert file.settings is not None
    certification = replace(file.settings.certification, **changes)  # type: ignore[arg-type]
    changed = replace(file, settings=replace(file.settings, certification=certification))
    rows = [with_votes(changed, row, row.counts or {}) for row in file.rows]
    return replace(changed, rows=tuple(rows))


def one_vote(file: Certificates) -> Certificates:
    row = uncertain(file)
    assert row.selected is not None
    counts = dict(row.counts or {})
    other = next(c for c in counts if c != row.selected)
    counts[other] -= 1
    counts[row.selected] += 1
    return with_row(file, with_votes(file, row, {c: votes for c, votes in counts.items() if votes}))


def one_radius(file: Certificates) -> Certificates:
    """A radius with the claim in integers that belongs to it."""
    row = file.rows[0]
    radius = round(row.radius + 0.01, 6)
    better = replace(row, radius=radius, squared=squared_claim(radius, levels=255))
    return with_row(file, better)


def one_label(file: Certificates) -> Certificates:
    row = file.rows[1]
    return with_row(file, with_votes(file, replace(row, label=9 - row.label), row.counts or {}))


def other_n(file: Certificates) -> Certificates:
    """As if there had been twice as many draws with the same outcome."""
    doubled = with_certification(file, guarantee=FixedDraws(2 * N, n0=20))
    rows = []
    for row in file.rows:
        counts = {c: 2 * votes for c, votes in (row.counts or {}).items()}
        rows.append(with_votes(doubled, row, counts))
    return replace(doubled, rows=tuple(rows))


def without_row(file: Certificates) -> Certificates:
    return replace(file, rows=(*file.rows[:1], *file.rows[2:]))


def without_tail(file: Certificates) -> Certificates:
    return replace(file, rows=file.rows[:-2])


def swapped_rows(file: Certificates) -> Certificates:
    first, second, *others = file.rows
    return replace(file, rows=(second, first, *others))


def swapped_votes(file: Certificates) -> Certificates:
    """Two images exchange their votes and all that follows from them, and keep their labels."""
    one = uncertain(file)
    other = next(row for row in file.rows if row.counts != one.counts)
    for taker, giver in ((one, other), (other, one)):
        selection = replace(taker, selection_counts=giver.selection_counts)
        file = with_row(file, with_votes(file, selection, giver.counts or {}))
    return file


@dataclass(frozen=True)
class Forgery:
    """An edit, and the sentence that names it."""

    edit: Callable[[Certificates], Certificates]
    verify: str = ""
    """What the check of the file alone says; empty if it has nothing to say."""
    redraw: str = ""
    """What drawing all votes again says."""


VOTES = "says estimation votes"

FORGERIES = {
    "one vote": Forgery(one_vote, redraw=VOTES),
    "one radius": Forgery(one_radius, verify="image 0: says radius"),
    "one label": Forgery(one_label, verify="but the data set says", redraw="but the data set says"),
    "sigma": Forgery(lambda file: with_certification(file, sigma=0.51), redraw=VOTES),
    "seed": Forgery(lambda file: with_certification(file, seed=8), redraw=VOTES),
    "n": Forgery(other_n, redraw=VOTES),
    "a deleted row": Forgery(without_row, verify="image 20 still missing"),
    "a cut tail": Forgery(without_tail, verify="2 images (60, 80) still missing"),
    "swapped rows": Forgery(swapped_rows, verify="image 0 comes after image 20"),
    "swapped votes": Forgery(swapped_votes, redraw=VOTES),
}


def test_the_list_is_that_of_edits_without_new_digests() -> None:
    assert FORGERIES.keys() == EDITS.keys()


@pytest.mark.parametrize("name", FORGERIES)
def test_every_single_edit_with_new_digests_is_found_and_named(
    tmp_path: Path, smoothmix: Run, honest: Path, name: str
) -> None:
    put_network(tmp_path)
    for part in (honest, honest.with_suffix(".toml")):
        shutil.copy(part, tmp_path)
    file = read(tmp_path / "c.tsv")
    assert smoothmix("certificates", "verify", "c.tsv").code == 0
    forgery = FORGERIES[name]
    # A forger leaves nothing that is not finished, and no digest that does not fit.
    forged = bound(forgery.edit(replace(file, digests=None)), finished=True)
    save(forged, file.path)
    again = read(file.path)
    assert again.digests is not None
    assert again.digests.finished
    assert not [each for each in verify(again).problems if "digest" in each or "edited" in each]

    found = smoothmix("certificates", "verify", "c.tsv")
    assert forgery.verify in found.out
    if not forgery.redraw:
        return
    if not forgery.verify:
        assert found.code == 0, "only the network can tell"
    redrawn = redraw_dataset(network(), images(), again, rows=ROWS)
    problems = [problem for row in redrawn.edited for problem in row.problems]
    assert [problem for problem in problems if forgery.redraw in problem], problems
    all_rows = ("--redraw", ROWS, "--model", "digits:make")
    found = smoothmix("certificates", "verify", "c.tsv", *all_rows)
    assert found.code == 1, found.out
    assert forgery.redraw in found.out

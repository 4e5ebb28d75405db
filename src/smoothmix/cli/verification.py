"""What `certificates verify` shows of one file: problems, and what was checked and what was not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from smoothmix._io.text import counted
from smoothmix.cli.options import RedrawOptions
from smoothmix.cli.output import show
from smoothmix.errors import SmoothmixError, shown

if TYPE_CHECKING:
    from smoothmix.certificates import Certificates, Verification

LIMITS = (
    "digests find accidents and careless edits, but a forger computes them again: only a "
    "signature or --redraw stops a forger"
)


@final
@dataclass(frozen=True)
class Check:
    """Something that was checked, or why it was not."""

    done: bool
    what: str

    def __str__(self) -> str:
        if self.done:
            return f"checked: {self.what}"
        return f"not checked: {self.what}"


@final
@dataclass(frozen=True)
class Checked:
    """What was checked of a file, and what was wrong."""

    checks: tuple[Check, ...]
    problems: tuple[str, ...] = ()


def show_verification(path: Path, options: RedrawOptions, *, seed_file: Path | None) -> Checked:
    """Show what is wrong with a file, and return what was checked."""
    from smoothmix import certificates
    from smoothmix.certificates.secret_seeds import seed_report
    from smoothmix.certificates.tools import some

    file = certificates.read(path)
    found = certificates.verify(file)
    labels = check_labels(file, options)
    problems = (*found.problems, *labels.problems)
    for line in (*problems, *file.notes):
        show(f"{path}: {line}")
    if found.missing:
        show(f"{path}: not finished, {some(found.missing)} still missing")
    elif not found.finished:
        show(f"{path}: unfinished: run the same command again for the digest over all rows")
    if file.settings is not None:
        show(f"{path}: {seed_report(file.settings, seed_file)}")
    show(f"{path}: {counted(found.rows, 'row')}, {_verdict(found, problems)}")
    checks = (_arithmetic(found), _digests(found), _completeness(file, found), *labels.checks)
    return Checked(checks, problems)


def show_checks(path: Path, checks: Sequence[Check], options: RedrawOptions, signer: bool) -> None:
    """List what was checked and what was not."""
    signature = Check(False, "who made the file: --signer KEY checks a signature")
    if signer:
        signature = Check(True, "the signature")
    votes = Check(False, "that the network gave these votes: --redraw 20 draws some rows again")
    if options.redraw is not None:
        votes = Check(True, "votes of some rows, drawn again from the network")
    show(f"{path}: what was checked, and what was not:")
    for check in (*checks, signature, votes):
        show(f"  {check}")
    show(f"  {LIMITS}")


def _verdict(found: Verification, problems: Sequence[str]) -> str:
    if problems:
        return counted(len(problems), "problem")
    if found.recomputed:
        return f"{found.recomputed} follow from their votes"
    return "a log without votes, of which only the form can be checked"


def _arithmetic(found: Verification) -> Check:
    if not found.recomputed:
        return Check(False, "radii and predictions, since there are no votes or no settings")
    return Check(True, "the arithmetic: bounds, radii and predictions from the votes of each row")


def _digests(found: Verification) -> Check:
    if not found.bound:
        return Check(False, "edits of rows and settings, since rows are not bound by digests")
    return Check(True, f"digests of the settings and of {counted(found.bound, 'row')}")


def _completeness(file: Certificates, found: Verification) -> Check:
    if file.settings is None:
        return Check(False, "whether rows are missing, since nothing says how many there should be")
    if found.finished:
        return Check(True, "completeness: every image has its row")
    if file.digests is not None and file.digests.finished:
        return Check(True, "completeness: the rows are those that the file was finished with")
    return Check(False, "rows cut off at the end, which an unfinished file cannot show")


def check_labels(file: Certificates, options: RedrawOptions) -> Checked:
    """Compare the labels with those of the data set, if that is on this machine."""
    from smoothmix import data

    settings = file.settings
    if settings is None:
        return _labels_unchecked("since no settings name the data set")
    name = options.data or settings.data
    # A path that a file from elsewhere names is not read unasked: it may be anything.
    if options.data is None and name not in data.DATASETS:
        return _labels_unchecked(f"since {shown(name)} is data of your own: name it by --data")
    try:
        dataset = data.load(
            name, settings.split, data_dir=options.data_dir, preparation=settings.preparation
        )
        fingerprint = dataset.fingerprint
    except SmoothmixError:
        # Whoever names the data wants to know why it cannot be read.
        if options.data is not None or options.data_dir is not None:
            raise
        return _labels_unchecked(f"since the data set {name} is not here: name it by --data")
    if fingerprint != settings.data_hash:
        return _labels_unchecked(f"since {shown(name)} here is not the data set of the file")
    from smoothmix.certificates.tools import label_problems

    problems = label_problems(file.rows, dataset.labels)
    return Checked((Check(True, f"the labels, against the data set {name}"),), tuple(problems))


def _labels_unchecked(reason: str) -> Checked:
    return Checked((Check(False, f"the labels, {reason}"),))

"""Partial votes: the journal beside a certificate file that keeps the draws of unfinished images.

A certificate file holds finished images only. The votes of the others are appended to a journal,
`certificates.0123456789abcdef.partial-votes`, about once per minute and when a run stops. Its name
contains a digest of the settings that decide votes, so votes of other networks, data, noise or
seeds are never found.

Every line holds the votes of one image for one range of draws. All processes of a run, and all
later runs, append to the same file and sum what anyone has appended. No draw can be counted twice:
only ranges that follow each other without gap or overlap are added. A line that was cut off by a
kill, or mixed up with another on a network file system, fails its checksum and is left out: draws
may be lost then, and are drawn again. No torch.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import warnings
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, final

from smoothmix._io.files import open_to_read
from smoothmix.certificates.output import real_output
from smoothmix.certificates.probes import Probe, probe_difference
from smoothmix.certificates.row import Certificate, votes_from, votes_text
from smoothmix.certificates.settings import FileSettings, to_tables
from smoothmix.config import require
from smoothmix.errors import SmoothmixError, UsageError

SUFFIX = ".partial-votes"
"""Reserved for journals: no certificate file may have it."""

LONGEST_LINE = 2**20
"""Bytes: votes for a hundred thousand classes fit."""

VOTE_SETTINGS = ("model_hash", "data_hash", "num_classes", "engine", "noise", "distribution")
VOTE_CERTIFICATION = ("sigma", "n0", "seed", "block", "precision")
"""Keys of certificates.toml that decide how each draw of an image votes."""

RULE_SETTINGS = ("mode", "stopping", "guarantee", "budget")
RULE_CERTIFICATION = ("n", "alpha", "skip_wrong", "stop_abstaining")
"""Keys that decide after how many draws an image is finished."""


@final
@dataclass(frozen=True, kw_only=True)
class PartialVotes:
    """The votes of one image so far: all selection draws, and the first estimation draws."""

    selection_counts: Mapping[int, int]
    counts: Mapping[int, int]
    seconds: float = 0.0
    """Time that the draws took."""

    @property
    def drawn(self) -> int:
        """Estimation draws so far."""
        return sum(self.counts.values())

    @classmethod
    def of_row(cls, row: Certificate) -> PartialVotes:
        """The votes that a certificate was computed from."""
        assert row.counts is not None
        assert row.selection_counts is not None
        # A row may have no time, and what is not a number would spoil every sum and comparison.
        seconds = row.seconds if math.isfinite(row.seconds) else 0.0
        return cls(selection_counts=row.selection_counts, counts=row.counts, seconds=seconds)


def refuse_reserved(path: Path) -> Path:
    """The path of an output, unless it has the suffix of journals."""
    require(
        path.suffix != SUFFIX,
        f"{path}: the suffix {SUFFIX} is reserved for partial votes; choose another --out",
    )
    return path


def journal_path(path: Path, settings: FileSettings) -> Path:
    """Where the partial votes of a certificate file are kept."""
    # One journal through all links to the file.
    path = real_output(path)
    return path.with_name(f"{path.stem}.{votes_digest(settings)}{SUFFIX}")


def votes_digest(settings: FileSettings) -> str:
    """A digest of the settings that decide votes."""
    return _digest(settings, VOTE_SETTINGS, VOTE_CERTIFICATION)


def rules_digest(settings: FileSettings) -> str:
    """A digest of the settings that decide how many draws an image gets."""
    return _digest(settings, RULE_SETTINGS, RULE_CERTIFICATION)


def _digest(settings: FileSettings, own: Iterable[str], certification: Iterable[str]) -> str:
    # By the keys of certificates.toml, which do not change with the code.
    table = to_tables(settings)
    chosen = {key: table.get(key) for key in own}
    # Settings without a budget keep the digest that they had before there were budgets.
    if "budget" not in table:
        chosen.pop("budget", None)
    # Not where it is empty, so that journals of earlier versions keep their names.
    if "data_hash" in chosen and settings.data_content_hash:
        chosen["data_content_hash"] = settings.data_content_hash
    for key in certification:
        chosen[f"certification.{key}"] = table["certification"].get(key)
    return hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()[:16]


@final
class Journal:
    """The partial votes of one certificate file, and of all its shards."""

    def __init__(self, path: Path, settings: FileSettings) -> None:
        self.path = journal_path(path, settings)
        self.settings = settings
        # Once: a run that saves its votes often would spend its time on digests.
        self._votes_digest = votes_digest(settings)
        self._rules_digest = rules_digest(settings)
        self._session = secrets.token_hex(8)
        self._saved: dict[int, PartialVotes] = {}
        """What the journal is known to hold of each image: only later draws are appended."""

    def read(self, *, any_rules: bool = False) -> dict[int, PartialVotes]:
        """The votes that runs with these settings have left, by image.

        Runs with other stopping rules may have drawn further than these rules would have, so their
        votes count with `any_rules` only: in an extension, which draws further anyway.
        """
        contents = self._contents()
        # Read again: other processes may have appended since, or have removed the file.
        self._saved = {}
        for image, lines in self._lines_by_image(contents, any_rules=any_rules).items():
            positions = self._sums(lines)
            if positions:
                self._saved[image] = positions[-1]
        return dict(self._saved)

    def _lines_by_image(
        self, contents: _Contents, *, any_rules: bool
    ) -> dict[int, list[_VotesLine]]:
        matching = contents.matching_sessions(self.settings, any_rules=any_rules)
        by_image: dict[int, list[_VotesLine]] = {}
        for line in contents.votes:
            # Votes without their session line may be those of another network.
            if line.session in matching and self._is_possible(line):
                by_image.setdefault(line.image, []).append(line)
        return by_image

    def read_positions(self) -> dict[int, list[PartialVotes]]:
        """All numbers of draws after which the votes of an image are known, in their order.

        They may be of any stopping rules: the votes after so many draws do not depend on these.
        """
        contents = self._contents()
        found = {}
        for image, lines in self._lines_by_image(contents, any_rules=True).items():
            positions = self._sums(lines)
            if positions:
                found[image] = positions
        self._saved = {image: positions[-1] for image, positions in found.items()}
        return found

    def append(self, votes: Mapping[int, PartialVotes]) -> None:
        """Save the draws of these images that the journal does not hold yet."""
        lines: list[dict[str, Any]] = []
        for image, partial in votes.items():
            lines.extend(self._new_lines(image, partial))
        if not lines:
            return
        # Every chunk starts with a line about its session, so that it can be read without others.
        chunk = b"".join(_encoded(line) for line in [self._session_line(), *lines])
        try:
            self._write(chunk)
        except OSError as error:
            raise SmoothmixError(
                f"{self.path}: the partial votes could not be saved ({error.strerror or error}), "
                "and are drawn again when the same command resumes"
            ) from error
        self._saved.update(votes)

    def remove_if_finished(self, finished: Container[int]) -> None:
        """Delete the journal if every image in it has a row in the certificate file."""
        contents = self._contents()
        # Without a session line of this journal it is not surely ours, whatever its name.
        if not contents.sessions:
            return
        if all(line.image in finished for line in contents.votes):
            self.path.unlink(missing_ok=True)
            self._saved.clear()

    def _contents(self) -> _Contents:
        contents = _Contents()
        try:
            with open_to_read(self.path) as stream:
                for line in _lines(stream):
                    contents.add(line, self._votes_digest)
        except FileNotFoundError:
            return contents
        except OSError as error:
            raise SmoothmixError(f"{self.path}: cannot be read ({error.strerror})") from error
        if contents.damaged and not contents.sessions:
            warnings.warn(
                f"{self.path}: holds no partial votes that can be read; its images start again",
                stacklevel=3,
            )
        return contents

    def _is_possible(self, line: _VotesLine) -> bool:
        """Whether a run with these settings can have written this."""
        classes_exist = max(line.counts, default=0) < self.settings.num_classes
        return classes_exist and sum(line.counts.values()) == line.stop - line.start

    def _sums(self, lines: Sequence[_VotesLine]) -> list[PartialVotes]:
        """The votes of one image by increasing draws; none if its selection is not complete."""
        certification = self.settings.certification
        n0 = certification.guarantee.n0
        max_draws = certification.guarantee.max_draws
        selections = _joined(lines, "selection", lambda stop: stop == n0)
        if not selections:
            return []
        (selection,) = selections

        # A resumed image must see the same batches as one that never stopped, so that rounding is
        # the same: only whole batches can be resumed from, or an image with all its draws.
        def is_resumable(stop: int) -> bool:
            if stop > max_draws:
                return False
            return stop % certification.batch == 0 or stop == max_draws

        found = []
        # No draw at all can always be resumed from.
        for estimation in _joined(lines, "estimation", is_resumable):
            found.append(
                PartialVotes(
                    selection_counts=selection.counts,
                    counts=estimation.counts,
                    seconds=selection.seconds + estimation.seconds,
                )
            )
        return found

    def _session_line(self) -> dict[str, Any]:
        return {
            "session": self._session,
            "votes": self._votes_digest,
            "rules": self._rules_digest,
            "probe": self.settings.probe,
        }

    def _new_lines(self, image: int, partial: PartialVotes) -> Iterator[dict[str, Any]]:
        saved = self._saved.get(image)
        if saved is None:
            saved = PartialVotes(selection_counts={}, counts={})
            n0 = sum(partial.selection_counts.values())
            # The time of both is recorded with the estimation draws, once there are any.
            seconds = 0.0 if partial.drawn else partial.seconds
            yield self._votes_line(image, "selection", 0, n0, partial.selection_counts, seconds)
        if partial.drawn > saved.drawn:
            new = _difference(partial.counts, saved.counts)
            seconds = max(0.0, partial.seconds - saved.seconds)
            yield self._votes_line(image, "estimation", saved.drawn, partial.drawn, new, seconds)

    def _votes_line(
        self,
        image: int,
        domain: str,
        start: int,
        stop: int,
        counts: Mapping[int, int],
        seconds: float,
    ) -> dict[str, Any]:
        return {
            "session": self._session,
            "image": image,
            "domain": domain,
            "start": start,
            "stop": stop,
            "counts": votes_text(counts),
            "seconds": round(seconds, 3),
        }

    def _write(self, chunk: bytes) -> None:
        # The writer of the certificate file has made the folder; if that was deleted, so be it.
        # Opened for each chunk, and appended by one call: other processes do the same.
        with self.path.open("a+b", buffering=0) as stream:
            if _ends_in_the_middle_of_a_line(stream):
                chunk = b"\n" + chunk
            remaining = memoryview(chunk)
            while remaining:
                remaining = remaining[stream.write(remaining) :]
            os.fsync(stream.fileno())


@final
@dataclass(frozen=True, kw_only=True)
class _SessionLine:
    """One process that appended votes, and what it ran."""

    session: str
    rules: str
    probe: str


@final
@dataclass(frozen=True, kw_only=True)
class _VotesLine:
    """The votes of one image for one range of draws."""

    session: str
    image: int
    domain: str
    start: int
    stop: int
    counts: Mapping[int, int]
    seconds: float


@final
@dataclass
class _Contents:
    """The lines of a journal."""

    sessions: dict[str, _SessionLine] = field(default_factory=dict)
    votes: list[_VotesLine] = field(default_factory=list)
    damaged: int = 0
    """Lines that were cut off or mixed up."""

    def add(self, line: bytes, digest: str) -> None:
        """Add one line of the file."""
        try:
            record = _decoded(line)
            if "votes" in record:
                # A journal that was copied under another name has votes of other settings.
                if record["votes"] == digest:
                    found = _session_of(record)
                    self.sessions[found.session] = found
            else:
                self.votes.append(_votes_of(record))
        except (ValueError, KeyError, TypeError, RecursionError, UsageError):
            self.damaged += 1

    def matching_sessions(self, settings: FileSettings, *, any_rules: bool) -> set[str]:
        """Sessions that ran the same network, by the same rules unless any will do."""
        rules = rules_digest(settings)
        matching = set()
        for session in self.sessions.values():
            same_network = not probe_difference(session.probe, settings.probe)
            if same_network and (any_rules or session.rules == rules):
                matching.add(session.session)
        return matching


@final
@dataclass(frozen=True)
class _Joined:
    """Votes of the draws from 0 up to `stop`."""

    stop: int
    counts: Mapping[int, int]
    seconds: float


def _joined(
    lines: Iterable[_VotesLine], domain: str, may_stop: Callable[[int], bool]
) -> list[_Joined]:
    """The draws from 0 on that ranges without gap or overlap cover, up to each possible stop."""
    reached: dict[int, _Joined] = {0: _Joined(0, {}, 0.0)}
    # By where they start: whatever ends at a position comes before what starts there.
    for line in sorted(lines, key=lambda line: (line.start, line.stop)):
        before = reached.get(line.start)
        if line.domain != domain or before is None:
            continue
        # Someone else has drawn the same range, or a chain of ranges that ends there too.
        if line.stop in reached:
            continue
        counts = _sum_of(before.counts, line.counts)
        reached[line.stop] = _Joined(line.stop, counts, before.seconds + line.seconds)
    usable = [joined for joined in reached.values() if may_stop(joined.stop)]
    return sorted(usable, key=lambda joined: joined.stop)


def _sum_of(first: Mapping[int, int], second: Mapping[int, int]) -> dict[int, int]:
    total = dict(first)
    for c, count in second.items():
        total[c] = total.get(c, 0) + count
    return total


def _difference(after: Mapping[int, int], before: Mapping[int, int]) -> dict[int, int]:
    new = {}
    for c, count in after.items():
        if count > before.get(c, 0):
            new[c] = count - before.get(c, 0)
    return new


def _encoded(record: Mapping[str, Any]) -> bytes:
    text = json.dumps(record).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _decoded(line: bytes) -> dict[str, Any]:
    """The record in a line; ValueError where the line is damaged."""
    checksum, _, text = line.partition(b" ")
    if int(checksum, 16) != zlib.crc32(text):
        raise ValueError("the checksum is wrong")
    record = json.loads(text)
    if not isinstance(record, dict):
        raise ValueError("a record is a table")
    return record


def _session_of(record: Mapping[str, Any]) -> _SessionLine:
    session = _text_of(record, "session")
    probe = _text_of(record, "probe")
    # It raises here, and not when the journal is used, if the probe does not consist of numbers.
    Probe(probe)
    return _SessionLine(session=session, rules=_text_of(record, "rules"), probe=probe)


def _text_of(record: Mapping[str, Any], key: str) -> str:
    text = record[key]
    if not isinstance(text, str):
        raise TypeError(f"{key} must be text")
    return text


def _whole_of(record: Mapping[str, Any], key: str) -> int:
    number = record[key]
    # Not by isinstance: True is a whole number for Python.
    if type(number) is not int or number < 0:
        raise ValueError(f"{key} must be a whole number")
    return number


def _votes_of(record: Mapping[str, Any]) -> _VotesLine:
    start = _whole_of(record, "start")
    stop = _whole_of(record, "stop")
    seconds = float(record["seconds"])
    if start >= stop or not math.isfinite(seconds):
        raise ValueError("a range holds draws, which took some time")
    return _VotesLine(
        session=_text_of(record, "session"),
        image=_whole_of(record, "image"),
        domain=_text_of(record, "domain"),
        start=start,
        stop=stop,
        counts=votes_from(_text_of(record, "counts")),
        seconds=seconds,
    )


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """The lines that are not empty, without their newlines; a last one without it was cut off."""
    while line := stream.readline(LONGEST_LINE):
        if line.strip():
            yield line.removesuffix(b"\n")


def _ends_in_the_middle_of_a_line(stream: BinaryIO) -> bool:
    """Whether a kill or a full disk has cut off the last line, which must not swallow the next."""
    if stream.seek(0, os.SEEK_END) == 0:
        return False
    stream.seek(-1, os.SEEK_END)
    return stream.read(1) != b"\n"

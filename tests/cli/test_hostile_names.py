"""Names of files, folders, models and classes are anyone's text: no output obeys them."""

from __future__ import annotations

import ast
import csv
import io
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cyclopts import App

from smoothmix.cli import app
from tests.conftest import ROOT, Run
from tests.helpers.certificates import our_file

# As a file name may hold it. The lines after the line end would stand alone in an output.
HOSTILE = (
    "=cmd|' !A0\n\\immediate\\write18{INJECTED}\nINJECTED\r\x1b[2J\x1b]0;owned\x07\x9b31m"
    "\u202e\u2066<script>alert(1)<b>\udcff&%$#_{}^~|*`[x](y)"
)

# In the text of a TOML file, which has no broken characters; slashes are allowed there.
HOSTILE_TEXT = HOSTILE.replace("\udcff", "") + "</script>"

SOURCES = ROOT / "src" / "smoothmix"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Certificates in folders of hostile names, whose settings name models and data likewise."""
    folder = tmp_path / HOSTILE
    our_file(folder / "certificates.tsv", [990, 800], model=f"zoo:{HOSTILE_TEXT}")
    other = tmp_path / f"{HOSTILE}2"
    our_file(other / "certificates.tsv", [900, 400], data=f"folder:{HOSTILE_TEXT}")
    (folder / "broken.tsv").write_text("idx\tlabel\tpredict\tradius\tcorrect\ttime\n\x1b[2J\t1\n")
    pixels = np.zeros((4, 1, 28, 28), np.uint8)
    np.savez(folder / "data.npz", x=pixels, y=np.arange(4) % 2)
    return folder


def commands_of(group: App, words: tuple[str, ...] = ()) -> Iterator[str]:
    """All commands that a person can type."""
    for name in group:
        if name.startswith("-"):
            continue
        command = group[name]
        inner = [each for each in command if not each.startswith("-")]
        if inner:
            yield from commands_of(command, (*words, name))
        else:
            yield " ".join((*words, name))


H = HOSTILE
FILE = f"{HOSTILE}/certificates.tsv"
BROKEN = f"{HOSTILE}/broken.tsv"
OWN = ("--model", "torch.nn:Flatten", "--num-classes", 784, "--sigma", 0.5)
DATA = ("--data", f"npz:{HOSTILE}/data.npz")

IMPORT = ("--network", "lenet", "--sigma", 0.5, "--data", "sample")

COMMANDS: dict[str, list[tuple[object, ...]]] = {
    "quickstart": [(H,)],
    "train": [(H,), ("--config", FILE), ("quick/gaussian", "--data", H)],
    "certify": [
        (*OWN, *DATA, "--n", 50, "--out", f"{H}/new.tsv"),
        (H,),
        (*OWN, "--data", H),
        ("--model", H),
        ("--model", f"{H}:x"),
        (*OWN, *DATA, "--weights", f"{H}/no"),
        (*OWN, *DATA, "--out", FILE),
    ],
    "predict": [(*OWN, *DATA, "--n", 50), (H,), (*OWN, *DATA, "--noise", H)],
    "attack": [(H,), (*OWN, "--data", H), ("--model", H)],
    "report": [(H, f"{H}2"), (f"{H}={FILE}",), (BROKEN,), (f"{H}/no",), (H, "--baseline", H)],
    "reproduce": [(H,), ("--logs", H)],
    "study confidence": [(H,), (f"{H}={H}",)],
    "study path": [(H,)],
    "study mixing": [(H,)],
    "study ablation": [(H,)],
    "study seeds": [(H,)],
    "study dimension": [(H,)],
    "certificates verify": [(H, f"{H}2"), (BROKEN,), (f"{H}/no",)],
    "certificates merge": [(H, f"{H}2", "--out", f"{H}/whole.tsv"), (H, "--out", FILE)],
    "certificates recompute": [(H, "--alpha", 0.01, "--out", f"{H}/again.tsv")],
    "certificates export": [(FILE, "--out", f"{H}/log.tsv"), (FILE,), (BROKEN,)],
    "presets": [(H,), ("--show", H), (f"--{H}",)],
    "data list": [("--data-dir", H)],
    "data fetch": [(H,)],
    "data check": [(H,), ("mnist", "--data-dir", H)],
    "import": [
        (H, *IMPORT),
        (FILE, *IMPORT, "--out", f"{H}/imported"),
        (FILE, "--network", H, *IMPORT[2:]),
    ],
    "bench": [(H,)],
    "plan": [(0.5, H), (0.5, "--certificates", FILE), (0.5, "--certificates", BROKEN)],
    "serve": [(H,), ("--model", H), (*OWN, "--data", H), (*OWN, *DATA, "--log", FILE)],
}
"""Every command with hostile names wherever it takes one: its results and its error messages."""


def assert_printable(text: str) -> None:
    """Nothing in the text is obeyed by a terminal."""
    for character in text:
        assert character in "\n\t" or character.isprintable(), (character, text)


def assert_harmless(text: str) -> None:
    """Nothing in the text is obeyed by a terminal, and no name begins a line of its own."""
    assert_printable(text)
    for line in text.splitlines():
        assert not line.startswith(("INJECTED", "\\immediate")), text


def test_the_table_above_has_every_command() -> None:
    # Keys and signatures have files of their own.
    own_tests = {"certificates sign"}
    assert set(COMMANDS) == set(commands_of(app)) - own_tests


@pytest.mark.skipif(os.name != "posix", reason="only there are such names")
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_prints_what_a_terminal_obeys(
    smoothmix: Run, hostile: Path, command: str
) -> None:
    printed = ""
    for arguments in COMMANDS[command]:
        done = smoothmix(*command.split(), *arguments)
        assert_harmless(done.out)
        assert_harmless(done.err)
        printed += done.out + done.err
    # The names were shown, not left out.
    if command != "data list":
        assert "cmd|" in printed or "2J" in printed, printed


@pytest.mark.skipif(os.name != "posix", reason="only there are such names")
def test_a_traceback_and_a_warning_are_cleaned_as_well(
    smoothmix: Run, hostile: Path, tmp_path: Path
) -> None:
    done = smoothmix("certificates", "verify", BROKEN, "--debug")
    assert "Traceback" in done.err
    assert_printable(done.err)
    np.savez(tmp_path / "a\x1b[2Jb.npz", x=np.zeros((2, 1, 28, 28), np.uint8), y=[0, 1])
    data = ("--data", "npz:a\x1b[2Jb.npz")
    done = smoothmix("certify", *OWN[:-1], 3, *data, "--n", 50, "--out", "a\x1b[2Jb.tsv")
    assert done.code == 0, done.err
    assert "warning: sigma 3 is very large" in done.err
    assert "npz:a\\x1b[2Jb.npz" in done.out
    assert_harmless(done.out)
    assert_harmless(done.err)


@pytest.mark.skipif(os.name != "posix", reason="only there are such names")
@pytest.mark.parametrize("table_format", ["terminal", "md", "latex", "csv", "json"])
def test_tables_and_page_show_the_names_and_obey_none(
    smoothmix: Run, hostile: Path, tmp_path: Path, table_format: str
) -> None:
    done = smoothmix("report", H, f"{H}2", "--format", table_format, "--out", "page.html")
    assert done.code == 0, done.err
    # A cell of CSV may have several lines, within quotes.
    check_lines = assert_printable if table_format == "csv" else assert_harmless
    check_lines(done.out)
    assert_harmless(done.err)
    if table_format == "latex":
        assert_latex_is_inert(done.out)
    if table_format == "csv":
        rows = list(csv.reader(io.StringIO(done.out)))
        assert len(rows) == 3
        for cell in (cell for row in rows for cell in row):
            assert not cell.startswith(("=", "@", "\t", "\r")), cell
    if table_format == "json":
        assert len(json.loads(done.out)["rows"]) == 2
    if table_format == "md":
        assert "<script>" not in done.out
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<script>alert(1)" not in page
    # Assets are ours; names are what may not hold them.
    _, _, body = page.partition("<body")
    for mark in ("\x1b", "\x9b", "\x07", "\u202e", "\u2066"):
        assert mark not in body


def assert_latex_is_inert(text: str) -> None:
    """Each line is a comment, a command of ours, or a row whose text is escaped."""
    own = r"\\(begin|end)\{tabular\}(\{[lr]+\})?|\\(top|mid|bottom)rule"
    own += r"|\\(small|footnotesize|scriptsize)(\\setlength\{\\tabcolsep\}\{2pt\})?"
    escaped = r"\\[&%$#_{}\\]|\\text\w+\{\}|\\(textbf|underline)\{|\$(\\pm|\\sigma|-)\$"
    for line in text.splitlines():
        if line.startswith("%") or re.fullmatch(own, line):
            continue
        rest = re.sub(escaped, "", line)
        assert "\\" not in rest, line
        assert not set("$#%^~_") & set(rest), line


def test_numbers_in_csv_stay_numbers(smoothmix: Run, tmp_path: Path) -> None:
    """A difference may be negative, and a spreadsheet must be able to add it."""
    our_file(tmp_path / "good" / "certificates.tsv", [990] * 8)
    our_file(tmp_path / "bad" / "certificates.tsv", [700] * 8)
    done = smoothmix("report", "good", "bad", "--baseline", "good", "--format", "csv")
    (_, bad) = csv.DictReader(io.StringIO(done.out))
    negative = [value for value in bad.values() if value.startswith("-")]
    assert negative
    assert all(float(value) < 0 for value in negative)


def test_only_one_module_prints() -> None:
    """Whatever else prints could forget to clean what it shows."""
    for path in sorted(SOURCES.rglob("*.py")):
        if path == SOURCES / "cli" / "output.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            # Lines of numbers go to the stream that `predict` was asked for.
            to_stream = any(keyword.arg == "file" for keyword in node.keywords)
            assert name != "print" or to_stream, f"{path}, line {node.lineno}"
            assert not name.startswith(("sys.stdout.write", "sys.stderr.write", "rich.print"))

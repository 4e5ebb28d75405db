"""The command line: typed options, and one library call per command. Only this package prints.

Nothing heavy is imported until a command runs, so that `smoothmix --help` answers at once.
"""

from __future__ import annotations

import re
import sys
import traceback
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from cyclopts import App, CycloptsError, MissingArgumentError, UnusedCliTokensError

from smoothmix._process.signals import INTERRUPTED_EXIT_CODE
from smoothmix._process.world import ReportedByRankZero, current_world
from smoothmix.cli import (
    attack,
    bench,
    certificates,
    certify,
    data,
    importing,
    plan,
    presets,
    quickstart,
    report,
    reproduce,
    serve,
    study,
    study_dimension,
    study_models,
    study_presets,
    train,
)
from smoothmix.cli.output import complain, show_document
from smoothmix.errors import SmoothmixError, shown
from smoothmix.inference.malloc import keep_freed_memory
from smoothmix.registry import is_address, trust
from smoothmix.version import __version__

MISUSE_EXIT_CODE = 2

PIPE_CLOSED_EXIT_CODE = 141
"""That of a program that SIGPIPE ends: its output was not complete."""

REPORTED = (CycloptsError, SmoothmixError, KeyboardInterrupt, OSError, UnicodeEncodeError)
"""Errors that one sentence explains. All others are defects, and show a traceback."""

app = App(
    name="smoothmix",
    version=__version__,
    help="Train, certify and compare classifiers that are robust by randomized smoothing.",
    help_epilogue="Every command takes --debug to show the traceback of an error, and --import "
    "package.module to allow code of yours that a file names.",
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)
app.command(quickstart.quickstart)
app.command(train.train)
app.command(certify.certify)
app.command(certify.predict)
app.command(plan.plan)
app.command(attack.attack)
app.command(report.report)
app.command(reproduce.reproduce)
app.command(study.app, name="study")
app.command(certificates.app, name="certificates")
app.command(presets.presets)
app.command(data.app, name="data")
app.command(importing.import_checkpoint, name="import")
app.command(bench.bench)
app.command(serve.serve)

study.app.command(study_models.confidence)
study.app.command(study_models.path)
study.app.command(study_models.mixing)
study.app.command(study_presets.ablation)
study.app.command(study_presets.seeds)
study.app.command(study_dimension.dimension)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    0: success; 1: the run failed; 2: misuse; 75: stopped in time, to be started again; 130:
    interrupted; 141: the reader of the output closed the pipe.
    """
    if argv is None:
        argv = sys.argv[1:]
    # Both are taken out before parsing: every command accepts them, wherever they stand.
    debug = "--debug" in argv
    tokens = trust_named_modules([token for token in argv if token != "--debug"])
    warnings.showwarning = partial(_show_warning, debug=debug)
    _allow_imports_from_working_folder()
    # This process is ours alone. The library leaves the allocator of its caller's process alone.
    keep_freed_memory()
    try:
        result = app(tokens, exit_on_error=False, print_error=False)
    except ReportedByRankZero as error:
        # Of several processes with the same error, one message is enough.
        return error.exit_code
    except BrokenPipeError:
        # The reader of our output, such as `head`, has read enough. Closing standard error keeps
        # Python from complaining about it at exit.
        sys.stderr.close()
        return PIPE_CLOSED_EXIT_CODE
    except REPORTED as error:
        if debug:
            show_document(traceback.format_exc(), sys.stderr)
        complain(f"smoothmix: {_rank_prefix()}{_message(error, tokens)}")
        return _exit_code(error)
    # The one command that returns something is `certificates verify`: its exit code.
    if isinstance(result, int):
        return result
    return 0


def _allow_imports_from_working_folder() -> None:
    """Let `package.module:name` find modules in the working folder, after all installed ones."""
    # At the end: a file here must not replace a module that this program or a library imports.
    try:
        here = str(Path.cwd())
    except FileNotFoundError:
        # The folder was deleted. Commands that import nothing from it still work.
        return
    if here not in sys.path:
        sys.path.append(here)


def trust_named_modules(argv: Sequence[str]) -> list[str]:
    """Trust the modules that the user names; returns the arguments without --import."""
    tokens = []
    words = iter(argv)
    for word in words:
        option, _, value = word.partition("=")
        if option == "--import":
            modules = value or next(words, "")
            if modules:
                trust(*modules.split(","))
                continue
        # The user who types an address means that code: --method mine:Method, --model=nets:small.
        for candidate in (word, value):
            if is_address(candidate):
                trust(candidate.partition(":")[0])
        tokens.append(word)
    return tokens


def _message(error: BaseException, tokens: Sequence[str]) -> str:
    """An error as one line for the user."""
    if isinstance(error, SmoothmixError):
        return str(error)
    if isinstance(error, CycloptsError):
        return f"{_misuse_message(error)} (see {_help_command(tokens)})"
    if isinstance(error, KeyboardInterrupt):
        return "interrupted; run the same command again to resume from what was saved"
    if isinstance(error, OSError):
        return f"{error.filename or 'input or output'}: {error.strerror or error}"
    if isinstance(error, UnicodeEncodeError):
        # Linux allows any bytes in a name; settings files are UTF-8.
        name = shown(error.object[max(0, error.start - 20) : error.end + 20])
        return f"a name holds bytes that are not UTF-8 ({name}): rename that file or folder"
    return str(error)


def _exit_code(error: BaseException) -> int:
    if isinstance(error, SmoothmixError):
        return error.exit_code
    if isinstance(error, CycloptsError):
        return MISUSE_EXIT_CODE
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED_EXIT_CODE
    return 1


def _rank_prefix() -> str:
    """Which of several processes prints the message, if it is not the main one."""
    try:
        rank = current_world().rank
    except SmoothmixError:
        # The environment variables make no sense, and that is the error to be reported.
        return ""
    if rank == 0:
        return ""
    return f"rank {rank}: "


def _misuse_message(error: CycloptsError) -> str:
    """The parser's message as one line, without its closing full stop."""
    if isinstance(error, UnusedCliTokensError):
        return f"unexpected argument {' '.join(error.unused_tokens or [])!r}"
    # cyclopts breaks its messages for a terminal; ours are one line, for logs and tests.
    message = " ".join(str(error).split()).removesuffix(".")
    if isinstance(error, MissingArgumentError):
        problem = "needs a value" if error.keyword else "is missing"
        pattern = r"^Command \".*?\" parameter (\S+) requires an argument"
        message = re.sub(pattern, rf"\1 {problem}", message)
    return message


def _help_command(tokens: Sequence[str]) -> str:
    """The command that explains the command in these tokens."""
    names = ["smoothmix"]
    # As far as the commands are known: `study mixng` is answered with the help of `study`.
    command = app
    for token in tokens:
        if token.startswith("-") or token not in list(command):
            break
        names.append(token)
        command = command[token]
    return f"`{' '.join(names)} --help`"


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: object = None,
    line: str | None = None,
    *,
    debug: bool = False,
) -> None:
    if issubclass(category, UserWarning) and not _rank_prefix():
        complain(f"smoothmix: warning: {message}")
    elif debug:
        # Warnings of libraries are for developers.
        complain(f"{filename}:{lineno}: {category.__name__}: {message}")

"""The command line: argv to typed options to one library call a command. Only this package prints.

Nothing heavy is imported until a command runs: `smoothmix --help` must answer at once.
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
    bench,
    certificates,
    certify,
    data,
    importing,
    presets,
    quickstart,
    report,
    reproduce,
    study,
    study_runs,
    train,
)
from smoothmix.errors import SmoothmixError
from smoothmix.version import __version__

PIPE_CLOSED = 141
"""As of a program that ends by SIGPIPE: the work was not done to its end."""

app = App(
    name="smoothmix",
    version=__version__,
    help="Train, certify and compare classifiers with certified robustness by randomized smoothing.",
    help_epilogue="Every command takes --debug to show the traceback of an error.",
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)
app.command(quickstart.quickstart)
app.command(train.train)
app.command(certify.certify)
app.command(certify.predict)
app.command(report.report)
app.command(reproduce.reproduce)
app.command(study.app, name="study")
app["study"].command(study_runs.ablation)
app["study"].command(study_runs.seeds)
app["study"].command(study_runs.dimension)
app.command(certificates.app, name="certificates")
app.command(presets.presets)
app.command(data.app, name="data")
app.command(importing.import_checkpoint, name="import")
app.command(bench.bench)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 1 for a run that failed, 2 for misuse, 75 for one to start again."""
    tokens = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in tokens
    tokens = [token for token in tokens if token != "--debug"]
    warnings.showwarning = partial(_show_warning, debug=debug)
    _allow_imports_from_working_folder()
    try:
        result = app(tokens, exit_on_error=False, print_error=False)
        return result if isinstance(result, int) else 0
    except CycloptsError as error:
        return _fail(f"{_misuse(error)} (see {_help_command(tokens)})", 2, debug)
    except ReportedByRankZero as error:
        return error.exit_code
    except SmoothmixError as error:
        return _fail(str(error), error.exit_code, debug)
    except KeyboardInterrupt:
        return _fail(
            "interrupted; the same command goes on from what was saved",
            INTERRUPTED_EXIT_CODE,
            debug,
        )
    except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
        sys.stderr.close()
        return PIPE_CLOSED
    except OSError as error:
        return _fail(f"{error.filename or 'input or output'}: {error.strerror or error}", 1, debug)


def _allow_imports_from_working_folder() -> None:
    """Let `package.module:name` find modules in the working folder, as `python -m` does."""
    # At the end: a file here must not replace a module that this program or a library imports.
    try:
        here = str(Path.cwd())
    except FileNotFoundError:
        # Deleted meanwhile: what does not import from it still works.
        return
    if here not in sys.path:
        sys.path.append(here)


def _fail(message: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print(f"smoothmix: {_speaker()}{message}", file=sys.stderr)
    return code


def _speaker() -> str:
    """Which of several processes has something to say, if it is not the one that always speaks."""
    try:
        rank = current_world().rank
    except SmoothmixError:  # an environment that makes no sense is what is being reported
        return ""
    return f"rank {rank}: " if rank else ""


def _misuse(error: CycloptsError) -> str:
    """A parser's message as one line, without its closing full stop."""
    if isinstance(error, UnusedCliTokensError):
        return f"there is no use for {' '.join(error.unused_tokens or [])!r}"
    told = " ".join(str(error).split()).removesuffix(".")
    if isinstance(error, MissingArgumentError):
        lack = "needs a value" if error.keyword else "is missing"
        told = re.sub(r"^Command \".*?\" parameter (\S+) requires an argument", rf"\1 {lack}", told)
    return told


def _help_command(tokens: Sequence[str]) -> str:
    command, here = ["smoothmix"], app
    for token in tokens:
        if token.startswith("-") or token not in list(here):
            break
        command.append(token)
        here = here[token]
    return f"`{' '.join([*command, '--help'])}`"


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
    if issubclass(category, UserWarning) and not _speaker():
        print(f"smoothmix: warning: {message}", file=sys.stderr)
    elif debug:  # those of libraries are for whoever looks into what they do
        print(f"{filename}:{lineno}: {category.__name__}: {message}", file=sys.stderr)

"""The commands `certificates verify | sign | merge | recompute | export`.

Only --redraw needs torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from smoothmix._io.text import counted
from smoothmix.cli.options import RedrawOptions
from smoothmix.cli.output import echo, show, show_document
from smoothmix.cli.verification import show_checks, show_verification

NO_REDRAW = RedrawOptions()

app = App(help="Check, sign, merge, recompute or export certificate files.")


@app.command
def verify(
    *files: Annotated[Path, Parameter(required=True)],
    seed_file: Path | None = None,
    signer: Path | None = None,
    options: RedrawOptions = NO_REDRAW,
) -> int:
    """Compute every radius again from the votes, and report what is not as it was written.

    Digests, completeness and labels are checked as far as that is possible; a list says what was
    checked and what was not. With --redraw, the votes of some rows are drawn again from the network
    as well. The exit code is 1 if anything is wrong, and 3 if votes differ by no more than rounding
    explains.

    Parameters
    ----------
    files
        Certificate files (or their run folders, or zoo:NAME), or Cohen-style logs. With --redraw:
        one of them, and the run folder of its network if that is elsewhere.
    seed_file
        The published file of a secret seed, to be checked against the commitment in the files;
        --redraw needs it, and finds it beside the certificates.
    signer
        Public key of OpenSSH that must have signed the files, or a list of names with their keys
        (allowed_signers); see `certificates sign`.
    """
    if signer is not None:
        # With --redraw, the second path is the run folder of the network.
        signed = files if options.redraw is None else files[:1]
        _show_signers(signed, signer)
    if options.redraw is not None:
        return _verify_and_redraw(files, options, seed_file=seed_file, signer=signer)
    wrong = 0
    for path in files:
        found = show_verification(path, options, seed_file=seed_file)
        show_checks(path, found.checks, options, signer is not None)
        wrong += bool(found.problems)
    return int(wrong > 0)


def _verify_and_redraw(
    files: Sequence[Path],
    options: RedrawOptions,
    *,
    seed_file: Path | None,
    signer: Path | None,
) -> int:
    from smoothmix.cli.redraw import file_and_run, redraw_file

    path, run = file_and_run(files, options)
    found = show_verification(path, options, seed_file=seed_file)
    if found.problems:
        # Rows that do not follow from their own votes need no network to be found wrong.
        show_checks(path, found.checks, NO_REDRAW, signer is not None)
        return 1
    code = redraw_file(path, run, options, seed_file=seed_file)
    show_checks(path, found.checks, options, signer is not None)
    return code


def _show_signers(files: Sequence[Path], signer: Path) -> None:
    """Show who signed the files; raises for the first one that the signer did not sign as it is."""
    from smoothmix import certificates
    from smoothmix.certificates.signature import signer_of

    for path in files:
        name = signer_of(certificates.read(path), signer)
        show(f"{path}: rows and settings are as {name} signed them")


@app.command
def sign(file: Path, /, *, key: Path) -> None:
    """Sign the rows and the settings of a finished file, by ssh-keygen; others verify --signer.

    Parameters
    ----------
    file
        A certificate file or its run folder. The signature is written beside it.
    key
        Your private key of OpenSSH, such as ~/.ssh/id_ed25519.
    """
    from smoothmix import certificates
    from smoothmix.certificates.signature import sign

    out = sign(certificates.read(file), key)
    echo(f"{out}: written; others check it by `verify --signer` with your public key")


@app.command
def merge(
    *files: Annotated[Path, Parameter(required=True)],
    out: Path,
    allow_gaps: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Merge the shards of one run; other settings, gaps and duplicates are refused.

    Parameters
    ----------
    files
        Certificate files made with the same settings.
    out
        The merged file.
    allow_gaps
        Write it even if images are missing.
    """
    from smoothmix import certificates
    from smoothmix.certificates import settings_path
    from smoothmix.certificates.settings import load_settings
    from smoothmix.errors import SmoothmixError

    whole = certificates.merge([certificates.read(path) for path in files], allow_gaps=allow_gaps)
    # A merge that was killed may have left its settings without rows.
    others = [settings_path(out)]
    with suppress(SmoothmixError):
        if load_settings(out) == whole.settings:
            others.clear()
    certificates.save(whole, _new(out, *others))
    echo(f"{out}: {counted(len(whole.rows), 'row')} from {counted(len(files), 'file')}")


@app.command
def recompute(file: Path, /, *, alpha: float, out: Path | None = None) -> None:
    """Compute the certificates again from the same votes, at another failure probability.

    Parameters
    ----------
    file
        A certificate file, its run folder, or zoo:NAME.
    alpha
        Chance that one image's certificate is wrong. Choose it before you see the result.
    out
        The new file; by default beside the old one (of the zoo: here), with alpha in its name.
    """
    from smoothmix import certificates
    from smoothmix.certificates import settings_path
    from smoothmix.cli.certify import show_summary
    from smoothmix.runs.zoo import is_zoo

    old = certificates.read(file)
    again = certificates.recompute(old, alpha=alpha)
    # The folder of a network in the zoo holds published results only.
    folder = Path() if is_zoo(file) else old.path.parent
    path = out or folder / f"{settings_path(old.path).stem}-alpha{alpha:g}.tsv"
    _new(path, settings_path(path))
    certificates.save(again, path)
    show_summary(again)
    echo(f"certificates: {path}")


@app.command
def export(
    file: Path,
    /,
    *,
    format: Literal["cohen"] = "cohen",  # noqa: A002 - the option is called --format
    out: Path | None = None,
) -> None:
    """Write a log that other tools for randomized smoothing read.

    Parameters
    ----------
    file
        A certificate file, its run folder, or zoo:NAME.
    format
        cohen: six tab-separated columns, idx label predict radius correct time; radii are rounded
        down at six decimals.
    out
        A file; by default standard output.
    """
    from smoothmix import certificates
    from smoothmix._io.files import atomic_write

    text = certificates.export_cohen_log(certificates.read(file))
    if out is None:
        show_document(text)
    else:
        atomic_write(_new(out), text.encode())
        echo(f"{out}: written")


def _new(out: Path, *others: Path) -> Path:
    """The path to write to; neither it nor the others may exist, since votes take hours to draw."""
    from smoothmix.certificates.partial import refuse_reserved
    from smoothmix.errors import UsageError

    for path in (refuse_reserved(out), *others):
        if path.exists():
            raise UsageError(f"{path}: exists already; choose another --out")
    return out

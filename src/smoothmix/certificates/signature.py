"""Signatures of certificate files, made and checked by `ssh-keygen -Y` of OpenSSH.

Digests and arithmetic find accidents; only a signature says who vouches for a file. OpenSSH is on
nearly every machine, people have keys for it, on hardware as well, and publish them (GitHub serves
those of every user). Nothing of it is a dependency of this package: the tool is optional.

What is signed is a manifest of the rows and their settings together, so that neither can be
exchanged, in a namespace of its own: a signature of something else is never taken for one of these.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from smoothmix._io.files import atomic_write, read_limited
from smoothmix.certificates.file import LARGEST_FILE, Certificates
from smoothmix.certificates.settings import settings_path
from smoothmix.certificates.tools import verify
from smoothmix.errors import CertificateError, SmoothmixError, UsageError, shown

NAMESPACE = "smoothmix-certificates"

LARGEST_SIGNATURE = 2**16
"""Bytes; that of the longest RSA key has three thousand."""

LARGEST_SIGNERS = 2**20
"""Bytes of a file of public keys."""

SECONDS = 60
"""Time for a check, which asks nobody anything."""

KEY_TYPES = ("ssh-", "ecdsa-", "sk-")
"""How the first word of a public key begins. A list of signers begins with a name."""


def signature_path(file: Path) -> Path:
    """Where the signature of a certificate file is: beside it, with `.sig` after its name."""
    return file.with_name(f"{file.name}.sig")


def manifest(file: Certificates) -> bytes:
    """What is signed: the digests of the rows and of their settings, as stored."""
    if file.settings is None:
        raise UsageError(f"{file.path}: a log has no settings, without which rows prove nothing")
    rows = _sha256(file.path)
    settings = _sha256(settings_path(file.path))
    return f"{NAMESPACE} 1\nrows sha256 {rows}\nsettings sha256 {settings}\n".encode()


def _sha256(path: Path) -> str:
    return hashlib.sha256(read_limited(path, LARGEST_FILE)).hexdigest()


def sign(file: Certificates, key: Path) -> Path:
    """Sign a finished file whose rows are right; returns the path of the signature.

    `key` is a private key of OpenSSH, or a public one whose other half the agent holds. A key with
    a passphrase is asked for on the terminal.
    """
    content = manifest(file)
    found = verify(file)
    if not found.ok:
        raise CertificateError(f"{file.path}: not signed, since {found.problems[0]}")
    if not found.finished:
        # The next row would make the signature worthless.
        raise CertificateError(f"{file.path}: not signed, since it is not finished")
    out = signature_path(file.path)
    if out.exists():
        raise UsageError(f"{out}: exists already; delete it to sign the file again")
    if not key.is_file():
        raise UsageError(f"{key}: there is no such key; ssh-keygen -t ed25519 makes one")
    done = _ssh_keygen("sign", "-f", str(key), "-n", NAMESPACE, message=content, seconds=None)
    if done.returncode != 0 or not done.stdout:
        raise SmoothmixError(f"{key}: ssh-keygen could not sign ({_complaint(done)})")
    atomic_write(out, done.stdout)
    return out


def signer_of(file: Certificates, signers: Path) -> str:
    """Who signed a file, out of those in `signers`; raises `CertificateError` if nobody did.

    `signers` is a public key, or a list of names with their keys in OpenSSH's format
    (`allowed_signers`, `man ssh-keygen`).
    """
    content = manifest(file)
    path = signature_path(file.path)
    if not path.is_file():
        raise CertificateError(f"{file.path}: not signed: there is no {path.name} beside it")
    signature = read_limited(path, LARGEST_SIGNATURE)
    with TemporaryDirectory() as folder:
        # A copy, so that what is checked is what was read within the limit.
        copy = Path(folder) / "signature"
        copy.write_bytes(signature)
        allowed = Path(folder) / "signers"
        allowed.write_text(_as_list(signers), encoding="utf-8")
        files = ("-s", str(copy), "-f", str(allowed))
        named = _ssh_keygen("find-principals", *files, message=b"")
        names = named.stdout.decode(errors="replace").splitlines()
        for name in names:
            check = _ssh_keygen("verify", *files, "-n", NAMESPACE, "-I", name, message=content)
            if check.returncode == 0:
                return name
    if not names:
        raise CertificateError(f"{file.path}: signed by somebody who is not in {signers}")
    raise CertificateError(
        f"{file.path}: the signature of {shown(names[0])} does not fit: the rows or the settings "
        "were changed after they were signed"
    )


def _as_list(signers: Path) -> str:
    """The content of a list of signers; a public key becomes a list of one, named by its file."""
    try:
        text = read_limited(signers, LARGEST_SIGNERS).decode()
    except FileNotFoundError:
        raise UsageError(f"{signers}: there is no such public key or list of signers") from None
    except UnicodeDecodeError:
        raise UsageError(f"{signers}: not a public key or a list of signers") from None
    if "PRIVATE KEY" in text:
        raise UsageError(f"{signers}: a private key; give the public one, {signers}.pub")
    if not text.startswith(KEY_TYPES):
        return text
    name = "".join(filter(str.isalnum, signers.stem)) or "signer"
    return "".join(f"{name} {line}\n" for line in text.splitlines() if line.strip())


def _ssh_keygen(
    action: str, *arguments: str, message: bytes, seconds: float | None = SECONDS
) -> subprocess.CompletedProcess[bytes]:
    tool = shutil.which("ssh-keygen")
    if tool is None:
        raise UsageError("signatures need ssh-keygen of OpenSSH 8.2 or newer, which is not here")
    command = [tool, "-Y", action, *arguments]
    try:
        return subprocess.run(
            command, input=message, capture_output=True, check=False, timeout=seconds
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SmoothmixError(f"{tool} failed ({shown(error, 200)})") from error


def _complaint(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return shown(lines[-1] if lines else f"exit code {done.returncode}", 200)

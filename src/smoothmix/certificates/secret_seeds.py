"""Files of secret seeds: made before the first row, never changed, and published when wanted.

`certificates.secret-seed` beside `certificates.tsv` holds a seed of 256 bits and a nonce of 256
bits in hexadecimal digits. Only its owner may read it. The certificate file holds the commitment,
SHA-256(seed, nonce), which nobody can turn back into the seed, and which fits no other seed. No
torch.
"""

from __future__ import annotations

import os
import secrets
import stat
import warnings
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from smoothmix._io.files import flush_to_disk
from smoothmix._io.toml import from_table, read_toml
from smoothmix.certificates.existing import existing_settings
from smoothmix.certificates.seeds import (
    SECRET_BYTES,
    SecretSeed,
    Seed,
    commitment_to,
    key_of_secret,
    seed_remark,
)
from smoothmix.certificates.settings import FileSettings, require_tsv
from smoothmix.config import require
from smoothmix.errors import CertificateError, SmoothmixError, UsageError

SUFFIX = ".secret-seed"

OWNER_ONLY = 0o600


# Its fields are hidden from repr: a message or a log must never show them.
@dataclass(frozen=True, kw_only=True, repr=False)
class _SeedFile:
    """The contents of a seed's file."""

    commitment: str
    seed: str
    nonce: str

    def opened(self) -> SecretSeed:
        """The seed with its key, once both halves are known to fit the commitment."""
        seed = _bytes_of(self.seed, "seed")
        nonce = _bytes_of(self.nonce, "nonce")
        require(
            commitment_to(seed, nonce) == self.commitment,
            "seed and nonce do not fit the commitment: the file was changed or is damaged",
        )
        return SecretSeed(self.commitment, key=key_of_secret(seed))


def _bytes_of(text: str, name: str) -> bytes:
    # The message must not hold the value: it may be nearly a secret.
    try:
        content = bytes.fromhex(text)
    except ValueError:
        content = b""
    digits = 2 * SECRET_BYTES
    require(len(content) == SECRET_BYTES, f"{name} must have {digits} hexadecimal digits")
    return content


def seed_path(path: Path) -> Path:
    """Where the secret seed of a certificate file is by default: beside it."""
    return path.with_name(f"{path.stem}{SUFFIX}")


def read_secret_seed(path: Path) -> SecretSeed:
    """The seed in a file; what is not one is refused without showing what it holds."""
    try:
        tables = read_toml(path)
        texts = all(type(value) is str for value in tables.values())
        require(
            texts and tables.keys() == {"commitment", "seed", "nonce"},
            "it must hold the texts commitment, seed and nonce",
        )
        return from_table(_SeedFile, tables, where=str(path)).opened()
    except SmoothmixError as error:
        if not path.exists():
            raise
        # TOML's own messages quote the file.
        reason = "it cannot be read as TOML"
        if isinstance(error, UsageError):
            reason = str(error)
        raise CertificateError(f"{path}: is not the file of a secret seed: {reason}") from None


def make_secret_seed(path: Path) -> SecretSeed:
    """A new seed in a new file, safe on the disk; the file's own seed if somebody was faster."""
    seed = secrets.token_bytes(SECRET_BYTES)
    nonce = secrets.token_bytes(SECRET_BYTES)
    table = {
        "commitment": commitment_to(seed, nonce),
        "seed": seed.hex(),
        "nonce": nonce.hex(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(tomli_w.dumps(table).encode())
            stream.flush()
            os.fsync(stream.fileno())
        # A link appears with its whole content, and never replaces a file, as a rename would.
        os.link(temporary, path)
        flush_to_disk(path.parent)
    except FileExistsError:
        return read_secret_seed(path)
    except OSError as error:
        raise UsageError(
            f"{path}: the secret seed cannot be written ({error.strerror or error}): "
            "name a file in another folder by --seed-file"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
    return read_secret_seed(path)


def secret_seed_for(path: Path, *, seed_file: Path | None = None) -> tuple[SecretSeed, str]:
    """The secret seed of a certificate file, and a note for its user.

    A seed that exists is used again, so that a run can be resumed. A new one is made only where
    there are no certificates yet.
    """
    place = seed_file or seed_path(path)
    existing = existing_settings(require_tsv(path))
    recorded = None
    if existing is not None:
        recorded = existing.certification.seed
    if recorded is not None and not isinstance(recorded, SecretSeed):
        raise UsageError(
            f"{path}: was started with the public seed {recorded}, not with a secret one; "
            "use it, or another --out"
        )
    if place.exists():
        seed = read_secret_seed(place)
        _warn_if_others_can_read(place)
        note = f"the secret seed in {place} is used"
    elif recorded is None:
        seed = make_secret_seed(place)
        note = (
            f"the secret seed is in {place}: keep it, since nothing can be resumed or redrawn "
            "without it; publish it once nobody may prepare inputs for it any more"
        )
    else:
        raise UsageError(
            f"{path}: was started with a secret seed, whose file {place} is not there: without it "
            "nothing can be resumed or redrawn; name it by --seed-file, or choose another --out"
        )
    if recorded is not None and recorded != seed:
        raise UsageError(
            f"{place}: is not the seed of {path}, whose commitment is "
            f"{recorded.commitment[:12]}..., not {seed.commitment[:12]}...; name the right file by "
            "--seed-file, or choose another --out"
        )
    return seed, note


def _warn_if_others_can_read(place: Path) -> None:
    if os.name == "posix" and stat.S_IMODE(place.stat().st_mode) & 0o077:
        warnings.warn(
            f"{place}: others may read this secret seed; chmod 600 keeps it secret", stacklevel=3
        )


def seed_report(settings: FileSettings, seed_file: Path | None = None) -> str:
    """What is known about the seed of certificates; a seed file that does not fit is refused."""
    if seed_file is None:
        return seed_remark(settings.certification.seed)
    with_secret(settings, seed_file)
    return f"its secret seed is that of {seed_file}, which fits the commitment"


def with_secret(settings: FileSettings, seed_file: Path) -> Seed:
    """The seed of a certificate file, with the key that its seed file holds; others are refused."""
    recorded = settings.certification.seed
    require(
        isinstance(recorded, SecretSeed),
        f"{seed_file}: goes with a secret seed, and the seed of these certificates is {recorded}",
    )
    seed = read_secret_seed(seed_file)
    if seed != recorded:
        raise CertificateError(
            f"{seed_file}: does not fit the commitment: it is another seed than the one that these "
            "certificates were made with"
        )
    return seed

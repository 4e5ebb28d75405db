"""Signatures by the real ssh-keygen: who vouches for a file, and nothing can be exchanged."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from smoothmix import certificates
from smoothmix.certificates.signature import NAMESPACE, manifest, sign, signature_path, signer_of
from smoothmix.errors import CertificateError, SmoothmixError, UsageError
from tests.conftest import Run
from tests.helpers.certificates import cohen_log, our_file

needs_openssh = pytest.mark.skipif(
    shutil.which("ssh-keygen") is None, reason="ssh-keygen of OpenSSH is not installed"
)


def make_key(path: Path) -> Path:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", path.name, "-f", str(path)]
    subprocess.run(command, check=True)
    return path


@pytest.fixture
def signed(tmp_path: Path) -> Path:
    """A file that Alice has signed; Bob has a key, too."""
    make_key(tmp_path / "alice")
    make_key(tmp_path / "bob")
    path = our_file(tmp_path / "certificates.tsv", [990, 800])
    sign(certificates.read(path), tmp_path / "alice")
    return path


@needs_openssh
def test_the_commands_sign_and_verify(smoothmix: Run, tmp_path: Path) -> None:
    make_key(tmp_path / "alice")
    our_file(tmp_path / "run" / "certificates.tsv", [990, 800])
    done = smoothmix("certificates", "sign", "run", "--key", "alice")
    assert done.code == 0, done.err
    assert "certificates.tsv.sig: written" in done.err
    done = smoothmix("certificates", "verify", "run", "--signer", "alice.pub")
    assert done.code == 0, done.err
    assert "run: rows and settings are as alice signed them" in done.out
    (tmp_path / "allowed").write_text(f"alice@lab.example {(tmp_path / 'alice.pub').read_text()}")
    done = smoothmix("certificates", "verify", "run", "--signer", "allowed")
    assert "as alice@lab.example signed them" in done.out
    again = smoothmix("certificates", "sign", "run", "--key", "alice")
    assert (again.code, "delete it to sign" in again.err) == (2, True)


EDITS = {
    "a vote": (".tsv", "1:990", "1:991"),
    "the sigma": (".toml", "sigma = 0.5", "sigma = 0.6"),
    "a name": (".toml", 'model = "lenet"', 'model = "resnet"'),
    "an index": (".tsv", "\n1\t", "\n2\t"),
}


@needs_openssh
@pytest.mark.parametrize("edit", EDITS)
def test_any_change_after_signing_is_found(signed: Path, tmp_path: Path, edit: str) -> None:
    suffix, old, new = EDITS[edit]
    changed = signed.with_suffix(suffix)
    text = changed.read_text()
    assert old in text
    file = certificates.read(signed)
    changed.write_text(text.replace(old, new))
    with pytest.raises(CertificateError, match="alice does not fit: the rows or the settings were"):
        signer_of(file, tmp_path / "alice.pub")


@needs_openssh
def test_nobody_else_is_taken_for_the_signer(signed: Path, tmp_path: Path, smoothmix: Run) -> None:
    file = certificates.read(signed)
    with pytest.raises(CertificateError, match=r"signed by somebody who is not in .*bob\.pub"):
        signer_of(file, tmp_path / "bob.pub")
    done = smoothmix("certificates", "verify", signed, "--signer", "bob.pub")
    assert done.code == 1
    signature_path(signed).write_text("-----BEGIN SSH SIGNATURE-----\nAAAA\n")
    with pytest.raises(CertificateError, match="signed by somebody who is not in"):
        signer_of(file, tmp_path / "alice.pub")
    signature_path(signed).unlink()
    with pytest.raises(CertificateError, match=r"there is no certificates\.tsv\.sig beside it"):
        signer_of(file, tmp_path / "alice.pub")


@needs_openssh
def test_a_signature_of_the_same_text_for_another_purpose_is_refused(
    signed: Path, tmp_path: Path
) -> None:
    file = certificates.read(signed)
    command = ["ssh-keygen", "-Y", "sign", "-f", str(tmp_path / "alice"), "-n", "git"]
    done = subprocess.run(command, input=manifest(file), capture_output=True, check=True)
    assert NAMESPACE != "git"
    signature_path(signed).write_bytes(done.stdout)
    with pytest.raises(CertificateError, match="does not fit"):
        signer_of(file, tmp_path / "alice.pub")


@needs_openssh
def test_what_should_not_be_signed_is_refused(tmp_path: Path) -> None:
    key = make_key(tmp_path / "alice")
    path = our_file(tmp_path / "c.tsv", [990, 800])
    settings = path.with_suffix(".toml")
    text = settings.read_text()
    settings.write_text(text.replace("images = 2", "images = 3"))
    with pytest.raises(CertificateError, match="not signed, since it is not finished"):
        sign(certificates.read(path), key)
    settings.write_text(text.replace("alpha = 0.001", "alpha = 0.0001"))
    with pytest.raises(CertificateError, match="not signed, since image 0: says p_lower"):
        sign(certificates.read(path), key)
    settings.write_text(text)
    with pytest.raises(UsageError, match="there is no such key"):
        sign(certificates.read(path), tmp_path / "none")
    with pytest.raises(SmoothmixError, match="ssh-keygen could not sign"):
        sign(certificates.read(path), settings)
    with pytest.raises(UsageError, match="a log has no settings"):
        sign(certificates.read(cohen_log(tmp_path / "log", [0.5])), key)
    sign(certificates.read(path), key)
    with pytest.raises(UsageError, match="a private key; give the public one"):
        signer_of(certificates.read(path), key)
    assert not list(tmp_path.glob("log.sig"))


def test_a_machine_without_the_tool_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = our_file(tmp_path / "c.tsv", [990])
    (tmp_path / "key").write_text("a key")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="signatures need ssh-keygen of OpenSSH"):
        sign(certificates.read(path), tmp_path / "key")

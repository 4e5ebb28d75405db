"""Seeds of certification as a person uses them: public, derived from a text, and secret."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import stat
import tomllib
from pathlib import Path

import pytest

from smoothmix.certificates import read
from smoothmix.certificates.secret_seeds import make_secret_seed, read_secret_seed
from smoothmix.certificates.seeds import DerivedSeed, SecretSeed, seed_from_value, seed_to_value
from smoothmix.certificates.shards import rows_in
from smoothmix.errors import CertificateError, SmoothmixError, UsageError
from tests.conftest import Run
from tests.helpers.certification import assert_same, put_network, without_time
from tests.helpers.processes import jobs_in, until

BASE = ("--model", "digits:make", "--sigma", 0.5, "--data", "sample", "--n0", 20)
QUICK = (*BASE, "--n", 300, "--skip", 100)
SECRET = ("--seed", "secret")


@pytest.fixture(autouse=True)
def network(tmp_path: Path) -> None:
    put_network(tmp_path)


def secrets_in(seed_file: Path) -> list[str]:
    """What must not be shown: the seed and the nonce, also as numbers."""
    tables = tomllib.loads(seed_file.read_text())
    values = [tables["seed"], tables["nonce"]]
    return [*values, *(str(int(value, 16)) for value in values), str(key_of(tables["seed"]))]


def key_of(seed: str) -> int:
    """The definition, without our function."""
    content = b"smoothmix certification key 1\n" + bytes.fromhex(seed)
    return int(hashlib.sha256(content).hexdigest()[:32], 16)


def test_a_secret_seed_is_committed_to_kept_apart_and_used_in_full(
    smoothmix: Run, tmp_path: Path
) -> None:
    done = smoothmix("certify", *QUICK, *SECRET)
    assert done.code == 0, done.err
    assert "the secret seed is in certificates.secret-seed: keep it" in done.err
    seed_file = tmp_path / "certificates.secret-seed"
    assert stat.S_IMODE(seed_file.stat().st_mode) == 0o600
    tables = tomllib.loads(seed_file.read_text())
    both = bytes.fromhex(tables["seed"] + tables["nonce"])
    assert len(both) == 64
    commitment = hashlib.sha256(both).hexdigest()
    settings = tomllib.loads((tmp_path / "certificates.toml").read_text())
    assert settings["certification"]["seed"] == {"commitment": commitment}
    assert read_secret_seed(seed_file).key == key_of(tables["seed"])
    # Nothing but the seed's own file may hold it.
    everything = done.out + done.err
    for path in tmp_path.glob("certificates.*"):
        if path != seed_file:
            everything += path.read_text()
    for secret in secrets_in(seed_file):
        assert secret not in everything
    assert tables["seed"] not in repr(read_secret_seed(seed_file))


def test_a_secret_seed_gives_other_votes_each_time_and_the_same_from_its_file(
    smoothmix: Run, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        assert smoothmix("certify", *QUICK, *SECRET, "--out", f"{name}.tsv").code == 0
    again = smoothmix("certify", *QUICK, *SECRET, "--seed-file", "a.secret-seed", "--out", "c.tsv")
    assert again.code == 0
    assert "the secret seed in a.secret-seed is used" in again.err
    first, second, third = (without_time(tmp_path / f"{name}.tsv") for name in "abc")
    assert first == third
    assert first != second


def test_what_was_begun_with_a_secret_seed_needs_its_file(smoothmix: Run, tmp_path: Path) -> None:
    assert smoothmix("certify", *QUICK, *SECRET, "--max", 2).code == 0
    assert smoothmix("certify", *QUICK, *SECRET, "--out", "other.tsv").code == 0
    seed_file = tmp_path / "certificates.secret-seed"
    public = smoothmix("certify", *QUICK)
    assert public.code == 2
    assert re.search(r"seed is secret \(commitment \w+...\) there and 0 here", public.err)
    wrong = smoothmix("certify", *QUICK, *SECRET, "--seed-file", "other.secret-seed")
    assert wrong.code == 2
    assert "other.secret-seed: is not the seed of certificates.tsv" in wrong.err
    seed_file.rename(tmp_path / "kept")
    lost = smoothmix("certify", *QUICK, *SECRET)
    assert lost.code == 2
    assert "without it nothing can be resumed or redrawn; name it by --seed-file" in lost.err
    assert not seed_file.exists(), "no other seed takes its place"
    resumed = smoothmix("certify", *QUICK, *SECRET, "--seed-file", "kept")
    assert resumed.code == 0, resumed.err
    assert len(read(tmp_path / "certificates.tsv").rows) == 10


def test_a_public_file_is_not_continued_with_a_secret_seed(smoothmix: Run, tmp_path: Path) -> None:
    assert smoothmix("certify", *QUICK, "--max", 2).code == 0
    refused = smoothmix("certify", *QUICK, *SECRET)
    assert refused.code == 2
    assert "was started with the public seed 0, not with a secret one" in refused.err
    assert not list(tmp_path.glob("*.secret-seed"))


def test_shards_share_a_secret_seed(smoothmix: Run, tmp_path: Path) -> None:
    assert smoothmix("certify", *QUICK, *SECRET).code == 0
    (tmp_path / "certificates.tsv").rename(tmp_path / "whole.tsv")
    (tmp_path / "certificates.toml").rename(tmp_path / "whole.toml")
    # The shards of one run find the file beside the whole one.
    for shard in ("1/2", "2/2"):
        done = smoothmix("certify", *QUICK, *SECRET, "--shard", shard)
        assert done.code == 0, done.err
    assert_same(tmp_path / "certificates.tsv", tmp_path / "whole.tsv")
    # Files of their own must be told, or each would get a seed of its own.
    alone = ("certify", *QUICK, *SECRET, "--shard", "1/2", "--out", "a.tsv")
    refused = smoothmix(*alone)
    assert refused.code == 2
    assert "must share their secret seed: name its file by --seed-file" in refused.err
    assert smoothmix(*alone, "--seed-file", "certificates.secret-seed").code == 0


def test_a_killed_run_is_resumed_with_its_secret_seed(tmp_path: Path) -> None:
    options = (*BASE, "--n", 4_000, "--skip", 20, *SECRET)
    path = tmp_path / "certificates.tsv"
    with jobs_in(tmp_path) as jobs:
        first = jobs.smoothmix("certify", *options)
        until(lambda: rows_in(path) >= 3, "some rows")
        os.kill(first.process.pid, signal.SIGKILL)
        first.wait()
        assert 3 <= rows_in(path) < 50, "it was really interrupted"
        again = jobs.torchrun("--nproc-per-node 2", "--", "certify", *options)
        assert again.wait() == 0, again.output
        seed_file = tmp_path / "certificates.secret-seed"
        undisturbed = jobs.smoothmix(
            "certify", *options, "--seed-file", seed_file, "--out", "one.tsv"
        )
        assert undisturbed.wait() == 0, undisturbed.output
        output = first.output + again.output + undisturbed.output
    assert_same(path, tmp_path / "one.tsv")
    for secret in secrets_in(seed_file):
        assert secret not in output


def test_two_processes_that_start_at_once_agree_on_one_seed(tmp_path: Path) -> None:
    seeds = [make_secret_seed(tmp_path / "a.secret-seed") for _ in range(2)]
    assert seeds[0].key == seeds[1].key
    assert not list(tmp_path.glob(".*.tmp"))


def test_others_must_not_read_a_secret_seed(smoothmix: Run, tmp_path: Path) -> None:
    make_secret_seed(tmp_path / "certificates.secret-seed")
    (tmp_path / "certificates.secret-seed").chmod(0o644)
    done = smoothmix("certify", *QUICK, *SECRET)
    assert done.code == 0
    assert "others may read this secret seed; chmod 600 keeps it secret" in done.err


def test_verify_compares_a_published_seed_with_the_commitment(
    smoothmix: Run, tmp_path: Path
) -> None:
    assert smoothmix("certify", *QUICK, *SECRET).code == 0
    make_secret_seed(tmp_path / "other")
    alone = smoothmix("certificates", "verify", "certificates.tsv")
    assert alone.code == 0
    assert "a secret seed: nobody else could prepare inputs for it" in alone.out
    fits = smoothmix(
        "certificates", "verify", "certificates.tsv", "--seed-file", "certificates.secret-seed"
    )
    assert fits.code == 0
    assert "which fits the commitment" in fits.out
    wrong = smoothmix("certificates", "verify", "certificates.tsv", "--seed-file", "other")
    assert wrong.code == 1
    assert "other: does not fit the commitment" in wrong.err


def test_the_public_default_is_marked(smoothmix: Run) -> None:
    assert smoothmix("certify", *QUICK).code == 0
    checked = smoothmix("certificates", "verify", "certificates.tsv")
    assert "seed 0, the public default: anyone can draw the votes again" in checked.out
    assert "By default 0, which is public" in " ".join(smoothmix("certify", "--help").out.split())
    assert smoothmix("report", "certificates.tsv", "--out", "page.html").code == 0
    assert smoothmix("certify", *QUICK, "--seed", 7, "--out", "seven.tsv").code == 0
    checked = smoothmix("certificates", "verify", "seven.tsv")
    assert "the public seed 7: anyone can draw the votes again" in checked.out


def test_the_page_marks_the_public_default(smoothmix: Run, tmp_path: Path) -> None:
    assert smoothmix("certify", *QUICK).code == 0
    assert smoothmix("report", "certificates.tsv", "--out", "page.html").code == 0
    assert "0 (the public default)" in (tmp_path / "page.html").read_text()


def test_a_seed_is_derived_from_a_text(smoothmix: Run, tmp_path: Path) -> None:
    text = "block 123456"
    digest = hashlib.sha256(text.encode()).digest()
    number = int.from_bytes(digest[:8], "big") >> 1
    assert smoothmix("certify", *QUICK, "--seed-from", text, "--out", "text.tsv").code == 0
    assert smoothmix("certify", *QUICK, "--seed", number, "--out", "number.tsv").code == 0
    of_text = without_time(tmp_path / "text.tsv")
    of_number = without_time(tmp_path / "number.tsv")
    # The digests bind the rows to what the settings record, and only one has the text.
    assert [row[:-1] for row in of_text] == [row[:-1] for row in of_number]
    settings = tomllib.loads((tmp_path / "text.toml").read_text())
    assert settings["certification"]["seed"] == {"number": number, "text": text}
    assert f"derived from the text {text!r}" in smoothmix("certificates", "verify", "text.tsv").out
    both = smoothmix("certify", *QUICK, "--seed-from", text, "--seed", 3)
    assert "--seed-from derives the seed: leave --seed out" in both.err


@pytest.mark.parametrize(
    "value",
    [0, 2**63 - 1, {"commitment": "ab" * 32}, seed_to_value(DerivedSeed("a text"))],
    ids=str,
)
def test_seeds_are_read_as_they_were_recorded(value: object) -> None:
    assert seed_to_value(seed_from_value(value)) == value


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (-1, "seed must lie in"),
        (True, "seed must be a whole number, or a table"),
        (1.5, "seed must be a whole number, or a table"),
        ({"commitment": "xy"}, "a commitment has 64 hexadecimal digits"),
        ({"commitment": "ab" * 32, "seed": 1}, "seed must be a whole number, or a table"),
        ({"number": 1, "text": "a"}, "gives the seed"),
        ({"number": 1, "text": "a\nb"}, "one line of printable text"),
        ({"number": 1, "text": ["a"]}, "seed must be a whole number, or a table"),
    ],
    ids=str,
)
def test_recorded_seeds_that_cannot_be_are_refused(value: object, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        seed_from_value(value)


def test_a_commitment_alone_draws_nothing() -> None:
    with pytest.raises(UsageError, match="name that file by --seed-file"):
        _ = SecretSeed("ab" * 32).key


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('seed = "', 'seed = "00', 1),
        lambda text: text.replace("nonce", "once"),
        lambda text: text[:-40],
        lambda text: text.replace('nonce = "', 'nonce = "zz'),
        lambda text: "",
    ],
)
def test_a_damaged_seed_file_is_refused_without_showing_it(tmp_path: Path, change) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "a.secret-seed"
    make_secret_seed(path)
    hidden = secrets_in(path)
    path.write_text(change(path.read_text()))
    with pytest.raises(CertificateError, match="is not the file of a secret seed") as refused:
        read_secret_seed(path)
    for secret in hidden:
        assert secret[:20] not in str(refused.value)
    with pytest.raises(SmoothmixError, match="no such file"):
        read_secret_seed(tmp_path / "nowhere")

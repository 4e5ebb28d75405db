"""Extended files get digests of their own, also where a process died between two renames."""

from __future__ import annotations

from pathlib import Path

from smoothmix.certificates import read, settings_path, verify
from smoothmix.certify.extend import extend_dataset
from tests.certify.test_partial_votes import IsBright
from tests.crash.scenarios import EXACT, FILE, MORE, anytime, extended, images
from tests.helpers.certification import without_time
from tests.helpers.guarantees import with_stopping


def test_rows_that_are_drawn_further_get_new_digests(tmp_path: Path) -> None:
    anytime(tmp_path)
    before = read(tmp_path / FILE)
    extended(tmp_path)
    after = read(tmp_path / FILE)
    assert before.finished
    assert after.finished
    assert verify(after).ok
    assert {row.digest for row in after.rows}.isdisjoint({row.digest for row in before.rows})


def test_an_extension_that_died_between_rows_and_settings_is_finished(tmp_path: Path) -> None:
    path = tmp_path / FILE
    anytime(tmp_path)
    old_settings = settings_path(path).read_bytes()
    extended(tmp_path)
    rows = without_time(path)
    new_settings = settings_path(path).read_bytes()
    # The extended rows are in place, and their settings are not.
    settings_path(path).write_bytes(old_settings)
    left = path.with_name("c-extending.toml")
    left.write_bytes(new_settings)
    assert not verify(read(path)).ok
    extend_dataset(IsBright(), images(), with_stopping(EXACT, MORE), path=path)
    assert without_time(path) == rows
    assert settings_path(path).read_bytes() == new_settings
    assert not left.exists()
    assert verify(read(path)).ok

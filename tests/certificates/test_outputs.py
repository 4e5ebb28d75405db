"""Certificate files are never lost: outputs that are deleted, linked, devices, or another's."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from smoothmix._io.files import atomic_write
from smoothmix._io.locks import InUseError, exclusive, lock_path
from smoothmix._io.temporary import temporary_beside
from smoothmix.certificates import FileSettings, read, settings_path, writing
from smoothmix.certificates.output import require_output
from smoothmix.certificates.partial import journal_path
from smoothmix.certificates.row import Certificate
from smoothmix.certificates.shards import remove_leftovers
from smoothmix.errors import SmoothmixError, UsageError
from tests.helpers.certificates import our_file


def made(folder: Path) -> tuple[tuple[Certificate, ...], FileSettings]:
    """Some rows with their settings."""
    file = read(our_file(folder / "made" / "c.tsv", [990, 980, 970, 960]))
    assert file.settings is not None
    return file.rows, file.settings


@pytest.fixture
def rows_and_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[tuple[Certificate, ...], FileSettings]:
    # Rows may be rescued to the working folder.
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return made(tmp_path)


def delete_file(path: Path) -> None:
    path.unlink()


def replace_by_another(path: Path) -> None:
    atomic_write(path, b"something else\n")


def delete_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


def replace_folder(path: Path) -> None:
    delete_folder(path)
    path.parent.mkdir()


HARM = (delete_file, replace_by_another, delete_folder, replace_folder)


@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("then", ["a row", "the end", "an interrupt"])
def test_rows_of_a_file_that_is_deleted_meanwhile_are_saved_elsewhere(
    tmp_path: Path,
    rows_and_settings: tuple[tuple[Certificate, ...], FileSettings],
    harm: Callable[[Path], None],
    resumed: bool,
    then: str,
) -> None:
    rows, settings = rows_and_settings
    path = tmp_path / "out" / "c.tsv"
    if resumed:
        with writing(path, settings) as writer:
            writer.append(rows[0])

    def write() -> None:
        with writing(path, settings) as writer:
            for row in rows[len(writer.done) : 2]:
                writer.append(row)
            harm(path)
            if then == "a row":
                writer.append(rows[2])
            if then == "an interrupt":
                raise KeyboardInterrupt

    with pytest.raises(SmoothmixError, match="was deleted or replaced while") as caught:
        write()
    kept = 3 if then == "a row" else 2
    (rescued,) = tmp_path.rglob("c-rescued-1.tsv")
    found = read(rescued)
    assert found.rows == rows[:kept]
    assert found.settings == settings
    assert f"what it held, {kept} rows, is saved as {rescued}" in str(caught.value)
    # What the message advises works.
    path.parent.mkdir(exist_ok=True)
    rescued.replace(path)
    settings_path(rescued).replace(settings_path(path))
    with writing(path, settings) as writer:
        for row in rows[kept:]:
            writer.append(row)
    assert read(path).rows == rows


def test_a_resumed_file_that_is_deleted_before_the_first_new_row_is_saved_elsewhere(
    tmp_path: Path, rows_and_settings: tuple[tuple[Certificate, ...], FileSettings]
) -> None:
    rows, settings = rows_and_settings
    path = tmp_path / "c.tsv"
    with writing(path, settings) as writer:
        writer.append(rows[0])

    def write() -> None:
        with writing(path, settings) as writer:
            path.unlink()
            writer.append(rows[1])

    with pytest.raises(SmoothmixError, match="what it held, 2 rows, is saved as"):
        write()
    assert read(tmp_path / "c-rescued-1.tsv").rows == rows[:2]


def test_a_folder_that_is_deleted_before_the_first_row_costs_no_row(
    tmp_path: Path, rows_and_settings: tuple[tuple[Certificate, ...], FileSettings]
) -> None:
    rows, settings = rows_and_settings
    path = tmp_path / "out" / "c.tsv"

    def write() -> None:
        with writing(path, settings) as writer:
            shutil.rmtree(path.parent)
            writer.append(rows[0])

    with pytest.raises(SmoothmixError, match="what it held, 1 row, is saved as"):
        write()
    assert read(tmp_path / "work" / "c-rescued-1.tsv").rows == rows[:1]


def test_settings_that_are_deleted_meanwhile_are_written_again(
    tmp_path: Path, rows_and_settings: tuple[tuple[Certificate, ...], FileSettings]
) -> None:
    rows, settings = rows_and_settings
    path = tmp_path / "c.tsv"
    with writing(path, settings) as writer:
        writer.append(rows[0])
        settings_path(path).unlink()
        writer.append(rows[1])
    assert read(path).settings == settings


def test_rescued_rows_never_replace_a_file(
    tmp_path: Path, rows_and_settings: tuple[tuple[Certificate, ...], FileSettings]
) -> None:
    rows, settings = rows_and_settings
    path = tmp_path / "c.tsv"
    (tmp_path / "c-rescued-1.toml").write_text("mine")

    def write() -> None:
        with writing(path, settings) as writer:
            writer.append(rows[0])
            path.unlink()

    with pytest.raises(SmoothmixError, match=r"c-rescued-2\.tsv"):
        write()
    assert (tmp_path / "c-rescued-1.toml").read_text() == "mine"


def test_a_lock_of_another_process_in_a_folder_that_was_made_again_is_not_removed(
    tmp_path: Path,
) -> None:
    output = tmp_path / "out" / "c.tsv"
    output.parent.mkdir()
    first = exclusive(output)
    first.__enter__()
    shutil.rmtree(output.parent)
    output.parent.mkdir()
    with exclusive(output):
        first.__exit__(None, None, None)
        assert lock_path(output).exists()
        with pytest.raises(InUseError):
            exclusive(output).__enter__()


# Links


def linked_pair(folder: Path) -> Path:
    """Another name of c.tsv and c.toml."""
    (folder / "d.tsv").symlink_to("c.tsv")
    (folder / "d.toml").symlink_to("c.toml")
    return folder / "d.tsv"


def test_linked_pairs_are_one_output(
    tmp_path: Path, rows_and_settings: tuple[tuple[Certificate, ...], FileSettings]
) -> None:
    """Two processes wrote 77 rows of 40 images when locks went by name."""
    rows, settings = rows_and_settings
    path = tmp_path / "c.tsv"
    # Before there is any file, and after.
    link = linked_pair(tmp_path)
    assert journal_path(link, settings) == journal_path(path, settings)
    with writing(link, settings) as writer:
        writer.append(rows[0])
        with pytest.raises(InUseError):
            writing(path, settings).__enter__()
    with writing(path, settings) as writer:
        assert writer.done == list(rows[:1])
        with pytest.raises(InUseError):
            writing(link, settings).__enter__()
    assert link.is_symlink()
    assert settings_path(link).is_symlink()


def test_a_file_with_two_names_is_refused(
    tmp_path: Path, rows_and_settings: tuple[tuple[Certificate, ...], FileSettings]
) -> None:
    _, settings = rows_and_settings
    path = our_file(tmp_path / "c.tsv", [990])
    os.link(path, tmp_path / "d.tsv")
    shutil.copy(settings_path(path), tmp_path / "d.toml")
    for name in ("c.tsv", "d.tsv"):
        with pytest.raises(UsageError, match=r"one of 2 names of the same file \(hard links\)"):
            writing(tmp_path / name, settings).__enter__()


def test_rows_and_settings_that_lead_to_two_files_are_refused(
    tmp_path: Path, rows_and_settings: tuple[tuple[Certificate, ...], FileSettings]
) -> None:
    _, settings = rows_and_settings
    path = our_file(tmp_path / "c.tsv", [990])
    before = settings_path(path).read_bytes()
    (tmp_path / "d.toml").symlink_to("c.toml")
    (tmp_path / "e.tsv").symlink_to("c.tsv")
    for name in ("d.tsv", "e.tsv"):
        with pytest.raises(UsageError, match="rows and settings of two files would be mixed"):
            writing(tmp_path / name, settings).__enter__()
    assert settings_path(path).read_bytes() == before


def test_the_settings_of_a_packed_file_are_not_replaced(
    tmp_path: Path, rows_and_settings: tuple[tuple[Certificate, ...], FileSettings]
) -> None:
    _, settings = rows_and_settings
    path = our_file(tmp_path / "c.tsv", [990])
    path.replace(tmp_path / "c.tsv.xz")
    with pytest.raises(UsageError, match=r"c.tsv.xz is beside it, whose settings would be"):
        writing(path, settings).__enter__()


# What is no file


def to_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [to_device, os.mkfifo, Path.mkdir])
@pytest.mark.parametrize("name", ["c.tsv", "c.toml"])
def test_only_regular_files_are_written(
    tmp_path: Path, make: Callable[[Path], None], name: str
) -> None:
    make(tmp_path / name)
    with pytest.raises(UsageError, match="results are written to files only"):
        require_output(tmp_path / "c.tsv")
    with pytest.raises(UsageError, match="results are written to files only"):
        atomic_write(tmp_path / name, b"rows")
    assert not (tmp_path / name).is_file()


def test_the_command_refuses_a_device_and_a_pipe_at_once(tmp_path: Path, smoothmix: object) -> None:
    assert callable(smoothmix)
    (tmp_path / "zero.tsv").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.tsv")
    for name, kind in (("zero.tsv", "a device"), ("pipe.tsv", "a pipe")):
        refused = smoothmix("certify", "--model", "torch.nn:Flatten", "--sigma", 1, "--out", name)
        assert refused.code == 2
        assert f"{name}: is {kind}" in refused.err


def test_what_killed_writers_of_shards_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    left = ["c-1-of-2.lock", ".c-1-of-2.toml.0123abcd.tmp", ".c-2-of-2.tsv.89abcdef.tmp"]
    others = [".c-1-of-2.toml.tmp", ".d-1-of-2.toml.0123abcd.tmp", ".c.toml.0123abcd.tmp", "c.lock"]
    for name in (*left, *others):
        (tmp_path / name).touch()
    with temporary_beside(tmp_path / "c-2-of-2.tsv") as of_a_living_process:
        remove_leftovers(tmp_path / "c.tsv")
        assert of_a_living_process.exists()
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(others)


def test_a_pipe_is_no_shard(tmp_path: Path, rows_and_settings: object) -> None:
    from smoothmix.certificates.shard import shards_beside

    os.mkfifo(tmp_path / "c-1-of-2.tsv")
    assert shards_beside(tmp_path / "c.tsv") == []

"""Names from outside: a file never decides which code runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from smoothmix.certificates import read
from smoothmix.errors import SmoothmixError, UsageError
from smoothmix.networks import build
from smoothmix.noise import NOISES
from smoothmix.runs.load import load_run
from tests.conftest import Run
from tests.helpers.certificates import our_file

HOSTILE = """
from pathlib import Path

Path("was-imported").touch()
"""


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module in the working folder that leaves a trace if it is imported, and no trust."""
    (tmp_path / "hostile.py").write_text(HOSTILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    yield tmp_path / "was-imported"
    sys.modules.pop("hostile", None)


@pytest.mark.parametrize("name", ["mode", "distribution"])
def test_certificates_do_not_import_what_they_name(
    tmp_path: Path, hostile: Path, smoothmix: Run, name: str
) -> None:
    path = our_file(tmp_path / "certificates.tsv", [1000])
    settings = path.with_suffix(".toml")
    text = settings.read_text()
    if name == "mode":
        text = text.replace('mode = "exact"', 'mode = "hostile:Bound"')
    else:
        text += '\n[distribution]\nname = "hostile:Noise"\n'
    settings.write_text(text)
    with pytest.raises(SmoothmixError, match="add --import hostile to the command"):
        read(path)
    shown = smoothmix("certificates", "verify", path)
    assert shown.code != 0
    assert not hostile.exists()


def test_a_run_does_not_import_the_network_that_it_names(hostile: Path, untrained_run: str) -> None:
    config = Path(untrained_run, "config.toml")
    config.write_text(config.read_text().replace('network = "lenet"', 'network = "hostile:net"'))
    with pytest.raises(UsageError, match="add --import hostile to the command"):
        load_run(Path(untrained_run))
    assert not hostile.exists()


def test_functions_of_imported_modules_are_not_called_either() -> None:
    """Every process has imported sys: an address there would end it."""
    with pytest.raises(UsageError, match="sys:exit is code outside of smoothmix"):
        build("sys:exit")
    with pytest.raises(UsageError, match="is not a noise: it must be a subclass"):
        NOISES["sys:exit"]


@pytest.mark.parametrize(
    "words", [["--import", "hostile"], ["--import=other,hostile"], ["--mode", "hostile:Bound"]]
)
def test_modules_that_the_user_names_are_imported(
    hostile: Path, untrained_run: str, smoothmix: Run, words: list[str]
) -> None:
    config = Path(untrained_run, "config.toml")
    config.write_text(config.read_text().replace('network = "lenet"', 'network = "hostile:net"'))
    failed = smoothmix("certify", untrained_run, *words)
    assert failed.code == 2
    assert "the module hostile has no" in failed.err
    assert hostile.exists()

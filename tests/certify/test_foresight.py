"""Files that foresight stopped: recorded, resumed, extended; files of before there was any."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from smoothmix.certificates import Certificates, Certification, read, settings_path, verify
from smoothmix.certificates.settings import load_settings
from smoothmix.certify.dataset import certify_dataset
from smoothmix.certify.extend import extend_dataset
from smoothmix.data import MemoryDataset
from smoothmix.errors import UsageError
from smoothmix.stats.anytime import Stopping
from smoothmix.stats.guarantees import Anytime
from tests.certify.test_partial_votes import IsBright
from tests.conftest import Run
from tests.helpers.certification import without_time
from tests.helpers.guarantees import with_stopping

HOW = Certification(sigma=0.5)
WITHOUT = Stopping(radii=(0.5,), max_draws=20_480)
WITH = replace(WITHOUT, foresight=0.02)


def images() -> MemoryDataset:
    """Greys whose true radii lie around the requested one, just where draws are spent."""
    radii = np.linspace(0.45, 0.53, 24, dtype=np.float32)
    greys = 0.5 + radii / 4
    pixels = np.broadcast_to(greys[:, None, None, None], (24, 1, 4, 4)).copy()
    return MemoryDataset(
        name="greys",
        split="test",
        labels=np.ones(24, dtype=np.int64),
        class_names=("dark", "bright"),
        pixels=pixels,
    )


def certify(path: Path, rules: Stopping) -> Certificates:
    certification = with_stopping(HOW, rules)
    return certify_dataset(IsBright(), images(), certification, path=path, model_name="bright")


def draws(file: Certificates) -> np.ndarray:
    return np.array([row.n for row in file.rows])


def test_it_saves_draws_and_an_extension_without_it_makes_them(tmp_path: Path) -> None:
    slow = certify(tmp_path / "slow.tsv", WITHOUT)
    quick = certify(tmp_path / "quick.tsv", WITH)
    assert (draws(quick) <= draws(slow)).all()
    assert draws(quick).sum() < 0.7 * draws(slow).sum()
    assert verify(quick).ok
    given_up = (slow.radius >= 0.5) & (quick.radius < 0.5)
    assert given_up.sum() <= 2, "of 24 images, with a level of 0.02"
    extended = extend_dataset(
        IsBright(), images(), with_stopping(HOW, WITHOUT), path=tmp_path / "quick.tsv"
    )
    # Checks fall at the same numbers of draws, so that even the draws of every image are the same.
    assert without_time(extended.path) == without_time(slow.path)
    assert extended.settings == slow.settings


def test_a_file_that_does_not_record_it_has_none(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    certify(path, WITHOUT)
    # As in files of earlier versions.
    assert "foresight" not in settings_path(path).read_text()
    settings = load_settings(path)
    assert settings is not None
    assert isinstance(settings.guarantee, Anytime)
    assert settings.guarantee.stopping == WITHOUT
    with pytest.raises(UsageError, match=r"at most 20,480 draws, foresight 0\.02"):
        certify(path, WITH)
    certify(tmp_path / "b.tsv", WITH)
    assert "foresight = 0.02\n" in settings_path(tmp_path / "b.tsv").read_text()


def test_a_command_keeps_the_level_of_the_file_it_resumes(smoothmix: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "def make():\n"
        "    torch.manual_seed(0)\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))\n"
    )
    command = (
        *("certify", "--model", "mine:make", "--sigma", 0.5, "--data", "sample", "--skip", 400),
        *("--mode", "anytime", "--radii", 0.1, "--max-draws", 512),
    )

    def level() -> float:
        settings = load_settings(tmp_path / "certificates.tsv")
        assert settings is not None
        assert isinstance(settings.guarantee, Anytime)
        return settings.guarantee.stopping.foresight

    first = smoothmix(*command, "--foresight", 0)
    assert first.code == 0, first.err
    assert level() == 0
    again = smoothmix(*command)
    assert again.code == 0, again.err
    other = smoothmix(*command, "--foresight", 0.1)
    assert other.code == 2
    assert "foresight 0.1" in other.err
    extended = smoothmix(*command, "--extend")
    assert extended.code == 0, extended.err
    assert level() == 0.02
    assert len(read(tmp_path / "certificates.tsv").rows) == 3

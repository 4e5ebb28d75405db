"""A study that is stopped resumes after its last image, and ends with the same results."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from smoothmix.studies import (
    Case,
    MixingStudy,
    NamedClassifier,
    SmoothedAttack,
    VoteSettings,
    measure,
)
from smoothmix.studies.findings import Findings
from tests.conftest import ROOT, Run
from tests.helpers.studies import half_space, images, named, run_folder, trained

STUDIES = {
    "confidence": ("--eps", "0,1", "--steps", "2"),
    "mixing": ("--eps", "2", "--steps", "2"),
    "path": ("--images", "0,1,2,3", "--points", "3", "--steps", "2"),
}
STUDY = MixingStudy(attack=SmoothedAttack(steps=3, epsilon=2.0, copies=2))


def command(name: str, out: str) -> list[str]:
    """A study of eight pairs of a model and an image; the models differ in their noise."""
    usual = ["--max", "4", "--n", "50", "--copies", "2", "--out", out, "--format", "png"]
    return ["study", name, "runs/one", "runs/louder", *STUDIES[name], *usual]


def stopping_at(number: int, stop: Callable[[], None]) -> Callable[[Case, SmoothedAttack], object]:
    """A replacement of the attack that calls `stop` at one of them."""
    adversarial = Case.adversarial
    attacked: list[int] = []

    def counted(case: Case, attack: SmoothedAttack) -> object:
        attacked.append(case.index)
        if len(attacked) == number:
            stop()
        return adversarial(case, attack)

    return counted


def interrupt() -> None:
    raise KeyboardInterrupt


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize(
    ("stop", "code", "message"),
    [
        (interrupt, 130, "interrupted; run the same command again to resume from what was saved"),
        (terminate, 75, "stopped by SIGTERM; finished work is on disk: run the same command"),
    ],
    ids=["interrupted", "terminated"],
)
@pytest.mark.parametrize("name", STUDIES)
def test_a_study_that_is_stopped_resumes(
    name: str,
    stop: Callable[[], None],
    code: int,
    message: str,
    smoothmix: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_folder(tmp_path / "runs" / "one", trained())
    run_folder(tmp_path / "runs" / "louder", trained(), method={"name": "gaussian", "sigma": 0.8})
    assert smoothmix(*command(name, "whole")).code == 0
    with monkeypatch.context() as patched:
        patched.setattr(Case, "adversarial", stopping_at(5, stop))
        done = smoothmix(*command(name, "parts"))
    assert done.code == code
    assert message in done.err
    (findings,) = (tmp_path / "parts").iterdir()
    assert 1 <= findings.read_text().count('"found"') <= 7
    findings.write_text(findings.read_text() + '{"model": "cut o')
    done = smoothmix(*command(name, "parts"))
    assert done.code == 0, done.err
    parts, whole = (sorted((tmp_path / folder).iterdir()) for folder in ("parts", "whole"))
    assert [file.name for file in parts] == [file.name for file in whole]
    for one, other in zip(parts, whole, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


VOTES = VoteSettings()


def measured(
    folder: Path,
    *,
    model: NamedClassifier | None = None,
    votes: VoteSettings = VOTES,
    count: int = 6,
) -> NDArray[np.float64]:
    """The mixing ratios of the first of six images; the findings are kept and not removed."""
    dataset = images(*np.linspace(0.2, 1.5, 6))
    models = [model or half_space()]
    results = measure(STUDY, models, dataset, range(count), votes=votes, folder=folder)
    (found,) = STUDY.ratios(results)
    return found.ratio


def die(path: str) -> None:
    kill = stopping_at(4, lambda: os.kill(os.getpid(), signal.SIGKILL))
    Case.adversarial = kill  # type: ignore[assignment, method-assign]
    measured(Path(path))


def test_a_study_that_is_killed_attacks_no_image_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "killed"
    script = f"from tests.studies.test_findings import die; die({str(path)!r})"
    killed = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False)
    assert killed.returncode == -signal.SIGKILL
    whole = measured(tmp_path / "whole")
    with monkeypatch.context() as patched:
        patched.setattr(
            Case, "adversarial", stopping_at(4, lambda: pytest.fail("a fourth image is attacked"))
        )
        np.testing.assert_array_equal(measured(path), whole)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace('"found": [', '"found": [1.0, '),
        lambda text: text.replace('"image": ', '"image": "a" + '),
        lambda text: text.replace('"sigma": 0.5', '"sigma": [0.5]'),
        lambda text: text.replace("{", "[" * 100_000),
        lambda text: "\n" + text,
        lambda text: text.replace("\n", "\x00\n"),
        lambda text: "",
    ],
    ids=["more numbers", "no JSON", "a list", "deep", "no head", "zeros", "empty"],
)
def test_what_is_damaged_is_measured_again(damage: Callable[[str], str], tmp_path: Path) -> None:
    found = measured(tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_text(damage(path.read_text()))
    np.testing.assert_array_equal(measured(tmp_path), found)


def test_other_questions_have_files_of_their_own_and_more_images_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three = measured(tmp_path, count=3)
    other = VoteSettings(n=400, seed=9)
    measured(tmp_path, votes=other)
    assert [path.read_text().count('"found"') for path in tmp_path.iterdir()] in ([3, 6], [6, 3])
    with monkeypatch.context() as patched:
        patched.setattr(
            Case, "adversarial", stopping_at(4, lambda: pytest.fail("more than the three new ones"))
        )
        np.testing.assert_array_equal(measured(tmp_path)[:3], three)
        np.testing.assert_array_equal(
            measured(tmp_path, votes=other), measured(tmp_path, votes=other)
        )


def test_a_network_that_was_trained_further_is_asked_again(tmp_path: Path) -> None:
    model = half_space()
    first = measured(tmp_path, model=model)
    with torch.no_grad():
        model.smoothed.model.direction.mul_(-1)  # type: ignore[operator, union-attr]
    assert np.isnan(measured(tmp_path, model=model)).sum() > np.isnan(first).sum()


def test_findings_of_another_device_are_not_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_text(path.read_text().replace(" on cpu", " on cuda"))
    attacks: list[str] = []
    first_attack = stopping_at(1, lambda: attacks.append("first"))
    monkeypatch.setattr(Case, "adversarial", first_attack)
    measured(tmp_path)
    assert attacks == ["first"]


class Turned(torch.nn.Linear):
    """The weights of a linear network, with another forward."""

    sign = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.sign * super().forward(x.flatten(1))


def test_findings_of_another_network_with_the_same_weights_are_not_reused(tmp_path: Path) -> None:
    network = Turned(64, 2)
    smoothed = named("one", network, sigma=0.5, classes=2).smoothed

    def opened() -> Findings:
        return Findings(tmp_path, STUDY, smoothed, images(0.3), VOTES)

    opened().keep(0, np.ones(2))
    for sign, kept in ((1.0, True), (-1.0, False)):
        network.sign = sign
        assert (opened().recall(0) is not None) == kept


def test_findings_of_an_earlier_version_are_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their files had another word in the middle of the name."""
    found = measured(tmp_path)
    (path,) = tmp_path.iterdir()
    path.rename(path.with_name(path.name.replace("-partial-", "-earlier-")))
    stop = stopping_at(1, lambda: pytest.fail("an image is attacked again"))
    monkeypatch.setattr(Case, "adversarial", stop)
    np.testing.assert_array_equal(measured(tmp_path), found)

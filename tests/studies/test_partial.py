"""A study that is stopped goes on where it was, and finds what it would have found in one go."""

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

from smoothmix.studies import mixing
from smoothmix.studies.base import Attack, Case, Draws, Model
from smoothmix.studies.partial import Begun
from tests.conftest import ROOT, Run
from tests.helpers.studies import half_space, images, run_folder, trained

STUDIES = {
    "confidence": ("--eps", "0,1", "--steps", "2"),
    "mixing": ("--eps", "2", "--steps", "2"),
    "path": ("--images", "0,1,2,3", "--points", "3", "--steps", "2"),
}
ATTACK = Attack(steps=3, epsilon=2.0, copies=2)


def command(name: str, out: str) -> list[str]:
    """Eight pairs of a model and an image; the same model twice would be measured once, so the noise differs."""
    usual = ["--max", "4", "--n", "50", "--copies", "2", "--out", out, "--format", "png"]
    return ["study", name, "runs/one", "runs/louder", *STUDIES[name], *usual]


def stopping_at(attack: int, stop: Callable[[], None]) -> Callable[[Case, Attack], object]:
    """What takes the place of an attack, to stop at one of them."""
    attacked, begun = Case.attacked, []

    def counted(case: Case, how: Attack) -> object:
        begun.append(case.index)
        if len(begun) == attack:
            stop()
        return attacked(case, how)

    return counted


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_that_is_interrupted_goes_on(
    name: str, smoothmix: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_folder(tmp_path / "runs" / "one", trained())
    run_folder(tmp_path / "runs" / "louder", trained(), method={"name": "gaussian", "sigma": 0.8})
    assert smoothmix(*command(name, "whole")).code == 0
    with monkeypatch.context() as patched:
        patched.setattr(Case, "attacked", stopping_at(5, interrupt))
        done = smoothmix(*command(name, "parts"))
    assert done.code == 130
    assert "interrupted; the same command goes on from what was saved" in done.err
    (begun,) = (tmp_path / "parts").iterdir()
    assert 1 <= begun.read_text().count('"found"') <= 7
    begun.write_text(begun.read_text() + '{"model": "cut o')
    done = smoothmix(*command(name, "parts"))
    assert done.code == 0, done.err
    parts, whole = (sorted((tmp_path / folder).iterdir()) for folder in ("parts", "whole"))
    assert [file.name for file in parts] == [file.name for file in whole]
    for one, other in zip(parts, whole, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


def measured(
    folder: Path, *, model: Model | None = None, draws: Draws | None = None, count: int = 6
) -> NDArray[np.float64]:
    """The mixing ratios of the first so many of six images; what is found is kept and not removed."""
    dataset, kept = images(*np.linspace(0.2, 1.5, 6)), Begun(folder)
    (found,) = mixing.measure(
        [model or half_space()], dataset, range(count), attack=ATTACK, draws=draws, begun=kept
    )
    return found.ratio


def die(path: str) -> None:
    Case.attacked = stopping_at(4, lambda: os.kill(os.getpid(), signal.SIGKILL))  # type: ignore[assignment, method-assign]
    measured(Path(path))


def test_a_study_that_is_killed_attacks_no_image_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "begun"
    script = f"import tests.studies.test_partial as here; here.die({str(path)!r})"
    killed = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False)
    assert killed.returncode == -signal.SIGKILL
    whole = measured(tmp_path / "whole")
    with monkeypatch.context() as patched:
        patched.setattr(
            Case, "attacked", stopping_at(4, lambda: pytest.fail("a fourth image is attacked"))
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
    other = Draws(n=400, seed=9)
    measured(tmp_path, draws=other)
    assert [path.read_text().count('"found"') for path in tmp_path.iterdir()] in ([3, 6], [6, 3])
    with monkeypatch.context() as patched:
        patched.setattr(
            Case, "attacked", stopping_at(4, lambda: pytest.fail("more than the three new ones"))
        )
        np.testing.assert_array_equal(measured(tmp_path)[:3], three)
        np.testing.assert_array_equal(
            measured(tmp_path, draws=other), measured(tmp_path, draws=other)
        )


def test_a_network_that_was_trained_further_is_asked_again(tmp_path: Path) -> None:
    model = half_space()
    first = measured(tmp_path, model=model)
    with torch.no_grad():
        model.network.direction.mul_(-1)  # type: ignore[operator, union-attr]
    assert np.isnan(measured(tmp_path, model=model)).sum() > np.isnan(first).sum()


def test_what_was_found_on_another_device_is_not_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_text(path.read_text().replace(" on cpu", " on cuda"))
    attacked = stopping_at(1, lambda: attacks.append("begun"))
    attacks: list[str] = []
    monkeypatch.setattr(Case, "attacked", attacked)
    measured(tmp_path)
    assert attacks == ["begun"]


class Turned(torch.nn.Linear):
    """The weights of a linear network, with another forward."""

    sign = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.sign * super().forward(x.flatten(1))


def test_what_another_network_with_the_same_weights_found_is_not_taken(tmp_path: Path) -> None:
    dataset, network, found = images(0.3), Turned(64, 2), np.ones(3)
    model = Model(name="one", network=network, sigma=0.5, num_classes=2)
    begun = Begun(tmp_path)
    begun.ask("mixing", dataset, (3,))
    begun.keep(model, 0, found)
    for sign, kept in ((1.0, True), (-1.0, False)):
        network.sign = sign
        begun.ask("mixing", dataset, (3,))
        assert (begun.recall(model, 0) is not None) == kept

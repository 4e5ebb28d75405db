"""The notes on a certificate file that a reader needs before its numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from smoothmix.analysis import Measured, measure, warnings_about
from smoothmix.certificates import Certification, settings_path
from smoothmix.certify.dataset import certify_dataset
from smoothmix.certify.loop import TimeLimit
from smoothmix.config import TESTED_ON_TRAINING, RunConfig
from smoothmix.errors import CertificateError
from smoothmix.stats.anytime import Stopping
from tests.certify.test_partial_votes import IsBright, images
from tests.conftest import Run
from tests.helpers.certificates import our_file
from tests.helpers.guarantees import with_stopping


def test_a_radius_that_the_votes_do_not_give_is_not_believed(
    tmp_path: Path, smoothmix: Run
) -> None:
    path = our_file(tmp_path / "a.tsv", [990, 980])
    radius = measure(path).radius[0]
    path.write_text(path.read_text().replace(f"{radius:.6f}", "1.500000"))
    with pytest.raises(
        CertificateError, match=r"a.tsv: image 0: says radius 1.5, but its votes give"
    ):
        measure(path)
    assert smoothmix("report", path).code == 1


def test_settings_that_the_radii_do_not_follow_from_are_not_believed(tmp_path: Path) -> None:
    path = our_file(tmp_path / "a.tsv", [990, 980])
    beside = settings_path(path)
    beside.write_text(beside.read_text().replace("sigma = 0.5", "sigma = 1.0"))
    with pytest.raises(
        CertificateError,
        match=r"image 0: says radius .* \(and 1 problem more\); .*verify` lists all",
    ):
        measure(path)


def test_votes_that_cannot_be_checked_are_said_to_be(tmp_path: Path) -> None:
    path = our_file(tmp_path / "a.tsv", [990, 980])
    assert not any("computed again" in note for note in measure(path).notes)
    settings_path(path).unlink()
    assert (
        "has no a.toml beside it: its radii cannot be computed again from their votes"
        in measure(path).notes
    )


@pytest.mark.parametrize(
    "rules", [Stopping(tolerance=0.01, max_draws=5120), Stopping(radii=(0.5,), max_draws=5120)]
)
def test_images_that_were_stopped_early_for_lack_of_time_are_counted(
    rules: Stopping, tmp_path: Path
) -> None:
    def certified(name: str, time_limit: TimeLimit) -> Measured:
        how = Certification(sigma=0.5)
        path = tmp_path / name
        certify_dataset(
            IsBright(),
            images(),
            with_stopping(how, rules),
            path=path,
            model_name="b",
            time_limit=time_limit,
        )
        return measure(path)

    def stopped_early(measured: Measured) -> list[str]:
        return [note for note in measured.notes if "not decided" in note]

    assert stopped_early(certified("whole.tsv", TimeLimit())) == []
    found = certified("short.tsv", TimeLimit(seconds_per_image=1e-9))
    undecided = (
        20 if rules.tolerance else 1
    )  # the radius is settled at once but for the one image that is on its edge
    note = (
        f"not decided: {undecided} of 20 images (stopped early for lack of time, or drawn for "
        "another alpha), whose radii would be larger with more noise samples"
    )
    assert stopped_early(found) == [note]


def test_a_comparison_says_where_the_draws_hide_what_is_more_robust(tmp_path: Path) -> None:
    most, half = (
        our_file(tmp_path / name, votes)
        for name, votes in (("a.tsv", [1000] * 2 + [9]), ("b.tsv", [1000, 9]))
    )
    found = [
        text
        for text in warnings_about([measure(most), measure(half)])
        if "the largest radius" in text
    ]
    (warning,) = found
    assert warning == (
        "most images have the largest radius that n noise samples can certify: a (2); "
        "a larger n would show which are more robust"
    )


def test_a_comparison_says_what_was_tested_on_its_training_images(tmp_path: Path) -> None:
    measured = measure(our_file(tmp_path / "a.tsv", [900]))
    config = RunConfig(
        data="sample",
        network="lenet",
        method={"name": "x", "sigma": 1.0},
        notes=(TESTED_ON_TRAINING,),
    )
    assert f"a: {TESTED_ON_TRAINING}" in warnings_about([replace(measured, config=config)])

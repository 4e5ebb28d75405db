"""Images that are in work when the time is up, or when a run is killed, go on with the votes they have."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from smoothmix import certify_anytime, certify_run
from smoothmix.anytime import Stopping
from smoothmix.certificates import Certificates, read
from smoothmix.certificates.begun import begun_path, keep_begun, load_begun
from smoothmix.certify_anytime import Budget
from smoothmix.certify_extend import extend_dataset
from smoothmix.certify_run import certify_dataset
from smoothmix.config import Certification
from smoothmix.data import MemoryDataset
from smoothmix.errors import SmoothmixError
from smoothmix.smoothing import Request, Sampler

from certification_cases import without_time
from conftest import ROOT

HOW = Certification(sigma=0.5)
RULES = Stopping(radii=(0.5,), max_draws=51_200)


class IsBright(nn.Module):
    """Whether the mean of sixteen pixels is above one half: grey v lies at distance 4 |v - 1/2| from the boundary."""

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean((1, 2, 3))
        return torch.stack([torch.full_like(mean, 0.5), mean], 1)


def images() -> MemoryDataset:
    """The first image is the hardest, since its radius is the one asked for; all others wait behind it."""
    greys = 0.5 + np.array([0.5] + [1.5] * 19, dtype=np.float32) / 4
    pixels = np.broadcast_to(greys[:, None, None, None], (20, 1, 4, 4)).copy()
    return MemoryDataset(
        name="greys", split="test", labels=np.ones(20, dtype=np.int64), class_names=("dark", "bright"), pixels=pixels
    )


def certify(path: Path, *, rules: Stopping = RULES, seconds: float = float("inf")) -> Certificates:
    return certify_dataset(
        IsBright(), images(), HOW, path=path, model_name="bright", stopping=rules, budget=Budget(seconds=seconds)
    )


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many draws were made, call by call."""
    spent, tally = [], Sampler.tally

    def counted(self: Sampler, requests: Sequence[Request]) -> object:
        spent.append(sum(request.stop - request.first for request in requests))
        return tally(self, requests)

    monkeypatch.setattr(Sampler, "tally", counted)
    return spent


def in_sittings(run: Callable[[], Certificates], path: Path) -> int:
    """Call again and again until nothing is missing; how often."""
    for sitting in range(1, 2000):
        try:
            if not run().missing and not begun_path(path).exists():
                return sitting
        except SmoothmixError as error:
            if "no image could be finished in the time given; those in work are kept" not in str(error):
                raise
    raise AssertionError("it never ends")


def test_sittings_that_are_too_short_for_an_image_get_there_and_draw_nothing_twice(
    tmp_path: Path, drawn: list[int]
) -> None:
    whole = certify(tmp_path / "whole.tsv")
    expected = sum(drawn)
    drawn.clear()
    sittings = in_sittings(lambda: certify(tmp_path / "a.tsv", seconds=0.01), tmp_path / "a.tsv")
    assert sittings > 2
    assert sum(drawn) == expected
    assert without_time(tmp_path / "a.tsv") == without_time(whole.path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.toml", "a.tsv", "whole.toml", "whole.tsv"]


def test_an_extension_in_short_sittings_says_that_it_is_not_done(tmp_path: Path, drawn: list[int]) -> None:
    path = tmp_path / "a.tsv"
    certify(path, rules=Stopping(radii=(0.5,), max_draws=5120))
    before = path.read_bytes()
    more = Stopping(max_draws=10_240)
    with pytest.raises(SmoothmixError, match=r"a-extending.tsv: no image could be finished in the time given"):
        extend_dataset(IsBright(), images(), HOW, path=path, stopping=more, budget=Budget(seconds=1e-6))
    assert path.read_bytes() == before
    drawn.clear()
    in_sittings(
        lambda: extend_dataset(IsBright(), images(), HOW, path=path, stopping=more, budget=Budget(seconds=0.01)),
        tmp_path / "a-extending.tsv",
    )
    assert {row.n for row in read(path).rows} == {10_240}
    assert sum(drawn) == 20 * 10_240 - sum(int(line.split(b"\t")[7]) for line in before.splitlines()[1:])


def test_time_spent_before_an_extension_does_not_count_against_an_image(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    first = certify(path)
    budget = Budget(seconds_per_image=first.rows[0].seconds)
    more = Stopping(radii=(0.5,), tolerance=0.01, max_draws=204_800)
    extended = extend_dataset(IsBright(), images(), HOW, path=path, stopping=more, budget=budget)
    assert extended.rows[0].n > first.rows[0].n


def die(path: str) -> None:
    """Certify, keep every round, and be killed after the fifth."""
    certify_anytime.SECONDS_BETWEEN_KEEPING = 0.0
    rounds = []

    def keep(*args: object) -> None:
        keep_begun(*args)  # type: ignore[arg-type]
        rounds.append(args)
        if len(rounds) == 5:
            os.kill(os.getpid(), signal.SIGKILL)

    certify_run.keep_begun = keep  # type: ignore[attr-defined]
    certify(Path(path))


def test_a_killed_run_goes_on_with_the_votes_that_were_kept(tmp_path: Path, drawn: list[int]) -> None:
    path = tmp_path / "a.tsv"
    script = f"import test_certify_begun as here; here.die({str(path)!r})"
    killed = subprocess.run([sys.executable, "-c", script], cwd=ROOT / "tests", check=False)
    assert killed.returncode == -signal.SIGKILL
    assert read(begun_path(path)).rows[0].n > 256
    certify(path)
    rest = sum(drawn)
    drawn.clear()
    certify(tmp_path / "whole.tsv")
    assert rest < sum(drawn)
    assert without_time(path) == without_time(tmp_path / "whole.tsv")


def test_votes_of_another_run_are_not_taken_up(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    whole = certify(path)
    assert whole.settings is not None
    other = certify_dataset(
        IsBright(), images(), Certification(sigma=0.5, seed=7), path=tmp_path / "b.tsv", model_name="b", stopping=RULES
    )
    assert other.settings is not None
    keep_begun(path, other.settings, other.rows)
    assert load_begun(path, whole.settings) == {}
    keep_begun(path, whole.settings, whole.rows)
    assert len(load_begun(path, whole.settings)) == 20
    begun_path(path).write_text("nonsense")
    with pytest.warns(UserWarning, match="a-begun.tsv.*the images that it held are begun anew"):
        assert load_begun(path, whole.settings) == {}

"""Settings of certificate files: what is refused, and how they are written and read back."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from smoothmix.certificates import Certification, FileSettings
from smoothmix.certificates.settings import differences, from_tables, refuse_others, to_tables
from smoothmix.errors import UsageError
from smoothmix.noise import GaussianNoise, GridNoise, LaplaceNoise, Noise, UniformNoise
from smoothmix.stats.allocation import Budget
from smoothmix.stats.anytime import Stopping
from smoothmix.stats.guarantees import Anytime, FixedDraws, Guarantee
from tests.helpers.guarantees import certification_of

BASE = FileSettings(
    certification=Certification(sigma=0.5),
    model="lenet",
    model_hash="a" * 64,
    data="sample",
    split="test",
    data_hash="b" * 16,
    num_classes=10,
    images=4,
    engine="torch-cpu",
    probe="0.5 -1.25",
    noise_scheme="philox4x64-ziggurat-32",
    versions={"torch": "2.10"},
)

BEFORE = """
mode = "anytime"
model = "lenet"
model_hash = "aa"
data = "mnist"
split = "test"
data_hash = "7e06f44daa3cc41b"
num_classes = 10
skip = 20
images = 500
engine = "torch-cpu"
trial = "0.5 -1.25"
noise = "philox4x64-ziggurat-32"
format = 1

[certification]
sigma = 0.5
n0 = 100
n = 10240
alpha = 0.001
seed = 3
block = 128
precision = "fp32"
skip_wrong = true
stop_abstaining = false

[stopping]
radii = [
    0.25,
    0.5,
]
tolerance = 0.1
max_draws = 10240
futility = 0.001

[versions]
smoothmix = "0.1.0"
"""
"""As the version before the guarantee was a value has written it."""


def written(settings: FileSettings) -> dict[str, Any]:
    return tomllib.loads(tomli_w.dumps(to_tables(settings)))


def test_files_of_earlier_versions_are_read_and_written_as_they_were() -> None:
    settings = from_tables(tomllib.loads(BEFORE), where="c.toml")
    stopping = Stopping(radii=(0.25, 0.5), tolerance=0.1, max_draws=10_240)
    assert settings.certification == Certification(
        sigma=0.5,
        guarantee=Anytime(stopping),
        noise=GaussianNoise(),
        seed=3,
        batch=128,
        skip_wrong=True,
    )
    assert (settings.probe, settings.noise_scheme) == ("0.5 -1.25", "philox4x64-ziggurat-32")
    assert tomli_w.dumps(to_tables(settings)).strip() == BEFORE.strip()


def test_an_exact_file_has_the_keys_it_always_had() -> None:
    tables = written(replace(BASE, certification=certification_of(0.25, stop_abstaining=True)))
    assert list(tables) == [
        "mode", "model", "model_hash", "data", "split", "data_hash", "num_classes", "skip",
        "images", "engine", "trial", "noise", "format", "certification", "versions",
    ]  # fmt: skip
    assert tables["mode"] == "exact"
    assert tables["certification"] == {
        "sigma": 0.25,
        "n0": 100,
        "n": 100_000,
        "alpha": 0.001,
        "seed": 0,
        "block": 256,
        "precision": "fp32",
        "skip_wrong": False,
        "stop_abstaining": True,
    }


@dataclass(frozen=True)
class Cautious(Guarantee):
    """A guarantee from outside: half of what a fixed number of draws gives."""

    draws: int = 500
    spare: tuple[float, ...] = (0.5,)

    @property
    def max_draws(self) -> int:
        return self.draws

    def _fixed(self) -> FixedDraws:
        return FixedDraws(self.draws, n0=self.n0, alpha=self.alpha)

    def lower_bound(self, votes: Any) -> Any:
        return self._fixed().lower_bound(votes)

    def largest_radius(self, noise: Noise, *, sigma: float) -> float:
        return self._fixed().largest_radius(noise, sigma=sigma)

    def next_check(self, drawn: int, *, batch: int) -> int:
        return self.draws

    def enough(self, votes: Any, noise: Noise, *, sigma: float) -> Any:
        return votes.draws >= self.draws


@dataclass(frozen=True)
class Stepped(Noise):
    """A noise from outside, with a setting."""

    levels: int = 255
    scheme: ClassVar[str] = "stepped"

    def fill(self, generator: Any, out: Any) -> None:
        out[...] = np.round(self.levels * generator.standard_normal(out.shape)) / self.levels

    def signed_radius(self, probability: Any, *, sigma: float) -> Any:
        return GaussianNoise().signed_radius(probability, sigma=sigma)

    def probability(self, radius: Any, *, sigma: float) -> Any:
        return GaussianNoise().probability(radius, sigma=sigma)


GUARANTEES = st.one_of(
    st.builds(
        FixedDraws,
        n=st.integers(1, 10**9),
        n0=st.integers(1, 10**9),
        alpha=st.floats(1e-9, 0.999),
        stop_abstaining=st.booleans(),
    ),
    st.builds(
        Anytime,
        st.builds(
            Stopping,
            radii=st.lists(st.floats(0, 5)).map(tuple),
            tolerance=st.none() | st.floats(0.01, 5),
            max_draws=st.integers(1, 10**9),
        ),
        n0=st.integers(1, 10**9),
        alpha=st.floats(1e-9, 0.999),
    ),
    st.builds(Cautious, n0=st.integers(1, 10**9), draws=st.integers(1, 10**9)),
)
CERTIFICATIONS = st.builds(
    Certification,
    sigma=st.floats(1e-3, 1e3),
    guarantee=GUARANTEES,
    noise=st.sampled_from(
        [GaussianNoise(), LaplaceNoise(), UniformNoise(), GridNoise(), Stepped(levels=15)]
    ),
    seed=st.integers(0, 2**63 - 1),
    batch=st.integers(1, 10**6),
    precision=st.sampled_from(["fp32", "bf16"]),
    skip_wrong=st.booleans(),
)


@given(CERTIFICATIONS)
def test_settings_come_back_from_toml_as_they_were(certification: Certification) -> None:
    settings = replace(BASE, certification=certification)
    again = from_tables(written(settings), where="file")
    assert again == settings
    assert not differences(again, settings)


def test_what_comes_from_outside_is_recorded_by_its_address() -> None:
    certification = Certification(sigma=0.5, guarantee=Cautious(draws=700), noise=Stepped())
    tables = written(replace(BASE, certification=certification))
    assert tables["mode"] == f"{__name__}:Cautious"
    assert tables["guarantee"] == {"draws": 700, "spare": [0.5]}
    assert tables["distribution"] == {"name": f"{__name__}:Stepped", "levels": 255}
    assert tables["certification"]["n"] == 700


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mode": "exakt"}, "mode: unknown guarantee 'exakt': did you mean 'exact'"),
        ({"mode": "no_such_module:Kind"}, "mode: no_such_module:Kind is code outside of smoothmix"),
        ({"mode": "math:pi"}, "mode: math:pi is not a guarantee"),
        ({"mode": 3}, "mode: unknown guarantee '3'"),
        ({"mode": "anytime"}, "mode anytime does not go with the stopping rules"),
        ({"stopping": {"max_draws": 5}}, "mode exact does not go with the stopping rules"),
        ({"guarantee": {"width": 1}}, "unknown setting 'width'"),
        ({"guarantee": 1}, "guarantee: must be a table"),
        ({"distribution": {"name": "gausian"}}, "distribution: unknown noise 'gausian'"),
        ({"distribution": {"name": "gaussian", "levels": 3}}, "unknown setting 'levels'"),
        ({"certification": {"sigma": -1.0}}, "certification: sigma must be a positive number"),
        ({"certification": {"sigma": 0.5, "n": 0}}, "certification: n must be at least 1"),
        ({"certification": {}}, "certification: lacks sigma"),
        ({"trial": "a b"}, "trial must be the logits of a network"),
        (
            {"mode": "anytime", "stopping": {"max_draws": 5}},
            "n is 100000, but an image may get 5 draws",
        ),
        (
            {
                "mode": "anytime",
                "stopping": {},
                "certification": {"sigma": 0.5, "stop_abstaining": True},
            },
            "stop_abstaining goes with another mode than anytime",
        ),
    ],
)
def test_tables_that_make_no_sense_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        from_tables({**written(BASE), **change}, where="c.toml")
    assert str(error.value).startswith("c.toml: ")
    assert message in str(error.value)


def test_another_guarantee_or_noise_is_refused_in_words() -> None:
    anytime = replace(
        BASE, certification=Certification(sigma=0.5, guarantee=Anytime(Stopping(max_draws=500)))
    )
    longer = replace(
        BASE, certification=Certification(sigma=0.5, guarantee=Anytime(Stopping(max_draws=900)))
    )
    fewer = replace(BASE, certification=certification_of(0.5, n=500, alpha=0.01))
    laplace = replace(BASE, certification=Certification(sigma=0.5, noise=LaplaceNoise()))
    assert differences(BASE, fewer) == [
        "n is 100000 there and 500 here",
        "alpha is 0.001 there and 0.01 here",
    ] or sorted(differences(BASE, fewer)) == [
        "alpha is 0.001 there and 0.01 here",
        "n is 100000 there and 500 here",
    ]
    assert differences(BASE, anytime) == [
        "the guarantee is exact, n 100,000 there and anytime, at most 500 draws here"
    ]
    assert differences(BASE, laplace) == ["noise is gaussian there and laplace here"]
    with pytest.raises(UsageError, match="or --extend to draw further"):
        refuse_others(Path("c.tsv"), anytime, longer)
    for there, here in ((longer, anytime), (BASE, anytime), (BASE, fewer)):
        with pytest.raises(UsageError, match="was started with other settings") as error:
            refuse_others(Path("c.tsv"), there, here)
        assert "--extend" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sigma": 0.0}, "sigma must be a positive number, got 0.0"),
        ({"sigma": math.inf}, "sigma must be a positive number, got inf"),
        ({"n0": 0}, "n0 must be at least 1, got 0"),
        ({"n": 0}, "n must be at least 1, got 0"),
        ({"n": 1e3}, "n must be a whole number, got 1000.0"),
        ({"sigma": "0.5"}, "sigma must be a positive number, got '0.5'"),
        ({"seed": "a"}, "seed must be a whole number, got 'a'"),
        ({"alpha": 0.0}, "alpha must lie strictly between 0 and 1, got 0.0"),
        ({"alpha": 1e-300}, "alpha must be at least 1e-100, got 1e-300"),
        ({"alpha": 1.0}, "alpha must lie strictly between 0 and 1, got 1.0"),
        ({"seed": -1}, "seed must lie in [0, 2**63), got -1"),
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"precision": "fp64"}, "precision must be one of fp32, bf16, got 'fp64'"),
    ],
)
def test_a_certification_that_cannot_be_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        certification_of(**{"sigma": 0.5, **settings})
    assert str(error.value) == message


def test_numbers_of_numpy_are_recorded_as_pythons_own() -> None:
    certification = Certification(
        sigma=np.float32(0.3),  # type: ignore[arg-type]
        guarantee=FixedDraws(np.int64(1_000), n0=np.int32(50), alpha=np.float32(0.01)),  # type: ignore[arg-type]
        noise=GridNoise(),
        seed=np.int64(7),  # type: ignore[arg-type]
        batch=np.int64(64),  # type: ignore[arg-type]
    )
    settings = replace(BASE, certification=certification)
    assert from_tables(written(settings), where="c.toml") == settings
    rules = Anytime(
        Stopping(tolerance=np.float32(0.25), max_draws=np.int64(900)),  # type: ignore[arg-type]
    )
    budget = Budget(draws=np.int64(10**6), hours=np.float32(2), goal="acr")  # type: ignore[arg-type]
    anytime = replace(BASE, certification=Certification(sigma=1, guarantee=rules, budget=budget))
    assert from_tables(written(anytime), where="c.toml") == anytime
    # numpy compares as if 0.3 had as few digits: another noise level would pass for this one.
    assert certification.sigma != 0.3
    assert certification.sigma == float(np.float32(0.3))

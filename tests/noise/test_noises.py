"""Every noise distribution keeps the contract; one table feeds all tests."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import kstest, laplace, norm, uniform

from smoothmix import trust
from smoothmix.errors import UsageError
from smoothmix.noise import GAUSSIAN, NOISES, Noise, make_noise
from smoothmix.noise.streams import SCHEME, Domain, DrawRange, standard_normal

CUMULATIVE = {
    "gaussian": norm.cdf,
    "grid": norm.cdf,
    "uniform": uniform(-(3**0.5), 2 * 3**0.5).cdf,
    "laplace": laplace(scale=2**-0.5).cdf,
}
"""The distribution of one coordinate at sigma 1, by scipy."""

ALL = sorted(CUMULATIVE)
FLOAT = sorted(set(CUMULATIVE) - {"grid"})
"""Noise in floats. The distribution on the grid has a test of its own."""

PROBABILITIES = np.array([0.5001, 0.6, 0.9, 0.99, 0.99999])


def test_the_table_lacks_no_noise() -> None:
    assert sorted(NOISES) == ALL


@pytest.mark.parametrize("name", FLOAT)
def test_noise_has_its_distribution(name: str) -> None:
    noise = make_noise(name)
    draws = DrawRange(3, Domain.ESTIMATION, 0, 0, 2048)
    numbers = noise.sample(draws, (100,), sigma=0.25).ravel().astype(np.float64) / 0.25
    size = numbers.size
    fourth = noise.fourth_moment
    assert abs(numbers.mean()) < 5 / size**0.5
    assert abs(numbers.var() - 1) < 5 * ((fourth - 1) / size) ** 0.5
    assert (numbers**4).mean() == pytest.approx(fourth, rel=0.1)
    assert kstest(numbers[::11], CUMULATIVE[name]).pvalue > 1e-4


@pytest.mark.parametrize("name", ALL)
def test_a_draw_is_the_same_in_every_range(name: str) -> None:
    noise = make_noise(name)
    wide = noise.sample(DrawRange(1, Domain.SELECTION, 7, 0, 100), (2, 3), sigma=0.5)
    narrow = noise.sample(DrawRange(1, Domain.SELECTION, 7, 37, 40), (2, 3), sigma=0.5)
    np.testing.assert_array_equal(narrow, wide[37:77])


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("sigma", [0.12, 1.0])
def test_radius_and_probability_are_inverse_and_odd(name: str, sigma: float) -> None:
    noise = make_noise(name)
    radii = noise.radius(PROBABILITIES, sigma=sigma)
    assert (np.diff(radii) > 0).all(), "a higher probability certifies more"
    np.testing.assert_allclose(noise.probability(radii, sigma=sigma), PROBABILITIES, rtol=1e-9)
    mirrored = noise.signed_radius(1 - PROBABILITIES, sigma=sigma)
    np.testing.assert_allclose(-mirrored, radii, rtol=1e-9)
    assert noise.radius([0.5, 0.2, 0.0], sigma=sigma).tolist() == [0, 0, 0]
    np.testing.assert_allclose(radii, sigma * noise.radius(PROBABILITIES, sigma=1.0))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("p", [0.6, 0.9, 0.99])
def test_the_worst_classifier_is_at_one_half_at_the_radius(name: str, p: float) -> None:
    """A half space across one coordinate has probability p here, and 1/2 a radius away."""
    noise = make_noise(name)
    radius = float(noise.radius(p, sigma=1.0))
    cumulative = CUMULATIVE[name]
    thresholds = np.linspace(-6, 6, 1_200_001)
    threshold = thresholds[np.searchsorted(cumulative(thresholds), p)]
    assert cumulative(threshold - radius) == pytest.approx(0.5, abs=1e-4)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("sigma", [0.0, -1.0, float("nan"), float("inf")])
def test_a_sigma_that_cannot_be_is_refused(name: str, sigma: float) -> None:
    noise = make_noise(name)
    with pytest.raises(UsageError, match="sigma"):
        noise.radius(0.9, sigma=sigma)
    with pytest.raises(UsageError, match="sigma"):
        noise.probability(0.9, sigma=sigma)


@pytest.mark.parametrize("sigma", [0.25, 0.1, 1 / 3])
def test_gaussian_images_are_those_of_torch_arithmetic(sigma: float) -> None:
    """Files of earlier versions were made so: the votes stay the same to the last bit."""
    draws = DrawRange(5, Domain.ESTIMATION, 2, 10, 70)
    image = torch.rand(3, 8, 8, generator=torch.Generator().manual_seed(0))
    expected = torch.from_numpy(standard_normal(draws, (3, 8, 8))).mul_(sigma).add_(image)
    noisy = GAUSSIAN.noisy_images(image.numpy(), draws, sigma=sigma)
    np.testing.assert_array_equal(noisy.pixels, expected.numpy())
    assert noisy.ambiguous.size == 0
    assert GAUSSIAN.scheme == SCHEME


def test_noises_are_values_that_say_what_they_are() -> None:
    assert make_noise("gaussian") == GAUSSIAN
    assert len({make_noise(name) for name in ALL}) == len(ALL)
    assert {noise.scheme for noise in map(make_noise, ALL)} == {
        SCHEME,
        "philox4x64-grid-16-48",
        "philox4x64-uniform-32",
        "philox4x64-laplace-32",
    }
    assert [make_noise(name).norm for name in ALL] == ["L2", "L2", "L1", "L1"]
    assert make_noise("laplace").description == "laplace noise (L1 radii)"


OUTSIDE = """
from dataclasses import dataclass
from smoothmix.noise import GaussianNoise, Noise

@dataclass(frozen=True)
class Signs(Noise):
    scheme = "signs"

    def fill(self, generator, out):
        out[...] = 2 * generator.integers(0, 2, out.shape) - 1

    def signed_radius(self, probability, *, sigma):
        return 0 * probability

    def probability(self, radius, *, sigma):
        return 0 * radius + 0.5

nothing = 3
"""


def test_noise_from_outside_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_noises.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(tmp_path)
    trust("my_noises")
    noise = make_noise("my_noises:Signs")
    assert noise.name == "my_noises:Signs"
    values = noise.sample(DrawRange(0, Domain.STUDY, 0, 0, 40), (3,), sigma=0.5)
    assert set(np.unique(values)) == {-0.5, 0.5}
    with pytest.raises(UsageError, match="my_noises:nothing is not a noise"):
        make_noise("my_noises:nothing")
    with pytest.raises(UsageError, match="unknown noise 'gausian': did you mean 'gaussian'"):
        make_noise("gausian")
    trust("no_such_module")
    with pytest.raises(UsageError, match="cannot import no_such_module"):
        make_noise("no_such_module:Noise")
    del sys.modules["my_noises"]


def test_noise_that_needs_settings_is_refused_by_name_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = OUTSIDE.replace('    scheme = "signs"', '    width: float\n    scheme = "signs"')
    (tmp_path / "wide_noises.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    trust("wide_noises")
    with pytest.raises(UsageError, match=r"wide_noises:Signs.*width"):
        make_noise("wide_noises:Signs")


def test_the_base_class_is_abstract() -> None:
    @dataclass(frozen=True)
    class Unfinished(Noise):
        pass

    with pytest.raises(TypeError, match="abstract"):
        Unfinished()  # type: ignore[abstract]

"""Which noise certifies by default, from the command line and in Python."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch

import smoothmix as sm
from smoothmix import data
from smoothmix.certificates import read
from smoothmix.certificates.squared import squared_claim
from smoothmix.errors import UsageError
from smoothmix.noise import GAUSSIAN, GRID, GridNoise
from tests.conftest import Linear, Run, small_convnet
from tests.helpers.certification import put_network, without_time

MODEL = ("--model", "digits:make", "--sigma", 0.5)
FEW = (*MODEL, "--n0", 20, "--n", 300, "--num-classes", 10)
SAMPLE = (*FEW, "--data", "sample", "--skip", 250)

BYTES = torch.randint(256, (4, 1, 28, 28), generator=torch.Generator().manual_seed(3)).to(
    torch.uint8
)


@pytest.fixture(autouse=True)
def network(tmp_path: Path) -> None:
    put_network(tmp_path)


def noise_of(path: Path) -> object:
    settings = read(path).settings
    assert settings is not None
    return settings.certification.noise


class TestCommand:
    def test_8_bit_images_get_grid_noise_and_everything_says_so(
        self, smoothmix: Run, tmp_path: Path
    ) -> None:
        done = smoothmix("certify", *SAMPLE)
        assert done.code == 0, done.err
        assert "4 images, grid noise, sigma 0.5" in done.out
        settings = tomllib.loads((tmp_path / "certificates.toml").read_text())
        assert settings["distribution"]["name"] == "grid"
        assert settings["distribution"]["levels"] == 255
        assert smoothmix("report", "certificates.tsv", "--out", "page.html").code == 0
        page = (tmp_path / "page.html").read_text()
        assert "--noise grid" in page

    def test_gaussian_noise_stays_and_its_files_keep_it(
        self, smoothmix: Run, tmp_path: Path
    ) -> None:
        gaussian = (*SAMPLE, "--noise", "gaussian")
        begun = smoothmix("certify", *gaussian, "--max", 2)
        assert "2 images, gaussian noise, sigma 0.5" in begun.out
        # The file that is there decides, as for every version before this option had a default.
        resumed = smoothmix("certify", *SAMPLE)
        assert resumed.code == 0, resumed.err
        assert smoothmix("certify", *gaussian, "--out", "whole.tsv").code == 0
        whole = without_time(tmp_path / "whole.tsv")
        assert without_time(tmp_path / "certificates.tsv") == whole
        assert noise_of(tmp_path / "certificates.tsv") == GAUSSIAN
        other = smoothmix("certify", *SAMPLE, "--noise", "grid")
        assert other.code == 2
        assert "noise is gaussian there and grid (levels 255) here" in other.err

    def test_grid_noise_stays_as_well(self, smoothmix: Run, tmp_path: Path) -> None:
        assert smoothmix("certify", *SAMPLE, "--max", 2).code == 0
        before = (tmp_path / "certificates.tsv").read_bytes()
        for other in (("--noise", "gaussian"), ("--levels", 65_535)):
            refused = smoothmix("certify", *SAMPLE, *other)
            assert refused.code == 2
            assert "noise is grid (levels 255) there" in refused.err
        assert (tmp_path / "certificates.tsv").read_bytes() == before
        parts = (*SAMPLE, "--shard", "2/2", "--noise", "gaussian")
        assert smoothmix("certify", *parts, "--out", "part.tsv").code == 0
        first = (*SAMPLE, "--shard", "1/2", "--out", "first.tsv")
        assert smoothmix("certify", *first).code == 0
        merged = smoothmix("certificates", "merge", "first.tsv", "part.tsv", "--out", "all.tsv")
        assert merged.code == 1
        assert "do not belong together: noise is grid (levels 255) there" in merged.err

    def test_shards_decide_too(self, smoothmix: Run, tmp_path: Path) -> None:
        first = smoothmix("certify", *SAMPLE, "--noise", "gaussian", "--shard", "1/2")
        assert first.code == 0, first.err
        assert smoothmix("certify", *SAMPLE, "--shard", "2/2").code == 0
        assert noise_of(tmp_path / "certificates.tsv") == GAUSSIAN

    def test_other_grids_by_their_levels(self, smoothmix: Run, tmp_path: Path) -> None:
        done = smoothmix("certify", *SAMPLE, "--levels", 65_535)
        assert done.code == 0, done.err
        assert "grid noise (65535 levels), sigma 0.5" in done.out
        assert noise_of(tmp_path / "certificates.tsv") == GridNoise(65_535)
        assert smoothmix("certify", *SAMPLE, "--max", 2).code == 0, "its file keeps it as well"
        with_gaussian = smoothmix("certify", *SAMPLE, "--levels", 255, "--noise", "gaussian")
        assert with_gaussian.code == 2
        assert "--levels goes with --noise grid, not with gaussian" in with_gaussian.err

    def test_arrays_of_floats_must_lie_on_the_grid(self, smoothmix: Run, tmp_path: Path) -> None:
        sample = data.load("sample", "test")
        pixels = sample.images(range(3)).numpy()
        np.savez(tmp_path / "on.npz", x=pixels, y=sample.labels[:3])
        on_grid = smoothmix("certify", *FEW, "--data", "npz:on.npz", "--out", "on.tsv")
        assert on_grid.code == 0, on_grid.err
        assert noise_of(tmp_path / "on.tsv") == GRID
        # The first image shows it before there is any file, later ones when they are read.
        for wrong in (0, 2):
            off = pixels.copy()
            off[wrong, 0, 5, 5] = 0.1234
            np.savez(tmp_path / "off.npz", x=off, y=sample.labels[:3])
            refused = smoothmix("certify", *FEW, "--data", "npz:off.npz", "--out", f"{wrong}.tsv")
            assert refused.code == 2
            assert f"image {wrong}: grid noise needs pixels that are multiples" in refused.err
            assert "--noise gaussian" in refused.err
            assert (tmp_path / f"{wrong}.toml").exists() == (wrong == 2)
        gaussian = ("--noise", "gaussian", "--out", "g.tsv")
        assert smoothmix("certify", *FEW, "--data", "npz:off.npz", *gaussian).code == 0

    def test_predict(self, smoothmix: Run, tmp_path: Path) -> None:
        data_options = ("--data", "sample", "--max", 3)
        options = ("predict", *MODEL, *data_options, "--n", 1_000, "--seed", 0)
        answers = {}
        for name in ("grid", "gaussian"):
            assert smoothmix(*options, "--noise", name, "--out", f"{name}.txt").code == 0
            answers[name] = (tmp_path / f"{name}.txt").read_text()
        assert smoothmix(*options).out == answers["grid"]
        assert answers["grid"] != answers["gaussian"]


class TestSmoothed:
    def test_bytes_and_floats_of_the_same_image_get_the_same_votes(self) -> None:
        smoothed = sm.Smoothed(small_convnet(), sigma=0.5, num_classes=10)
        by_bytes = smoothed.certify(BYTES, n0=20, n=200, seed=0)
        by_floats = smoothed.certify(BYTES / 255, n0=20, n=200, seed=0)
        assert torch.equal(by_bytes.counts, by_floats.counts)
        assert torch.equal(
            smoothed.votes(BYTES, n=50, seed=1), smoothed.votes(BYTES / 255, n=50, seed=1)
        )
        assert smoothed.predict(BYTES, n=50, seed=1).shape == (4,)

    def test_the_claim_in_integers_follows_from_the_radius(self) -> None:
        images = torch.randint(256, (20, 1, 3, 3), generator=torch.Generator().manual_seed(1))
        smoothed = sm.Smoothed(Linear(pixels=9), sigma=0.25, num_classes=2)
        certified = smoothed.certify(images.to(torch.uint8), n0=20, n=2_000, seed=1)
        assert certified.squared is not None
        for radius, squared in zip(certified.radius, certified.squared, strict=True):
            expected = squared_claim(float(radius), levels=255)
            assert int(squared) == (-1 if expected is None else expected)
        assert (certified.squared > 0).any()
        assert (certified.draws == 2_000).all()
        gaussian = sm.Smoothed(Linear(pixels=9), sigma=0.25, num_classes=2, noise="gaussian")
        assert gaussian.certify(images / 255, n0=20, n=200).squared is None

    @pytest.mark.parametrize("call", ["certify", "predict", "votes"])
    def test_floats_off_the_grid_are_refused(self, call: str) -> None:
        smoothed = sm.Smoothed(small_convnet(), sigma=0.5, num_classes=10)
        images = BYTES / 255
        images[2, 0, 4, 4] = 0.1234
        with pytest.raises(UsageError, match=r'image 2: .*noise="gaussian"'):
            getattr(smoothed, call)(images, n=200)

    def test_noise_by_its_name_is_the_noise(self) -> None:
        images = BYTES / 255
        votes = []
        for noise in ("gaussian", GAUSSIAN):
            smoothed = sm.Smoothed(small_convnet(), sigma=0.5, num_classes=10, noise=noise)
            votes.append(smoothed.votes(images, n=50, seed=0))
        assert torch.equal(*votes)
        with pytest.raises(UsageError, match="unknown noise 'gausian': did you mean 'gaussian'"):
            sm.Smoothed(small_convnet(), sigma=0.5, num_classes=10, noise="gausian")

    def test_inputs_of_any_range_need_other_noise(self) -> None:
        with pytest.raises(UsageError, match='lie on no grid: choose noise="gaussian"'):
            sm.Smoothed(small_convnet(), sigma=0.5, num_classes=10, any_range=True)

    def test_a_guarantee_decides_the_draws(self) -> None:
        smoothed = sm.Smoothed(small_convnet(), sigma=0.5, num_classes=10)
        guarantee = sm.FixedDraws(300, n0=20, alpha=0.01)
        by_value = smoothed.certify(BYTES, guarantee=guarantee, seed=0)
        by_numbers = smoothed.certify(BYTES, n=300, n0=20, alpha=0.01, seed=0)
        assert torch.equal(by_value.counts, by_numbers.counts)
        assert torch.equal(by_value.radius, by_numbers.radius)
        with pytest.raises(UsageError, match="a guarantee has its own n0, n, alpha"):
            smoothed.certify(BYTES, guarantee=guarantee, n=300)


def test_data_sets_say_whether_their_images_have_8_bits(tmp_path: Path) -> None:
    sample = data.load("sample", "test")
    assert sample.levels == 255
    np.savez(tmp_path / "floats.npz", x=sample.images(range(2)).numpy(), y=sample.labels[:2])
    assert data.load(f"npz:{tmp_path / 'floats.npz'}").levels is None

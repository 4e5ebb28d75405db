"""Metrics against counting, intervals against simulation, and comparisons of files."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import binom, norm

from smoothmix import analysis
from smoothmix.analysis import Measured, intervals, measure
from smoothmix.analysis.rounding import printing_of
from smoothmix.certificates import Certificates, Certification, from_votes, settings_path
from smoothmix.config import UNLABELLED
from smoothmix.errors import SmoothmixError, UsageError
from smoothmix.stats.guarantees import FixedDraws
from tests.helpers.certificates import COHEN_HEADER, cohen_log, our_file

radii = st.lists(st.floats(0, 4, allow_subnormal=False), min_size=1, max_size=30)


@given(radii, st.data())
def test_certified_accuracy_and_acr_are_what_counting_gives(
    values: list[float], data: st.DataObject
) -> None:
    correct = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    at = [0.0, 0.5, 1.0, *values]
    counted = [
        sum(ok and r >= x for r, ok in zip(values, correct, strict=True)) / len(values) for x in at
    ]
    assert analysis.certified_accuracy(values, correct, at=at).tolist() == counted
    acr = math.fsum(r for r, ok in zip(values, correct, strict=True) if ok) / len(values)
    assert analysis.average_certified_radius(values, correct) == pytest.approx(acr, abs=1e-12)


def test_an_abstention_on_an_image_without_a_label_is_not_correct() -> None:
    certification = Certification(sigma=0.5, guarantee=FixedDraws(1_000))
    rows = []
    for idx, votes in enumerate(({0: 1_000}, {0: 500, 1: 500})):
        rows.append(from_votes(idx, UNLABELLED, {0: 100}, votes, certification=certification))
    assert [row.predict for row in rows] == [0, -1]
    measured = analysis.from_file(Certificates(Path("a.tsv"), tuple(rows)), name="a")
    assert not measured.correct.any()


class TestRounding:
    @given(st.lists(st.floats(1e-4, 9.99), min_size=1, max_size=20))
    def test_nothing_is_counted_that_was_rounded_up(self, true: list[float]) -> None:
        printed = [float(f"{r:.3}") for r in true]
        low = analysis.lower_end(printed)
        assert (low <= np.array(true)).all()
        # And no more is lost than half of the third digit, or of the last decimal that is printed.
        shown = 10.0 ** -max(
            -int(Decimal(repr(p)).normalize().as_tuple().exponent) for p in printed
        )
        spared = np.array(printed) * (1 - 0.00501)
        assert (
            low
            >= (
                spared
                if len(set(printed)) < 10
                else np.minimum(spared, np.array(printed) - 0.501 * shown)
            )
        ).all()

    @pytest.mark.parametrize("kind", [".1f", ".2f", ".3f", ".2g", ".3g", ".4g"])
    @pytest.mark.parametrize("largest", [0.95, 3.8])
    def test_no_way_to_print_radii_counts_what_was_rounded_up(
        self, kind: str, largest: float
    ) -> None:
        true = np.random.default_rng(0).uniform(0.01, largest, 500)
        printed = np.array([float(f"{r:{kind}}") for r in true])
        low = analysis.lower_end(printed)
        assert (low <= true).all()
        assert (low < printed).any()

    @given(st.lists(st.floats(0, 9.99), min_size=1, max_size=20), st.integers(4, 10))
    def test_logs_with_more_decimals_give_away_less(self, true: list[float], decimals: int) -> None:
        printed = [round(r, decimals) for r in true]
        digits = max(
            len(f"{p:.{decimals}f}".strip("0").replace(".", "").lstrip("0")) for p in printed
        )
        # A log whose radii all have three digits or fewer is taken for a Cohen-style one.
        assume(digits > 3)
        low = analysis.lower_end(printed)
        assert (low <= np.array(true)).all()
        assert (low >= np.array(printed) - 10.0 ** (1 - digits)).all()

    def test_ends_of_intervals_by_hand(self) -> None:
        assert analysis.lower_end(
            [1.5, 0.953, 0.0512, 1.0, 0.1, 3.81, 0.0]
        ).tolist() == pytest.approx(
            [1.495, 0.9525, 0.05115, 0.9995, 0.09995, 3.805, 0.0], abs=1e-15
        )

    def test_numbers_printed_in_full_are_taken_as_they_are(self) -> None:
        full = [1.234567890123456, 0.5]
        assert analysis.lower_end(full).tolist() == full

    def test_a_log_counts_its_lower_end_and_with_paper_rounding_its_print(
        self, tmp_path: Path
    ) -> None:
        log = cohen_log(tmp_path / "noise_0.50", [1.5, 0.75])
        sound, paper = measure(log), measure(log, paper_rounding=True)
        assert sound.accuracy_at([1.5, 1.495, 0.75]).tolist() == [0.0, 0.5, 0.5]
        assert paper.accuracy_at([1.5, 0.75]).tolist() == [0.5, 1.0]
        assert paper.acr().value == pytest.approx(1.125)

    def test_our_own_files_are_not_lowered_again_and_paper_rounding_rounds_them(
        self, tmp_path: Path
    ) -> None:
        file = our_file(tmp_path / "certificates.tsv", [1000, 990, 400])
        sound = measure(file)
        assert sound.radius.tolist() == [row.radius for row in sound.file.rows]
        assert measure(file, paper_rounding=True).radius.tolist() == [
            float(f"{r:.3}") for r in sound.radius
        ]

    def test_digits_that_a_log_prints_are_not_rounded_again(self, tmp_path: Path) -> None:
        # As SmoothAdv's logs: four decimals. Three digits would count 1.4951 at 1.5.
        radii = [1.4951, 3.8115, 0.0512, 0.7496]
        log = measure(cohen_log(tmp_path / "noise_1.00", radii), paper_rounding=True)
        assert log.radius.tolist() == radii
        assert log.acr().value == pytest.approx(sum(radii) / 4)
        assert log.accuracy_at([1.5, 0.75]).tolist() == [0.25, 0.5]

    @given(st.lists(st.floats(1e-4, 9.99), min_size=10, max_size=30), st.sampled_from("fg"))
    def test_printing_again_what_was_printed_changes_nothing(
        self, true: list[float], kind: str
    ) -> None:
        form = {"f": ".4f", "g": ".3g"}[kind]
        printed = [float(f"{r:{form}}") for r in true]
        assert printing_of(printed).nearest(printed).tolist() == printed

    def test_our_own_files_are_rounded_like_the_logs_beside_them(self, tmp_path: Path) -> None:
        ours = measure(our_file(tmp_path / "certificates.tsv", [999, 990, 985]))
        four = measure(cohen_log(tmp_path / "noise_1.00", [1.4951, 3.8115]))
        three = measure(cohen_log(tmp_path / "noise_0.50", [1.49, 1.95]))
        assert (ours.radius != ours.radius.round(4)).all()
        rounded, _ = analysis.rounded_alike([ours, four])
        assert rounded.radius.tolist() == ours.radius.round(4).tolist()
        expected = [float(f"{r:.3}") for r in ours.radius]
        for every in ([ours], [ours, three], [ours, four, three]):
            assert analysis.rounded_alike(every)[0].radius.tolist() == expected


class TestIntervals:
    @pytest.mark.parametrize(("p", "images"), [(0.02, 50), (0.5, 50), (0.93, 200)])
    def test_a_share_is_covered_as_often_as_promised(self, p: float, images: int) -> None:
        counts = np.arange(images + 1)
        found = [intervals.share(int(k), images) for k in counts]
        covered = np.array([f.low <= p <= f.high for f in found])
        assert binom.pmf(counts, images, p)[covered].sum() >= 0.95

    @pytest.mark.parametrize("images", [20, 50, 300])
    def test_the_bootstrap_covers_a_mean_about_as_often_as_promised(self, images: int) -> None:
        rng = np.random.default_rng(0)
        values = rng.gamma(2.0, 0.5, size=(2000, images)) * (rng.random((2000, images)) < 0.9)
        truth = 2.0 * 0.5 * 0.9
        hits = [low.low <= truth <= low.high for low in intervals.means(values)]
        assert 0.925 <= np.mean(hits) <= 0.97

    def test_pairing_makes_a_difference_much_surer(self) -> None:
        rng = np.random.default_rng(1)
        easy = rng.random(500) * 2
        gap = intervals.mean((easy + 0.05 + 0.01 * rng.standard_normal(500)) - easy)
        alone = intervals.mean(easy)
        assert 0.048 < gap.low < gap.value < gap.high < 0.052
        assert (alone.high - alone.low) > 20 * (gap.high - gap.low)

    def test_many_means_at_once_are_the_same_as_one_by_one(self) -> None:
        rng = np.random.default_rng(5)
        arrays = [rng.random(30), rng.random(50), rng.random(30)]
        for found, alone in zip(
            intervals.means_of(arrays), map(intervals.mean, arrays), strict=True
        ):
            assert (found.value, found.low, found.high) == pytest.approx(
                (alone.value, alone.low, alone.high)
            )

    def test_the_same_files_give_the_same_interval(self) -> None:
        values = np.random.default_rng(2).random(100)
        assert intervals.mean(values) == intervals.mean(values)

    def test_weights_of_a_resample_are_those_of_drawing_with_replacement(self) -> None:
        weights = np.concatenate(list(intervals._resamples(40, 0.95)))
        assert weights.shape == (intervals.RESAMPLES, 40)
        assert np.allclose(weights.sum(axis=1), 1)
        assert (weights * 40).var() == pytest.approx(1 - 1 / 40, rel=0.05)

    @pytest.mark.parametrize("confidence", [0.9, 0.99, 0.999])
    def test_intervals_of_high_confidence_are_as_wide_as_they_should_be(
        self, confidence: float
    ) -> None:
        values = np.random.default_rng(5).normal(size=500)
        found = intervals.mean(values, confidence=confidence)
        theory = norm.ppf((1 + confidence) / 2) * values.std() / math.sqrt(500)
        assert (found.high - found.low) / 2 == pytest.approx(theory, rel=0.06)

    @pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, 0.99999])
    def test_a_confidence_that_is_none_is_refused(self, confidence: float) -> None:
        with pytest.raises(UsageError, match="confidence"):
            intervals.mean([1.0], confidence=confidence)

    def test_the_bound_for_a_data_set_holds_in_simulation(self) -> None:
        # The worst case: each certificate is wrong with probability alpha, independently.
        rng = np.random.default_rng(3)
        alpha, rho, images = 0.01, 0.05, 500
        wrong = rng.binomial(images, alpha, size=20_000) / images
        claimed = analysis.accuracy_bound(np.ones(20_000), images, alpha=alpha, rho=rho)
        assert (claimed > 1 - wrong).mean() <= rho


class TestComparison:
    def test_what_differs_is_said_and_nothing_else(self, tmp_path: Path) -> None:
        same = [
            measure(our_file(tmp_path / name / "certificates.tsv", [1000, 900]))
            for name in ("a", "b")
        ]
        assert analysis.what_differs(same) == []
        other = measure(
            our_file(tmp_path / "c" / "certificates.tsv", [500, 400, 300], n=500, alpha=0.01)
        )
        found = analysis.what_differs([*same, other])
        assert [text.split(" differs")[0] for text in found[:-1]] == ["alpha", "the guarantee"]
        assert "exact, n 1,000 (a, b); exact, n 500 (c)" in found[1]
        assert found[-1] == "not the same images: 2 (a, b); 3 (c); 2 in common"

    def test_files_that_differ_are_not_averaged(self, tmp_path: Path) -> None:
        one = measure(our_file(tmp_path / "a" / "certificates.tsv", [1000]))
        other = measure(our_file(tmp_path / "b" / "certificates.tsv", [500], n=500))
        with pytest.raises(UsageError, match="the guarantee differs"):
            analysis.over_seeds([one, other], at=[0.0])

    def test_means_and_deviations_over_seeds_by_hand(self, tmp_path: Path) -> None:
        logs = [
            cohen_log(tmp_path / f"s{i}" / "noise_0.50", [r, 1.0])
            for i, r in enumerate((0.5, 1.0, 1.5))
        ]
        seeds = analysis.over_seeds([measure(log, paper_rounding=True) for log in logs], at=[0.75])
        assert seeds.count == 3
        assert seeds.acr == pytest.approx(1.0)
        assert seeds.acr_std == pytest.approx(0.25)
        assert seeds.accuracy == pytest.approx((5 / 6,))
        assert seeds.accuracy_std[0] == pytest.approx(np.std([0.5, 1, 1], ddof=1))

    def test_a_paired_difference_uses_the_images_that_both_have(self, tmp_path: Path) -> None:
        one = measure(cohen_log(tmp_path / "a" / "noise_0.5", [1.0, 2.0, 3.0]), paper_rounding=True)
        other = measure(cohen_log(tmp_path / "b" / "noise_0.5", [0.5, 1.5]), paper_rounding=True)
        assert analysis.differences_by_image(one, other).tolist() == [0.5, 0.5]

    def test_other_labels_are_another_data_set(self, tmp_path: Path) -> None:
        one = measure(cohen_log(tmp_path / "a", [1.0]))
        text = (
            (tmp_path / "a")
            .read_text()
            .replace("0\t1\t1\t", "0\t2\t1\t")
            .replace("\t1\t0:", "\t0\t0:")
        )
        (tmp_path / "b").write_text(text)
        with pytest.raises(UsageError, match="not the same data set"):
            analysis.differences_by_image(one, measure(tmp_path / "b"))

    def test_images_in_another_order_are_still_paired_by_number(self, tmp_path: Path) -> None:
        log = cohen_log(tmp_path / "a", [1.0, 2.0, 3.0])
        header, *lines = log.read_text().splitlines(keepends=True)
        (tmp_path / "b").write_text(header + "".join(reversed(lines)))
        assert analysis.differences_by_image(measure(log), measure(tmp_path / "b")).tolist() == [
            0.0,
            0.0,
            0.0,
        ]

    def test_two_files_of_one_name_are_told_apart(self, tmp_path: Path) -> None:
        every = [measure(cohen_log(tmp_path / name / "noise_0.5", [1.0])) for name in ("x", "y")]
        first, second, again = (m.name for m in analysis.unique_names([*every, every[0]]))
        assert len({first, second, again}) == 3


class TestMeasured:
    def test_abstention_and_p_a_of_a_file_that_skips_wrong_images(self, tmp_path: Path) -> None:
        whole = measure(our_file(tmp_path / "a" / "certificates.tsv", [1000, 900, 500]))
        assert whole.abstention() is not None
        assert whole.abstention().value == pytest.approx(1 / 3)  # type: ignore[union-attr]
        assert whole.probability.tolist() == [1.0, 0.9, 0.5]
        assert whole.probabilities_at([0.95, 0.8]).tolist() == pytest.approx([1 / 3, 2 / 3])
        # All 1,000 draws agree on the first image: they tell no more than 0.999 of it.
        assert whole.probabilities_at([0.95, 0.999, 0.9995]).tolist() == pytest.approx(
            [1 / 3, 1 / 3, 0]
        )
        skipping = measure(our_file(tmp_path / "b" / "certificates.tsv", [1000], skip_wrong=True))
        assert skipping.abstention() is None

    def test_the_cliff_is_where_all_votes_agree(self, tmp_path: Path) -> None:
        measured = measure(our_file(tmp_path / "certificates.tsv", [1000, 999]))
        assert measured.largest_radius == pytest.approx(float(measured.radius[0]), abs=1e-6)
        assert measure(cohen_log(tmp_path / "noise_0.5", [1.0])).largest_radius is None

    def test_a_log_says_its_sigma_by_its_name_and_p_a_by_its_radius(self, tmp_path: Path) -> None:
        measured = measure(
            cohen_log(tmp_path / "cohen" / "noise_0.50_17", [0.5, 0.0], predict=[1, -1])
        )
        assert measured.sigma == 0.5
        assert measured.probability[0] == pytest.approx(0.8413, abs=0.001)
        assert math.isnan(measured.probability[1])

    def test_names_are_given_or_made(self, tmp_path: Path) -> None:
        our_file(tmp_path / "mine" / "certificates.tsv", [1000])
        assert measure(tmp_path / "mine").name == "mine"
        assert measure(f"Ours={tmp_path / 'mine'}").name == "Ours"
        assert measure(cohen_log(tmp_path / "a=b", [1.0])).name == "a=b"

    def test_an_empty_file_and_none_at_all_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="no such certificate file"):
            measure(tmp_path / "nowhere")
        (tmp_path / "empty").write_text(COHEN_HEADER)
        with pytest.raises(UsageError, match="no certificates yet"):
            measure(tmp_path / "empty")

    def test_an_unfinished_file_says_so(self, tmp_path: Path) -> None:
        path = our_file(tmp_path / "certificates.tsv", [1000, 1000])
        settings_path(path).write_text(
            settings_path(path).read_text().replace("images = 2", "images = 5")
        )
        assert any("3 of 5 images are still missing" in note for note in measure(path).notes)

    def test_some_images_only(self, tmp_path: Path) -> None:
        measured = measure(cohen_log(tmp_path / "log", [1.0, 2.0, 3.0, 4.0]), paper_rounding=True)
        some: Measured = measured.only(np.array([3, 1]))
        assert some.idx.tolist() == [3, 1]
        assert some.radius.tolist() == [4.0, 2.0]
        assert [row.idx for row in some.file.rows] == [3, 1]


def test_metrics_that_are_too_long_are_refused_and_not_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = our_file(tmp_path / "certificates.tsv", [900])
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text('{"epoch": 1, "loss": 0.5}\n' * 3)
    monkeypatch.setattr("smoothmix.analysis.measured.LARGEST_METRICS", metrics.stat().st_size)
    assert measure(file).name == tmp_path.name
    metrics.write_text('{"epoch": 1, "loss": 0.5}\n' * 4)
    with pytest.raises(SmoothmixError, match=r"metrics\.jsonl: holds more than"):
        measure(file)

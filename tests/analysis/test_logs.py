"""What is made of other people's logs: their sigma, n and alpha, their names, and what differs."""

from __future__ import annotations

from pathlib import Path

import pytest

from smoothmix.analysis import (
    Measured,
    Source,
    comparable_groups,
    measure,
    parse_sources,
    unique_names,
    what_differs,
)
from smoothmix.analysis.compare import not_recorded, warnings_about
from smoothmix.analysis.draws import Origin
from smoothmix.analysis.sources import sigma_in
from smoothmix.errors import UsageError
from smoothmix.noise import GAUSSIAN
from smoothmix.stats.guarantees import FixedDraws
from tests.helpers.certificates import cohen_log, our_file


def capped_log(
    path: Path, *, n: int, alpha: float, sigma: float, form: str = ".3g", rows: int = 4
) -> Path:
    """A log in which all votes of some images agree, so that they have the largest radius."""
    cap = FixedDraws(n, alpha=alpha).largest_radius(GAUSSIAN, sigma=sigma)
    return cohen_log(path, [f"{radius:{form}}" for radius in [cap] * rows + [0.3 * cap]])


class TestSigma:
    @pytest.mark.parametrize(
        "path",
        [
            "noise_0.50",
            "cohen/sigma0.5/log.tsv",
            "noise-0.50_17.xz",
            "Noise_0.5",
            "SIGMA=0.5",
            "noise_0.25/test/sigma_0.50",
            "noise_.5",
        ],
    )
    def test_the_usual_spellings_are_read(self, path: str) -> None:
        assert sigma_in(Path(path)) == 0.5

    @pytest.mark.parametrize("path", ["mine.tsv", "denoise_0.5", "noise_0", "noisy/log", "noise_x"])
    def test_other_words_say_nothing(self, path: str) -> None:
        assert sigma_in(Path(path)) is None

    @pytest.mark.parametrize("name", ["noise_050", "noise_50", "sigma025"])
    def test_a_number_without_its_point_is_not_read_and_said(
        self, tmp_path: Path, name: str
    ) -> None:
        measured = measure(cohen_log(tmp_path / name, [1.0]))
        assert measured.sigma is None
        (note,) = [note for note in measured.notes if "may or may not be its sigma" in note]
        assert note.endswith("state it as name@sigma=path")
        stated = measure(f"mine@0.5={tmp_path / name}")
        assert (stated.name, stated.sigma) == ("mine", 0.5)
        assert not any("may or may not" in note for note in stated.notes)

    def test_a_file_that_records_another_sigma_is_not_overruled(self, tmp_path: Path) -> None:
        path = our_file(tmp_path / "certificates.tsv", [1000])
        assert measure(f"a@0.5={path}").sigma == 0.5
        with pytest.raises(UsageError, match=r"records sigma 0\.5, not 0\.25"):
            measure(f"a@0.25={path}")

    def test_an_at_sign_in_a_name_stays(self, tmp_path: Path) -> None:
        assert measure(f"me@home={cohen_log(tmp_path / 'log', [1.0])}").name == "me@home"


class TestDraws:
    @pytest.mark.parametrize("sigma", [0.12, 0.25, 0.5, 1.0])
    @pytest.mark.parametrize("form", [".3g", ".4f", ".6f"])
    @pytest.mark.parametrize(("n", "alpha"), [(100_000, 0.001), (100_000, 0.01), (10_000, 0.001)])
    def test_the_largest_radius_tells_the_usual_pairs(
        self, tmp_path: Path, sigma: float, form: str, n: int, alpha: float
    ) -> None:
        path = capped_log(tmp_path / f"noise_{sigma}", n=n, alpha=alpha, sigma=sigma, form=form)
        draws = measure(path).draws
        assert (draws.n, draws.alpha, draws.origin) == (n, alpha, Origin.INFERRED)

    def test_a_maximum_of_few_rows_says_nothing(self, tmp_path: Path) -> None:
        for rows in (1, 2):
            path = tmp_path / str(rows) / "noise_1.0"
            log = measure(capped_log(path, n=100_000, alpha=0.001, sigma=1.0, rows=rows))
            assert log.draws.origin is Origin.UNKNOWN
            assert (log.draws.n, log.largest_radius) == (None, None)

    def test_an_unusual_largest_radius_is_unknown(self, tmp_path: Path) -> None:
        log = measure(capped_log(tmp_path / "noise_1.0", n=30_000, alpha=0.001, sigma=1.0))
        assert log.draws.origin is Origin.UNKNOWN

    def test_what_is_stated_overrides_what_would_be_inferred(self, tmp_path: Path) -> None:
        path = capped_log(tmp_path / "noise_1.0", n=100_000, alpha=0.01, sigma=1.0)
        # The same largest radius as that of n = 100,000 and alpha = 0.01.
        draws = measure(Source(path=str(path), n=150_000, alpha=0.001)).draws
        assert (draws.n, draws.alpha, draws.origin) == (150_000, 0.001, Origin.STATED)
        one_stated = measure(Source(path=str(path), n=150_000)).draws
        assert (one_stated.alpha, one_stated.origin) == (0.001, Origin.INFERRED)

    def test_a_statement_that_the_radii_contradict_is_said(self, tmp_path: Path) -> None:
        path = capped_log(tmp_path / "noise_1.0", n=100_000, alpha=0.001, sigma=1.0)
        log = measure(Source(path=str(path), n=1_000, alpha=0.001))
        assert any("no more than 2.463 can be certified with the stated n" in n for n in log.notes)
        right = measure(Source(path=str(path), n=100_000, alpha=0.001))
        assert not any("can be certified" in note for note in right.notes)

    def test_a_comparison_says_what_is_inferred_and_what_is_unknown(self, tmp_path: Path) -> None:
        known = measure(capped_log(tmp_path / "noise_1.0", n=100_000, alpha=0.001, sigma=1.0))
        unknown = measure(f"b@1={cohen_log(tmp_path / 'b', [1.0])}")
        said = warnings_about([known, unknown])
        inferred = "noise_1.0: n 100,000 and alpha 0.001 are inferred from the largest radius"
        assert inferred in said
        assert "b: n and alpha are unknown (--n and --alpha state them)" in said


def named(*every: Measured) -> list[list[str]]:
    return [[measured.name for measured in group] for group in comparable_groups(every)]


class TestWhatDiffers:
    def test_logs_that_show_other_n_or_alpha_are_not_ranked(self, tmp_path: Path) -> None:
        paths = {
            name: capped_log(tmp_path / name, n=n, alpha=alpha, sigma=1.0)
            for name, n, alpha in (
                ("a", 100_000, 0.001),
                ("b", 100_000, 0.01),
                ("c", 100_000, 0.001),
                ("d", 30_000, 0.001),
                ("e", 50_000, 0.001),
            )
        }
        a, b, c, d, e = (measure(f"{name}@1={path}") for name, path in paths.items())
        assert what_differs([a, c]) == []
        assert what_differs([a, b]) == ["alpha differs: 0.001 (a); 0.01 (b)"]
        # Two pairs that are unknown, and certainly not the same.
        (sentence,) = what_differs([d, e])
        assert sentence.startswith("n or alpha differ, since the largest radii do: 3.50 sigma (d)")
        assert named(a, b, c, d, e) == [["a", "c"], ["b"], ["d"], ["e"]]

    def test_one_largest_radius_in_two_prints_is_the_same(self, tmp_path: Path) -> None:
        logs = []
        for form in (".3g", ".4f"):
            path = capped_log(tmp_path / form, n=30_000, alpha=0.001, sigma=0.5, form=form)
            logs.append(measure(f"{form}@0.5={path}"))
        assert what_differs(logs) == []

    def test_one_log_with_fewer_images_does_not_stop_the_ranking_of_the_others(
        self, tmp_path: Path
    ) -> None:
        few = measure(f"few@1={cohen_log(tmp_path / 'few', [1.0])}")
        one = measure(f"one@1={cohen_log(tmp_path / 'one', [1.0, 2.0])}")
        two = measure(f"two@1={cohen_log(tmp_path / 'two', [1.5, 2.0])}")
        assert what_differs([few, one, two]) == [
            "not the same images: 1 (few); 2 (one, two); 1 in common"
        ]
        assert named(few, one, two) == [["one", "two"], ["few"]]

    def test_other_labels_of_the_same_indices_are_told_from_other_images(
        self, tmp_path: Path
    ) -> None:
        one = cohen_log(tmp_path / "one", [1.0, 2.0])
        other = tmp_path / "other"
        other.write_text(one.read_text().replace("1\t1\t1\t2.0", "1\t3\t3\t2.0"))
        reordered = tmp_path / "reordered"
        header, *lines = one.read_text().splitlines(keepends=True)
        reordered.write_text(header + "".join(reversed(lines)))
        logs = [measure(f"{path.name}@1={path}") for path in (one, other, reordered)]
        (sentence,) = what_differs(logs[:2])
        assert sentence == (
            "the same indices with other labels (one and other): another order of the images, "
            "or another data set"
        )
        assert what_differs([logs[0], logs[2]]) == [], "the order of the rows does not matter"

    def test_a_file_and_a_log_are_ranked_if_n_and_alpha_agree(self, tmp_path: Path) -> None:
        ours = measure(
            f"ours={our_file(tmp_path / 'certificates.tsv', [1000, 999, 900, 800, 700])}"
        )
        log = measure(f"log@0.5={capped_log(tmp_path / 'l', n=1000, alpha=0.001, sigma=0.5)}")
        assert what_differs([ours, log]) == []
        (said,) = not_recorded([ours, log])
        assert said.startswith("not recorded by log: n0, precision, the data set")
        unknown = measure(f"u@0.5={cohen_log(tmp_path / 'u', [1.0] * 5)}")
        assert what_differs([ours, unknown]) == [
            "alpha is not known of u",
            "the guarantee is not known of u",
        ]


class TestNames:
    def names(self, tmp_path: Path, *paths: str) -> list[str]:
        logs = [measure(cohen_log(tmp_path / path, [1.0])) for path in paths]
        return [measured.name for measured in unique_names(logs)]

    def test_what_paths_have_in_common_goes(self, tmp_path: Path) -> None:
        assert self.names(
            tmp_path, "logs/cohen/test/noise_0.50", "logs/salman/eps_512/test/noise_0.50"
        ) == ["cohen", "salman/eps_512"]

    def test_sigma_stands_elsewhere_and_seeds_stay(self, tmp_path: Path) -> None:
        assert self.names(
            tmp_path, "cohen/noise_0.25_17", "cohen/noise_0.50_18", "stab/noise_0.50_18.tsv"
        ) == ["cohen/17", "cohen/18", "stab/18"]
        assert self.names(tmp_path, "x/noise_0.25", "x/noise_0.50") == ["x", "x"]

    def test_long_names_lose_their_middle_and_stay_unique(self, tmp_path: Path) -> None:
        middle = "finetune_cifar_from_imagenet/PGD_10steps_multi_noise_samples/2-multitrain"
        names = self.names(
            tmp_path,
            f"salman/{middle}/eps_512/cifar10/noise_1.00",
            f"salman/{middle}/eps_255/cifar10/noise_1.00",
            "cohen/cifar10/noise_1.00",
        )
        assert names == ["salman/.../eps_512", "salman/.../eps_255", "cohen"]

    def test_the_same_log_twice_is_numbered_and_given_names_stay(self, tmp_path: Path) -> None:
        path = cohen_log(tmp_path / "cohen" / "noise_0.50", [1.0])
        logs = [measure(path), measure(path), measure(f"mine={path}")]
        assert [each.name for each in unique_names(logs)] == ["cohen", "cohen 2", "mine"]


class TestFileOfRuns:
    def test_runs_are_listed_with_what_logs_do_not_record(self, tmp_path: Path) -> None:
        cohen_log(tmp_path / "logs" / "first", [1.0])
        (tmp_path / "runs.toml").write_text(
            """
            data = "cifar10"
            n = 100000
            alpha = 0.001
            [[run]]
            path = "logs/first"
            name = "Cohen et al."
            sigma = 0.5
            method = "gaussian"
            baseline = true
            [[run]]
            path = "zoo:mnist-0.50-smoothmix"
            n = 1000
            """
        )
        first, second = parse_sources([str(tmp_path / "runs.toml")])
        measured = measure(first)
        assert (measured.name, measured.sigma, measured.method) == ("Cohen et al.", 0.5, "gaussian")
        assert (measured.draws.n, measured.draws.alpha) == (100_000, 0.001)
        assert (first.data, first.baseline) == ("cifar10", True)
        assert (second.path, second.n) == ("zoo:mnist-0.50-smoothmix", 1000)

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            ("", r"runs.toml: lists no runs; a run is written as \[\[run\]\]"),
            ("run = 3", "lists no runs"),
            ("run = [3]", "run 1: must be a table"),
            ("[[run]]\nname = 'a'", "run 1: lacks path"),
            ("[[run]]\npath = 'a'\nsigm = 1", "did you mean 'sigma'"),
            ("[[run]]\npath = 'a'\nsigma = -1", "run 1: sigma must be positive"),
            ("[[run]]\npath = 'a'\nalpha = 2", "run 1: alpha must lie"),
            ("[[run]]\npath = 'a'\nn = 0", "run 1: n must be at least 1"),
            ("[certification]\nn = 3", "the settings of a run, not a list of runs"),
        ],
    )
    def test_what_is_no_list_of_runs_is_refused(
        self, tmp_path: Path, text: str, sentence: str
    ) -> None:
        (tmp_path / "runs.toml").write_text(text)
        with pytest.raises(UsageError, match=sentence):
            parse_sources([str(tmp_path / "runs.toml")])

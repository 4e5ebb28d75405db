"""The command `study dimension`: the paper's theorem on noise that depends on the input."""

from __future__ import annotations

from dataclasses import dataclass

from cyclopts import Parameter

from smoothmix.cli.options import Numbers, StudyFiles, parse_numbers
from smoothmix.cli.study import announce_figure, require_one_process, show_saved
from smoothmix.config import require


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DimensionOptions:
    """The classifier at x, and the noise at x'."""

    p: float = 0.99
    """Probability of the class at x."""

    sigma: float = 1.0
    """Standard deviation of the noise at x."""

    distance: float = 0.5
    """L2 distance of x' from x."""

    ratios: Numbers = None
    """Standard deviation of the noise at x' divided by sigma, such as --ratios 0.9,1,1.1; by
    default nine from 0.8 to 1.25."""

    dimensions: Numbers = None
    """Numbers of inputs, such as --dimensions 784,3072; by default six from 1 to ImageNet's
    150,528."""

    noises: str = "gaussian,uniform,laplace"
    """Noise distributions: gaussian is exact, uniform and laplace are estimated by Monte Carlo."""

    draws: int = 2_000
    """Monte Carlo samples."""

    seed: int = 0
    """Decides the Monte Carlo samples."""


OPTIONS = DimensionOptions()
FILES = StudyFiles()


def dimension(*, options: DimensionOptions = OPTIONS, files: StudyFiles = FILES) -> None:
    """Compute how little noise that depends on the input guarantees (the paper's theorem)."""
    from smoothmix.stats import input_dependent
    from smoothmix.studies.dimension import dimension_report
    from smoothmix.studies.files import save_report

    require_one_process()
    # Only what was given: the library has its own defaults.
    given: dict[str, object] = {}
    if options.ratios:
        given["ratios"] = parse_numbers(options.ratios)
    if options.dimensions:
        dimensions = [_whole_dimension(number) for number in parse_numbers(options.dimensions)]
        require(bool(dimensions), "no dimensions were given: write --dimensions 784,3072")
        given["dimensions"] = dimensions
    noises = [name.strip() for name in options.noises.split(",") if name.strip()]
    require(bool(noises), "no noises were given: write --noises gaussian,uniform")
    announce_figure()
    cases = input_dependent.table(
        p=options.p,
        sigma=options.sigma,
        distance=options.distance,
        noises=noises,
        draws=options.draws,
        seed=options.seed,
        **given,  # type: ignore[arg-type]
    )
    report = dimension_report(cases, p=options.p, sigma=options.sigma, distance=options.distance)
    show_saved(save_report(report, files.out, files.format))


def _whole_dimension(number: float) -> int:
    possible = number.is_integer() and number >= 1
    require(possible, f"dimensions are whole numbers, such as 784, not {number:g}")
    return int(number)

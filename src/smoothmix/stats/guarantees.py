"""Guarantees: what a certificate promises, and how many draws it takes.

A guarantee is a value. It turns votes into lower bounds on a probability, decides when an image has
had enough draws, checks the draws of a stored row, and describes itself in reports, commands and
files. A new guarantee is one class here, or anywhere else, and one line in `GUARANTEES`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar, NamedTuple, Self, final

import numpy as np

from smoothmix.config import plain_numbers, require, require_alpha, require_whole
from smoothmix.errors import UsageError
from smoothmix.noise.base import Noise
from smoothmix.registry import ClassRegistry, address_of
from smoothmix.stats import anytime
from smoothmix.stats.anytime import FORESIGHT, Stopping
from smoothmix.stats.beta import Floats
from smoothmix.stats.binomial import (
    Bools,
    Ints,
    abstention_is_certain,
    draws_for,
    lower_bound,
    smallest_remainder,
)

CHECKS = 20
"""How often an image is checked for certain abstention while its fixed draws are made."""

GUARANTEE = "the guarantee"
"""Name of a difference between guarantees that takes their words to explain."""


@dataclass(frozen=True, eq=False)
class SelectedVotes:
    """Votes for the selected class of several images, one element per image.

    The draws are counted apart from the votes: a draw may give a vote to no class.
    """

    votes: Ints
    """Estimation votes for the selected class."""

    draws: Ints
    """Estimation draws."""

    selection_votes: Ints
    """Selection votes for the selected class."""

    selection_draws: Ints
    """Selection draws."""


class Difference(NamedTuple):
    """A setting in which two guarantees differ."""

    name: str
    this: object
    other: object


@dataclass(frozen=True, kw_only=True)
class GuaranteeOptions:
    """The options of `smoothmix certify` that a guarantee may be made from."""

    n0: int = 100
    n: int = 100_000
    alpha: float = 0.001
    stop_abstaining: bool = False
    radii: tuple[float, ...] = ()
    tolerance: float | None = None
    min_gain: float | None = None
    max_draws: int | None = None
    foresight: float | None = None

    def given(self) -> list[str]:
        """The options of single modes that were given."""
        found = []
        for name in MODE_OF_OPTION:
            value = getattr(self, name)
            # By identity: the number 0 is a value, as in --foresight 0.
            absent = value is None or value is False or value == ()
            if not absent:
                found.append(name)
        return found


MODE_OF_OPTION: Mapping[str, str] = {
    "radii": "anytime",
    "tolerance": "anytime",
    "min_gain": "anytime",
    "max_draws": "anytime",
    "foresight": "anytime",
    "stop_abstaining": "exact",
}
"""Options that only one of our own modes takes."""


@dataclass(frozen=True, kw_only=True)
class Guarantee(ABC):
    """A promise that each certificate is wrong with chance at most alpha.

    Fields are recorded in certificate files.
    """

    mode: ClassVar[str]
    """Name in files and for `--mode`; `package.module:Class` for classes from outside."""

    holds_at_any_time: ClassVar[bool] = False
    """Whether drawing may stop or resume at any time; `--extend` and limits on time need that."""

    n0: int = 100
    """Draws that select the class."""

    alpha: float = 0.001
    """Chance that one certificate is wrong."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # The address lets any process find a class from outside that a file names.
        if "mode" not in vars(cls):
            cls.mode = address_of(cls)

    def __post_init__(self) -> None:
        plain_numbers(self)
        require_whole("n0", self.n0)
        require(self.n0 >= 1, f"n0 must be at least 1, got {self.n0}")
        require_alpha(self.alpha)

    @property
    @abstractmethod
    def max_draws(self) -> int:
        """The most estimation draws that an image gets."""

    @abstractmethod
    def lower_bound(self, votes: SelectedVotes) -> Floats:
        """Lower bounds on the selected class's probability; 0 where nothing may be claimed."""

    @abstractmethod
    def largest_radius(self, noise: Noise, *, sigma: float) -> float:
        """The largest radius that so many draws can certify: every curve drops to 0 there."""

    @abstractmethod
    def next_check(self, drawn: int, *, batch: int) -> int:
        """The number of draws after which an image that has `drawn` is checked next."""

    @abstractmethod
    def enough(self, votes: SelectedVotes, noise: Noise, *, sigma: float) -> Bools:
        """Which images have had enough draws."""

    @property
    def description(self) -> str:
        """What reports call it."""
        return f"{self.mode}, n {self.max_draws:,}"

    @property
    def radii(self) -> tuple[float, ...]:
        """The radii that it was asked about, if drawing depends on them."""
        return ()

    def require_reach(self, noise: Noise, *, sigma: float, wanted: float = 0.0) -> None:
        """Refuse draws that can never certify the radius `wanted`; for 0, that certify nothing."""
        reach = self.largest_radius(noise, sigma=sigma)
        possible = reach > 0 and wanted <= reach
        require(
            possible,
            f"{self.max_draws:,} draws in mode {self.mode} can never certify "
            f"{_goal(wanted, sigma)}: {reach:.3f} is the largest radius they can; draw more",
        )

    def draws_problem(self, drawn: int) -> str:
        """Why a row cannot have this number of draws; empty where it can."""
        if drawn == self.max_draws:
            return ""
        return f"has n={drawn} draws, not {self.max_draws}"

    def in_whole_batches(self, batch: int) -> Self:
        """The same guarantee, with draws that fill whole batches where that matters."""
        return self

    def extension_problem(self, earlier: Guarantee) -> str:
        """Why images of a file of the guarantee `earlier` cannot be drawn further; empty if so."""
        if not earlier.holds_at_any_time:
            return (
                "was made with a fixed number of draws, and checking the result before drawing "
                "more is not the test that its guarantee rests on; certify again with another "
                "--out and --mode anytime"
            )
        if type(self) is not type(earlier):
            return f"was made with another guarantee: {earlier.description}, not {self.description}"
        if self.max_draws < earlier.max_draws:
            return (
                f"allows {earlier.max_draws:,} draws per image: extending it takes at least as "
                f"many, not {self.max_draws:,}"
            )
        return ""

    def differences(self, other: Guarantee) -> list[Difference]:
        """The settings in which two guarantees differ."""
        found = []
        names = [field.name for field in fields(self)]
        if type(self) is not type(other):
            found.append(Difference(GUARANTEE, self.description, other.description))
            names = ["n0", "alpha"]
        for name in names:
            mine = getattr(self, name)
            theirs = getattr(other, name)
            if mine == theirs:
                continue
            if name == "stopping":
                found.append(Difference(GUARANTEE, self.description, other.description))
            else:
                found.append(Difference(name, mine, theirs))
        return found

    def options(self) -> dict[str, object]:
        """The options of `smoothmix certify` that ask for this guarantee."""
        found: dict[str, object] = {"mode": self.mode}
        for name in ("n0", "n", "alpha"):
            if name in _field_names(type(self)):
                found[name] = getattr(self, name)
        return found

    @classmethod
    def from_options(cls, options: GuaranteeOptions) -> Self:
        """The guarantee that these options ask for; options of another mode are refused."""
        names = _field_names(cls)
        foreign = [name for name in options.given() if name not in names]
        if foreign:
            raise foreign_options(foreign, mode=MODE_OF_OPTION[foreign[0]])
        values = {}
        for name in names:
            if hasattr(options, name):
                values[name] = getattr(options, name)
        try:
            return cls(**values)
        except TypeError as error:
            # A class from outside may have fields that no option gives.
            raise UsageError(f"--mode {cls.mode} cannot be made from options ({error})") from error


@final
@dataclass(frozen=True)
class FixedDraws(Guarantee):
    """Exactly n draws per image, and the bound of Clopper and Pearson: mode `exact`.

    >>> FixedDraws(1_000).description
    'exact, n 1,000'
    """

    mode: ClassVar[str] = "exact"

    n: int = 100_000
    """Fresh draws that estimate the class's probability."""

    stop_abstaining: bool = False
    """Stop drawing for an image once no outcome of the draws left can prevent abstention."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("n", self.n)
        require(self.n >= 1, f"n must be at least 1, got {self.n}")

    @property
    def max_draws(self) -> int:
        return self.n

    def lower_bound(self, votes: SelectedVotes) -> Floats:
        bounds = lower_bound(votes.votes, votes.draws, alpha=self.alpha)
        # Drawing stopped early because abstention was certain. Where it ended depends on the votes,
        # so nothing else follows from them, whatever alpha they are read at.
        return np.where(votes.draws < self.n, 0.0, bounds)

    def largest_radius(self, noise: Noise, *, sigma: float) -> float:
        """The radius that n equal votes certify.

        >>> from smoothmix.noise import GAUSSIAN
        >>> round(FixedDraws(100_000, alpha=0.001).largest_radius(GAUSSIAN, sigma=1.0), 4)
        3.8115
        """
        remainder = smallest_remainder(self.n, alpha=self.alpha)
        nearest = -float(noise.signed_radius(remainder, sigma=sigma))
        # Rounding must not put it below a radius that votes can certify.
        return max(0.0, nearest * (1 + noise.relative_error))

    def draws_for(self, wanted: float, noise: Noise, *, sigma: float) -> int:
        """The least n that can certify the radius `wanted`; for 0, that can certify anything.

        >>> from smoothmix.noise import GAUSSIAN
        >>> FixedDraws(alpha=0.001).draws_for(0.0, GAUSSIAN, sigma=0.5)
        10
        """
        sensible = math.isfinite(wanted) and wanted >= 0
        require(sensible, f"a radius must be zero or more, got {wanted}")
        remainder = float(noise.probability(-wanted, sigma=sigma))
        draws = draws_for(remainder, alpha=self.alpha)
        require(
            math.isfinite(draws),
            f"no number of draws certifies radius {wanted:g} at sigma {sigma:g} in floating point",
        )
        return int(draws)

    def require_reach(self, noise: Noise, *, sigma: float, wanted: float = 0.0) -> None:
        least = self.draws_for(wanted, noise, sigma=sigma)
        require(
            self.n >= least,
            f"n={self.n} draws at alpha={self.alpha:g} can never certify {_goal(wanted, sigma)}: "
            f"it takes n={_readable(least)} or more, even if every vote agrees",
        )

    def next_check(self, drawn: int, *, batch: int) -> int:
        step = self._draws_between_checks(batch)
        return min(self.n, step * (drawn // step + 1))

    def _draws_between_checks(self, batch: int) -> int:
        if not self.stop_abstaining:
            return self.n
        batches = math.ceil(self.n / (CHECKS * batch))
        return batch * max(1, batches)

    def enough(self, votes: SelectedVotes, noise: Noise, *, sigma: float) -> Bools:
        spent = np.asarray(votes.draws >= self.n)
        if not self.stop_abstaining:
            return spent
        return spent | abstention_is_certain(
            votes.votes, np.minimum(votes.draws, self.n), planned=self.n, alpha=self.alpha
        )

    def draws_problem(self, drawn: int) -> str:
        # A row that stopped early claims nothing: it is enough that it was allowed to stop.
        stopped_early = self.stop_abstaining and 0 < drawn < self.n
        if stopped_early:
            return ""
        return super().draws_problem(drawn)

    def options(self) -> dict[str, object]:
        found: dict[str, object] = {"n0": self.n0, "n": self.n, "alpha": self.alpha}
        if self.stop_abstaining:
            found["stop_abstaining"] = True
        return found


@final
@dataclass(frozen=True)
class Anytime(Guarantee):
    """Draws until the rules for stopping are met, and a bound that holds at all times: `anytime`.

    >>> Anytime(Stopping(radii=(0.25, 0.5))).description
    'anytime, radii 0.25, 0.5 decided and at most 100,000 draws'
    """

    mode: ClassVar[str] = "anytime"
    holds_at_any_time: ClassVar[bool] = True

    stopping: Stopping
    """When an image has had enough draws. The rules cost power, never validity."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # Files would record it, and nobody could tell how much of it was left.
        require(
            self.stopping.seconds is None,
            "seconds is the time of one call, and no part of a guarantee: give it to "
            "Smoothed.certify",
        )

    @property
    def max_draws(self) -> int:
        return self.stopping.max_draws

    @property
    def description(self) -> str:
        """What reports call it."""
        rules = []
        if self.stopping.radii:
            radii = ", ".join(f"{radius:g}" for radius in self.stopping.radii)
            rules.append(f"radii {radii} decided")
        if self.stopping.tolerance is not None:
            rules.append(f"the radius within {self.stopping.tolerance:g}")
        if self.stopping.min_gain is not None:
            rules.append(f"{self.stopping.min_gain:g} or more radius per 1,000 draws")
        rules.append(f"at most {self.max_draws:,} draws")
        words = f"{self.mode}, {' and '.join(rules)}"
        if self.stopping.foresight > 0:
            words += f", foresight {self.stopping.foresight:g}"
        return words

    @property
    def radii(self) -> tuple[float, ...]:
        """The radii that drawing decides."""
        return self.stopping.radii

    def lower_bound(self, votes: SelectedVotes) -> Floats:
        return anytime.lower_bound(
            votes.votes,
            votes.draws,
            k0=votes.selection_votes,
            n0=votes.selection_draws,
            alpha=self.alpha,
        )

    def largest_radius(self, noise: Noise, *, sigma: float) -> float:
        best = anytime.lower_bound(
            self.max_draws, self.max_draws, k0=self.n0, n0=self.n0, alpha=self.alpha
        )
        return float(noise.radius(best, sigma=sigma))

    def require_reach(self, noise: Noise, *, sigma: float, wanted: float = 0.0) -> None:
        # A fixed number certifies more: what it cannot reach is refused with the n it takes.
        fixed = FixedDraws(self.max_draws, n0=self.n0, alpha=self.alpha)
        fixed.require_reach(noise, sigma=sigma, wanted=wanted)
        reach = self.largest_radius(noise, sigma=sigma)
        require(reach > 0, f"{self.max_draws:,} draws can never certify anything in mode anytime")
        require(
            wanted <= reach,
            f"{self.max_draws:,} draws in mode anytime can never certify the radius {wanted:g}: "
            f"{reach:.3f} is the largest they can; give a larger --max-draws",
        )

    def next_check(self, drawn: int, *, batch: int) -> int:
        return anytime.next_total(drawn, batch=batch, max_draws=self.max_draws)

    def enough(self, votes: SelectedVotes, noise: Noise, *, sigma: float) -> Bools:
        return anytime.decided(
            votes.votes,
            votes.draws,
            k0=votes.selection_votes,
            n0=votes.selection_draws,
            alpha=self.alpha,
            sigma=sigma,
            stopping=self.stopping,
            noise=noise,
        )

    def draws_problem(self, drawn: int) -> str:
        # Any positive number is allowed: an image may also stop for lack of time.
        if drawn == 0:
            return "has no draws"
        return ""

    def in_whole_batches(self, batch: int) -> Self:
        # An image that is drawn further later then sees the same batches as one that never stopped.
        draws = batch * math.ceil(self.max_draws / batch)
        return replace(self, stopping=replace(self.stopping, max_draws=draws))

    def options(self) -> dict[str, object]:
        found: dict[str, object] = {
            "mode": self.mode,
            "n0": self.n0,
            "alpha": self.alpha,
            "max_draws": self.max_draws,
        }
        if self.stopping.radii:
            found["radii"] = ",".join(map(_exactly, self.stopping.radii))
        if self.stopping.tolerance is not None:
            found["tolerance"] = self.stopping.tolerance
        if self.stopping.min_gain is not None:
            found["min_gain"] = self.stopping.min_gain
        if self.stopping.can_foresee:
            found["foresight"] = self.stopping.foresight
        return found

    @classmethod
    def from_options(cls, options: GuaranteeOptions) -> Self:
        require(
            not options.stop_abstaining,
            "--stop-abstaining goes with --mode exact: anytime has --radii 0 for that",
        )
        max_draws = options.n
        if options.max_draws is not None:
            max_draws = options.max_draws
        stopping = Stopping(
            radii=options.radii,
            tolerance=options.tolerance,
            min_gain=options.min_gain,
            max_draws=max_draws,
        )
        foresight = options.foresight
        if foresight is None:
            # Without such rules there is nothing to foresee.
            foresight = FORESIGHT if stopping.can_foresee else 0.0
        require(
            stopping.can_foresee or foresight == 0,
            "--foresight goes with --radii or --tolerance: it foresees what they ask for",
        )
        stopping = replace(stopping, foresight=foresight)
        return cls(stopping, n0=options.n0, alpha=options.alpha)


GUARANTEES: ClassRegistry[Guarantee] = ClassRegistry(
    "guarantee",
    Guarantee,
    group="smoothmix.guarantees",
    own={
        "exact": FixedDraws,
        "anytime": Anytime,
    },
)
"""Every guarantee by its mode; others by entry point or by `package.module:Class`."""


def foreign_options(names: Sequence[str], *, mode: str) -> UsageError:
    """The error for options that belong to another mode than the one asked for."""
    flags = " and ".join(f"--{name.replace('_', '-')}" for name in names)
    verb = "goes" if len(names) == 1 else "go"
    return UsageError(f"{flags} {verb} with --mode {mode}")


def _field_names(cls: type[Guarantee]) -> list[str]:
    return [field.name for field in fields(cls)]


def _goal(wanted: float, sigma: float) -> str:
    if wanted > 0:
        return f"the radius {wanted:g} at sigma {sigma:g}"
    return "anything"


def _exactly(number: float) -> str:
    """A short text that reads as this very number.

    >>> _exactly(0.5), _exactly(1 / 3)
    ('0.5', '0.3333333333333333')
    """
    short = f"{number:g}"
    if float(short) == number:
        return short
    return repr(number)


def _readable(number: int) -> str:
    """A whole number, rounded where nobody would read all its digits.

    >>> _readable(123456), _readable(10**72)
    ('123456', '1e+72')
    """
    if number < 10**12:
        return str(number)
    return f"{number:.1g}"

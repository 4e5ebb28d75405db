"""The command `presets`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from smoothmix._io.text import counted
from smoothmix.cli.options import FLAT
from smoothmix.cli.output import show_document, table
from smoothmix.config import require
from smoothmix.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class PresetFilters:
    """Which presets to list."""

    data: str | None = None
    """Only those of this data set."""

    sigma: float | None = None
    """Only those of this noise."""

    method: str | None = None
    """Only those of this training method."""

    @property
    def given(self) -> dict[str, object]:
        """The filters that have a value, by option."""
        options = {"--data": self.data, "--sigma": self.sigma, "--method": self.method}
        return {option: value for option, value in options.items() if value is not None}


NO_FILTERS = PresetFilters()


def presets(
    name: str | None = None, /, *, filters: Annotated[PresetFilters, FLAT] = NO_FILTERS
) -> None:
    """List the paper's rows and the quick ones, or show one as TOML.

    Parameters
    ----------
    name
        One preset, the beginning of some (`mnist/1.00`), or a pattern (`*/smoothmix*`).
    """
    from smoothmix import presets as library

    if name is not None:
        name = library.spelled(name)
    if name in library.names():
        options = " and ".join(filters.given)
        require(not filters.given, f"{name} is one preset: leave out {options}")
    matching = library.names(
        name or "*", data=filters.data, sigma=filters.sigma, method=filters.method
    )
    if name is not None and _means_one(name, matching):
        show_document(library.to_toml(library.get(name)))
        return
    if not matching:
        words = [name or ""]
        for option, value in filters.given.items():
            words.append(f"{option} {value}")
        raise UsageError(f"no preset fits {' '.join(words).strip()}")
    _show_list(matching)


def _means_one(name: str, matching: list[str]) -> bool:
    """Whether a name is meant as that of one preset, known or not."""
    is_pattern = any(sign in name for sign in "*?[")
    # An unknown name is handed on as well: the error then suggests the nearest names.
    return matching == [name] or not (is_pattern or matching)


def _show_list(names: list[str]) -> None:
    from smoothmix import presets as library

    rows = []
    for name in names:
        preset = library.get(name)
        acr = ""
        if preset.published is not None:
            acr = f"{preset.published.acr:.3f}"
        rows.append((name, str(preset.config.recipe.epochs), acr, preset.about))
    table(counted(len(rows), "preset"), ("preset", "epochs", "published ACR", "about"), rows)

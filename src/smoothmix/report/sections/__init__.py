"""The sections of the page, one module each, and the registry that finds them by name. No torch.

A section is a function that takes a `Comparison` and returns a `Section`, or None where there is
nothing to show. `smoothmix report --section package.module:function` adds one from anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from smoothmix.errors import UsageError
from smoothmix.registry import Registry
from smoothmix.report.comparison import Comparison
from smoothmix.report.section import Section
from smoothmix.report.sections.attacks import attacks
from smoothmix.report.sections.confidence import confidence
from smoothmix.report.sections.curves import curves
from smoothmix.report.sections.draws import draws
from smoothmix.report.sections.gains import gains
from smoothmix.report.sections.gallery import gallery
from smoothmix.report.sections.radii import radii
from smoothmix.report.sections.reading import reading
from smoothmix.report.sections.settings import settings
from smoothmix.report.sections.studies import read_section, read_sections
from smoothmix.report.sections.summary import summary
from smoothmix.report.sections.training import training

MakeSection = Callable[[Comparison], Section | None]


class SectionRegistry(Registry[MakeSection]):
    """The functions that make sections, by name."""

    calls_values = True

    def adopt(self, name: str, value: object) -> MakeSection:
        """A function from outside, which must return a `Section`."""
        # Anything else would fail only when the page is made, after minutes of reading.
        if not callable(value):
            raise UsageError(f"the section {name} is no function")

        def checked(comparison: Comparison) -> Section | None:
            section = value(comparison)
            if section is not None and not isinstance(section, Section):
                kind = type(section).__name__
                raise UsageError(
                    f"the section {name} returned a {kind}, not a smoothmix.report.Section"
                )
            return section

        return checked


RESULTS: dict[str, MakeSection] = {
    "summary": summary,
    "curves": curves,
    "confidence": confidence,
    "radii": radii,
    "draws": draws,
    "gains": gains,
    "attacks": attacks,
    "gallery": gallery,
    "training": training,
}
"""The first sections of every page, in their order. A new one of ours needs a line here."""

APPENDIX: dict[str, MakeSection] = {"settings": settings, "reading": reading}
"""The last sections. Requested ones and studies stand between the two groups."""

SECTIONS = SectionRegistry("section", group="smoothmix.sections", own={**RESULTS, **APPENDIX})


def make_sections(
    comparison: Comparison, *, requested: Sequence[str] = (), studies: Sequence[Section] = ()
) -> list[Section]:
    """The sections of a page in their order, without those that have nothing to show."""
    # A standard section that is requested by name is there already.
    extra = [name for name in requested if name not in (*RESULTS, *APPENDIX)]
    return [
        *_made(comparison, RESULTS),
        *_made(comparison, extra),
        *studies,
        *_made(comparison, APPENDIX),
    ]


def _made(comparison: Comparison, names: Iterable[str]) -> Iterator[Section]:
    for name in names:
        section = SECTIONS[name](comparison)
        if section is not None:
            yield section


__all__ = [
    "SECTIONS",
    "MakeSection",
    "make_sections",
    "read_section",
    "read_sections",
]

"""The pages of the documentation: links, file names and long lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.test_surface import LEVELS

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
LONGEST_LINE = 120
PACKAGE = ROOT / "src" / "smoothmix"


def page_id(page: Path) -> str:
    return page.name


def without_code(page: Path) -> str:
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", without_code(page), flags=re.MULTILINE)
    found = set()
    for heading in headings:
        plain = re.sub(r"[^\w\- ]", "", heading.lower())
        found.add(plain.replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", without_code(page)):
        if link.startswith("https://"):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_lines_of_prose_fit_on_a_screen(page: Path) -> None:
    for line in without_code(page).splitlines():
        if not line.startswith("|"):
            assert len(line) <= LONGEST_LINE, line


def test_the_map_names_files_that_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    files = set(re.findall(r"`((?:\w+/)*\w+\.py|(?:\w+/)+)`", text))
    assert len(files) > 40
    for name in files:
        assert (PACKAGE / name).exists() or (ROOT / name).exists(), name


def test_the_map_names_every_package() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    for folder in PACKAGE.iterdir():
        if (folder / "__init__.py").exists():
            assert re.search(rf"^  {folder.name}/ ", text, flags=re.MULTILINE), folder.name


def test_the_map_shows_the_levels_of_imports() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    levels = "\n".join(", ".join(names) for names in LEVELS)
    assert f"```\n{levels}\n```" in text


def test_every_promise_of_security_names_tests_that_exist() -> None:
    text = (ROOT / "docs" / "security.md").read_text()
    _, _, table = text.partition("## Promises and their tests")
    promises = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(promises) > 10
    for promise in promises:
        named = re.findall(r"`(tests/[\w/]+(?:\.py)?)`", promise)
        assert named, promise
        for name in named:
            assert (ROOT / name).exists(), name

"""The section that sets attacks beside certificates: curves, points, and what would be a defect."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from smoothmix._io.toml import to_toml
from smoothmix.analysis import measure
from smoothmix.certificates import Attack, AttackSettings, Certificates, SearchSettings, read
from smoothmix.certificates.attack_file import HEADER, attack_line
from smoothmix.report import Comparison, Section, compare_runs, make_page, render
from smoothmix.report.sections.attacks import attacks
from tests.conftest import Run
from tests.helpers.certificates import our_file


def certified(folder: Path) -> Certificates:
    """A certificate file with some radii above 0."""
    folder.mkdir()
    return read(our_file(folder / "certificates.tsv", [990, 900, 700, 510, 300, 1000]))


def put_attacks(file: Certificates, *, factor: float, **changed: object) -> None:
    """Attacks that found an example at `factor` times each certified radius."""
    settings = file.settings
    assert settings is not None
    recorded = AttackSettings(
        search=SearchSettings(),
        model=settings.model,
        model_hash=settings.model_hash,
        data=settings.data,
        split=settings.split,
        data_hash=settings.data_hash,
        num_classes=settings.num_classes,
        sigma=settings.certification.sigma,
        noise=settings.certification.noise.name,
        levels=settings.certification.levels or 0,
    )
    recorded = replace(recorded, **changed)  # type: ignore[arg-type]
    lines = [HEADER]
    for row in file.rows:
        before = row.predict if row.predict >= 0 else row.label
        attack = Attack(
            idx=row.idx,
            label=row.label,
            before=before,
            adversarial=(before + 1) % settings.num_classes,
            distance=round(factor * max(row.radius, 0.1), 6),
            votes={before: 1, (before + 1) % settings.num_classes: 99},
            draws=100,
            seconds=0.5,
        )
        lines.append(attack_line(attack))
    (file.path.parent / "attacks.tsv").write_text("".join(lines))
    (file.path.parent / "attacks.toml").write_text(to_toml(recorded))


def comparison_of(*files: Certificates) -> Comparison:
    return compare_runs([measure(str(file.path)) for file in files], title="attacks")


def section_of(*files: Certificates) -> Section:
    section = attacks(comparison_of(*files))
    assert section is not None
    return section


def test_without_attacks_there_is_no_section(tmp_path: Path) -> None:
    assert attacks(comparison_of(certified(tmp_path / "run"))) is None


def test_the_empirical_curve_lies_above_the_certified_one(tmp_path: Path) -> None:
    file = certified(tmp_path / "run")
    put_attacks(file, factor=1.5)
    section = section_of(file)
    certified_curve, empirical_curve = section.charts[0].traces
    assert all(low <= high for low, high in zip(certified_curve.y, empirical_curve.y, strict=True))
    assert list(certified_curve.y) != list(empirical_curve.y)
    # Every point lies above the line where distance equals radius.
    points = section.charts[1].traces[0]
    assert len(points.x) == len(file.rows)
    assert all(y > x for x, y in zip(points.x, points.y, strict=True))
    summary = section.tables[0].grid
    assert summary.keys[4] == "inside"
    assert summary.rows[0].cells[4].value == 0


def test_examples_inside_a_certified_radius_are_counted_and_shown(tmp_path: Path) -> None:
    file = certified(tmp_path / "run")
    put_attacks(file, factor=0.5)
    # By the definition itself: a radius that is larger than the distance, and another class.
    expected = 0
    for row in file.rows:
        expected += row.predict >= 0 and row.radius > 0.5 * max(row.radius, 0.1)
    assert expected > 0
    tables = section_of(file).tables
    assert tables[0].grid.rows[0].cells[4].value == expected
    assert tables[2].grid.title == "Adversarial examples inside a certified radius"
    assert len(tables[2].grid.rows) == expected


@pytest.mark.parametrize(
    "other",
    [{"model_hash": "0" * 64}, {"sigma": 9.0}, {"split": "train"}, {"precision": "bf16"}],
)
def test_attacks_on_another_classifier_are_not_shown(
    other: dict[str, object], tmp_path: Path
) -> None:
    file = certified(tmp_path / "run")
    put_attacks(file, factor=1.5, **other)
    assert attacks(comparison_of(file)) is None


def test_the_page_tells_which_runs_were_not_attacked(tmp_path: Path) -> None:
    first = certified(tmp_path / "run")
    second = certified(tmp_path / "other")
    put_attacks(first, factor=1.5)
    comparison = comparison_of(first, second)
    section = attacks(comparison)
    assert section is not None
    assert [entry.remark for entry in section.legend] == ["", "not attacked"]
    many = [certified(tmp_path / f"other {number}") for number in range(4)]
    section = section_of(*many, first)
    assert [(entry.run, entry.remark) for entry in section.legend] == [(4, "")]
    assert section.text.endswith("4 other models were not attacked.")
    page = render(make_page(comparison))
    assert "Certificates beside attacks" in page
    assert "allowed by alpha" in page


def test_the_report_of_a_folder_finds_its_attacks(tmp_path: Path, smoothmix: Run) -> None:
    put_attacks(certified(tmp_path / "run"), factor=1.5)
    done = smoothmix("report", "run", "--out", "page.html")
    assert done.code == 0, done.err
    assert "Certificates beside attacks" in (tmp_path / "page.html").read_text()

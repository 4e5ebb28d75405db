"""What an outside user does: the files of docs/extending.md in a folder, and the commands on them.

Every command is a process of its own, which knows the package only as it is installed.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "extending.md").read_text()
GROUPS = {"methods", "networks", "data", "noises", "guarantees", "sections"}


def written_files() -> dict[str, str]:
    """The files of the page by name."""
    blocks = re.findall(r'```python title="(\S+)"\n(.*?)```', PAGE, flags=re.DOTALL)
    assert len(blocks) == len(GROUPS)
    return dict(blocks)


def page_commands() -> list[list[str]]:
    """The commands of the page, without the word smoothmix."""
    whole_lines = re.sub(r"\\\n\s*", "", PAGE)
    lines = re.findall(r"^smoothmix (.*)$", whole_lines, flags=re.MULTILINE)
    return [shlex.split(line) for line in lines]


def toml_block(name: str) -> str:
    """The TOML file of that name on the page."""
    (block,) = re.findall(rf'```toml title="{name}"\n(.*?)```', PAGE, flags=re.DOTALL)
    return str(block)


def entry_points() -> dict[str, dict[str, str]]:
    """The entry points of the page by group."""
    project = tomllib.loads(toml_block("pyproject.toml"))["project"]
    groups: dict[str, dict[str, str]] = project["entry-points"]
    assert groups.keys() == {f"smoothmix.{name}" for name in GROUPS}
    return groups


def write_files(folder: Path) -> None:
    for name, text in written_files().items():
        (folder / name).write_text(text)
    (folder / "mine.toml").write_text(toml_block("mine.toml"))


def run_command(words: list[str], folder: Path, environment: Mapping[str, str]) -> str:
    """Run a command in a process of its own; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "smoothmix", *words],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def by_address(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which all commands of the page were run, in order."""
    folder = tmp_path_factory.mktemp("by_address")
    write_files(folder)
    commands = page_commands()
    assert [words[0] for words in commands] == [
        "train", "train", "certify", "certificates", "report",
    ]  # fmt: skip
    for words in commands:
        run_command(words, folder, {})
    return folder


def test_the_run_records_method_network_and_data_set(by_address: Path) -> None:
    config = tomllib.loads((by_address / "runs/mine/config.toml").read_text())
    assert config["data"] == "stripes:STRIPES"
    assert config["network"] == "tiny_network:tiny_network"
    assert config["method"]["name"] == "label_smoothing:LabelSmoothing"
    assert config["method"]["amount"] == 0.2


def test_settings_from_a_file_are_those_of_the_options(by_address: Path) -> None:
    weights = "checkpoint/weights.safetensors"
    from_options = (by_address / "runs/mine" / weights).read_bytes()
    assert (by_address / "runs/again" / weights).read_bytes() == from_options


def test_the_certificates_record_noise_and_guarantee(by_address: Path) -> None:
    settings = (by_address / "runs/mine/certificates.toml").read_text()
    assert "logistic_noise:LogisticNoise" in settings
    assert "hoeffding:Hoeffding" in settings
    rows = (by_address / "runs/mine/certificates.tsv").read_text().splitlines()
    assert len(rows) == 1 + 20


def test_the_page_has_the_section(by_address: Path) -> None:
    assert "Quartiles of the certified radius" in (by_address / "report.html").read_text()


def test_a_bound_that_claims_too_much_is_found(by_address: Path) -> None:
    """The file is verified by the outside class, not by a bound of the package."""
    weaker = (by_address / "hoeffding.py").read_text().replace("/ (2 * self.n)", "/ self.n")
    changed = by_address / "changed"
    changed.mkdir()
    (changed / "logistic_noise.py").write_text((by_address / "logistic_noise.py").read_text())
    (changed / "hoeffding.py").write_text(weaker)
    with pytest.raises(AssertionError, match="radius"):
        run_command(
            [
                "certificates",
                "verify",
                str(by_address / "runs/mine/certificates.tsv"),
                "--import=logistic_noise,hoeffding",
            ],
            changed,
            {},
        )


def test_components_of_an_installed_package_have_names(tmp_path: Path) -> None:
    """The same commands with names: the package is installed, and the folder is another one."""
    site = tmp_path / "site"
    site.mkdir()
    write_files(site)
    install(site, entry_points())
    names = {}
    for group in entry_points().values():
        names.update({address: name for name, address in group.items()})

    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for words in page_commands():
        # The settings file of the page holds addresses.
        if "--config" in words:
            continue
        named = [names.get(word, word) for word in words]
        run_command(named, folder, {"PYTHONPATH": str(site)})
    config = tomllib.loads((folder / "runs/mine/config.toml").read_text())
    assert (config["data"], config["network"]) == ("stripes", "tiny")
    assert config["method"]["name"] == "label-smoothing"
    assert "Quartiles of the certified radius" in (folder / "report.html").read_text()
    assert "stripes" in run_command(["data", "list"], folder, {"PYTHONPATH": str(site)})


def install(site: Path, groups: Mapping[str, Mapping[str, str]]) -> None:
    """Write the metadata that an installer writes for a package with these entry points."""
    metadata = site / "outside-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    lines = []
    for group, entries in groups.items():
        lines.append(f"[{group}]")
        lines += [f"{name} = {address}" for name, address in entries.items()]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")

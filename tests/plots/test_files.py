"""Files of figures: they open, and are the same whenever they are made."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from PIL import Image

from smoothmix import plots
from smoothmix.errors import UsageError
from smoothmix.plots import style
from tests.helpers.plots import log, run


class TestFiles:
    @pytest.mark.parametrize("suffix", plots.FORMATS)
    def test_files_are_valid_and_the_same_each_time(self, suffix: str, tmp_path: Path) -> None:
        figure = plots.certified_accuracy([run()])
        for name, drawn in (
            ("a", figure),
            ("again", figure),
            ("again", plots.certified_accuracy([run()])),
        ):
            plots.save(drawn, tmp_path / "folder" / f"{name}{suffix}")
        first, *others = (path.read_bytes() for path in sorted((tmp_path / "folder").iterdir()))
        assert all(other == first for other in others)
        path = tmp_path / "folder" / f"a{suffix}"
        if suffix == ".png":
            with Image.open(path) as image:
                assert image.size == tuple(
                    int(inches * style.DPI) for inches in figure.get_size_inches()
                )
                assert not image.text  # type: ignore[attr-defined]
        elif suffix == ".pdf":
            assert first.startswith(b"%PDF")
            assert b"/FontFile2" in first
            assert not re.search(rb"/(CreationDate|ModDate|Producer|Type3)", first)
        else:
            assert ET.fromstring(first).tag.endswith("svg")
            assert b"date" not in first

    @pytest.mark.parametrize("name", ["figure.gif", "figure", "figure.pdf.gz"])
    def test_other_formats_are_refused(self, name: str, tmp_path: Path) -> None:
        figure = plots.certified_accuracy([run()])
        with pytest.raises(UsageError, match=r"\.pdf, \.png, \.svg"):
            plots.save(figure, tmp_path / name)
        assert not list(tmp_path.iterdir())

    def test_a_failure_leaves_the_old_file(self, tmp_path: Path) -> None:
        path = tmp_path / "figure.png"
        path.write_text("old")
        figure = plots.certified_accuracy([run()])
        figure.axes[0].text(0, 0, "$\\nonsense{$", parse_math=True)
        with pytest.raises(ValueError, match="nonsense"):
            plots.save(figure, path)
        assert [p.name for p in tmp_path.iterdir()] == ["figure.png"]
        assert path.read_text() == "old"

    def test_all_that_there_is_to_show_is_written(self, tmp_path: Path) -> None:
        written = plots.save_all([run("a"), run("b", seed=1)], tmp_path, "PNG")
        assert written == [tmp_path / f"{name}.png" for name in plots.FIGURES]
        assert all(path.stat().st_size > 1000 for path in written)

    def test_logs_have_no_training_to_show(self, tmp_path: Path) -> None:
        written = plots.save_all([log([0.5, 1.5], sigma=0.5)], tmp_path / "new", "svg")
        assert [path.stem for path in written] == [
            name for name in plots.FIGURES if name != "training"
        ]

    def test_nothing_is_written_in_a_format_that_is_unknown(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="gif"):
            plots.save_all([run()], tmp_path, "gif")
        assert not list(tmp_path.iterdir())

    def test_another_process_writes_the_same_and_imports_neither_pyplot_nor_torch(
        self, tmp_path: Path
    ) -> None:
        script = f"""
import sys
from pathlib import Path
from smoothmix import plots
from smoothmix.analysis import from_file
from smoothmix.analysis.sources import Source
from smoothmix.certificates import Certificate
from smoothmix.certificates.file import Certificates
rows = tuple(
    Certificate(idx=i, label=1, predict=1, radius=r, correct=True) for i, r in enumerate([0.5, 1.5])
)
log = from_file(Certificates(Path("log"), rows), name="log", source=Source(path="log", sigma=0.5))
plots.save_all([log], Path({str(tmp_path)!r}), "pdf")
print(*sys.modules)
"""
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": "12345"},
        )
        assert not {"torch", "matplotlib.pyplot"} & set(done.stdout.split())
        for path in plots.save_all([log([0.5, 1.5], sigma=0.5)], tmp_path / "here", "pdf"):
            there = hashlib.sha256((tmp_path / path.name).read_bytes()).hexdigest()
            assert hashlib.sha256(path.read_bytes()).hexdigest() == there, path.name

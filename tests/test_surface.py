"""The surface: public names, what importing costs, and that every command answers for itself."""

from __future__ import annotations

import ast
import graphlib
import importlib
import inspect
import re
import shlex
import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_type_hints

import docstring_parser
import pytest

import smoothmix
from smoothmix import __version__
from smoothmix.cli import app, trust_named_modules
from smoothmix.methods import METHODS
from smoothmix.runs.plan import OWN_OPTIONS
from tests.conftest import ROOT, Run

PACKAGE = ROOT / "src" / "smoothmix"
MODULES = sorted(PACKAGE.rglob("*.py"))

LEVELS = (
    ("errors", "version", "registry", "_io", "_process", "config", "noise"),
    ("data", "stats", "presets", "certificates", "tables", "runs.folder", "runs.zoo"),
    ("networks.registry", "methods.registry", "methods.log_folders"),
    ("runs.options", "runs.schedule", "runs.fine_tuning", "runs.plan"),
    ("analysis", "plots", "report"),
    ("networks", "runs", "models", "_io.untrusted"),
    ("attacks", "inference"),
    ("methods",),
    ("certify", "training"),
    ("integrations", "studies", "reproduce", "serve"),
    ("cli", "__main__"),
)
"""Imports point one way: a module imports from its own level and from those above it here."""

TORCH_FREE_LEVELS = 5
"""The first levels never import torch."""

ALSO_TORCH_FREE = ("cli", "reproduce.jobs", "reproduce.table", "reproduce.logs")

LAZY_EXCEPTIONS: dict[tuple[str, str], str] = {
    ("methods.registry", "methods.base"): "to check a class from outside, which needs torch anyway",
}
"""Imports within functions that point the other way, each with its reason."""


def module_name(path: Path) -> str:
    """The name of a module within the package; that of the package itself is empty."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


NAMES = {module_name(path) for path in MODULES}


def level(name: str) -> int:
    """The level of a module: that of its own name, or of the nearest package that has one."""
    while name:
        for number, names in enumerate(LEVELS):
            if name in names:
                return number
        name = name.rpartition(".")[0]
    raise AssertionError("no level")


def is_for_types(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING"


def imported_names(node: ast.AST) -> list[str]:
    """The modules of the package that an import statement names."""
    if isinstance(node, ast.Import):
        found = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        found = []
        for alias in node.names:
            submodule = f"{node.module}.{alias.name}"
            is_module = submodule.removeprefix("smoothmix.") in NAMES
            found.append(submodule if is_module else str(node.module))
    else:
        return []
    return [name.removeprefix("smoothmix.") for name in found if name.startswith("smoothmix.")]


def imports_of(path: Path) -> set[str]:
    """All modules of the package that a module imports, in functions and for types too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        found.update(imported_names(node))
    return found


def imports_when_loaded(path: Path) -> set[str]:
    """Those that are imported together with the module."""
    found: set[str] = set()
    for statement in ast.parse(path.read_text()).body:
        if not is_for_types(statement):
            found.update(imported_names(statement))
    return found


def imported_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after a statement."""
    script = (
        f"import sys; sys.argv = ['smoothmix', '--help']; {statement}\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in done.stderr.split()}


def test_imports_point_one_way() -> None:
    assert len(MODULES) > 100
    assert {name for names in LEVELS for name in names} <= NAMES, "a level of nothing"
    wrong = set()
    for path in MODULES:
        importer = module_name(path)
        # The package itself offers names of all levels, and loads them when they are used.
        if not importer:
            continue
        for imported in imports_of(path):
            if level(imported) > level(importer):
                wrong.add((importer, imported))
    assert wrong == LAZY_EXCEPTIONS.keys()


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = {module_name(path): imports_when_loaded(path) for path in MODULES}
    assert sum(map(len, graph.values())) > 200
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError


PUBLIC = {
    "analysis": (
        "Candidate Choice Estimate Measured ObservedVotes Seeds Source accuracy_bound "
        "average_certified_radius candidates certified_accuracy choice_grid choose radius_grid "
        "comparable_groups differences_by_image from_file lower_end mean means means_of measure "
        "on_common_images over_seeds paired_by_image paper_rounded parse_sources rounded_alike "
        "same_data same_images share share_at_least shared_images standard_deviation unique_names "
        "warnings_about what_differs"
    ),
    "attacks": (
        "Constraint Objective ball clamp_pixels ddn fast_gradients l2_ascent pgd project_l2 "
        "smoothed_cross_entropy unit_l2 unit_l2_or_random"
    ),
    "certificates": (
        "Attack AttackSettings Attacks COHEN_COLUMNS COLUMNS Certificate Certificates "
        "Certification FileSettings SearchSettings Selection Verification Writer dense "
        "export_cohen_log from_votes merge read read_attacks recompute save settings_path sparse "
        "verify writing"
    ),
    "certify": (
        "Certified Prediction Redraw Resident Smoothed TimeLimit attack_dataset certify_dataset "
        "extend_dataset predict_dataset redraw_dataset"
    ),
    "data": (
        "AUGMENTATION_NUMBERS DATASETS DataRequest DataSummary Dataset DownloadableSource "
        "FolderDataset LocalSource MemoryDataset Preparation Source SplitCheck check "
        "default_data_dir describe fetch known_shape load load_images match_classes match_shape "
        "renumbered"
    ),
    "integrations": "",
    "inference": ("PreparedNetwork Sampler engine_name keep_freed_memory prepare_network"),
    "methods": (
        "Batch Consistency Denoiser Gaussian Loss METHODS Macer Method MethodEntry "
        "SmoothAdv SmoothMix Stability make settings_of"
    ),
    "models": ("BlackBox LoadedModel OutsideModule load with_output"),
    "networks": (
        "Architecture DENOISERS Denoised Imported NETWORKS Network Normalise "
        "OneStepDiffusion build "
        "build_denoiser device_of eval_mode "
        "import_checkpoint load_weights noisy_accuracy noisy_forward noisy_logits save_weights "
        "state_hash"
    ),
    "noise": (
        "Domain DrawRange GAUSSIAN GRID GaussianNoise GridNoise LaplaceNoise NOISES Noise Noisy "
        "UniformNoise fresh_seed make_noise standard_normal stream"
    ),
    "plots": (
        "COLUMN_WIDTH FIGURES FORMATS FULL_WIDTH accuracy_against_acr certified_accuracy "
        "probabilities radius_histogram save save_all training"
    ),
    "presets": ("Preset Published get names spelled to_toml with_fidelity"),
    "report": (
        "Chart Choices Comparison LegendEntry Page RunView SECTIONS Section Table Trace "
        "compare_runs make_page paper_grid read_sections render summary_grid"
    ),
    "reproduce": (
        "Job PublishedComparison PublishedRun Reproduced certifications choose "
        "compare_with_published find_logs load_published make_jobs paper_skip reproduction_grid "
        "results rows_from_logs save_published"
    ),
    "runs": (
        "Overrides RunFolder RunOverrides TrainingOptions build_network load_run make_config "
        "run_name scale_epochs"
    ),
    "serve": ("Classifier ServeSettings Service make_app open_classifier run"),
    "stats": (
        "Anytime Budget FixedDraws GUARANTEES NOBODY Guarantee GuaranteeOptions SelectedVotes "
        "Stopping"
    ),
    "studies": (
        "Case ConfidenceStudy MixingStudy NamedClassifier PathStudy Results SavedReport "
        "SmoothedAttack Study StudyReport VoteSettings measure run_study save_report"
    ),
    "tables": (
        "Cell Column FORMATS Grid Row mark_best mark_improvements radius_text rounded to_csv "
        "to_json to_latex to_markdown"
    ),
    "training": ("EpochMetrics Listeners StepProgress Trainer open_run"),
}
"""The names that each public package offers."""

NEEDS_EXTRA = {
    "integrations.lightning": ("CertifySample",),
    "serve.app": ("make_app",),
    "serve.server": ("run",),
}
"""Public modules that import another library: `tests/training/test_tracking.py` imports them."""


def test_every_public_package_is_pinned() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    public = {name for name in packages if not name.startswith("_")}
    # The command line is used by its commands, not by import.
    assert public - {"cli"} == PUBLIC.keys()


@pytest.mark.parametrize("package", PUBLIC)
def test_the_names_of_a_package_are_pinned(package: str) -> None:
    module = importlib.import_module(f"smoothmix.{package}")
    assert sorted(module.__all__) == sorted(PUBLIC[package].split())
    assert module.__doc__
    assert all(getattr(module, name) is not None for name in module.__all__)


def test_the_public_names() -> None:
    assert smoothmix.__all__ == [
        "Anytime",
        "Budget",
        "Certification",
        "Certified",
        "Consistency",
        "Denoised",
        "Denoiser",
        "FixedDraws",
        "Gaussian",
        "Loss",
        "Macer",
        "Method",
        "Normalise",
        "SmoothAdv",
        "SmoothMix",
        "Smoothed",
        "SmoothmixError",
        "Stability",
        "Stopping",
        "__version__",
        "analysis",
        "certificates",
        "certify_dataset",
        "choose",
        "data",
        "load_run",
        "measure",
        "models",
        "plots",
        "presets",
        "trust",
    ]
    assert dir(smoothmix) == sorted(smoothmix.__all__)
    assert all(getattr(smoothmix, name) is not None for name in smoothmix.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        smoothmix.nothing  # noqa: B018


def test_importing_smoothmix_imports_neither_torch_nor_scipy() -> None:
    assert not {"torch", "scipy", "numpy"} & imported_by("import smoothmix")


def test_help_does_not_import_torch_or_scipy() -> None:
    assert not {"torch", "scipy"} & imported_by("from smoothmix.cli import main; main()")


def code_in_docs() -> list[tuple[str, str]]:
    """Every block of Python in the README and the docs, with the name of its page."""
    blocks = []
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for block in re.findall(r"```python.*?\n(.*?)```", page.read_text(), flags=re.DOTALL):
            blocks.append((page.name, block))
    return blocks


def test_docs_import_public_names_only() -> None:
    imported = []
    for page, block in code_in_docs():
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Import):
                imported += [(page, alias.name, "") for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                imported += [(page, str(node.module), alias.name) for alias in node.names]
    ours = [entry for entry in imported if entry[1].partition(".")[0] == "smoothmix"]
    assert len(ours) > 10
    for page, module, name in ours:
        if module == "smoothmix":
            assert name in ("", *smoothmix.__all__), page
            continue
        package = module.removeprefix("smoothmix.")
        if package in NEEDS_EXTRA:
            assert name in NEEDS_EXTRA[package], page
            continue
        assert package in PUBLIC, f"{page}: {module} is not a public package"
        assert name in PUBLIC[package].split(), f"{page}: {module} does not offer {name}"


def torch_free() -> list[str]:
    names = list(ALSO_TORCH_FREE)
    for level_names in LEVELS[:TORCH_FREE_LEVELS]:
        names += level_names
    return names


def test_these_modules_and_packages_never_import_torch() -> None:
    # One interpreter for all: torch stays absent only if none of them imports it.
    modules = set()
    for name in torch_free():
        modules.add(name)
        for module in NAMES:
            # A package may hold a module of a higher level, as _io.untrusted.
            if module.startswith(f"{name}.") and level(module) == level(name):
                modules.add(module)
    statement = "import " + ", ".join(f"smoothmix.{module}" for module in sorted(modules))
    assert "torch" not in imported_by(statement)


def test_certificate_commands_work_where_torch_cannot_be_imported(tmp_path: Path) -> None:
    """A torch that fails to import stands in for none at all."""
    from tests.certificates.test_files import whole_file

    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    whole_file(tmp_path)
    for arguments in (
        ["verify", "c.tsv"],
        ["recompute", "c.tsv", "--alpha", "0.01"],
        ["export", "c.tsv", "--format", "cohen"],
        ["merge", "c.tsv", "--out", "d.tsv"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "smoothmix", "certificates", *arguments],
            cwd=tmp_path,
            env={"PYTHONPATH": str(tmp_path), "PATH": ""},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def commands() -> list[list[str]]:
    found = []
    for name in app:
        if not name.startswith("-"):
            found.append([name])
            found += [[name, sub] for sub in app[name] if not sub.startswith("-")]
    return found


def documented() -> list[list[str]]:
    """Every command in a block of the README or the docs, split as a shell would."""
    found = []
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        whole_lines = re.sub(r"\\\n\s*", "", page.read_text())
        for line in whole_lines.splitlines():
            words = re.search(r"^(?: {4})?(?:torchrun .*-m smoothmix --|smoothmix) (.*)$", line)
            # Two blanks and more separate a command from its explanation; dots stand for
            # options of the reader's own.
            if words and "..." not in line:
                found.append(shlex.split(re.split(r"\s{2,}", words[1])[0], comments=True))
    return found


def test_every_documented_command_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Options check that a folder exists when they are parsed.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "DATA").mkdir()
    assert len(documented()) > 30
    for words in documented():
        # Raises where they are not understood.
        tokens = trust_named_modules(words)
        app.parse_args(tokens, exit_on_error=False, print_error=False)


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_explains_itself_and_each_option(smoothmix: Run, command: list[str]) -> None:
    shown = smoothmix(*command, "--help")
    assert shown.code == 0
    assert "Usage: smoothmix " + " ".join(command) in shown.out
    shown_app = app[command[0]] if len(command) == 1 else app[command[0]][command[1]]
    if (function := shown_app.default_command) is not None:
        explained = {
            p.arg_name
            for p in docstring_parser.parse(function.__doc__ or "").params
            if p.description
        }
        for name, kind in get_type_hints(function).items():
            if is_dataclass(kind):  # options that several commands share
                parsed = [
                    docstring_parser.parse_from_object(part)
                    for part in kind.__mro__
                    if is_dataclass(part)
                ]
                described = {p.arg_name for part in parsed for p in part.params if p.description}
                described |= {field.name for field in fields(kind) if field.metadata.get("help")}
                assert described == {field.name for field in fields(kind)}, kind
                explained.add(name)
        assert explained == set(inspect.signature(function).parameters), command


@pytest.mark.parametrize("name", METHODS)
def test_every_setting_of_a_method_is_in_the_guide_with_its_own_words(name: str) -> None:
    guide = (ROOT / "docs" / "training.md").read_text()
    for setting in fields(METHODS[name].load()):
        if not setting.init or setting.name in OWN_OPTIONS:
            continue
        (row,) = re.findall(
            rf"^\| `{name}` \| `{setting.name}` \| (.*?) \| (.*) \|$", guide, flags=re.MULTILINE
        )
        described = {
            p.arg_name: p.description
            for p in docstring_parser.parse_from_object(METHODS[name].load()).params
        }
        default = "" if setting.default is None else str(setting.default)
        assert row == (default.lower(), " ".join((described[setting.name] or "").split()))


def test_the_version_is_shown(smoothmix: Run) -> None:
    assert smoothmix("--version").out.strip() == __version__


def test_only_the_command_line_prints() -> None:
    library = [path for path in MODULES if "cli" not in path.parts]
    assert library
    for path in library:
        calls = [
            node.func
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call)
        ]
        assert "print" not in [call.id for call in calls if isinstance(call, ast.Name)], path


def test_the_code_in_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})


def test_the_page_on_the_library_runs_from_top_to_bottom(tmp_path: Path) -> None:
    blocks = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "library.md").read_text(), flags=re.DOTALL
    )
    argv = [sys.executable, "-W", "error", "-c", "".join(blocks)]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {"mine.tsv", "report.html", "runs", "figures"} <= {
        path.name for path in tmp_path.iterdir()
    }


def test_no_machine_paths_or_stray_files_are_in_the_package() -> None:
    assert MODULES
    for path in MODULES:
        assert not re.search(r"/(home|root|work|tmp)/", path.read_text()), path

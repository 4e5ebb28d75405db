"""Every row of the paper is a preset, with the settings and the numbers of the paper."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from smoothmix import presets
from smoothmix.presets import Published
from tests.helpers import paper_tables as paper
from tests.helpers.paper_settings import CIFAR_LOOP, IMAGENET_LOOP, MACER_LOOP, METHODS, MNIST_LOOP

ALL = presets.names()
TABLES = {
    "mnist": (paper.MNIST,),
    "cifar10": (paper.CIFAR10, paper.CIFAR10_SIGMA_1),
    "imagenet": (paper.IMAGENET,),
    "ablation": (paper.ABLATION,),
}
PRINTED = [
    (f"{group}/{name}", *paper.row(t, name))
    for group, ts in TABLES.items()
    for t in ts
    for name in paper.cells(t)
]


def published(name: str) -> Published:
    numbers = presets.get(name).published
    assert numbers is not None
    return numbers


# The published numbers


@pytest.mark.parametrize(("name", "acr", "accuracy"), PRINTED, ids=[row[0] for row in PRINTED])
def test_published_numbers_are_the_papers(
    name: str, acr: float, accuracy: dict[float, float]
) -> None:
    assert published(name).acr == acr
    assert published(name).accuracy == accuracy
    assert "Table" in published(name).source


@pytest.mark.parametrize("name", paper.cells(paper.MNIST))
def test_means_and_deviations_over_seeds_are_the_papers(name: str) -> None:
    sigma, row = name.split("/")
    numbers = published(f"mnist/{name}")
    acr, acr_std = paper.row_over_seeds(paper.MNIST_ACR_SEEDS, row)
    accuracy, accuracy_std = paper.row_over_seeds(paper.MNIST_ACCURACY_SEEDS, name)
    assert (numbers.acr_mean, numbers.acr_std) == (
        acr[float(sigma)],
        acr_std[float(sigma)],
    )
    assert (numbers.accuracy_mean, numbers.accuracy_std) == (accuracy, accuracy_std)


def test_only_mnist_has_numbers_over_seeds() -> None:
    for name in presets.names("cifar10") + presets.names("imagenet") + presets.names("ablation"):
        assert (published(name).acr_mean, published(name).acr_std) == (None, None)
        assert published(name).accuracy_mean == published(name).accuracy_std == {}


def test_each_row_of_the_paper_is_a_preset_and_the_rest_are_quick() -> None:
    printed = [name for name, *_ in PRINTED]
    assert [name for name in ALL if not name.startswith("quick/")] == printed
    assert len(set(ALL)) == len(ALL)
    counts = {group: len(presets.names(group)) for group in TABLES}
    assert counts == {
        "mnist": 9 * 3,
        "cifar10": 7 * 3,
        "imagenet": 4 * 2,
        "ablation": 1 + 5 + 4 + 5 + 4,
    }


def test_quick_presets_say_why_nothing_was_published() -> None:
    quick = [presets.get(name) for name in presets.names("quick")]
    assert [p.published for p in quick] == [None] * 15
    assert all("not a run of the paper" in p.about and p.note for p in quick)


def _tex_numbers(label: str) -> Iterator[list[float]]:
    """The numbers of each row of a table in the paper's source."""
    tex = (Path(__file__).parents[3] / "shared/paper/smoothmix.tex").read_text(encoding="utf-8")
    start = tex.index("\\midrule", tex.rindex("\\begin{table", 0, tex.index(f"\\label{{{label}}}")))
    for line in tex[start : tex.index("\\bottomrule", start)].splitlines():
        cells = line.split("&")
        label_cells = 1 if "multirow" not in line and cells[0].strip() else 2
        numbers = re.findall(r"\d+\.?\d*", " ".join(cells[label_cells:]))
        if len(cells) > 1:
            yield [float(number) for number in numbers]


@pytest.mark.shared
@pytest.mark.parametrize(
    ("label", "table", "rows"),
    [
        ("tab:mnist", paper.MNIST, "*"),
        ("tab:mnist_errorbar", paper.MNIST_ACCURACY_SEEDS, "*"),
        ("tab:mnist_var", paper.MNIST_ACR_SEEDS, "*"),
        ("tab:cifar10", paper.CIFAR10, "*"),
        ("tab:add_cifar10", paper.CIFAR10_SIGMA_1, "*"),
        ("tab:imagenet", paper.IMAGENET, "*"),
        ("tab:ab_eta", paper.ABLATION, "gaussian eta"),
        ("tab:ab_aT", paper.ABLATION, "gaussian steps"),
        ("tab:ab_maxnorm", paper.ABLATION, "gaussian limit"),
        ("tab:ab_m", paper.ABLATION, "gaussian copies"),
    ],
)
def test_the_tables_were_typed_without_mistakes(label: str, table: str, rows: str) -> None:
    typed = paper.cells(table).items()
    wanted = [
        [value for _, value in row]
        for name, row in typed
        if rows == "*" or name.split("/")[0] in rows.split()
    ]
    assert list(_tex_numbers(label)) == wanted


# The settings


@pytest.mark.parametrize("name", METHODS)
def test_the_method_is_what_made_the_table(name: str) -> None:
    parts = name.split("/")
    sigma = 1.0 if parts[0] == "ablation" else float(parts[1])
    method = (
        {"gaussian": "gaussian"}.get(parts[1], "smoothmix")
        if parts[0] == "ablation"
        else parts[2].split("-")[0]
    )
    expected = {"name": method, "sigma": sigma, "fidelity": "official", **METHODS[name]}
    assert presets.get(name).config.method == expected


def test_the_list_of_methods_misses_no_row() -> None:
    assert set(METHODS) == {name for name, *_ in PRINTED}


@pytest.mark.parametrize("name", METHODS)
def test_the_loop_data_and_network_are_what_made_the_table(name: str) -> None:
    config = presets.get(name).config
    loop = {
        key: value
        for key, value in asdict(config.recipe).items()
        if key not in ("seed", "precision")
    }
    around = (config.data, config.network, config.normalisation, config.num_classes, config.preset)
    match name.split("/"):
        case ["mnist" | "ablation", *_]:
            assert (loop, around) == (MNIST_LOOP, ("mnist", "lenet", "none", 10, name))
        case ["cifar10", _, "macer"]:
            assert (loop, around) == (MACER_LOOP, ("cifar10", "cifar_resnet110", "none", 10, name))
        case ["cifar10", *_]:
            assert (loop, around) == (
                CIFAR_LOOP,
                ("cifar10", "cifar_resnet110", "cifar10", 10, name),
            )
        case _:
            assert (loop, around) == (
                IMAGENET_LOOP,
                ("imagenet", "resnet50", "imagenet", 1000, name),
            )

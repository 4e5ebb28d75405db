"""Networks by name and by address: what builds them, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch
from torch import nn

from smoothmix import registry
from smoothmix.errors import UsageError
from smoothmix.networks import NETWORKS, Network, build
from smoothmix.networks.registry import NetworkRegistry


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"name": "lenett"}, "unknown network 'lenett': did you mean 'lenet'"),
        ({"name": "lenet", "size": 32}, "lenet takes images of 28x28 pixels, not 32x32"),
        ({"name": "lenet", "num_classes": 1}, "needs 2 classes"),
        ({"name": "lenet", "channels": 0}, "needs 2 classes and 1 channel or more, got 10 and 0"),
        ({"name": "lenet", "normalisation": "cifar10"}, "is for 3 channels, the images have 1"),
        (
            {"name": "cifar_resnet20", "channels": 1},
            "'cifar10' is for 3 channels, the images have 1",
        ),
        (
            {"name": "lenet", "normalisation": "cifar"},
            "unknown normalisation 'cifar': did you mean 'cifar10'",
        ),
        ({"name": "lenet", "normalisation": ((0.5,), (0.0,))}, "positive standard deviations"),
        ({"name": "lenet", "normalisation": ((0.5,), (0.5, 0.5))}, "as many means"),
    ],
)
def test_what_cannot_be_built_is_said_in_a_sentence(
    options: dict[str, object], sentence: str
) -> None:
    with pytest.raises(UsageError) as caught:
        build(**options)  # type: ignore[arg-type]
    assert sentence in str(caught.value)


OWN_NETWORKS = """
import torch
from torch import nn

from smoothmix.networks import Architecture


def linear(outputs=2):
    return nn.Linear(3, outputs)


def flat(num_classes, channels, size):
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * size**2, num_classes))


def passes_on(**options):
    return nn.LazyLinear(options.get("num_classes", 1000))


def text():
    return "no network"


def broken():
    raise RuntimeError("out of ideas")


number = 3
network = nn.Linear(3, 2)
described = Architecture(builder=flat, channels=1, size=4, num_classes=3, any_size=False)
"""


@pytest.fixture
def own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules with somebody's networks that can be imported, and imports as before afterwards."""
    (tmp_path / "own_networks.py").write_text(OWN_NETWORKS)
    (tmp_path / "own_mistake.py").write_text("def broken(:\n")
    (tmp_path / "own_needs.py").write_text("import not_installed_anywhere\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    registry.trust("own_networks", "own_mistake", "own_needs", "nowhere_to_be_found", "torch.nn")
    yield
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]


@pytest.mark.usefixtures("own_code")
def test_function_of_ones_own_builds_a_network() -> None:
    network = build("own_networks:linear")
    assert isinstance(network, nn.Linear)
    assert network(torch.zeros(1, 3)).shape == (1, 2)
    assert build("torch.nn:Identity")(3) == 3


@pytest.mark.usefixtures("own_code")
def test_a_function_gets_the_options_that_it_has_parameters_for() -> None:
    network = build("own_networks:flat", num_classes=5, channels=2, size=3)
    assert network(torch.zeros(1, 2, 3, 3)).shape == (1, 5)
    assert build("own_networks:linear", num_classes=5, channels=2, size=3).out_features == 2
    assert build("own_networks:passes_on", num_classes=5, size=3).out_features == 5
    assert build("own_networks:passes_on").out_features == 1000


@pytest.mark.usefixtures("own_code")
def test_a_network_from_outside_is_normalised_on_request() -> None:
    options = {"num_classes": 5, "channels": 1, "size": 3}
    bare = build("own_networks:flat", **options, normalisation="none")
    assert isinstance(bare, nn.Sequential)
    wrapped = build("own_networks:flat", **options, normalisation=((0.5,), (0.2,)))
    assert isinstance(wrapped, Network)
    images = torch.rand(2, 1, 3, 3)
    torch.testing.assert_close(wrapped(images), wrapped.body((images - 0.5) / 0.2))


@pytest.mark.usefixtures("own_code")
def test_an_architecture_from_outside_brings_its_facts() -> None:
    assert NETWORKS["own_networks:described"].num_classes == 3
    assert build("own_networks:described", size=4)(torch.zeros(1, 1, 4, 4)).shape == (1, 3)
    with pytest.raises(UsageError, match="takes images of 4x4 pixels, not 5x5"):
        build("own_networks:described", size=5)


@pytest.mark.usefixtures("own_code")
@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("own_networks", "one of your own is named by package.module:name"),
        ("own_networks:", "one of your own is named by package.module:name"),
        (":linear", "one of your own is named by package.module:name"),
        ("./own_networks.py:linear", "one of your own is named by package.module:name"),
        ("own_networks.py:linear", "give the module without .py, own_networks:linear"),
        ("nowhere_to_be_found:f", "cannot import nowhere_to_be_found"),
        ("own_mistake:broken", "cannot import own_mistake (invalid syntax"),
        ("own_needs:f", "No module named 'not_installed_anywhere'"),
        ("own_networks:cubic", "the module own_networks has no 'cubic'"),
        ("own_networks:number", "own_networks:number is not a function"),
        ("own_networks:network", "is a network: name a function that builds and returns it"),
        ("own_networks:text", "must return a torch.nn.Module, not str"),
        ("own_networks:flat", "needs num_classes and channels and size, which cannot be known"),
        ("own_networks:broken", "own_networks:broken raised RuntimeError: out of ideas"),
    ],
)
def test_functions_that_will_not_do(spec: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        build(spec)
    assert sentence in str(caught.value)


@pytest.mark.usefixtures("own_code")
@pytest.mark.parametrize("address", ["own_networks:flat", "own_networks:described"])
def test_an_installed_package_can_name_a_network(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = EntryPoint("flat", address, "smoothmix.networks")
    monkeypatch.setattr("smoothmix.registry.entry_points", lambda group: [entry])
    # The registry reads entry points once.
    networks = NetworkRegistry("network", group="smoothmix.networks", own={})
    monkeypatch.setattr("smoothmix.networks.network.NETWORKS", networks)
    network = build("flat", num_classes=3, channels=1, size=4)
    assert isinstance(network, Network)
    assert network(torch.zeros(2, 1, 4, 4)).shape == (2, 3)


def test_the_library_does_not_import_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_here.py").write_text(OWN_NETWORKS)
    monkeypatch.chdir(tmp_path)
    registry.trust("own_here")
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    before = list(sys.path)
    with pytest.raises(UsageError, match="cannot import own_here"):
        build("own_here:linear")
    assert sys.path == before


def test_names_and_facts_are_known_without_torch() -> None:
    code = (
        "import sys; from smoothmix.networks import NETWORKS; "
        "assert NETWORKS['lenet'].num_classes == 10; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

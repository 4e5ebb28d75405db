"""The command `import`: a published checkpoint becomes a run folder."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from smoothmix.cli.options import FLAT, USUAL_GROUP, PreparationOptions
from smoothmix.cli.output import echo
from smoothmix.config import IMPORTED_FROM, RunConfig, require
from smoothmix.networks.registry import NETWORKS

if TYPE_CHECKING:
    from smoothmix.networks import Imported

NETWORK_HELP = f"{', '.join(NETWORKS)}, or your own as package.module:function."


@Parameter(name="*", group=USUAL_GROUP)
@dataclass(frozen=True, kw_only=True)
class ImportedNetwork(PreparationOptions):
    """What a checkpoint of somebody else's holds, which the file does not say."""

    network: str = field(metadata={"help": NETWORK_HELP})

    sigma: float
    """Standard deviation of the noise it was trained with."""

    data: str
    """The data set it was trained on."""

    method: str = "imported"
    """How it was trained, for tables."""

    normalisation: str | None = None
    """Whose mean and standard deviation it expects: none (or mnist), cifar10 or imagenet; by
    default the network's usual one. MACER's CIFAR-10 models have none."""

    num_classes: int | None = None
    """Its outputs; by default the network's usual number."""

    def config(self, origin: str) -> RunConfig:
        """The settings of the run that it becomes."""
        # The data sets take a moment to import, and `--help` does not need them.
        from smoothmix.data import known_shape

        usual = NETWORKS[self.network]
        num_classes = self.num_classes
        if num_classes is None:
            num_classes = usual.num_classes or RunConfig.num_classes
        return RunConfig(
            data=self.data,
            network=self.network,
            method={"name": self.method, "sigma": self.sigma},
            normalisation=self.normalisation or usual.normalisation,
            num_classes=num_classes,
            image_shape=known_shape(self.data) or (),
            preparation=self.preparation,
            notes=(f"{IMPORTED_FROM} {origin}",),
        )


def import_checkpoint(
    checkpoint: Path, /, *, imported: Annotated[ImportedNetwork, FLAT], out: Path
) -> None:
    """Read weights that somebody else published, without running any code from the file.

    Known layouts: `{epoch, arch, state_dict, optimizer}` with keys that begin with `1.`,
    `1.module.` or `module.`, `{net, epoch}`, `{model_state_dict}`, `{model}`, and a bare state
    dict. Afterwards `smoothmix certify OUT` works as for a run of our own.

    Parameters
    ----------
    checkpoint
        The file.
    out
        The run folder to make.
    """
    from smoothmix.networks import import_checkpoint as read_checkpoint
    from smoothmix.networks import save_weights
    from smoothmix.runs.folder import RunFolder
    from smoothmix.runs.load import build_network

    folder = RunFolder(out)
    require(not folder.config.exists(), f"{out}: holds a run already; choose another --out")
    config = imported.config(checkpoint.name)
    model = build_network(config)
    found = read_checkpoint(checkpoint, model)
    # The settings last: a folder without them is no run folder.
    digest = save_weights(model, folder.weights)
    replace(config, weights_sha256=digest).save(folder.config)
    _report(checkpoint.name, found)
    echo(f"run folder: {out}")


def _report(name: str, found: Imported) -> None:
    """Print what was read, and what a user should check."""
    origin = []
    if found.arch is not None:
        origin.append(f"arch {found.arch}")
    if found.epoch is not None:
        origin.append(f"epoch {found.epoch}")
    summary = f"{name}: {found.placed} tensors placed"
    if origin:
        summary += f" ({', '.join(origin)})"
    echo(summary)
    if found.by_order:
        echo(
            "its names are not ours: tensors were placed by order, as all shapes agree one by one; "
            "check the accuracy"
        )
    for tensor in found.unplaced:
        echo(f"not placed: {tensor}")

"""The command `import`: a published checkpoint becomes a run folder."""

from __future__ import annotations

from pathlib import Path

from smoothmix.cli.output import echo


def import_checkpoint(
    checkpoint: Path,
    /,
    *,
    network: str,
    sigma: float,
    data: str,
    out: Path,
    method: str = "imported",
    normalisation: str | None = None,
    num_classes: int | None = None,
) -> None:
    """Read weights that other people published, without running any code from the file.

    Known layouts: `{epoch, arch, state_dict, optimizer}` with keys that begin with `1.`, `1.module.` or `module.`,
    `{net, epoch}`, `{model_state_dict}`, `{model}`, and a bare state dict. Then `smoothmix certify OUT` works as on a
    run of ours.

    Parameters
    ----------
    checkpoint
        The file.
    network
        What it holds: lenet, cifar_resnet20, cifar_resnet110, resnet50, or a function of your own that builds it,
        package.module:function.
    sigma
        The noise it was trained with.
    data
        The data set it was trained on.
    out
        The run folder to make.
    method
        How it was trained, for tables.
    normalisation
        Whose mean and deviation it expects: none (also as mnist), cifar10 or imagenet; by default the network's usual
        one. MACER's CIFAR-10 models have none.
    num_classes
        Its outputs; by default the network's usual number.
    """
    from smoothmix.config import RunConfig, require
    from smoothmix.data import known_shape
    from smoothmix.networks import NETWORKS, save_weights
    from smoothmix.networks import import_checkpoint as read_checkpoint
    from smoothmix.runs.folder import RunFolder
    from smoothmix.runs.load import build_network

    usual = NETWORKS[network]
    if num_classes is None:
        num_classes = usual.num_classes or RunConfig.num_classes
    folder = RunFolder(out)
    require(not folder.config.exists(), f"{out}: holds a run already; choose another --out")
    config = RunConfig(
        data=data,
        network=network,
        method={"name": method, "sigma": sigma},
        normalisation=normalisation or usual.normalisation,
        num_classes=num_classes,
        image_shape=known_shape(data) or (),
        notes=(f"imported from {checkpoint.name}",),
    )
    model = build_network(config)
    found = read_checkpoint(checkpoint, model)
    save_weights(model, folder.weights)
    config.save(folder.config)
    origin = ", ".join(
        f"{k} {v}" for k, v in (("arch", found.arch), ("epoch", found.epoch)) if v is not None
    )
    echo(f"{checkpoint.name}: {found.placed} tensors placed{f' ({origin})' if origin else ''}")
    if found.by_order:
        echo(
            "its names are not ours: tensors were placed by order, as all shapes agree one by one; check the accuracy"
        )
    for name in found.unplaced:
        echo(f"not placed: {name}")
    echo(f"run folder: {out}")

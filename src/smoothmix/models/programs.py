"""Networks saved together with their code: TorchScript files and archives of torch.export.

To load one is to run what its author wrote. It is done only where the caller says so.
"""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import torch
from torch import nn

from smoothmix.errors import CheckpointError, UsageError, shown

Kind = Literal["TorchScript", "torch.export"]


def load_program(path: Path, *, allow_code: bool) -> tuple[nn.Module, int | None]:
    """The network in a file, in eval mode, and the only batch size that it takes, if there is one.

    What the file's author wrote runs in this process: `allow_code` must say that it may.
    """
    kind = _kind(path)
    if not allow_code:
        raise UsageError(
            f"{path} is a file of {kind}, which runs code of its author when it is loaded: if you "
            "trust the author, add --allow-code (allow_code=True)"
        )
    try:
        with warnings.catch_warnings():
            # Torch announces the end of TorchScript; people's files stay.
            warnings.simplefilter("ignore")
            if kind == "TorchScript":
                # Torch's own function has no types.
                load_script: Any = torch.jit.load
                script: nn.Module = load_script(str(path), map_location="cpu")
                return script.eval(), None
            return _exported(path)
    except Exception as error:
        # A damaged file may end in an error of any kind.
        raise CheckpointError(f"{path}: torch cannot load it ({shown(error, 200)})") from error


def _kind(path: Path) -> Kind:
    """What a file holds; anything but a network with its code is refused."""
    try:
        with zipfile.ZipFile(path) as archive:
            parts = {PurePosixPath(name).name for name in archive.namelist()}
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    except zipfile.BadZipFile:
        parts = set()
    if "archive_format" in parts:
        return "torch.export"
    if "constants.pkl" in parts:
        return "TorchScript"
    raise UsageError(
        f"{path} is no TorchScript file and no archive of torch.export: if it holds weights, name "
        "the function that builds their network by --model package.module:function and the file by "
        "--weights"
    )


def _exported(path: Path) -> tuple[nn.Module, int | None]:
    program = torch.export.load(path)
    module = program.module()
    # The mode was fixed when the program was exported; what is left of it is a mark.
    for part in module.modules():
        part.training = False
    return module, _fixed_batch(program)


def _fixed_batch(program: Any) -> int | None:
    """The size of the batch that a program was exported for; None if it takes any."""
    inputs = set(program.graph_signature.user_inputs)
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in inputs:
            size = node.meta["val"].shape[0]
            return size if isinstance(size, int) else None
    return None

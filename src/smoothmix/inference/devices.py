"""The device that a process computes on."""

from __future__ import annotations

import torch

from smoothmix._process.world import World
from smoothmix.errors import UsageError

AUTO = "auto"
"""The name that selects a GPU if there is one."""


def choose_device(name: str | None = None) -> torch.device:
    """The device of that name; None and `auto` take a GPU if there is one."""
    if name is None or name == AUTO:
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("cpu")
    try:
        device = torch.device(name)
        # A name may be well-formed and the device still be missing: only using it shows that.
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"device {name!r} cannot be used here ({reason})") from error
    return device


def own_device(device: torch.device, world: World) -> torch.device:
    """The device of this process: the GPU with its number on the machine, unless one was named."""
    if world.alone or device.type != "cuda" or device.index is not None:
        return device
    count = torch.cuda.device_count()
    if world.local_rank >= count:
        raise UsageError(
            f"process {world.local_rank + 1} on this machine has no GPU of its own, "
            f"there are {count}: start no more processes than GPUs, or give --device cpu"
        )
    torch.cuda.set_device(world.local_rank)
    return torch.device("cuda", world.local_rank)

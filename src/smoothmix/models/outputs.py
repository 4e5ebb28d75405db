"""Networks that return their logits inside of something else: a dict, a tuple, an object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, final

from torch import Tensor, nn

from smoothmix.errors import UsageError

Output = str | int | Callable[[Any], Tensor]
"""Where the logits are in what a network returns: a key or attribute, a position, or a function."""


def with_output(model: nn.Module, output: Output | None) -> nn.Module:
    """The network as one that returns logits; None leaves it as it is."""
    if output is None:
        return model
    return WithOutput(model, output)


@final
class WithOutput(nn.Module):
    """A network of whose output only the logits are returned."""

    def __init__(self, model: nn.Module, output: Output) -> None:
        super().__init__()
        self.model = model
        self.output = output
        # Its mode is that of the network: a new module would be in training mode.
        self.training = getattr(model, "training", False)

    def forward(self, images: Tensor) -> Tensor:
        returned = self.model(images)
        if isinstance(self.output, str | int):
            return _part(returned, self.output)
        return self.output(returned)


def _part(returned: Any, name: str | int) -> Tensor:
    """What has this key, position or attribute in the output of a network."""
    part: Any = None
    if isinstance(name, int):
        if isinstance(returned, list | tuple) and -len(returned) <= name < len(returned):
            part = returned[name]
    elif isinstance(returned, Mapping):
        part = returned.get(name)
    else:
        part = getattr(returned, name, None)
    if isinstance(part, Tensor):
        return part
    raise UsageError(
        f"output={name!r}: the network returns {_description(returned)}, where that is no tensor"
    )


def _description(returned: object) -> str:
    kind = type(returned).__name__
    if isinstance(returned, Mapping):
        return f"a {kind} with the keys {', '.join(map(str, returned))}"
    if isinstance(returned, list | tuple):
        return f"a {kind} of {len(returned)}"
    return f"a {kind}"

"""The parts of a network in fine-tuning: its head, what stays as it is, and two learning rates."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from torch import nn

from smoothmix.config import FineTuning
from smoothmix.errors import UsageError

BODY = "body"
"""Stands for all parameters but those of the head."""

OWN_PREFIX = "body."
"""What a `Network` puts before the names of the network that it wraps."""


def head_of(model: nn.Module) -> str:
    """The name of the last layer that has weights, which tells the classes apart.

    >>> head_of(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2), nn.Softmax(1)))
    '2'
    """
    last = ""
    for name, module in model.named_modules():
        if next(module.parameters(recurse=False), None) is not None:
            last = name
    return last


def head_parameters(model: nn.Module) -> set[str]:
    """The names of the parameters of the head."""
    prefix = head_of(model) + "."
    return {name for name, _ in model.named_parameters() if name.startswith(prefix)}


def freeze(model: nn.Module, beginnings: Sequence[str]) -> None:
    """Take parameters out of training, by the beginnings of their names."""
    head = head_parameters(model)
    for beginning in beginnings:
        frozen = 0
        for name, parameter in model.named_parameters():
            if _is_meant(name, beginning, head):
                parameter.requires_grad_(False)
                frozen += 1
        if frozen == 0:
            raise UsageError(
                f"--freeze {beginning}: no parameter of the network has such a name; its parts are "
                f"{', '.join(_parts(model))}"
            )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UsageError(f"--freeze {' '.join(beginnings)}: leaves nothing to train")


def _is_meant(name: str, beginning: str, head: Collection[str]) -> bool:
    if beginning == BODY:
        return name not in head
    return name.startswith(beginning) or name.removeprefix(OWN_PREFIX).startswith(beginning)


def _parts(model: nn.Module) -> list[str]:
    """The names of the parts that have parameters, in order."""
    names = [name.removeprefix(OWN_PREFIX) for name, _ in model.named_parameters()]
    return list(dict.fromkeys(name.partition(".")[0] for name in names))


def keep_frozen_modules(model: nn.Module) -> None:
    """Put modules whose parameters are all frozen into eval mode.

    Otherwise their BatchNorm would go on taking statistics, and the network would change there.
    """
    for module in model.modules():
        parameters = list(module.parameters())
        if parameters and not any(parameter.requires_grad for parameter in parameters):
            module.eval()


RATE_FACTOR = "rate_factor"
"""Key of a group of parameters: the factor of the learning rate there."""


def parameter_groups(
    model: nn.Module, tuning: FineTuning | None, *, learning_rate: float
) -> list[dict[str, Any]]:
    """The parameters as an optimiser gets them: the head, and the body with a rate of its own."""
    if tuning is None or tuning.body_rate is None:
        return [{"params": list(model.parameters())}]
    names = head_parameters(model)
    head = []
    body = []
    for name, parameter in model.named_parameters():
        if name in names:
            head.append(parameter)
        else:
            body.append(parameter)
    return [
        {"params": head, RATE_FACTOR: 1.0},
        {"params": body, RATE_FACTOR: tuning.body_rate / learning_rate},
    ]

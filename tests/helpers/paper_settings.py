"""What made each row of the paper's tables, from its text and its released code.

METHODS has the settings of each row's method besides its name, sigma and fidelity.
"""

from __future__ import annotations

from typing import Any

NO_ATTACK = {"epsilon": 0.0, "steps": 10, "warmup_epochs": 10}
SMOOTHADV = {"epsilon": 255 / 256, "steps": 10, "attack": "pgd", "warmup_epochs": 10}
MACER = {"copies": 16, "beta": 16.0, "gamma": 8.0}
MIX: dict[str, Any] = {"one_step": False, "warmup_epochs": 10}
MNIST_MIX = {**MIX, "copies": 4, "step_size": 1.0}
CIFAR_MIX = {**MIX, "copies": 2, "steps": 4, "eta": 5.0}
IMAGENET_MIX = {
    **MIX,
    "copies": 1,
    "steps": 1,
    "step_size": 8.0,
    "eta": 5.0,
    "one_step": True,
    "one_step_radius": 1.0,
}
ABLATED = {**MNIST_MIX, "steps": 8, "eta": 1.0}

METHODS: dict[str, dict[str, Any]] = {
    **{
        f"{data}/{s}/gaussian": {}
        for data in ("mnist", "cifar10")
        for s in ("0.25", "0.50", "1.00")
    },
    **{f"mnist/{s}/stability": {"weight": 2.0} for s in ("0.25", "0.50", "1.00")},
    **{f"mnist/{s}/smoothadv": {**SMOOTHADV, "copies": 4} for s in ("0.25", "0.50", "1.00")},
    "mnist/0.25/macer": {**MACER, "weight": 16.0, "defer_epochs": 31},
    "mnist/0.50/macer": {**MACER, "weight": 16.0, "defer_epochs": 31},
    "mnist/1.00/macer": {**MACER, "weight": 6.0, "defer_epochs": 31},
    "mnist/0.25/consistency": {"copies": 2, "weight": 10.0, "entropy_weight": 0.5, **NO_ATTACK},
    "mnist/0.50/consistency": {"copies": 2, "weight": 5.0, "entropy_weight": 0.5, **NO_ATTACK},
    "mnist/1.00/consistency": {"copies": 2, "weight": 5.0, "entropy_weight": 0.5, **NO_ATTACK},
    "mnist/0.25/smoothmix-eta1": {**MNIST_MIX, "steps": 3, "eta": 1.0},
    "mnist/0.25/smoothmix-eta1-onestep": {**MNIST_MIX, "steps": 3, "eta": 1.0, "one_step": True},
    "mnist/0.25/smoothmix-eta5": {**MNIST_MIX, "steps": 2, "eta": 5.0},
    "mnist/0.25/smoothmix-eta5-onestep": {**MNIST_MIX, "steps": 2, "eta": 5.0, "one_step": True},
    "mnist/0.50/smoothmix-eta1": {**MNIST_MIX, "steps": 4, "eta": 1.0},
    "mnist/0.50/smoothmix-eta1-onestep": {**MNIST_MIX, "steps": 4, "eta": 1.0, "one_step": True},
    "mnist/0.50/smoothmix-eta5": {**MNIST_MIX, "steps": 4, "eta": 5.0},
    "mnist/0.50/smoothmix-eta5-onestep": {**MNIST_MIX, "steps": 4, "eta": 5.0, "one_step": True},
    "mnist/1.00/smoothmix-eta1": {**MNIST_MIX, "steps": 8, "eta": 1.0},
    "mnist/1.00/smoothmix-eta1-onestep": {**MNIST_MIX, "steps": 8, "eta": 1.0, "one_step": True},
    "mnist/1.00/smoothmix-eta5": {**MNIST_MIX, "steps": 8, "eta": 5.0},
    "mnist/1.00/smoothmix-eta5-onestep": {**MNIST_MIX, "steps": 8, "eta": 5.0, "one_step": True},
    "cifar10/0.25/stability": {"weight": 2.0},
    "cifar10/0.50/stability": {"weight": 2.0},
    "cifar10/1.00/stability": {"weight": 1.0},
    **{f"cifar10/{s}/smoothadv": {**SMOOTHADV, "copies": 8} for s in ("0.25", "0.50", "1.00")},
    "cifar10/0.25/macer": {**MACER, "weight": 12.0, "defer_epochs": 0},
    "cifar10/0.50/macer": {**MACER, "weight": 4.0, "defer_epochs": 0},
    "cifar10/1.00/macer": {**MACER, "weight": 12.0, "defer_epochs": 200},
    "cifar10/0.25/consistency": {"copies": 2, "weight": 20.0, "entropy_weight": 0.5, **NO_ATTACK},
    "cifar10/0.50/consistency": {"copies": 2, "weight": 10.0, "entropy_weight": 0.5, **NO_ATTACK},
    "cifar10/1.00/consistency": {"copies": 2, "weight": 10.0, "entropy_weight": 0.5, **NO_ATTACK},
    "cifar10/0.25/smoothmix": {**CIFAR_MIX, "step_size": 0.5},
    "cifar10/0.25/smoothmix-onestep": {**CIFAR_MIX, "step_size": 0.5, "one_step": True},
    "cifar10/0.50/smoothmix": {**CIFAR_MIX, "step_size": 1.0},
    "cifar10/0.50/smoothmix-onestep": {**CIFAR_MIX, "step_size": 1.0, "one_step": True},
    "cifar10/1.00/smoothmix": {**CIFAR_MIX, "step_size": 2.0},
    "cifar10/1.00/smoothmix-onestep": {**CIFAR_MIX, "step_size": 2.0, "one_step": True},
    "imagenet/0.50/gaussian": {},
    "imagenet/1.00/gaussian": {},
    "imagenet/0.50/consistency": {"copies": 2, "weight": 5.0, "entropy_weight": 0.5, **NO_ATTACK},
    "imagenet/1.00/consistency": {"copies": 2, "weight": 5.0, "entropy_weight": 0.1, **NO_ATTACK},
    "imagenet/0.50/smoothadv": {**SMOOTHADV, "copies": 1, "steps": 1},
    "imagenet/1.00/smoothadv": {**SMOOTHADV, "copies": 1, "steps": 1, "epsilon": 2.0},
    "imagenet/0.50/smoothmix": IMAGENET_MIX,
    "imagenet/1.00/smoothmix": IMAGENET_MIX,
    "ablation/gaussian": {},
    **{f"ablation/eta/{eta}": {**ABLATED, "eta": float(eta)} for eta in (1, 2, 4, 8, 16)},
    **{f"ablation/steps/{t}": {**ABLATED, "steps": t, "step_size": 8.0 / t} for t in (1, 2, 4, 8)},
    **{f"ablation/limit/{limit}": {**ABLATED, "limit": float(limit)} for limit in (2, 4, 6, 8)},
    "ablation/limit/none": ABLATED,
    **{f"ablation/copies/{m}": {**ABLATED, "copies": m} for m in (1, 2, 4, 8)},
}

LOOP = {
    "batch": 256,
    "late_drops": True,
    "nesterov": False,
    "weight_decay": 1e-4,
    "drop_factor": 0.1,
    "momentum": 0.9,
}
MNIST_LOOP = {**LOOP, "epochs": 90, "learning_rate": 0.01, "drops": (30, 60)}
CIFAR_LOOP = {**LOOP, "epochs": 150, "learning_rate": 0.1, "drops": (50, 100)}
IMAGENET_LOOP = {**LOOP, "epochs": 90, "learning_rate": 0.1, "drops": (30, 60)}
MACER_LOOP = {
    **LOOP,
    "epochs": 440,
    "batch": 64,
    "learning_rate": 0.01,
    "drops": (200, 400),
    "late_drops": False,
    "weight_decay": 5e-4,
}

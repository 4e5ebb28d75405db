"""Small networks, batches and settings that the tests of the methods share."""

from dataclasses import dataclass, fields

import torch
from torch import nn

from smoothmix.methods import METHODS, make
from smoothmix.networks import Network, Normalise
from tests.helpers.reference_losses import LOSSES


@dataclass(frozen=True)
class Problem:
    """A random network and a batch for it; `sharpness` scales the logits."""

    batchnorm: bool = False
    channels: int = 1
    size: tuple[int, int] = (6, 6)
    classes: int = 4
    batch: int = 5
    seed: int = 0
    sharpness: float = 4.0
    dtype: torch.dtype = torch.float64
    ours: bool = False
    """Whether it is a `Network`, whose first convolution sees the noise by itself in attacks."""

    def network(self):
        torch.manual_seed(self.seed)
        norm = nn.BatchNorm2d if self.batchnorm else nn.Identity
        features = [
            nn.Conv2d(self.channels, 4, 3),
            norm(4),
            nn.ReLU(),
            nn.Conv2d(4, 6, 2),
            norm(6),
            nn.Tanh(),
        ]
        pixels = (self.size[0] - 3) * (self.size[1] - 3)
        layers = nn.Sequential(*features, nn.Flatten(), nn.Linear(6 * pixels, self.classes))
        normalise = Normalise([0.4] * self.channels, [0.3] * self.channels)
        network = (Network(normalise, layers) if self.ours else layers).to(self.dtype)
        with torch.no_grad():
            layers[-1].weight.mul_(self.sharpness)
            for module in network.modules():
                if isinstance(module, nn.BatchNorm2d):
                    # Statistics far from those of the batch tell eval mode from train mode.
                    module.running_mean.normal_()
                    module.running_var.uniform_(0.5, 2)
        return network.train()

    def images(self):
        """Images, some pixels at the ends of [0, 1], and labels; about half are predicted."""
        generator = torch.Generator().manual_seed(self.seed + 1)
        shape = (self.batch, self.channels, *self.size)
        x = (1.4 * torch.rand(shape, generator=generator, dtype=self.dtype) - 0.2).clamp(0, 1)
        y = torch.randint(self.classes, (self.batch,), generator=generator)
        with torch.no_grad():
            y[::2] = self.network()(x).argmax(-1)[::2]
        return x, y

    def randomness(self, copies, sigma):
        generator = torch.Generator().manual_seed(self.seed + 2)
        shape = (copies, self.batch, self.channels, *self.size)
        noise = sigma * torch.randn(shape, generator=generator, dtype=self.dtype)
        return noise, torch.rand(self.batch, generator=generator, dtype=self.dtype) / 2

    def loss(self, method, network, *, epoch=3, mix=None):
        """The method's loss on this problem."""
        noise, ratios = self.randomness(method.copies, method.sigma)
        x, y = self.images()
        return method.loss(
            network, x, y, epoch=epoch, noise=noise, mix=ratios if mix is None else mix
        )


PROBLEMS = {
    "plain": Problem(),
    "batchnorm": Problem(batchnorm=True, seed=10),
    "rgb-3-classes": Problem(channels=3, size=(5, 7), classes=3, batch=4, seed=20),
    "batchnorm-rgb-2-classes": Problem(
        batchnorm=True, channels=3, size=(7, 4), classes=2, batch=6, seed=30
    ),
    "one-image": Problem(batch=1, classes=7, seed=40),
    "ours": Problem(ours=True, batchnorm=True, channels=3, seed=60),
}

CASES = {
    "gaussian": ("gaussian", {}),
    "stability": ("stability", {"weight": 2.0}),
    "smoothadv": ("smoothadv", {"copies": 3, "steps": 4, "sigma": 0.25}),
    "smoothadv-1-copy": (
        "smoothadv",
        {"copies": 1, "epsilon": 2.0, "steps": 3, "warmup_epochs": 2},
    ),
    "smoothadv-ddn": ("smoothadv", {"copies": 2, "attack": "ddn", "steps": 6, "sigma": 0.25}),
    "smoothadv-ddn-wide": ("smoothadv", {"copies": 2, "attack": "ddn", "epsilon": 3.0, "steps": 5}),
    "macer": ("macer", {"copies": 4, "beta": 2.0}),
    "macer-narrow": ("macer", {"copies": 4, "gamma": 2.0, "weight": 6.0, "defer_epochs": 3}),
    "macer-deferred": ("macer", {"copies": 3, "defer_epochs": 4}),
    "consistency": ("consistency", {"weight": 10.0}),
    "consistency-3-copies": ("consistency", {"copies": 3, "weight": 5.0, "entropy_weight": 0.1}),
    "consistency-smoothadv": ("consistency", {"weight": 1.0, "epsilon": 2.0, "steps": 4}),
    "smoothmix": ("smoothmix", {"copies": 3, "steps": 3}),
    "smoothmix-one-step": ("smoothmix", {"copies": 2, "steps": 2, "one_step": True, "eta": 1.0}),
    "smoothmix-one-step-T1": (
        "smoothmix",
        {"copies": 2, "steps": 1, "step_size": 2.0, "one_step": True},
    ),
    "smoothmix-imagenet": (
        "smoothmix",
        {"copies": 1, "steps": 1, "step_size": 8.0, "one_step": True, "one_step_radius": 1.0},
    ),
    "smoothmix-limit": ("smoothmix", {"copies": 2, "steps": 4, "limit": 1.5, "one_step": True}),
    "smoothmix-warm": ("smoothmix", {"copies": 2, "steps": 2, "warmup_epochs": 2, "sigma": 0.25}),
    "smoothmix-T0": ("smoothmix", {"copies": 2, "steps": 0}),
}
"""Settings by a name that says what is special about them; several for each method."""


def build(case, **changes):
    """The method of that case (sigma 0.5 where it says nothing)."""
    name, settings = CASES[case]
    return make(name, **{"sigma": 0.5, **settings, **changes})


CLASSIFYING = [name for name in METHODS if not METHODS[name].trains_denoiser]
"""The methods that train any network; the other ones have test files of their own."""

# A method that needs no special settings has its defaults as a case.
CASES = {name: (name, {}) for name in CLASSIFYING} | CASES


def run_reference(case, method, problem, network, *, epoch=3):
    """The slow reference's loss of a method on a problem."""
    x, y = problem.images()
    noise, ratios = problem.randomness(method.copies, method.sigma)
    reference = LOSSES[CASES[case][0]]
    return reference(network, x, y, noise, ratios, epoch=epoch, **settings_for_reference(method))


def settings_for_reference(method):
    """A method's fields as the references take them: all but what the noise shows."""
    names = {field.name for field in fields(method)} - {"copies"}
    return {
        name: getattr(method, name)
        for name in names
        if name != "sigma" or type(method).__name__ == "Macer"
    }

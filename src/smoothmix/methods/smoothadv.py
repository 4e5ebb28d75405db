"""SmoothAdv (Salman et al., 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, final, get_args

from torch.nn import functional as F

from smoothmix.attacks import ddn, pgd, smoothed_cross_entropy, unit_l2_or_random
from smoothmix.errors import unknown_name
from smoothmix.methods.base import Method, Step, given, require_int, require_positive, warmup
from smoothmix.networks.noisy import noisy_logits

if TYPE_CHECKING:
    from torch import Tensor, nn

Attack = Literal["pgd", "ddn"]


@final
@dataclass(frozen=True, kw_only=True)
class SmoothAdv(Method):
    """Cross-entropy on adversarial examples of the smoothed classifier: eq. (smoothadv_train)."""

    copies: int = 4
    """Noises for each image, the same in attack and training; the paper took 4 for MNIST, 8 for CIFAR-10."""

    epsilon: float | None = None
    """Largest L2 norm of a perturbation; left out it is 1.0 as the text says, 255/256 as the tables were made."""

    steps: int = 10
    """Steps of the attack; those of PGD have length 2 epsilon / steps."""

    attack: Attack = "pgd"
    """`pgd`, projected gradient ascent, or `ddn`, decoupled direction and norm, beginning at epsilon."""

    warmup_epochs: int = 10
    """Epochs over which epsilon grows to its full value."""

    chunked: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, *given(self, "epsilon"))
        require_int(self, "steps", least=1)
        require_int(self, "warmup_epochs")
        if self.attack not in get_args(Attack):
            raise unknown_name("attack", str(self.attack), get_args(Attack))

    def terms(self, model: nn.Module, step: Step) -> dict[str, Tensor]:
        """`classification`: mean cross-entropy over all copies of the adversarial examples."""
        logits = noisy_logits(model, self.adversarial(model, step), step.noise)
        return {"classification": F.cross_entropy(logits.flatten(0, 1), step.y.repeat(self.copies))}

    def radius(self, epoch: int) -> float:
        """Epsilon in that epoch."""
        default = 255 / 256 if self.official else 1.0
        return (default if self.epsilon is None else self.epsilon) * warmup(
            epoch, self.warmup_epochs
        )

    def adversarial(self, model: nn.Module, step: Step) -> Tensor:
        """The images that the network learns from; the paper's text does not clamp them to [0, 1]."""
        radius = self.radius(step.epoch)
        objective = smoothed_cross_entropy(step.y)
        if self.attack == "ddn":
            return ddn(
                model,
                step.x,
                step.y,
                step.noise,
                objective=objective,
                steps=self.steps,
                radius=radius,
                clamp=self.official,
            )
        return pgd(
            model,
            step.x,
            step.noise,
            objective=objective,
            radius=radius,
            steps=self.steps,
            direction=unit_l2_or_random,
            clamp="before" if self.official else "never",
        )

"""SmoothAdv (Salman et al., 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, final, get_args

from torch.nn import functional as F

from smoothmix.attacks import ddn, pgd, smoothed_cross_entropy, unit_l2_or_random
from smoothmix.attacks.l2 import Clamp
from smoothmix.errors import unknown_name
from smoothmix.methods.base import Batch, Method, given, require_int, require_positive, warmup
from smoothmix.networks.noisy import noisy_logits

if TYPE_CHECKING:
    from torch import Tensor, nn

Attack = Literal["pgd", "ddn"]


@final
@dataclass(frozen=True, kw_only=True)
class SmoothAdv(Method):
    """Cross-entropy on adversarial examples of the smoothed classifier: eq. (smoothadv_train)."""

    copies: int = 4
    """Noise samples per image, the same in attack and training; the paper: 4, CIFAR-10 8."""

    epsilon: float | None = None
    """Largest L2 norm of the perturbation; by default 255/256, at fidelity paper 1.0."""

    steps: int = 10
    """Steps of the attack; those of PGD have length 2 epsilon / steps."""

    attack: Attack = "pgd"
    """`pgd`, projected gradient ascent, or `ddn`, decoupled direction and norm from epsilon on."""

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

    def terms(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """`classification`: mean cross-entropy over all noisy adversarial examples."""
        logits = noisy_logits(model, self.adversarial(model, batch), batch.noise)
        return {
            "classification": F.cross_entropy(logits.flatten(0, 1), batch.y.repeat(self.copies))
        }

    def radius(self, epoch: int) -> float:
        """Epsilon in that epoch."""
        # The text says 1; the published runs gave 255 levels, which the code divides by 256.
        epsilon = self.epsilon
        if epsilon is None and self.official:
            epsilon = 255 / 256
        elif epsilon is None:
            epsilon = 1.0
        return epsilon * warmup(epoch, self.warmup_epochs)

    def adversarial(self, model: nn.Module, batch: Batch) -> Tensor:
        """The adversarial images that the network is trained on."""
        radius = self.radius(batch.epoch)
        objective = smoothed_cross_entropy(batch.y)
        if self.attack == "ddn":
            return ddn(
                model,
                batch.x,
                batch.y,
                batch.noise,
                objective=objective,
                steps=self.steps,
                radius=radius,
                clamp=self.official,
            )
        # The paper's text does not clamp images to [0, 1]; the released code does.
        clamp: Clamp = "never"
        if self.official:
            clamp = "before"
        return pgd(
            model,
            batch.x,
            batch.noise,
            objective=objective,
            radius=radius,
            steps=self.steps,
            direction=unit_l2_or_random,
            clamp=clamp,
        )

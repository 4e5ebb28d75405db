"""The files of a run folder. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunFolder:
    """A folder that holds one training run and the certificates of its network."""

    path: Path

    @property
    def config(self) -> Path:
        """The settings, as TOML."""
        return self.path / "config.toml"

    @property
    def metrics(self) -> Path:
        """One line of JSON per epoch."""
        return self.path / "metrics.jsonl"

    @property
    def weights(self) -> Path:
        """The trained network; exists once training has ended."""
        return self.path / "checkpoint" / "weights.safetensors"

    def weights_after(self, epochs: int) -> Path:
        """The network of so many epochs, if the run was extended afterwards."""
        return self.path / "checkpoint" / f"weights-epoch{epochs}.safetensors"

    @property
    def state(self) -> Path:
        """The last checkpoint of the training."""
        return self.path / "checkpoint" / "state.pt"

    @property
    def previous_state(self) -> Path:
        """The checkpoint before `state`, in case that is damaged."""
        return self.path / "checkpoint" / "state-previous.pt"

    @property
    def damaged_state(self) -> Path:
        """A checkpoint that could not be read, set aside."""
        return self.path / "checkpoint" / "state-damaged.pt"

    @property
    def certificates(self) -> Path:
        """The certificates of the trained network."""
        return self.path / "certificates.tsv"

    @property
    def lock(self) -> Path:
        """Locked by the process that trains."""
        return self.path / "train.lock"

"""Training of a network in a run folder: `open_run` prepares or resumes it, `Trainer.run` trains.

The way of one batch: `batches` makes it, `step` turns it into a step of the optimiser, `trainer`
repeats that and saves checkpoints, `parallel` is what several processes exchange.
"""

from smoothmix.training.metrics import EpochMetrics, Listeners, StepProgress
from smoothmix.training.run import open_run
from smoothmix.training.trainer import Trainer

__all__ = ["EpochMetrics", "Listeners", "StepProgress", "Trainer", "open_run"]

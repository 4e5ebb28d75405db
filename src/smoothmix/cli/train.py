"""The command `train`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from smoothmix._process.progress import Progress
from smoothmix._process.signals import StopRequest, stop_on_interrupt, stop_on_sigterm
from smoothmix._process.world import current_world
from smoothmix.cli.options import TrainingOptions
from smoothmix.cli.output import duration, echo, progress
from smoothmix.config import Fidelity, Precision, RunConfig

if TYPE_CHECKING:
    from smoothmix.training.run import EpochMetrics, Listeners, Trainer


TRAINING = TrainingOptions()


def train(
    preset: str | None = None,
    /,
    *,
    config: Path | None = None,
    data: str | None = None,
    network: str | None = None,
    normalisation: str | None = None,
    method: str | None = None,
    sigma: float | None = None,
    settings: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
    fidelity: Fidelity | None = None,
    epochs: int | None = None,
    epochs_scale: float | None = None,
    batch: int | None = None,
    learning_rate: float | None = None,
    seed: int | None = None,
    precision: Precision | None = None,
    train_split: str | None = None,
    how: TrainingOptions = TRAINING,
    sync_batchnorm: Annotated[bool, Parameter(negative="")] = False,
    out: Path | None = None,
) -> None:
    """Train a network for smoothing, and leave it in a run folder.

    Kill it anywhere and run the same command again: it goes on from the last checkpoint, to the same weights.
    At SIGTERM it saves a checkpoint after the current step and ends with exit code 75: a cluster may requeue it.
    `torchrun --nproc-per-node 2 -m smoothmix -- train ...` trains with several processes, which share each batch.

    Parameters
    ----------
    preset
        A row of the paper or a quick one (`smoothmix presets`); what follows overrides it.
    config
        Settings from a TOML file instead, such as a run folder's config.toml.
    data
        Data set (`smoothmix data list`).
    network
        lenet, cifar_resnet20, cifar_resnet110 or resnet50.
    normalisation
        What the network does to pixels first: cifar10, imagenet or none; by default what its own data set has.
    method
        gaussian (unless a preset says otherwise), stability, smoothadv, macer, consistency or smoothmix.
    sigma
        Deviation of the noise for pixels in [0, 1].
    settings
        A setting of the method, name=value; may be given several times.
    fidelity
        official, the default, does what made the published tables, paper what the paper's text says.
    epochs
        Passes over the data; learning-rate drops, warm-up and deferral stay where they are.
    epochs_scale
        Multiply epochs, drops, warm-up and deferral, but for what --set gives.
    batch
        Images read at once.
    learning_rate
        Step size of SGD before the first drop.
    seed
        Decides initial weights, order, augmentation and noise; by default 0.
    precision
        bf16 runs the network under autocast.
    train_split
        Part of the data set to train on; by default train.
    sync_batchnorm
        With several processes, take BatchNorm's statistics over the batch of all of them (needs GPUs).
    out
        The run folder; by default runs/ and a name made from the settings.
    """
    from smoothmix.runs.plan import Wishes, make_config, run_name

    wishes = Wishes(
        preset=preset,
        config=config,
        data=data,
        train_split=train_split,
        network=network,
        normalisation=normalisation,
        method=method,
        sigma=sigma,
        settings=settings or (),
        fidelity=fidelity,
        epochs=epochs,
        epochs_scale=epochs_scale,
        batch=batch,
        learning_rate=learning_rate,
        seed=seed,
        precision=precision,
    )
    made = make_config(wishes)
    train_with_progress(
        made, out or Path("runs") / run_name(made), how, sync_batchnorm=sync_batchnorm
    )


def train_with_progress(
    config: RunConfig, path: Path, how: TrainingOptions = TRAINING, *, sync_batchnorm: bool = False
) -> None:
    """Train a run, or finish it, and show how far it is."""
    with stop_on_sigterm() as stop:  # before torch is imported, which takes seconds
        _train(config, path, how, sync_batchnorm, stop)


def _train(
    config: RunConfig, path: Path, how: TrainingOptions, sync_batchnorm: bool, stop: StopRequest
) -> None:
    from smoothmix.cli.target import choose_device
    from smoothmix.training.run import training

    with (
        listening(config, path, tensorboard=how.tensorboard) as listeners,
        training(
            config,
            path,
            data_dir=how.data_dir,
            allow_partial=how.allow_partial,
            device=choose_device(how.device),
            workers=how.workers,
            checkpoint_minutes=how.checkpoint_minutes,
            sync_batchnorm=sync_batchnorm,
            listeners=listeners,
            stop=stop,
        ) as trainer,
    ):
        for note in (*trainer.config.notes, *_notes_on_sharing(trainer, sync_batchnorm)):
            echo(f"note: {note}")
        if trainer.finished:
            echo(
                f"{path}: is trained already (delete {trainer.folder.weights.parent} to begin anew)"
            )
            return
        with stop_on_interrupt(
            stop, lambda: echo("stopping after this step (Ctrl-C again: at once)")
        ):
            metrics = trainer.run()
    right = f", {100 * metrics.accuracy:.1f} % of noisy test images right" if metrics else ""
    epochs = trainer.state.epoch
    echo(f"trained {path}: {trainer.method}, {epochs} epoch{'' if epochs == 1 else 's'}{right}")


def _notes_on_sharing(trainer: Trainer, sync_batchnorm: bool) -> Iterator[str]:
    """What several processes do otherwise than one."""
    from smoothmix.training.parallel import uses_batchnorm

    world = trainer.team.world
    if not (world.alone or trainer.finished):
        yield f"{world.size} processes share each batch of {trainer.config.recipe.batch}"
        if uses_batchnorm(trainer.model) and not sync_batchnorm:
            yield "with --sync-batchnorm, BatchNorm would take the statistics of the whole batch"


@contextmanager
def listening(config: RunConfig, path: Path, *, tensorboard: bool) -> Iterator[Listeners]:
    """What shows the loop's progress on the terminal."""
    from smoothmix.training.checkpoint import State
    from smoothmix.training.run import Listeners, StepProgress

    write = _event_writer(path) if tensorboard and current_world().is_main else lambda metrics: None
    with progress(f"training {path.name}", unit="steps") as show:

        def on_step(state: StepProgress) -> None:
            done = state.epoch * state.steps + state.step
            note = f"epoch {state.epoch + 1}, loss {state.loss:.3f}"
            show(Progress(done, state.epochs * state.steps, note))

        def on_epoch(metrics: EpochMetrics) -> None:
            write(metrics)
            echo(
                f"epoch {metrics.epoch} of {config.recipe.epochs}: loss {metrics.loss:.4f}, "
                f"accuracy on noisy test images {100 * metrics.accuracy:.1f} %, {duration(metrics.seconds)}"
            )

        def on_resume(state: State) -> None:
            echo(
                f"going on with epoch {state.epoch + 1}"
                + (f", after step {state.step}" if state.step else "")
            )
            if state.processes != (now := current_world().size):
                echo(
                    f"note: the number of processes is {now} now and was {state.processes}: sums may round otherwise"
                )

        yield Listeners(on_step=on_step, on_epoch=on_epoch, on_resume=on_resume)


def _event_writer(path: Path) -> Callable[[EpochMetrics], None]:
    """A function that adds an epoch's metrics to TensorBoard's files."""
    from smoothmix.errors import UsageError

    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UsageError("--tensorboard needs TensorBoard: pip install tensorboard") from None
    writers: list[
        SummaryWriter
    ] = []  # made with the first epoch: a command that is refused leaves nothing behind

    def write(metrics: EpochMetrics) -> None:
        if not writers:
            writers.append(SummaryWriter(path / "tensorboard"))
        values = {
            name: value for name, value in vars(metrics).items() if name not in ("epoch", "parts")
        }
        for name, value in {**values, **metrics.parts}.items():
            writers[0].add_scalar(name, value, metrics.epoch)
        writers[0].flush()

    return write

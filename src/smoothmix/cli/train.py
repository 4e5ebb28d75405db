"""The command `train`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from smoothmix._io.text import counted
from smoothmix._process.progress import Progress
from smoothmix._process.signals import StopRequest, stop_on_interrupt, stop_on_sigterm
from smoothmix._process.world import current_world
from smoothmix.cli.options import FLAT, IN_EXECUTION, IN_OUTPUT, IN_RUN
from smoothmix.cli.output import duration, echo, progress
from smoothmix.config import RunConfig
from smoothmix.errors import UsageError
from smoothmix.runs.options import RunOverrides, TrainingOptions

if TYPE_CHECKING:
    from smoothmix.training.checkpoint import State
    from smoothmix.training.metrics import EpochMetrics, Listeners, StepProgress
    from smoothmix.training.trainer import Trainer

NO_OVERRIDES = RunOverrides()
DEFAULT_OPTIONS = TrainingOptions()


def train(
    preset: str | None = None,
    /,
    *,
    config: Annotated[Path | None, IN_RUN] = None,
    overrides: Annotated[RunOverrides, FLAT, IN_RUN] = NO_OVERRIDES,
    options: Annotated[TrainingOptions, FLAT, IN_EXECUTION] = DEFAULT_OPTIONS,
    out: Annotated[Path | None, IN_OUTPUT] = None,
) -> None:
    """Train a network for smoothing, and save it in a run folder.

    Kill it at any point and run the same command again: it resumes from the last checkpoint and
    ends with the same weights. On SIGTERM it saves a checkpoint after the current step and exits
    with code 75, so that a cluster may requeue it.
    `torchrun --nproc-per-node 2 -m smoothmix -- train ...` trains with several processes, which
    share each batch.

    Parameters
    ----------
    preset
        A row of the paper or a quick one (`smoothmix presets`); other options override it.
    config
        Settings from a TOML file instead, such as a run folder's config.toml.
    out
        The run folder; by default runs/ and a name made from the settings.
    """
    from smoothmix.runs.folder import RunFolder
    from smoothmix.runs.plan import make_config, run_name

    if overrides.extend_epochs is not None and out is not None:
        known = RunFolder(out).config.exists()
        # Without other settings, those of the run itself.
        if known and preset is None and config is None and overrides.data is None:
            config = RunFolder(out).config
    run = make_config(overrides, preset=preset, config=config)
    train_with_progress(run, out or Path("runs") / run_name(run), options)


def train_with_progress(
    config: RunConfig, path: Path, options: TrainingOptions = DEFAULT_OPTIONS
) -> None:
    """Train a run, or finish it, and show its progress."""
    # Before torch is imported, which takes seconds: a signal in that time must not be lost.
    with stop_on_sigterm() as stop:
        _train(config, path, options, stop)


def _train(config: RunConfig, path: Path, options: TrainingOptions, stop: StopRequest) -> None:
    from smoothmix.training.run import open_run

    with (
        show_progress(config, path, tensorboard=options.tensorboard) as listeners,
        open_run(config, path, options, listeners=listeners, stop=stop) as trainer,
    ):
        for note in (*trainer.config.notes, *_notes_on_processes(trainer, options)):
            echo(f"note: {note}")
        if trainer.finished:
            checkpoint = trainer.folder.weights.parent
            echo(f"{path}: is trained already (delete {checkpoint} to train it again)")
            return
        if trainer.config.extended_epochs is not None:
            echo(_extension(trainer))
        with stop_on_interrupt(stop, _announce_stop):
            metrics = trainer.run()
    summary = f"trained {path}: {trainer.method}, {counted(trainer.state.epoch, 'epoch')}"
    if metrics is not None:
        summary += f", {100 * metrics.accuracy:.1f} % of noisy test images correct"
    echo(summary)


def _extension(trainer: Trainer) -> str:
    """What more epochs of a run mean for its learning rate."""
    recipe = trainer.config.recipe
    rate = recipe.rate(trainer.state.epoch)
    return (
        f"training up to epoch {recipe.epochs} of the extended run, with learning rate {rate:g} in "
        f"epoch {trainer.state.epoch + 1}; drops stay after epochs {list(recipe.drops)}"
    )


def _announce_stop() -> None:
    echo("stopping after this step (Ctrl-C again: at once)")


def _notes_on_processes(trainer: Trainer, options: TrainingOptions) -> Iterator[str]:
    """How training with several processes differs from training with one."""
    from smoothmix.training.parallel import uses_batchnorm

    world = trainer.group.world
    if world.alone or trainer.finished:
        return
    yield f"{world.size} processes share each batch of {trainer.config.recipe.batch}"
    if uses_batchnorm(trainer.model) and not options.sync_batchnorm:
        yield "with --sync-batchnorm, BatchNorm would take the statistics of the whole batch"


@contextmanager
def show_progress(config: RunConfig, path: Path, *, tensorboard: bool) -> Iterator[Listeners]:
    """Listeners that show the progress of training on the terminal."""
    from smoothmix.training.metrics import Listeners

    write_events = None
    if tensorboard and current_world().is_main:
        write_events = _event_writer(path)
    with progress(f"training {path.name}", unit="steps") as show:

        def on_step(state: StepProgress) -> None:
            done = state.epoch * state.steps + state.step
            note = f"epoch {state.epoch + 1}, loss {state.loss:.3f}"
            show(Progress(done, state.epochs * state.steps, note))

        def on_epoch(metrics: EpochMetrics) -> None:
            if write_events is not None:
                write_events(metrics)
            echo(
                f"epoch {metrics.epoch} of {config.recipe.epochs}: loss {metrics.loss:.4f}, "
                f"accuracy on noisy test images {100 * metrics.accuracy:.1f} %, "
                f"{duration(metrics.seconds)}"
            )

        yield Listeners(on_step=on_step, on_epoch=on_epoch, on_resume=_announce_resume)


def _announce_resume(state: State) -> None:
    message = f"resuming with epoch {state.epoch + 1}"
    if state.step:
        message += f", after step {state.step}"
    echo(message)
    now = current_world().size
    if state.processes != now:
        echo(
            f"note: the number of processes is {now} now and was {state.processes}: "
            "sums may round differently"
        )


def _event_writer(path: Path) -> Callable[[EpochMetrics], None]:
    """A function that adds an epoch's metrics to TensorBoard's files."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UsageError("--tensorboard needs TensorBoard: pip install tensorboard") from None
    # Opened with the first epoch: a command that is refused leaves no folder behind.
    writer: SummaryWriter | None = None

    def write(metrics: EpochMetrics) -> None:
        nonlocal writer
        if writer is None:
            writer = SummaryWriter(path / "tensorboard")
        scalars = {**vars(metrics), **metrics.parts}
        del scalars["epoch"], scalars["parts"]
        for name, value in scalars.items():
            writer.add_scalar(name, value, metrics.epoch)
        writer.flush()

    return write

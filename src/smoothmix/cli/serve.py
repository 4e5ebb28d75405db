"""The command `serve`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from smoothmix.cli.options import NetworkOptions
from smoothmix.cli.output import echo
from smoothmix.config import require

if TYPE_CHECKING:
    from smoothmix.certificates import Certification
    from smoothmix.cli.models import LoadedNetwork
    from smoothmix.serve import Classifier
    from smoothmix.serve.row_log import RowLog

NETWORK = NetworkOptions()


def serve(
    run: Path | None = None,
    /,
    *,
    network: NetworkOptions = NETWORK,
    host: str = "127.0.0.1",
    port: int = 8000,
    allow_host: Annotated[list[str] | None, Parameter(negative="", consume_multiple=True)] = None,
    seconds: float = 0.5,
    most_seconds: float = 30.0,
    n0: int = 100,
    max_draws: int = 100_000,
    alpha: float = 0.001,
    tolerance: float | None = None,
    active: int = 16,
    queue: int = 32,
    max_body: int = 8 * 2**20,
    max_pixels: int = 2**24,
    shape: str | None = None,
    log: Path | None = None,
) -> None:
    """Answer images with certificates, over HTTP and on a page of its own (smoothmix[serve]).

    `curl --data-binary @digit.png http://127.0.0.1:8000/v1/certify?seconds=0.5`

    Every answer holds what is certified when its deadline ends. Images of several requests share
    the cores. SIGTERM and Ctrl-C stop the service once requests that have arrived are answered.

    Parameters
    ----------
    run
        A run folder, or zoo:NAME, a network of the results in the clone.
    host
        Address to listen on; by default only this machine reaches the service.
    port
        Port to listen on; 0 takes a free one.
    allow_host
        Further names by which clients reach the service, such as that of a proxy.
    seconds
        Deadline of requests that name none, counted from their arrival.
    most_seconds
        The longest deadline that a request may name.
    n0
        Draws that select the class.
    max_draws
        Draws after which an image is finished before its deadline.
    alpha
        Chance that one answer is wrong.
    tolerance
        Finish an image once more draws could raise its radius by no more than this.
    active
        Images that are drawn for at once.
    queue
        Requests that may wait; further ones are refused with status 429.
    max_body
        Largest body of a request, in bytes.
    max_pixels
        Largest image, in pixels.
    shape
        Channels, height and width of the images of a --model, such as 3x224x224.
    log
        Append every certificate to this certificate file, something.tsv, with a secret seed; after
        10,000 rows to the next one, something-2.tsv, with another.
    """
    from smoothmix.serve import ServeSettings, Service
    from smoothmix.serve import run as serve_until_stopped
    from smoothmix.serve.server import listen

    settings = ServeSettings(
        host=host,
        port=port,
        allow_host=tuple(allow_host or ()),
        seconds=seconds,
        most_seconds=most_seconds,
        active=active,
        queue=queue,
        max_body=max_body,
        max_pixels=max_pixels,
    )
    certification = _certification(
        n0=n0, max_draws=max_draws, alpha=alpha, tolerance=tolerance, network=network
    )
    # Before the network is prepared: a port in use is the likeliest mistake.
    with (
        listen(settings) as listener,
        _opened(run, network, certification, shape, settings.seconds, log) as classifier,
        _rows(classifier, log) as rows,
    ):
        address = _address(settings.host, listener.getsockname()[1])
        echo(f"certifying on {address} (Ctrl-C stops)")
        serve_until_stopped(Service(classifier, settings, rows=rows), listener)


def _certification(
    *, n0: int, max_draws: int, alpha: float, tolerance: float | None, network: NetworkOptions
) -> Certification:
    """How images are certified, but for sigma, noise and seed, which the network decides."""
    from smoothmix.certificates import Certification
    from smoothmix.stats import Anytime, Stopping

    stopping = Stopping(max_draws=max_draws, tolerance=tolerance)
    return Certification(
        sigma=1.0,
        guarantee=Anytime(stopping, n0=n0, alpha=alpha),
        batch=network.batch,
        precision=network.precision,
    )


@contextmanager
def _opened(
    run: Path | None,
    network: NetworkOptions,
    certification: Certification,
    shape: str | None,
    seconds: float,
    log: Path | None,
) -> Iterator[Classifier]:
    """The classifier, open and warm."""
    from smoothmix.certificates.existing import existing_settings
    from smoothmix.cli.models import choose_noise, choose_sigma, load_network
    from smoothmix.serve import Classifier, open_classifier

    loaded = load_network(run, network)
    require(loaded.num_classes is not None, "--num-classes is needed for this network")
    assert loaded.num_classes is not None
    noise = choose_noise(network, path=log)
    certification = replace(certification, sigma=choose_sigma(loaded, network.sigma), noise=noise)
    existing = None
    if log is not None:
        existing = existing_settings(log)
    batch = network.batch
    if existing is not None:
        # Batches decide rounding: a file keeps its own.
        batch = existing.certification.batch
    smoothed = loaded.smoothed(
        sigma=certification.sigma,
        num_classes=loaded.num_classes,
        batch=batch,
        noise=noise,
        precision=network.precision,
        engine=network.engine,
    )
    images = _shape(shape, loaded)
    with open_classifier(
        smoothed, images, seconds=seconds, keep_batch=existing is not None
    ) as resident:
        certification = replace(certification, batch=resident.smoothed.batch)
        certification = certification.in_whole_batches()
        certification.require_reach()
        yield Classifier(
            resident=resident,
            certification=certification,
            name=loaded.name,
            class_names=loaded.class_names,
            trained_on=loaded.data or "",
            preparation=loaded.preparation,
            weights=loaded.weights,
        )


def _shape(text: str | None, loaded: LoadedNetwork) -> tuple[int, ...]:
    """The shape of images, as recorded or as given."""
    if text is None:
        require(
            len(loaded.shape) == 3,
            "--shape is needed: the shape of this network's images is not recorded",
        )
        return loaded.shape
    numbers = [int(part) for part in text.split("x") if part.isascii() and part.isdigit()]
    possible = len(numbers) == 3 and text.count("x") == 2 and numbers[0] in (1, 3)
    require(
        possible and min(numbers) >= 1,
        f"--shape is written channels x height x width, such as 3x224x224, got {text!r}",
    )
    return tuple(numbers)


@contextmanager
def _rows(classifier: Classifier, log: Path | None) -> Iterator[RowLog | None]:
    from smoothmix.certificates.output import require_output
    from smoothmix.serve.row_log import row_log

    if log is None:
        yield None
        return
    settings = classifier.file_settings()
    with row_log(require_output(log), settings, on_note=_show_note) as rows:
        yield rows


def _show_note(note: str) -> None:
    echo(f"note: {note}")


def _address(host: str, port: int) -> str:
    if ":" in host:
        host = f"[{host}]"
    return f"http://{host}:{port}/"

"""Downloads over https, from the first mirror whose file passes verification."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, final
from urllib.parse import urljoin, urlsplit

from smoothmix.data.source import Downloader
from smoothmix.errors import DataError

if TYPE_CHECKING:
    from requests import Response
    from rich.progress import Progress

CHUNK = 2**18
MAX_BYTES = 2**30
"""Where a download stops: no data set is larger, and a mirror may send without end."""
REASON_LENGTH = 160


def download(
    target: Path, mirrors: Sequence[str], verify: Callable[[Path], object], downloader: Downloader
) -> Path:
    """`target`, once the file of that name from one of the `mirrors` has passed `verify`.

    `verify` raises a DataError for a wrong file. Until it has passed, the file has another name,
    so that no reader sees a part of it.
    """
    # With the process id, since two processes may download the same file.
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    reasons = []
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"{target.parent} cannot be made ({error.strerror}): choose another --data-dir"
        ) from error
    for mirror in mirrors:
        host = urlsplit(mirror).hostname
        try:
            downloader(https(mirror + target.name), str(part), None)
            verify(part)
            part.replace(target)
            return target
        # A wrong file, such as an error page: another mirror may have the right one.
        except DataError as error:
            reasons.append(f"{host}: refused, {short_reason(error, part, target)}")
        except (OSError, ValueError) as error:
            reasons.append(f"{host}: {short_reason(error, part, target)}")
        finally:
            part.unlink(missing_ok=True)
    raise DataError(
        f"{target.name} could not be downloaded ({'; '.join(reasons)}): try again later, "
        f"or copy it from a machine that has it into {target.parent}"
    )


def https(url: str) -> str:
    """`url`, once it is known to be an https address."""
    if urlsplit(url).scheme != "https":
        raise ValueError(f"{url} is not an https address")
    return url


def short_reason(error: Exception, part: Path, target: Path) -> str:
    """What went wrong, short enough for a message that names several mirrors."""
    # For a failed connection only the innermost cause is useful: no such host, refused, timed out.
    _, _, cause = str(error).rpartition("(Caused by ")
    if cause.startswith("NameResolutionError"):
        return "its address cannot be found: is this machine online?"
    text = " ".join(cause.split()).replace(str(part), target.name) or type(error).__name__
    if len(text) > REASON_LENGTH:
        return f"{text[:REASON_LENGTH]}…"
    return text


def refuse_plain_http(response: Response, *_: Any, **__: Any) -> None:
    """Refuse a redirection to an address that is not https before it is followed."""
    if response.is_redirect:
        https(urljoin(response.url, response.headers["location"]))


@contextmanager
def web(*, progress: bool) -> Iterator[Downloader]:
    """A downloader over the network; with `progress`, a bar is shown on a terminal's stderr."""
    # Imported here: loading them takes longer than most commands do.
    import pooch  # type: ignore[import-untyped]
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    hooks = {"response": refuse_plain_http}
    with Progress(console=console, disable=not (progress and console.is_terminal)) as display:

        def downloader(url: str, output: str, _: None) -> None:
            bar = ProgressBar(display, url)
            download_file = pooch.HTTPDownloader(progressbar=bar, chunk_size=CHUNK, hooks=hooks)
            download_file(url, output, None)

        yield downloader


@final
class ProgressBar:
    """A line of rich's progress display with the methods of tqdm that pooch calls."""

    def __init__(self, display: Progress, url: str) -> None:
        self._display = display
        self._task = display.add_task(url.rpartition("/")[2], total=None)
        self._seen = 0

    @property
    def total(self) -> float | None:
        """Bytes in all, if the server announced them."""
        return self._display.tasks[self._task].total

    @total.setter
    def total(self, count: int) -> None:
        # pooch passes 0 where the length is unknown, for which rich expects None.
        self._display.update(self._task, total=count or None)

    def update(self, count: int) -> None:
        self._seen += count
        # An OSError, after which the next mirror is tried.
        if self._seen > MAX_BYTES:
            raise OSError(f"it sends more than {MAX_BYTES:,} bytes")
        self._display.advance(self._task, count)

    def reset(self) -> None:
        # pooch resets the bar at the end and counts all bytes once more.
        self._seen = 0
        self._display.reset(self._task)

    def close(self) -> None:
        self._display.stop_task(self._task)

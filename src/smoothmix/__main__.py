"""`python -m smoothmix` and the `smoothmix` command."""

import os
import sys


def leave_working_folder_to_the_end() -> None:
    """Take the working folder off the front of the import path, where `python -m` puts it.

    A file there could replace any library that is imported from here on. `main` puts it last.
    """
    # Not by pathlib, which such a file could replace as well. Python itself has imported os.
    try:
        here = os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        # The folder was deleted, and nothing can be imported from it.
        return
    if sys.path and sys.path[0] in ("", here):
        del sys.path[0]


leave_working_folder_to_the_end()

from smoothmix.cli import main  # noqa: E402 - the line above must come first

if __name__ == "__main__":
    sys.exit(main())

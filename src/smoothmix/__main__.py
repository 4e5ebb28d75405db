"""`python -m smoothmix` and the `smoothmix` command."""

import sys

from smoothmix.cli import main

if __name__ == "__main__":
    sys.exit(main())

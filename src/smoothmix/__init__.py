"""smoothmix."""

from smoothmix.version import __version__

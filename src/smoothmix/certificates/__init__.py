"""Certificates: rows and files, which anyone can read and check without a network. No torch."""

from smoothmix.certificates.file import Certificates, Writer, read, writing
from smoothmix.certificates.row import (
    COLUMNS,
    FIELD_COLUMNS,
    Certificate,
    dense,
    from_votes,
    sparse,
)
from smoothmix.certificates.selection import Selection
from smoothmix.certificates.settings import FileSettings, settings_path
from smoothmix.certificates.tools import (
    Verification,
    export_field_log,
    merge,
    recompute,
    save,
    verify,
)

__all__ = [
    "COLUMNS",
    "FIELD_COLUMNS",
    "Certificate",
    "Certificates",
    "FileSettings",
    "Selection",
    "Verification",
    "Writer",
    "dense",
    "export_field_log",
    "from_votes",
    "merge",
    "read",
    "recompute",
    "save",
    "settings_path",
    "sparse",
    "verify",
    "writing",
]

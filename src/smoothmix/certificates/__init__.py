"""Certificates: rows and files, which anyone can read and check without a network. No torch."""

from smoothmix.certificates.attack_file import (
    Attack,
    Attacks,
    AttackSettings,
    SearchSettings,
    read_attacks,
)
from smoothmix.certificates.certification import Certification
from smoothmix.certificates.file import Certificates, Writer, read, writing
from smoothmix.certificates.row import (
    COHEN_COLUMNS,
    COLUMNS,
    Certificate,
    dense,
    from_votes,
    sparse,
)
from smoothmix.certificates.selection import Selection
from smoothmix.certificates.settings import FileSettings, settings_path
from smoothmix.certificates.tools import (
    Verification,
    export_cohen_log,
    merge,
    recompute,
    save,
    verify,
)

__all__ = [
    "COLUMNS",
    "COHEN_COLUMNS",
    "Attack",
    "AttackSettings",
    "Attacks",
    "Certificate",
    "Certificates",
    "Certification",
    "FileSettings",
    "SearchSettings",
    "Selection",
    "Verification",
    "Writer",
    "dense",
    "export_cohen_log",
    "from_votes",
    "merge",
    "read",
    "read_attacks",
    "recompute",
    "save",
    "settings_path",
    "sparse",
    "verify",
    "writing",
]

"""The paper's tables again, from our own runs or from the published logs, with its numbers beside.

No torch at import.
"""

from smoothmix.reproduce.jobs import Job, certifications, choose, make_jobs, paper_skip
from smoothmix.reproduce.logs import find_logs, rows_from_logs
from smoothmix.reproduce.published_runs import (
    PublishedComparison,
    PublishedRun,
    compare_with_published,
    load_published,
    save_published,
)
from smoothmix.reproduce.results import results
from smoothmix.reproduce.table import Reproduced, reproduction_grid

__all__ = [
    "Job",
    "PublishedComparison",
    "PublishedRun",
    "Reproduced",
    "certifications",
    "choose",
    "compare_with_published",
    "find_logs",
    "load_published",
    "make_jobs",
    "paper_skip",
    "reproduction_grid",
    "results",
    "rows_from_logs",
    "save_published",
]

"""Certificate files as numbers: metrics, their intervals, and comparisons of files. No torch."""

from smoothmix.analysis.choice import Candidate, Choice, ObservedVotes, candidates, choose
from smoothmix.analysis.choice_grid import choice_grid, radius_grid
from smoothmix.analysis.compare import (
    Seeds,
    comparable_groups,
    differences_by_image,
    on_common_images,
    over_seeds,
    paired_by_image,
    same_data,
    same_images,
    shared_images,
    warnings_about,
    what_differs,
)
from smoothmix.analysis.intervals import Estimate, mean, means, means_of, share
from smoothmix.analysis.measured import Measured, from_file, measure, rounded_alike
from smoothmix.analysis.metrics import (
    accuracy_bound,
    average_certified_radius,
    certified_accuracy,
    share_at_least,
    standard_deviation,
)
from smoothmix.analysis.names import unique_names
from smoothmix.analysis.rounding import lower_end, paper_rounded
from smoothmix.analysis.sources import Source, parse_sources

__all__ = [
    "Candidate",
    "Choice",
    "Estimate",
    "Measured",
    "ObservedVotes",
    "Seeds",
    "Source",
    "accuracy_bound",
    "average_certified_radius",
    "candidates",
    "certified_accuracy",
    "choice_grid",
    "choose",
    "comparable_groups",
    "differences_by_image",
    "from_file",
    "lower_end",
    "mean",
    "means",
    "means_of",
    "measure",
    "on_common_images",
    "over_seeds",
    "paired_by_image",
    "paper_rounded",
    "parse_sources",
    "radius_grid",
    "rounded_alike",
    "same_data",
    "same_images",
    "share",
    "share_at_least",
    "shared_images",
    "standard_deviation",
    "unique_names",
    "warnings_about",
    "what_differs",
]

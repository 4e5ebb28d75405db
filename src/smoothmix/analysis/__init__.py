"""What certificates add up to, and how sure that is: metrics, intervals and comparisons of files. No torch here."""

from smoothmix.analysis.compare import (
    Paired,
    Seeds,
    over_seeds,
    paired_difference,
    same_images,
    shared_images,
    warnings_about,
    what_differs,
)
from smoothmix.analysis.intervals import Estimate, mean, means, share
from smoothmix.analysis.measured import Measured, from_file, measure, unique_names
from smoothmix.analysis.metrics import (
    accuracy_bound,
    average_certified_radius,
    certified_accuracy,
    deviation,
    share_at_least,
)
from smoothmix.analysis.rounding import lower_end, paper_rounded

__all__ = [
    "Estimate",
    "Measured",
    "Paired",
    "Seeds",
    "accuracy_bound",
    "average_certified_radius",
    "certified_accuracy",
    "deviation",
    "from_file",
    "lower_end",
    "mean",
    "means",
    "measure",
    "over_seeds",
    "paired_difference",
    "paper_rounded",
    "same_images",
    "share",
    "share_at_least",
    "shared_images",
    "unique_names",
    "warnings_about",
    "what_differs",
]

"""Figures of certificate files for papers, as pdf, png or svg: values in, matplotlib Figures out. No torch.

matplotlib is the optional extra `plots`: it is imported when the first figure is asked for. Neither pyplot nor the
caller's settings of matplotlib are touched or heeded, so the same files give the same figure everywhere.
"""

from smoothmix.plots.curves import certified_accuracy, probabilities
from smoothmix.plots.files import FIGURES, FORMATS, save, save_all
from smoothmix.plots.other import accuracy_against_acr, radius_histogram, training
from smoothmix.plots.style import COLUMN_WIDTH, FULL_WIDTH

__all__ = [
    "COLUMN_WIDTH",
    "FIGURES",
    "FORMATS",
    "FULL_WIDTH",
    "accuracy_against_acr",
    "certified_accuracy",
    "probabilities",
    "radius_histogram",
    "save",
    "save_all",
    "training",
]

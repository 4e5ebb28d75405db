"""Figures of certificate files for papers, as pdf, png or svg: values in, matplotlib Figures out.

matplotlib is the optional extra `plots`; it is imported when the first figure is drawn. Neither
pyplot nor the caller's matplotlib settings are used or changed, so the same files give the same
figure everywhere. No torch.
"""

from smoothmix.plots.curves import certified_accuracy, probabilities
from smoothmix.plots.epochs import training
from smoothmix.plots.files import FIGURES, FORMATS, save, save_all
from smoothmix.plots.histograms import radius_histogram
from smoothmix.plots.style import COLUMN_WIDTH, FULL_WIDTH
from smoothmix.plots.tradeoff import accuracy_against_acr

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

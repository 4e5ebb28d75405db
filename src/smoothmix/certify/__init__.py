"""Certify or classify with a smoothed classifier: a batch, or a data set into a file."""

from smoothmix.certify.attack import attack_dataset
from smoothmix.certify.certified import Certified
from smoothmix.certify.dataset import certify_dataset
from smoothmix.certify.extend import extend_dataset
from smoothmix.certify.loop import TimeLimit
from smoothmix.certify.predict import Prediction, predict_dataset
from smoothmix.certify.redraw import Redraw, redraw_dataset
from smoothmix.certify.resident import Resident
from smoothmix.certify.smoothed import Smoothed

__all__ = [
    "Certified",
    "Prediction",
    "Redraw",
    "Resident",
    "Smoothed",
    "TimeLimit",
    "attack_dataset",
    "certify_dataset",
    "extend_dataset",
    "predict_dataset",
    "redraw_dataset",
]

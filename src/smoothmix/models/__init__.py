"""Classifiers as people have them, as modules that map images in [0, 1] to logits."""

from smoothmix.models.black_box import BlackBox
from smoothmix.models.load import load
from smoothmix.models.loaded import LoadedModel
from smoothmix.models.outputs import with_output
from smoothmix.models.outside import OutsideModule

__all__ = ["BlackBox", "LoadedModel", "OutsideModule", "load", "with_output"]

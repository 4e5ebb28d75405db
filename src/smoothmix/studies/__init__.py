"""The paper's measurements on trained models, and the runner that they share.

A study is a small class: `one` measures an image under a classifier, `summarise` makes a report of
all results. `run_study` does the rest.
"""

from smoothmix.studies.case import Case, SmoothedAttack, VoteSettings
from smoothmix.studies.confidence import ConfidenceStudy
from smoothmix.studies.files import SavedReport, save_report
from smoothmix.studies.mixing import MixingStudy
from smoothmix.studies.path import PathStudy
from smoothmix.studies.runner import measure, run_study
from smoothmix.studies.study import NamedClassifier, Results, Study, StudyReport

__all__ = [
    "Case",
    "ConfidenceStudy",
    "MixingStudy",
    "NamedClassifier",
    "PathStudy",
    "Results",
    "SavedReport",
    "SmoothedAttack",
    "Study",
    "StudyReport",
    "VoteSettings",
    "measure",
    "run_study",
    "save_report",
]

"""Recorded logits tell networks of the same weights apart, and survive being written."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from smoothmix.certificates.probes import (
    RANDOM,
    Probe,
    probe_deviation,
    probe_difference,
    probe_text,
    short_probe_text,
)
from smoothmix.errors import UsageError

HERE = "Some CPU, AVX512, torch 2.13"
ELSEWHERE = "Other CPU, AVX2, torch 2.13"


def logits(seed: int = 0, shape: tuple[int, int] = (8, 10)) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(0, 3, shape).astype(np.float32)


@settings(max_examples=50)
@given(st.integers(1, 9), st.integers(1, 1500), st.integers(0, 5))
def test_what_is_written_is_read(images: int, classes: int, seed: int) -> None:
    values = logits(seed, (images, classes))
    probe = Probe(probe_text(values, computed_on=HERE))
    assert probe.computed_on == HERE
    assert len(probe.text) < 12_000
    kept, columns = probe.logits.shape
    if images * classes <= 2048 and classes <= 1024:
        assert (kept, columns) == (images, classes)
    if classes <= 1024:
        assert probe.logits.tobytes() == values[:kept].tobytes()
    # Old files can be compared with it, however many classes there are.
    if images >= 2:
        assert short_probe_text(probe.logits) == short_probe_text(values)


def test_one_bit_matters_on_the_same_processor_and_not_on_another() -> None:
    values = logits()
    other = values.copy()
    other[5, 7] = np.nextafter(other[5, 7], np.float32(9))
    before = probe_text(values, computed_on=HERE)
    assert probe_difference(before, probe_text(values, computed_on=HERE)) == ""
    message = probe_difference(before, probe_text(other, computed_on=HERE))
    assert "gives other logits" in message
    assert HERE in message
    assert probe_difference(before, probe_text(other, computed_on=ELSEWHERE)) == ""
    assert 0 < probe_deviation(before, probe_text(other, computed_on=ELSEWHERE)) < 1e-6


def test_logits_that_earlier_versions_did_not_record_are_compared() -> None:
    """They recorded classes 0, 3, 6 and 9 of the first two images."""
    values = logits()
    permuted = values[:, [0, 2, 1, 3, 5, 4, 6, 8, 7, 9]]
    assert short_probe_text(values) == short_probe_text(permuted)
    other_branch = values.copy()
    other_branch[2:] *= -1
    assert short_probe_text(values) == short_probe_text(other_branch)
    before = probe_text(values, computed_on=HERE)
    for changed in (permuted, other_branch):
        after = probe_text(changed, computed_on=ELSEWHERE)
        assert "its code or its settings have changed" in probe_difference(before, after)


def test_random_networks_match_nothing_and_old_files_match_as_before() -> None:
    values = logits()
    new = probe_text(values, computed_on=HERE)
    old = short_probe_text(values)
    for other in ("", RANDOM, old, new):
        assert "draws random numbers" in probe_difference(RANDOM, other)
        assert "draws random numbers" in probe_difference(other, RANDOM)
    for one, another in (("", new), (new, ""), (old, new), (new, old), (old, old), ("", old)):
        assert probe_difference(one, another) == ""
    assert probe_difference(old, probe_text(-values, computed_on=HERE)) != ""


@pytest.mark.parametrize(
    "text",
    [
        "a b",
        "1 nan",
        "8x10 logits on x: AAAA",
        "1x1 logits on x: AADAfw==",
        "1x1 logits on x: A===",
        "9999x9999 logits on x: AAAAPw==",
    ],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="trial must be the logits of a network"):
        Probe(text)

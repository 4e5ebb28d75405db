"""Certification inside of a host program that forks, or has threads of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from smoothmix.certify.smoothed import Smoothed
from smoothmix.inference.threads import one_thread_per_forward, set_threads_of_this_thread
from tests.conftest import ROOT, small_convnet
from tests.helpers.forking import TRIES

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@pytest.fixture(scope="module")
def children() -> dict[str, list[str] | str]:
    """What became of the children of a program that forks."""
    module = [sys.executable, "-W", "ignore", "-m", "tests.helpers.forking"]
    done = subprocess.run(module, cwd=ROOT, capture_output=True, text=True, check=True, timeout=600)
    outcomes: dict[str, list[str] | str] = json.loads(done.stdout)
    return outcomes


@pytest.mark.parametrize("network", ["turns", "traced"])
def test_a_child_forked_while_a_thread_certifies_counts_the_same_votes(
    children: dict[str, list[str]], network: str
) -> None:
    assert children[network] == ["True"] * TRIES


def test_a_child_draws_noise_that_a_thread_was_preparing(children: dict[str, str]) -> None:
    assert children["noise"] == "(20, 1, 28, 28)"


def test_a_child_counts_votes_where_torch_alone_would_wait_for_its_threads(
    children: dict[str, str],
) -> None:
    assert children["threads of torch"] == "60"


def test_a_classifier_that_was_opened_before_the_fork_is_refused_in_the_child(
    children: dict[str, str],
) -> None:
    assert children["open"].startswith("UsageError: this classifier was opened before the process")


@pytest.fixture
def four_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def in_new_thread(function: Callable[[], int]) -> int:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def test_a_thread_that_first_uses_torch_during_a_call_keeps_all_threads(four_threads: None) -> None:
    smoothed = Smoothed(small_convnet(), sigma=0.5, num_classes=10, noise="gaussian")
    with (
        ThreadPoolExecutor(1) as host,
        smoothed.open((1, 28, 28), seed=0) as sampler,
    ):
        # Once the workers have started, and set a limit each.
        sampler.check_network((1, 28, 28))
        assert host.submit(torch.get_num_threads).result() == 4
        assert torch.get_num_threads() == 1
        smoothed.votes(torch.full((2, 1, 28, 28), 0.5), n=600)
        assert in_new_thread(torch.get_num_threads) == 4
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 4
    assert in_new_thread(torch.get_num_threads) == 4


def test_threads_that_open_and_close_at_the_same_time_keep_their_numbers(
    four_threads: None,
) -> None:
    used_torch = threading.Barrier(2, timeout=60)
    both_open = threading.Barrier(2, timeout=60)
    first_closed = threading.Event()

    def use_torch() -> None:
        # A thread that uses torch for the first time while a limit is set may inherit it.
        torch.get_num_threads()
        used_torch.wait()

    def first() -> int:
        use_torch()
        set_threads_of_this_thread(3)
        with one_thread_per_forward() as usual:
            assert usual == 3
            both_open.wait()
        first_closed.set()
        return torch.get_num_threads()

    def second() -> int:
        use_torch()
        with one_thread_per_forward() as usual:
            assert usual == 4
            both_open.wait()
            assert first_closed.wait(timeout=60)
            # Another thread that ends must not lift the limit of this one.
            assert torch.get_num_threads() == 1
        return torch.get_num_threads()

    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(first), pool.submit(second)]
        assert [job.result(timeout=60) for job in jobs] == [3, 4]
    assert torch.get_num_threads() == 4

"""The threads that matrix products are computed on."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from tests.conftest import Open
from voicepipe.audio.blas import compute_on_one_thread
from voicepipe.audio.resample import Resampler

N_SHARES = 300
"""Over a second. With two threads each product wakes the other one, so no share is ever small."""


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    """What a machine with two cores begins with."""
    with threadpool_limits(limits=2, user_api="blas"):
        yield


def n_threads() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def share_of_other_threads() -> float:
    """CPU time of all other threads while this one resamples seconds of audio, as a part of its own."""
    resampler, samples = Resampler(24_000, 16_000), np.zeros(5 * 24_000, np.int16)
    own_s, all_s = time.thread_time(), time.process_time()
    for _ in range(10):
        resampler.push(samples)
    own_s, all_s = time.thread_time() - own_s, time.process_time() - all_s
    return all_s / own_s - 1


def test_no_other_thread_computes() -> None:
    """Threads that an earlier product woke stay awake for tens of ms, longer than some shares take."""
    compute_on_one_thread()
    assert n_threads() == [1]
    assert any(share_of_other_threads() < 0.2 for _ in range(N_SHARES))


async def test_a_server_computes_on_one_thread(fake_server: Open) -> None:
    """Other threads of the library would keep the event loop waiting."""
    assert n_threads() == [2]
    async with fake_server():
        assert n_threads() == [1]

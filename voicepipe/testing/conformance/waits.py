"""Helpers of all suites: bounded waits, and a check for leaked tasks and resources."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from voicepipe.errors import StageError
from voicepipe.testing.fakes.script import soon

PROMPT_S = 2.0
"""Time limit of leaving in a suite. The requirement is 100 ms; the rest is for a machine that is busy with other tests,
since latency is measured in a benchmark."""

LONG_TIMEOUT_MS = 30_000
"""The idle timeout of a provider under test: far over `PROMPT_S`, so that work that only this timeout ends is not
prompt."""

IDLE_MS = 1_000
"""The idle timeout in a test that waits for it. A machine that is busy with other tests connects within it."""


@asynccontextmanager
async def promptly() -> AsyncIterator[None]:
    """Fail unless the block is over within `PROMPT_S`."""
    async with asyncio.timeout(PROMPT_S):
        yield


async def ends_when_cancelled(work: Coroutine[Any, Any, None], begun: asyncio.Event) -> None:
    """Check that a task that is cancelled during `work` ends as cancelled, promptly."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        await soon(begun)
        task.cancel()
        async with promptly():
            await asyncio.wait([task])
    assert task.cancelled()


async def lets_failures_out(opened: AbstractAsyncContextManager[object]) -> None:
    """Check that an exception of the user comes out unchanged, and is not attributed to the provider."""
    with pytest.raises(TimeoutError, match="the user's own"):
        async with opened:
            raise TimeoutError("the user's own")


class LeavesNothing:
    """Every test of a suite ends with the tasks that it began with, and without unclosed resources."""

    @pytest.fixture(autouse=True)
    async def _leaves_nothing(self) -> AsyncIterator[None]:
        before = asyncio.all_tasks()
        gc.freeze()  # older objects cannot be the test's: scanning all of them took longer than most tests
        yield
        for _ in range(100):  # iterations of the loop, for cancelled tasks to end
            left = asyncio.all_tasks() - before - {asyncio.current_task()}
            if not left:
                break
            await asyncio.sleep(0)
        assert not left
        gc.collect()  # unclosed resources warn now, and warnings are errors


class TakesCues:
    """Requirement of a scripted suite for its provider's fixture: `timeout_ms` is its idle timeout."""

    @pytest.fixture
    def timeout_ms(self) -> int:
        """Return the idle timeout of the vendor. Tests of stalls shorten it."""
        return LONG_TIMEOUT_MS


short_timeout = pytest.mark.parametrize("timeout_ms", [pytest.param(IDLE_MS, id="impatient")])
"""For a test that waits for the idle timeout."""


def names_its_provider(error: StageError, *, stage: str, provider: str) -> None:
    """Check that the error names its provider, and keeps no object alive."""
    assert error.stage == stage
    assert error.provider == provider
    assert error.why
    assert all(isinstance(value, str | int | bool | None) for value in vars(error).values())


REFUSALS = [
    pytest.param(400, None, False, id="400"),
    pytest.param(401, None, False, id="401-wrong-key"),
    pytest.param(403, None, False, id="403"),
    pytest.param(404, None, False, id="404-unknown-model"),
    pytest.param(429, "2", True, id="429-retry-after"),
    pytest.param(500, None, True, id="500"),
    pytest.param(503, None, True, id="503-overloaded"),
]
"""(status, Retry-After in seconds, whether another try may succeed)"""

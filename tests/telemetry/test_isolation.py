"""A background task that fails does not end the server: it is logged, and begins again."""

from __future__ import annotations

import asyncio
import logging

import pytest

from voicepipe.telemetry import isolation
from voicepipe.telemetry.isolation import keep_running
from voicepipe.testing.waiting import WAIT_S


def crashes(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Where each crash was."""
    return [record.__dict__["fields"]["where"] for record in caplog.records if record.message == "crashed"]


async def test_a_task_that_fails_begins_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever it raises, also several errors of its own tasks; once it returns, it is over."""
    monkeypatch.setattr(isolation, "RESTART_S", 0.0)
    errors: list[Exception] = [KeyError("a bug"), ExceptionGroup("two", [ValueError(), TypeError()])]

    async def work() -> None:
        if errors:
            raise errors.pop(0)

    with caplog.at_level(logging.ERROR, logger="voicepipe"):
        async with asyncio.timeout(WAIT_S):
            await keep_running("work", work)
    assert (errors, crashes(caplog)) == ([], ["work", "work"])


@pytest.mark.parametrize("fails_last", [False, True])
async def test_a_task_that_is_cancelled_is_over(caplog: pytest.LogCaptureFixture, fails_last: bool) -> None:
    """Also if its cleanup fails: that is logged."""
    began = asyncio.Event()

    async def work() -> None:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            if fails_last:
                raise KeyError("a bug")

    with caplog.at_level(logging.ERROR, logger="voicepipe"):
        running = asyncio.create_task(keep_running("work", work))
        await began.wait()
        running.cancel()
        async with asyncio.timeout(WAIT_S):
            await asyncio.wait([running])
    assert running.cancelled() is not fails_last
    assert crashes(caplog) == ["work"] * fails_last

"""The store is maintained in the background, whatever the store does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

from voicepipe import clock
from voicepipe.telemetry.rollups.retention import Retention, maintain
from voicepipe.telemetry.store.port import StoreError
from voicepipe.testing.waiting import WAIT_S

OFTEN = Retention(keep_days=30, max_bytes=1_000, maintain_every_ms=1, trim_every_ms=1, pause_ms=1)


class FakeStore:
    """A store whose maintenance and trimming return scripted answers; it sets `done` after the last of them."""

    def __init__(self, *answers: bool | int | StoreError) -> None:
        self.calls: list[str] = []
        self.limits: list[tuple[int | None, int | None]] = []
        self.done = asyncio.Event()
        self._answers: Iterator[bool | int | StoreError] = iter(answers)

    async def maintain_step(self, now_ms: int) -> bool:
        assert abs(now_ms - clock.unix_ms()) < 60_000
        self.calls.append("tidy")
        return bool(self._next())

    async def trim(self, now_ms: int, *, keep_days: int | None, max_bytes: int | None) -> int:
        self.calls.append("trim")
        self.limits.append((keep_days, max_bytes))
        return int(self._next())

    def _next(self) -> bool | int:
        answer = next(self._answers, None)
        if answer is None:
            self.done.set()
            return False
        if isinstance(answer, StoreError):
            raise answer
        return answer


async def maintained(store: FakeStore, retention: Retention = OFTEN) -> None:
    """Run maintenance until the store has given its last scripted answer."""
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        task = group.create_task(maintain(store, retention))  # type: ignore[arg-type]
        await store.done.wait()
        task.cancel()


async def test_all_is_summed_up_before_anything_is_trimmed() -> None:
    """Piece by piece, until there is no more; with the limits as they were set."""
    store = FakeStore(True, True, False, 200, 7, 0)
    await maintained(store)
    assert store.calls[:6] == ["tidy", "tidy", "tidy", "trim", "trim", "trim"]
    assert set(store.limits) == {(30, 1_000)}


async def test_trimming_waits_its_turn() -> None:
    """It is looked at less often than summing up."""
    store = FakeStore(False, 0, False, False, False)
    await maintained(store, Retention(maintain_every_ms=1, trim_every_ms=3_600_000))
    assert store.calls[:5] == ["tidy", "trim", "tidy", "tidy", "tidy"]


async def test_a_failing_store_is_tried_again_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Until it works again."""
    broken = StoreError("disk full")
    store = FakeStore(broken, broken, False, broken, False, 0, broken)
    with caplog.at_level(logging.ERROR, "voicepipe"):
        await maintained(store)
    assert [line.message for line in caplog.records] == ["record_maintenance_failed", "record_maintenance_failed"]

"""A cue's fault as the stage error that a real provider would raise for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

from voicepipe.errors import StageBroken, StageError, StageRefused, StageTimeout
from voicepipe.testing.fakes.cues import CuePoints, Fault, Hang, HangUp, InBandError, Status

Stage = Literal["stt", "llm", "tts"]


class Faults:
    """One fake stage's faults; `idle_timeout_ms` is how long it waits when it stalls."""

    def __init__(self, stage: Stage, name: str, idle_timeout_ms: int) -> None:
        self._stage, self._name, self._idle_ms = stage, name, idle_timeout_ms

    def error(self, fault: Fault) -> StageError:
        """Return the error of `fault` on the user's side."""
        status = fault.code if isinstance(fault, InBandError) else getattr(fault, "status", None)
        if status is None:
            why = f"the cue makes the fake fail: {fault}"
            return StageBroken(self._stage, provider=self._name, why=why, retryable=True)
        after = fault.retry_after if isinstance(fault, Status) else None
        return StageRefused(
            self._stage,
            provider=self._name,
            why=f"HTTP {status}: the cue makes the fake refuse",
            retryable=status in (408, 409, 429) or status >= 500,
            status=status,
            retry_after_ms=round(float(after) * 1_000) if after is not None else None,
        )

    async def before(self, fault: Fault | None) -> None:
        """Fail if the fault is one that comes before an answer.

        Raises:
            StageError: the fault's error.
        """
        if isinstance(fault, Hang):
            async with self.idle_timeout():
                await asyncio.Event().wait()
        if isinstance(fault, Status | HangUp):
            raise self.error(fault)

    async def reach(self, cue_points: CuePoints, position: int) -> None:
        """Wait or fail if the cue requires it for this position.

        Raises:
            StageError: the cue fails here, or stalls for longer than the idle time.
        """
        async with self.idle_timeout():
            fault = await cue_points.reach(position)
        if fault is not None:
            raise self.error(fault)

    @asynccontextmanager
    async def idle_timeout(self) -> AsyncIterator[None]:
        """End waits inside with a `StageTimeout` after the idle time."""
        try:
            async with asyncio.timeout(self._idle_ms / 1_000):
                yield
        except TimeoutError:
            why = f"no data for {self._idle_ms} ms"
            raise StageTimeout(self._stage, provider=self._name, why=why, retryable=True) from None

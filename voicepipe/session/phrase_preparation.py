"""Decide when one session's phrases are spoken ahead: in its present voice, and only as often as turns pay for."""

from __future__ import annotations

import asyncio
from typing import Final

from voicepipe.session.session_voice import SessionVoice
from voicepipe.tasks import AsyncEvent
from voicepipe.turn.record.values import TurnRecord

STEADY_S: Final = 1.0
"""Seconds that a changed voice must stay before it is prepared: clients try several, or drag a slider."""

MAX_BETWEEN_TURNS: Final = 3
"""Changes of voice that are prepared between two turns with an LLM request; after that the client gets no filler
until the next such turn."""


class Preparation:
    """Prepares the phrases of one session, one voice at a time."""

    def __init__(self, voices: SessionVoice) -> None:
        self._voices = voices
        self._requested = AsyncEvent()
        self.n_made = 0
        """Changes of voice that were prepared since the latest turn with an LLM request."""

        self._was_refused = False

    def request(self) -> None:
        """Request that the phrases are prepared in the present voice."""
        self._requested.set()

    def on_record(self, record: TurnRecord) -> None:
        """Process a turn's record: a turn with an LLM request pays for more preparations."""
        if record.outcome is None or not any(stage == "llm" for stage, _ in record.providers):
            return
        self.n_made = 0
        if self._was_refused:
            self.request()

    async def run(self) -> None:
        """Prepare what is requested, until cancelled. The first preparation starts at once: a session begins with one
        voice."""
        await self._requested.wait()
        await self._prepare()
        while True:
            await self._requested.wait()
            await self._wait_for_steady_voice()
            await self._prepare()

    async def _wait_for_steady_voice(self) -> None:
        while True:
            voice = self._voices.usual
            await asyncio.sleep(STEADY_S)
            if self._voices.usual == voice:
                return

    async def _prepare(self) -> None:
        self._requested.clear()
        if not self._voices.lacks():
            return
        self._was_refused = self.n_made >= MAX_BETWEEN_TURNS
        if not self._was_refused:
            self.n_made += 1
            await self._voices.prepare()

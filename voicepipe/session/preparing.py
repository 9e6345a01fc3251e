"""When one session's phrases are spoken ahead: in its voice as it is, and never faster than turns pay for."""

from __future__ import annotations

import asyncio
from typing import Final

from voicepipe.session.voices import Voices
from voicepipe.turn.record import TurnRecord

SETTLE_S: Final = 1.0
"""A voice that changed is prepared when it has stayed for so long: clients try several, or drag a slider."""

MOST_BETWEEN_TURNS: Final = 3
"""A client that changes its voice more often between two turns that a model was asked for gets no filler until then."""


class Preparation:
    """Has the phrases of one session spoken ahead, one voice at a time."""

    def __init__(self, voices: Voices) -> None:
        self._voices = voices
        self._wanted = asyncio.Event()
        self._n_made = 0
        self._was_refused = False

    def want(self) -> None:
        """See to it that what should be ready to be said is, in the voice as it is now."""
        self._wanted.set()

    def note(self, record: TurnRecord) -> None:
        """Take a turn's record: one that a model was asked for pays for more preparations."""
        if record.outcome is None or not any(stage == "llm" for stage, _ in record.providers):
            return
        self._n_made = 0
        if self._was_refused:
            self.want()

    async def run(self) -> None:
        """Prepare what is wanted, until cancelled. The first time at once: a session begins with one voice."""
        await self._wanted.wait()
        await self._prepare()
        while True:
            await self._wanted.wait()
            await self._settled()
            await self._prepare()

    async def _settled(self) -> None:
        while True:
            voice = self._voices.usual
            await asyncio.sleep(SETTLE_S)
            if self._voices.usual == voice:
                return

    async def _prepare(self) -> None:
        self._wanted.clear()
        if not self._voices.lacks():
            return
        self._was_refused = self._n_made >= MOST_BETWEEN_TURNS
        if not self._was_refused:
            self._n_made += 1
            await self._voices.prepare()

"""How a session ends before its caller hangs up: by word of its house, at once or after the running turn."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

GOING_AWAY: Final = 1001
POLICY_VIOLATION: Final = 1008
INTERNAL_ERROR: Final = 1011
"""Close codes of RFC 6455, section 7.4.1: the time is over, a limit was reached, our own code broke."""

NOT_AUTHORISED: Final = 4_001
"""Ours, from the range that RFC 6455, section 7.4.2 leaves to applications: the credential is good no more."""

LAST_TURN_MAX_S: Final = 60.0
"""How long the running turn may still take. An answer of a voice agent is seldom longer; a caller could make one last
for ever."""


@dataclass(frozen=True, slots=True)
class Ending:
    """What the client is told at the end."""

    code: str
    """Of the `error` event that goes before the close: `limit_reached`, `token_revoked`, `session_expired`."""

    why: str
    """For people, at most 123 bytes: the event's message and the close frame's reason (RFC 6455, 5.5)."""

    close_code: int


class EndingOrders:
    """What the house has said about the end of one session."""

    def __init__(self) -> None:
        self.ending: Ending | None = None
        """How it will end; None while it may go on."""

        self._told, self._due = asyncio.Event(), asyncio.Event()

    def now(self, ending: Ending) -> None:
        """End at once. This goes before anything that was said earlier."""
        self.ending = ending
        self._told.set()
        self._due.set()

    def after_turn(self, ending: Ending) -> None:
        """End when the running turn is over. Only the first word counts."""
        if self.ending is None:
            self.ending = ending
            self._told.set()

    def turn_over(self) -> None:
        """No turn is running: end, if that was said."""
        if self.ending is not None:
            self._due.set()

    async def due(self) -> Ending:
        """Wait until the session is to end, and tell how: at most `LAST_TURN_MAX_S` from when it was said."""
        await self._told.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_TURN_MAX_S):
                await self._due.wait()
        assert self.ending is not None
        return self.ending

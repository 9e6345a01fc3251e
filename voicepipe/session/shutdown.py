"""End a session from the server's side, at once or after the running turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from msgspec import Struct

from voicepipe.protocol.outbound import EventRenderer
from voicepipe.session.connection import SessionConnection
from voicepipe.session.outbox import Outbox
from voicepipe.tasks import AsyncEvent
from voicepipe.turn.notifications import Refused

NORMAL: Final = 1000
GOING_AWAY: Final = 1001
POLICY_VIOLATION: Final = 1008
INTERNAL_ERROR: Final = 1011
"""Close codes of RFC 6455, section 7.4.1: the call is over, the time is over, a limit was reached, our own code
failed."""

SERVICE_RESTART: Final = 1012
"""A close code of the registry that RFC 6455, section 11.7 opens: the client resumes, at another node."""

TRY_AGAIN_LATER: Final = 1013
"""A close code of the registry that RFC 6455, section 11.7 opens: a later connection may succeed."""

NOT_AUTHORISED: Final = 4_001
"""Our own code, from the range that RFC 6455, section 7.4.2 leaves to applications: the credential is no longer
valid."""

MAX_LAST_TURN_S: Final = 60.0
"""Seconds that the running turn may still take. A reply is seldom longer; without a limit a user could prolong the
turn for ever."""

LAST_WORD_S: Final = 2.0
"""How long a last event may take to leave before the connection is closed."""

MAX_RECORDS_WAIT_S: Final = 0.5
"""How long a session's close frame waits for the records of its turns. Once a client has the frame, they
are stored. Without the database the wait ends here."""


class Ending(Struct, frozen=True):
    """The server's last messages to the client."""

    code: str
    """Code of the `error` event that is sent before the close: `limit_reached`, `token_revoked`, `session_expired`.
    There is none before a close with `NORMAL`."""

    why: str
    """Text for people, at most 123 bytes: the event's message and the close frame's reason (RFC 6455, 5.5)."""

    close_code: int


class EndingRequests:
    """The server's requests to end one session."""

    def __init__(self) -> None:
        self.ending: Ending | None = None
        """How the session will end; None while it may continue."""

        self._requested, self._due = AsyncEvent(), AsyncEvent()

    def now(self, ending: Ending) -> None:
        """End at once. This overrides earlier requests."""
        self.ending = ending
        self._requested.set()
        self._due.set()

    def after_turn(self, ending: Ending) -> None:
        """End when the running turn is over. Only the first request counts."""
        if self.ending is None:
            self.ending = ending
            self._requested.set()

    def turn_over(self) -> None:
        """Report that no turn is running: end, if that was requested."""
        if self.ending is not None:
            self._due.set()

    async def due(self) -> Ending:
        """Wait until the session is to end, and return the ending: at most `MAX_LAST_TURN_S` after the request."""
        await self._requested.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(MAX_LAST_TURN_S):
                await self._due.wait()
        assert self.ending is not None
        return self.ending


STOPPING: Final = Ending("server_stopping", "The server is stopping. Open another session.", GOING_AWAY)
"""For a client that can't resume at another node."""

MOVE: Final = Ending("server_stopping", "The server is stopping. Resume this session.", SERVICE_RESTART)
"""For a client that can, and did not when the server requested it."""


MOVED: Final = Ending("session_moved", "The session goes on at another node.", NORMAL)
"""For the connection of a client that has resumed there."""


def expired(length_s: int) -> Ending:
    """Return the end of a session that has lasted as long as it may."""
    length = f"{length_s // 60} minutes" if length_s >= 120 else f"{length_s} seconds"
    return Ending("session_expired", f"Your session hit the maximum duration of {length}.", GOING_AWAY)


async def end_on_request(
    requests: EndingRequests,
    connection: SessionConnection,
    outbox: Outbox,
    wire: EventRenderer,
    records_written: Callable[[], Awaitable[None]],
) -> None:
    """Wait until the session is to end. Then send an `error` event with the reason, unless it ends as usual, and what
    is queued, within `LAST_WORD_S`; and close the connection once the records are stored."""
    ending = await requests.due()
    if ending.close_code != NORMAL:
        outbox.put_events(wire.error(Refused(None, ending.code, ending.why)))
    with suppress(TimeoutError):  # a client that does not read will see the close
        async with asyncio.timeout(LAST_WORD_S if connection.is_whole else 0):
            await outbox.drained()
    await _close_behind(records_written, connection, ending.close_code, ending.why)


async def answer_close(connection: SessionConnection, records_written: Callable[[], Awaitable[None]]) -> None:
    """Answer the client's close frame, if it sent one, once the records are stored."""
    if connection.hung_up:
        await _close_behind(records_written, connection, NORMAL, "")


async def _close_behind(
    records_written: Callable[[], Awaitable[None]], connection: SessionConnection, code: int, reason: str
) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(MAX_RECORDS_WAIT_S):
            await records_written()
    await connection.close(code, reason)

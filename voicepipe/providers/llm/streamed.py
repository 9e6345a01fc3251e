"""An answer of server-sent events, in whatever dialect, as the port's events."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from voicepipe.errors import StageError
from voicepipe.providers.net import failures, http
from voicepipe.providers.net.peer import Peer
from voicepipe.providers.net.sse import EventTooLong, SseReader
from voicepipe.stages.model import ModelEvent

WHOLE_ANSWER_BYTES: Final = 1 << 20
"""The most that is read of an answer which does not stream."""


class Dialect(Protocol):
    """Reads one answer's events into the port's. No I/O."""

    finished: bool
    """The vendor said why the answer ends."""

    done: bool
    """The vendor said that nothing follows."""

    def data(self, data: bytes) -> None:
        """Read one event's data.

        Raises:
            StageError: the vendor sent an error, or something that is not part of an answer.
        """
        ...

    def whole(self, body: bytes) -> None:
        """Read an answer that came in one piece of JSON.

        Raises:
            StageError: as `data`.
        """
        ...

    def end(self) -> None:
        """The stream is over.

        Raises:
            StageBroken: the vendor never said that the answer is complete.
        """
        ...

    def take(self) -> Sequence[ModelEvent]:
        """The events made since the last time."""
        ...


class Streamed:
    """The answer's events, read from the vendor as they are asked for."""

    def __init__(self, peer: Peer, answer: http.Answer, dialect: Dialect) -> None:
        self._peer, self._answer, self._dialect = peer, answer, dialect
        self._sse = SseReader()
        # Holds what one read of the socket gave, and is emptied before the next.
        self._made: deque[ModelEvent] = deque()
        self._failure: StageError | None = None
        self._over = False

    def __aiter__(self) -> Streamed:
        return self

    async def __anext__(self) -> ModelEvent:
        while not self._made:
            if self._failure is not None:
                raise self._failure
            if self._over:
                raise StopAsyncIteration
            try:
                await self._read()
            except StageError as error:
                self._failure = error  # raised when what came before it is taken
            self._made.extend(self._dialect.take())
        return self._made.popleft()

    async def _read(self) -> None:
        if self._answer.content_type == "application/json":  # an error under 200, or a server that does not stream
            self._over = True
            self._dialect.whole(await self._answer.body(limit_bytes=WHOLE_ANSWER_BYTES))
            return
        for data in await self._data():
            self._dialect.data(data)
            if self._dialect.done:
                self._over = True
                break
        if self._over:
            self._dialect.end()

    async def _data(self) -> list[bytes]:
        try:
            chunk = await self._answer.read()
        except StageError:
            if not self._dialect.finished:
                raise
            chunk = b""  # the vendor had said that the answer is complete: only its token counts are lost
        try:
            events = self._sse.push(chunk)
        except EventTooLong as error:
            raise failures.broken(self._peer, str(error)) from None
        if not chunk:
            self._over = True
            last = self._sse.finish()
            events = [last] if last is not None else []
        return [event.data for event in events]

"""Read an answer of server-sent events, in any dialect, as the port's events."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol

from voicepipe.errors import StageError
from voicepipe.ports.model import ModelEvent
from voicepipe.ports.provider_events import ModelConnected
from voicepipe.providers.net import failures, http
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.net.sse import EventTooLong, SseReader

WHOLE_ANSWER_BYTES: Final = 1 << 20
"""Maximum size of an answer that does not stream."""


class Dialect(Protocol):
    """Parses one answer's events into the port's. No I/O."""

    finished: bool
    """Whether the vendor sent a finish reason."""

    done: bool
    """Whether the vendor sent the end marker."""

    def data(self, data: bytes) -> None:
        """Read one event's data.

        Raises:
            StageError: the vendor sent an error, or data that is not part of an answer.
        """
        ...

    def whole(self, body: bytes) -> None:
        """Read an answer that came in one piece of JSON.

        Raises:
            StageError: as in `data`.
        """
        ...

    def end(self) -> None:
        """Handle the end of the stream.

        Raises:
            StageBroken: the vendor did not mark the answer as complete.
        """
        ...

    def take(self) -> Sequence[ModelEvent]:
        """Return the events made since the last call."""
        ...


@asynccontextmanager
async def streamed(
    address: ProviderAddress, path: str, body: bytes, dialect: Dialect, *, headers: Mapping[str, str] | None = None
) -> AsyncIterator[AsyncIterator[ModelEvent]]:
    """Send the request, and yield the answer's events at once. Failures are raised by the iterator."""
    async with http.posting(address, path, json=body, headers=headers) as posted:
        yield _Streamed(address, posted, dialect)


class _Streamed:
    """The answer's events, read from the vendor on demand."""

    def __init__(self, address: ProviderAddress, posted: http.Posted, dialect: Dialect) -> None:
        self._address, self._posted, self._dialect = address, posted, dialect
        self._connected = False
        self._answer: http.StreamedAnswer | None = None
        self._sse = SseReader()
        # Holds the events of one socket read, and is emptied before the next read.
        self._made: deque[ModelEvent] = deque()
        self._failure: StageError | None = None
        self._over = False

    def __aiter__(self) -> _Streamed:
        return self

    async def __anext__(self) -> ModelEvent:
        while not self._made:
            if self._failure is not None:
                raise self._take_failure()
            if self._over:
                raise StopAsyncIteration
            try:
                await self._proceed()
            except StageError as error:
                self._failure = error  # raised after the earlier events are consumed
            self._made.extend(self._dialect.take())
        return self._made.popleft()

    def _take_failure(self) -> StageError:
        """Return the failure and keep it no longer: its traceback holds the frames that hold this."""
        failure, self._failure, self._over = self._failure, None, True
        assert failure is not None
        return failure

    async def _proceed(self) -> None:
        if not self._connected:
            await self._posted.connected()
            self._connected = True
            self._made.append(ModelConnected())
            return
        if self._answer is None:
            self._answer = await self._posted.answer()
        await self._read(self._answer)

    async def _read(self, answer: http.StreamedAnswer) -> None:
        if answer.content_type == "application/json":  # a 200 error, or a server that does not stream
            self._over = True
            self._dialect.whole(await answer.body(limit_bytes=WHOLE_ANSWER_BYTES))
            return
        for data in await self._data(answer):
            self._dialect.data(data)
            if self._dialect.done:
                self._over = True
                break
        if self._over:
            self._dialect.end()

    async def _data(self, answer: http.StreamedAnswer) -> list[bytes]:
        try:
            chunk = await answer.read()
        except StageError:
            if not self._dialect.finished:
                raise
            chunk = b""  # the vendor had marked the answer as complete: only its token counts are lost
        try:
            events = self._sse.push(chunk)
        except EventTooLong as error:
            raise failures.broken(self._address, str(error)) from None
        if not chunk:
            self._over = True
            last = self._sse.finish()
            events = [last] if last is not None else []
        return [event.data for event in events]

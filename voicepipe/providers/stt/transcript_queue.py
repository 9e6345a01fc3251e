"""A queue of transcribed texts between the vendor's connection and the session that iterates it."""

from __future__ import annotations

import asyncio

from voicepipe.errors import StageError
from voicepipe.ports.transcriber import TranscriptEvent


class TranscriptQueue:
    """A bounded queue of texts that ends with a failure, or when it is closed. Iterate it to read them."""

    def __init__(self, bound: int) -> None:
        # Full means that no texts are read: producers wait, and the vendor with them.
        self._waiting: asyncio.Queue[TranscriptEvent | StageError | None] = asyncio.Queue(maxsize=bound)
        self._failure: StageError | None = None
        self._closed = False

    def full(self) -> bool:
        """Whether there is no room for another text now."""
        return self._waiting.full()

    async def put(self, text: TranscriptEvent | StageError) -> None:
        """Add a text, or the failure that ends the queue; waits for room."""
        await self._waiting.put(text)

    def put_now(self, text: TranscriptEvent) -> None:
        """Add a text after `full` has reported room."""
        self._waiting.put_nowait(text)

    def close(self) -> None:
        """End the iteration after the texts that wait: none follows."""
        self._closed = True
        if not self._waiting.full():
            self._waiting.put_nowait(None)

    def __aiter__(self) -> TranscriptQueue:
        return self

    async def __anext__(self) -> TranscriptEvent:
        while self._failure is None and not (self._closed and self._waiting.empty()):
            text = await self._waiting.get()
            if isinstance(text, StageError):
                self._failure = text
            elif text is not None:
                return text
        raise self._failure or StopAsyncIteration

"""A queue of transcribed texts between the vendor's connection and the session that iterates it."""

from __future__ import annotations

import asyncio

from voicepipe.errors import StageError
from voicepipe.stages.transcriber import Heard


class Texts:
    """A bounded queue of texts that ends with a failure, or when it is closed. Iterate it to read them."""

    def __init__(self, bound: int) -> None:
        # Full means that no texts are read: producers wait, and the vendor with them.
        self._waiting: asyncio.Queue[Heard | StageError | None] = asyncio.Queue(maxsize=bound)
        self._failure: StageError | None = None
        self._closed = False

    def full(self) -> bool:
        """Whether there is no room for another text now."""
        return self._waiting.full()

    async def put(self, heard: Heard | StageError) -> None:
        """Add a text, or the failure that ends the queue; waits for room."""
        await self._waiting.put(heard)

    def put_now(self, heard: Heard) -> None:
        """Add a text after `full` has reported room."""
        self._waiting.put_nowait(heard)

    def close(self) -> None:
        """End the iteration: no text follows."""
        self._closed = True
        if not self._waiting.full():
            self._waiting.put_nowait(None)

    def __aiter__(self) -> Texts:
        return self

    async def __anext__(self) -> Heard:
        while self._failure is None and not self._closed:
            heard = await self._waiting.get()
            if isinstance(heard, StageError):
                self._failure = heard
            elif heard is not None:
                return heard
        raise self._failure or StopAsyncIteration

"""A queue of cues from a test, and the requests that a fake received."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import numpy as np

from voicepipe.ports.transcriber import Samples
from voicepipe.testing.waiting import WAIT_S


async def soon(event: asyncio.Event) -> None:
    """Wait for `event`.

    Raises:
        TimeoutError: it did not come within `WAIT_S`.
    """
    async with asyncio.timeout(WAIT_S):
        await event.wait()


class ReceivedRequest:
    """One request as it arrived at a fake, and its outcome."""

    def __init__(self, question: Any, *, headers: Mapping[str, str] | None = None) -> None:
        self.question = question
        """The body as plain values on the socket (a form's fields for STT); the port's value otherwise."""
        self.headers = dict(headers or {})
        self.path = ""
        """STT: the path of the request, of a vendor that has several."""
        self.samples: Samples = np.zeros(0, dtype=np.int16)
        """STT: the audio of the request."""
        self.ended = asyncio.Event()
        """Set when nothing more is sent, for any reason."""
        self.gone = asyncio.Event()
        """Set when the client disconnected before the answer was over."""


A = TypeVar("A", bound=ReceivedRequest)
C = TypeVar("C")


class Script(Generic[C, A]):
    """The cues for one kind of request, and the requests in the order of their arrival."""

    def __init__(self, usual: C | Callable[[Any], C]) -> None:
        self.usual = usual
        """The behaviour for a request without a cue, or a function that returns it for each request."""
        self.received: list[A] = []
        self.max_concurrent: int | None = None
        """Overload: a vendor refuses with 503 while this number of requests is being answered."""
        self._cues: deque[C] = deque()
        self._arrived = asyncio.Event()

    def cue(self, *cues: C) -> None:
        """Answer the next requests with these cues, one each."""
        self._cues.extend(cues)

    def take(self, question: Any) -> C:
        """Return the cue for the request that has just arrived."""
        if self._cues:
            return self._cues.popleft()
        return self.usual(question) if callable(self.usual) else self.usual

    def arrive(self, received: A) -> A:
        """Record a request."""
        self.received.append(received)
        self._arrived.set()
        self._arrived = asyncio.Event()
        return received

    def busy(self) -> int:
        """Return the number of requests that are being answered."""
        return sum(not received.ended.is_set() for received in self.received)

    async def nth(self, n: int) -> A:
        """Return the `n`th request, from 0, when it has arrived.

        Raises:
            TimeoutError: it did not come within `WAIT_S`.
        """
        while len(self.received) <= n:
            await soon(self._arrived)
        return self.received[n]

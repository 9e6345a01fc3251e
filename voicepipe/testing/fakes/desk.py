"""Where a test leaves its cues and reads what was asked."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import numpy as np

from voicepipe.stages.transcriber import Samples

WAIT_S = 10.0
"""The bound of every wait of the kit: far over what a healthy run needs, so that only a hang meets it."""


async def soon(event: asyncio.Event) -> None:
    """Wait for `event`.

    Raises:
        TimeoutError: it did not come within `WAIT_S`.
    """
    async with asyncio.timeout(WAIT_S):
        await event.wait()


class Asked:
    """One question as it arrived at a fake, and what became of it."""

    def __init__(self, question: Any, *, headers: Mapping[str, str] | None = None) -> None:
        self.question = question
        """The body as plain values on the socket (a form's fields for speech to text); the port's value otherwise."""
        self.headers = dict(headers or {})
        self.samples: Samples = np.zeros(0, dtype=np.int16)
        """Speech to text: the sound that came with it."""
        self.ended = asyncio.Event()
        """Nothing more is sent, for whatever reason."""
        self.gone = asyncio.Event()
        """The asker left before the answer was over."""


A = TypeVar("A", bound=Asked)
C = TypeVar("C")


class Desk(Generic[C, A]):
    """The cues for one kind of question, and the questions in the order of their arrival."""

    def __init__(self, usual: C | Callable[[Any], C]) -> None:
        self.usual = usual
        """What is done with a question that no cue waits for, or a function that says it for each question."""
        self.asked: list[A] = []
        self.most_at_once: int | None = None
        """Overload: a vendor refuses with 503 what comes while so many questions are being answered."""
        self._cues: deque[C] = deque()
        self._arrived = asyncio.Event()

    def cue(self, *cues: C) -> None:
        """The next questions are answered so, one cue each."""
        self._cues.extend(cues)

    def take(self, question: Any) -> C:
        """The cue for the question that has just arrived."""
        if self._cues:
            return self._cues.popleft()
        return self.usual(question) if callable(self.usual) else self.usual

    def arrive(self, asked: A) -> A:
        """Note a question."""
        self.asked.append(asked)
        self._arrived.set()
        self._arrived = asyncio.Event()
        return asked

    def busy(self) -> int:
        """How many questions are being answered."""
        return sum(not asked.ended.is_set() for asked in self.asked)

    async def nth(self, n: int) -> A:
        """The `n`th question, from 0, when it has arrived.

        Raises:
            TimeoutError: it did not come within `WAIT_S`.
        """
        while len(self.asked) <= n:
            await soon(self._arrived)
        return self.asked[n]

"""One call of a request to one model, live."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from typing import Final, Protocol

from voicepipe import clock
from voicepipe.errors import Overload, StageBroken, StageError, StageRefused
from voicepipe.router.accounts import summed
from voicepipe.router.race import Attempt
from voicepipe.router.seam import Seam
from voicepipe.stages.model import CallDelta, Finished, Model, ModelEvent, ModelRequest, TextDelta, Usage
from voicepipe.telemetry.log import log_crash

MOST_WAITING: Final = 256
"""Events of one answer that nobody has taken. Full: its provider is read no further until somebody does."""

Speakable = TextDelta | CallDelta | Finished
"""What counts as an answer; an empty one is one too."""


class Listener(Protocol):
    """Who follows calls. Each verb returns at once."""

    def heard(self, call: Call, event: Speakable) -> None: ...
    def complete(self, call: Call) -> None: ...
    def broke(self, call: Call, failure: StageError) -> None: ...
    async def room(self, call: Call) -> None:
        """Wait until more events are welcome."""
        ...


class Call:
    """One attempt and what it has said. `run` it as a task of the request's group."""

    def __init__(self, attempt: Attempt, *, seam: Seam | None = None) -> None:
        self.attempt = attempt
        self.spec = attempt.candidate.spec
        self.seam = seam
        """Of one that goes on with another's answer."""

        self.waiting: deque[Speakable] = deque()
        """While it may not speak yet: bounded by `MOST_WAITING`, where its task waits."""

        self.latest_ms = 0
        """When it last said something."""

        self.usage: Usage | None = None
        self.finished: Finished | None = None
        self.failure: StageError | None = None
        self.over = False
        self.task: asyncio.Task[None] | None = None

    @property
    def span_ms(self) -> float:
        """From its first piece to its last; only of one that spoke."""
        return self.latest_ms - self.attempt.began_ms - (self.attempt.first_ms or 0.0)

    async def run(self, model: Model, request: ModelRequest, listener: Listener) -> None:
        """Ask, and tell the listener what comes until the answer ends or breaks. Cancel the task to close it."""
        try:
            name = self.spec.partition("/")[2]
            wanted = request if request.model == name else replace(request, model=name)
            async with model.open(wanted) as events:
                async for event in events:
                    self._tell(event, listener)
                    await listener.room(self)
            if self.finished is None:
                raise StageBroken("llm", provider=self.spec, why="the answer ended without saying why", retryable=True)
            listener.complete(self)
        except StageError as failure:
            listener.broke(self, failure)
        except Overload as full:
            listener.broke(self, self._refused(full))
        except Exception as bug:
            log_crash(f"llm by {self.spec}", bug)
            why = f"internal error ({type(bug).__name__})"
            listener.broke(self, StageBroken("llm", provider=self.spec, why=why, retryable=False))

    def _tell(self, event: ModelEvent, listener: Listener) -> None:
        match event:
            case Usage() if not event.is_possible:
                pass  # reckoned from the text
            case Usage():
                self.usage = summed(self.usage, event)
            case Finished():
                self.finished = event
                listener.heard(self, event)
            case TextDelta() | CallDelta():
                self.latest_ms = clock.monotonic_ms()
                listener.heard(self, event)
            case _:
                pass  # a router below tells its own story

    def _refused(self, full: Overload) -> StageRefused:
        return StageRefused("llm", provider=self.spec, why=full.why, retryable=True, retry_after_ms=full.retry_after_ms)

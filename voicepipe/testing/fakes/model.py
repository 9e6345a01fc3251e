"""A model without a socket, driven by cues or by the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Literal, cast

from voicepipe.errors import StageError
from voicepipe.ports.model import CallDelta, Finished, ModelEvent, ModelRequest, TextDelta, Usage
from voicepipe.testing.fakes.cues import CuePoints, LlmCue
from voicepipe.testing.fakes.faults import Faults
from voicepipe.testing.fakes.script import ReceivedRequest, Script

Reason = Literal["stop", "length", "tool_calls", "content_filter"]


class ReceivedModelRequest(ReceivedRequest):
    """A request to a `FakeModel`. Without a cue the test answers it, with these methods."""

    question: ModelRequest

    def __init__(self, question: ModelRequest) -> None:
        super().__init__(question)
        # Never full: a test sends a few events, and ends.
        self._sent: asyncio.Queue[ModelEvent | StageError | None] = asyncio.Queue()

    def send(self, *events: ModelEvent | str) -> None:
        """Send more of the answer; a string is a `TextDelta`."""
        for event in events:
            self._sent.put_nowait(TextDelta(event) if isinstance(event, str) else event)

    def finish(self, reason: Reason = "stop", usage: Usage | None = None) -> None:
        """Report the answer as complete, and end it."""
        self.send(Finished(reason))
        if usage is not None:
            self.send(usage)
        self._sent.put_nowait(None)

    def fail(self, error: StageError) -> None:
        """Raise `error` after the events sent so far."""
        self._sent.put_nowait(error)

    async def next(self) -> ModelEvent | StageError | None:
        """Return the next event from the test."""
        return await self._sent.get()


class FakeModel:
    """Implements the port `Model`. `script` takes the cues; with a usual cue of None the test answers."""

    def __init__(
        self,
        usual: LlmCue | Callable[[ModelRequest], LlmCue | None] | None = None,
        *,
        name: str = "fake/model",
        idle_timeout_ms: int = 15_000,
    ) -> None:
        self.name = name
        self.script: Script[LlmCue | None, ReceivedModelRequest] = Script(cast("Callable[[Any], LlmCue | None]", usual))
        self.warmed: list[ModelRequest] = []
        self._faults = Faults("llm", name, idle_timeout_ms)

    async def warm(self, request: ModelRequest) -> None:
        """Record the request in `warmed`."""
        self.warmed.append(request)

    def open(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
        """Answer as the next cue requires."""
        return self._open(request)

    @asynccontextmanager
    async def _open(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        received = self.script.arrive(ReceivedModelRequest(request))
        cue = self.script.take(request)
        events: _ByHand | _ByCue | None = None
        try:
            if cue is not None:
                await self._faults.before(cue.fault)
            events = _ByHand(received) if cue is None else _ByCue(received, cue, self._faults)
            yield events
        finally:
            if events is not None:
                events.close()
            if not received.ended.is_set():
                received.gone.set()
                received.ended.set()


class _ByHand:
    def __init__(self, received: ReceivedModelRequest) -> None:
        self._received = received
        self._over = False

    def __aiter__(self) -> _ByHand:
        return self

    async def __anext__(self) -> ModelEvent:
        event = None if self._over else await self._received.next()
        if event is None or isinstance(event, StageError):
            self.close()
            self._received.ended.set()
            raise event or StopAsyncIteration
        return event

    def close(self) -> None:
        self._over = True


class _ByCue:
    def __init__(self, received: ReceivedModelRequest, cue: LlmCue, faults: Faults) -> None:
        self._received, self._faults = received, faults
        self._cue_points = CuePoints(cue.fault, cue.hold)
        self._cue = cue
        self._events = _events(cue)
        self._position = 0
        self._over = False

    def __aiter__(self) -> _ByCue:
        return self

    async def __anext__(self) -> ModelEvent:
        if self._over:
            raise StopAsyncIteration
        try:
            await asyncio.sleep((self._cue.gap_ms if self._position else self._cue.ttft_ms) / 1_000)
            await self._faults.reach(self._cue_points, self._position)
            event = next(self._events, None)
            if isinstance(event, Finished) and self._cue_points.fault is not None:  # one that was due past the end
                raise self._faults.error(self._cue_points.fault)
        except StageError:
            self._end()
            raise
        if event is None:
            self._end()
            raise StopAsyncIteration
        self._position += 1
        return event

    def close(self) -> None:
        self._over = True

    def _end(self) -> None:
        self._over = True
        self._received.ended.set()


def _events(cue: LlmCue) -> Iterator[ModelEvent]:
    for token in cue.sent_tokens:
        yield TextDelta(token)
    for index, call in enumerate(cue.calls):
        yield CallDelta(index, call.call_id, call.name, "")
        for piece in call.arguments:
            yield CallDelta(index, "", "", piece)
    yield Finished(cast("Reason", "tool_calls" if cue.calls else cue.finish))
    yield Usage(input_tokens=cue.input_tokens, output_tokens=len(cue.tokens), cached_tokens=cue.cached_tokens)

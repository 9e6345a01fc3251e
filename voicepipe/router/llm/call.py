"""Run one LLM call of a request."""

from __future__ import annotations

from typing import Final, Protocol

from voicepipe import clock
from voicepipe.errors import StageBroken, StageError
from voicepipe.ports.continuation import TextJoiner
from voicepipe.ports.model import CallDelta, Finished, Model, ModelEvent, ModelRequest, TextDelta, Usage
from voicepipe.ports.provider_events import ModelConnected
from voicepipe.router.llm.first_token import FirstToken, empty_answer
from voicepipe.router.llm.usage import summed
from voicepipe.router.race import Attempt
from voicepipe.router.race_runner import RacingCall, failure_of
from voicepipe.values import replace

MAX_WAITING: Final = 256
"""Events of one answer that are not yet taken. Full: the provider is not read until an event is taken."""

AnswerEvent = TextDelta | CallDelta | Finished
"""Events of an answer. Blank text at its beginning waits for the first token."""


class LlmCallListener(Protocol):
    """Receives the events of LLM calls. Each method but `wait_for_space` returns at once."""

    def on_connected(self, call: LlmCall, event: ModelConnected) -> None: ...
    def on_event(self, call: LlmCall, event: AnswerEvent, now_ms: int) -> None: ...
    def on_complete(self, call: LlmCall) -> None: ...
    def on_failure(self, call: LlmCall, failure: StageError) -> None: ...
    def is_full(self, call: LlmCall) -> bool:
        """Return whether no more events may be passed."""
        ...

    async def wait_for_space(self, call: LlmCall) -> None:
        """Wait until more events may be passed."""
        ...


class LlmCall(RacingCall[AnswerEvent]):
    """An attempt and its answer. `run` it as a task of the request's group."""

    def __init__(self, attempt: Attempt, first: FirstToken, *, joiner: TextJoiner | None = None) -> None:
        super().__init__("llm", attempt)
        self.joiner = joiner
        """Joins this answer to the one that it continues."""

        self.latest_ms = 0
        """Time of its latest event."""

        self.usage: Usage | None = None
        self.finished: Finished | None = None
        self._first, self._blank = first, ""

    @property
    def span_ms(self) -> float:
        """Return the time from its first piece to its last; only for a call that answered."""
        return self.latest_ms - self.attempt.began_ms - (self.attempt.first_ms or 0.0)

    async def run(self, model: Model, request: ModelRequest, listener: LlmCallListener) -> None:
        """Call the model, and pass its events to the listener until the answer ends or breaks. Cancel the task to
        close it."""
        if (
            failure := await failure_of(self.stage, self.spec, self._pass_answer(model, request, listener))
        ) is not None:
            listener.on_failure(self, failure)

    async def _pass_answer(self, model: Model, request: ModelRequest, listener: LlmCallListener) -> None:
        name = self.attempt.candidate.model
        addressed = request if request.model == name else replace(request, model=name)
        async with model.open(addressed) as events:
            async for event in events:
                self._dispatch(event, listener)
                if listener.is_full(self):
                    await listener.wait_for_space(self)
        if self.finished is None:
            raise StageBroken("llm", provider=self.spec, why="the answer ended without a finish reason", retryable=True)
        if not self._first.found and self.joiner is None:
            raise empty_answer(self.spec, self.finished)
        listener.on_complete(self)

    def _dispatch(self, event: ModelEvent, listener: LlmCallListener) -> None:
        match event:
            case TextDelta():  # first: these are nearly all events
                if not (self._first.found or self._first.look(event)):
                    self._blank += event.text
                elif self._blank:
                    begun, self._blank = TextDelta(self._blank + event.text), ""
                    self._pass(begun, listener)
                else:
                    self._pass(event, listener)
            case CallDelta():
                self._first.look(event)
                self._pass(event, listener)
            case ModelConnected():
                listener.on_connected(self, event)
            case Usage() if event.is_possible:  # else it is estimated from the text
                self.usage = summed(self.usage, event)
            case Finished():
                self.finished = event
                if self._first.look(event) or self.joiner is not None:
                    listener.on_event(self, event, clock.monotonic_ms())
            case _:
                pass  # a nested router reports its own attempts

    def _pass(self, event: TextDelta | CallDelta, listener: LlmCallListener) -> None:
        self.latest_ms = now_ms = clock.monotonic_ms()
        listener.on_event(self, event, now_ms)

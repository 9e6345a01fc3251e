"""A single provider without alternatives: it gets every request, and its health is observed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, asynccontextmanager
from typing import TypeVar

from voicepipe import clock
from voicepipe.errors import StageError
from voicepipe.ports.model import CallDelta, Finished, Model, ModelEvent, ModelRequest, TextDelta, Usage
from voicepipe.ports.synthesizer import Speech, SpeechEvent, Spoken, Synthesizer, Voice
from voicepipe.ports.transcriber import Final, Transcriber, TranscriptEvent, TranscriptionOptions, TranscriptStream
from voicepipe.router.health import record_failure
from voicepipe.router.llm.first_token import FirstToken, empty_answer
from voicepipe.router.llm.usage import summed
from voicepipe.router.pool import SharedStats

T = TypeVar("T")


class _ObservedCall:
    """The statistics of one call to a provider, which begins now."""

    def __init__(self, spec: str, stats: SharedStats) -> None:
        self._spec, self._stats = spec, stats
        self._breaker, self._began_ms = stats.breaker_of(spec), clock.monotonic_ms()

    def succeeded(self) -> None:
        """Record that the provider fulfilled a request."""
        self._breaker.succeeded(began_ms=self._began_ms)

    async def enter(self, stack: AsyncExitStack, opened: AbstractAsyncContextManager[T]) -> T:
        """Open it; raises what that raises. It is in flight until the stack is left."""
        stack.enter_context(self._stats.in_flight(self._spec))
        try:
            return await stack.enter_async_context(opened)
        except StageError as failure:
            self._record_failure(failure)
            raise

    async def next(self, events: AsyncIterator[T], *, at_end: Callable[[], None] = lambda: None) -> T:
        """Return its next event; raises what that raises, and at the end of the events what `at_end` raises."""
        try:
            try:
                return await anext(events)
            except StopAsyncIteration:
                at_end()
                raise
        except StageError as failure:
            self._record_failure(failure)
            raise

    def _record_failure(self, failure: StageError) -> None:
        record_failure(self._breaker, self._spec, failure, clock.monotonic_ms())


class SingleTranscriber:
    """Meets the port `Transcriber` with the transcriber that it observes."""

    def __init__(self, inner: Transcriber, stats: SharedStats) -> None:
        self.name, self.capabilities = inner.name, inner.capabilities
        self._inner, self._stats = inner, stats
        stats.breaker_of(inner.name)  # its health is shown before its first request

    def open(self, transcription: TranscriptionOptions) -> AbstractAsyncContextManager[TranscriptStream]:
        """Start one session's stream; raises the transcriber's errors."""
        return self._open(transcription)

    @asynccontextmanager
    async def _open(self, transcription: TranscriptionOptions) -> AsyncIterator[TranscriptStream]:
        observed = _ObservedCall(self.name, self._stats)
        async with AsyncExitStack() as stack:
            yield _SingleStream(await observed.enter(stack, self._inner.open(transcription)), observed)


class _SingleStream:
    """The transcriber stream of one session."""

    def __init__(self, inner: TranscriptStream, observed: _ObservedCall) -> None:
        self._events, self._observed = aiter(inner), observed
        self.begin, self.push, self.flush = inner.begin, inner.push, inner.flush

    def __aiter__(self) -> _SingleStream:
        return self

    async def __anext__(self) -> TranscriptEvent:
        event = await self._observed.next(self._events)
        if isinstance(event, Final):
            self._observed.succeeded()
        return event


class SingleSynthesizer:
    """Meets the port `Synthesizer` with the synthesizer that it observes."""

    def __init__(self, inner: Synthesizer, stats: SharedStats) -> None:
        self.name, self.voices = inner.name, inner.voices
        self._inner, self._stats = inner, stats
        stats.breaker_of(inner.name)  # its health is shown before its first request

    def keep_warm(self, voice: Voice) -> AbstractContextManager[None]:
        """Keep the voice's connection ready."""
        return self._inner.keep_warm(voice)

    def open(self, voice: Voice) -> AbstractAsyncContextManager[Speech]:
        """Start one turn's speech; raises the synthesizer's errors."""
        return self._open(voice)

    @asynccontextmanager
    async def _open(self, voice: Voice) -> AsyncIterator[Speech]:
        observed = _ObservedCall(self.name, self._stats)
        async with AsyncExitStack() as stack:
            yield _SingleSpeech(await observed.enter(stack, self._inner.open(voice)), observed)


class _SingleSpeech:
    """The speech of one turn."""

    def __init__(self, inner: Speech, observed: _ObservedCall) -> None:
        self._sound, self._observed = aiter(inner), observed
        self.push, self.finish = inner.push, inner.finish

    def __aiter__(self) -> _SingleSpeech:
        return self

    async def __anext__(self) -> SpeechEvent:
        event = await self._observed.next(self._sound)
        if isinstance(event, Spoken) and not event.cached:
            self._observed.succeeded()
        return event


@asynccontextmanager
async def single_answer(
    model: Model, request: ModelRequest, stats: SharedStats
) -> AsyncIterator[AsyncIterator[ModelEvent]]:
    """Call one model, as its own `open` does. An answer without text and tool calls is a failure."""
    observed = _ObservedCall(model.name, stats)
    async with AsyncExitStack() as stack:
        events = await observed.enter(stack, model.open(request))
        answer = _SingleAnswer(model.name, events, observed, FirstToken.of(request))
        yield answer
    observed.succeeded()
    if answer.usage is not None:
        stats.latency.speed(model.name).record(answer.usage.output_tokens, answer.span_ms)


class _SingleAnswer:
    """The events of one answer."""

    def __init__(
        self, provider: str, events: AsyncIterator[ModelEvent], observed: _ObservedCall, first: FirstToken
    ) -> None:
        self._provider, self._events, self._observed, self._first = provider, events, observed, first
        self._held = ""
        """The text before the first token. It is held, so that an answer without one fails before any text."""

        self._empty: Finished | None = None
        self._first_ms: int | None = None
        self._last_ms = 0
        self.usage: Usage | None = None

    @property
    def span_ms(self) -> int:
        """Return the time from its first piece to its last."""
        return 0 if self._first_ms is None else self._last_ms - self._first_ms

    def __aiter__(self) -> _SingleAnswer:
        return self

    async def __anext__(self) -> ModelEvent:
        while True:
            event = await self._observed.next(self._events, at_end=self._raise_if_empty)
            match event:
                case TextDelta() | CallDelta():
                    self._last_ms = clock.monotonic_ms()
                    self._first_ms = self._last_ms if self._first_ms is None else self._first_ms
                    if self._first.found:
                        return event
                    if self._first.look(event):
                        return self._with_held(event)
                    self._held += event.text if isinstance(event, TextDelta) else ""
                case Finished() if not self._first.look(event):
                    self._empty = event
                case _:
                    if isinstance(event, Usage) and event.is_possible:
                        self.usage = summed(self.usage, event)
                    return event

    def _with_held(self, event: TextDelta | CallDelta) -> ModelEvent:
        return TextDelta(self._held + event.text) if isinstance(event, TextDelta) else event

    def _raise_if_empty(self) -> None:
        if self._empty is not None:
            raise empty_answer(self._provider, self._empty)

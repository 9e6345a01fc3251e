"""A single provider without alternatives: always asked, and observed for the operator."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, asynccontextmanager
from typing import Literal, TypeVar

from voicepipe import clock
from voicepipe.errors import StageError
from voicepipe.router.accounts import summed
from voicepipe.router.health import blame
from voicepipe.router.pool import Experience
from voicepipe.stages.model import CallDelta, Model, ModelEvent, ModelRequest, TextDelta, Usage
from voicepipe.stages.synthesizer import Speech, Spoken, Synthesizer, Voice
from voicepipe.stages.transcriber import Final, Heard, Hearing, Transcriber, TranscriptStream

T = TypeVar("T")


class _Watched:
    """The statistics of one provider."""

    def __init__(self, stage: Literal["stt", "llm", "tts"], spec: str, experience: Experience) -> None:
        self._stage, self._spec, self._experience = stage, spec, experience
        self._breaker = experience.breaker_of(spec)

    def is_well(self) -> None:
        """Record that the provider fulfilled a request."""
        self._breaker.succeeded()

    async def enter(self, stack: AsyncExitStack, opened: AbstractAsyncContextManager[T]) -> T:
        """Open it; raises what that raises. It is in flight until the stack is left."""
        stack.enter_context(self._experience.in_flight(self._spec))
        try:
            return await stack.enter_async_context(opened)
        except StageError as failure:
            self._blame(failure)
            raise

    async def next(self, events: AsyncIterator[T]) -> T:
        """Return its next event; raises what that raises."""
        try:
            return await anext(events)
        except StageError as failure:
            self._blame(failure)
            raise

    def _blame(self, failure: StageError) -> None:
        if failure.stage == self._stage:
            blame(self._breaker, self._spec, failure, clock.monotonic_ms())


class LoneEar:
    """Meets the port `Transcriber` with the transcriber that it observes."""

    def __init__(self, inner: Transcriber, experience: Experience) -> None:
        self.name, self.capabilities = inner.name, inner.capabilities
        self._inner, self._watched = inner, _Watched("stt", inner.name, experience)

    def open(self, hearing: Hearing) -> AbstractAsyncContextManager[TranscriptStream]:
        """Begin one session's stream; raises what the transcriber raises."""
        return self._open(hearing)

    @asynccontextmanager
    async def _open(self, hearing: Hearing) -> AsyncIterator[TranscriptStream]:
        async with AsyncExitStack() as stack:
            yield _LoneStream(await self._watched.enter(stack, self._inner.open(hearing)), self._watched)


class _LoneStream:
    """One session's transcriber stream."""

    def __init__(self, inner: TranscriptStream, watched: _Watched) -> None:
        self._texts, self._watched = aiter(inner), watched
        self.begin, self.push, self.flush = inner.begin, inner.push, inner.flush

    def __aiter__(self) -> _LoneStream:
        return self

    async def __anext__(self) -> Heard:
        heard = await self._watched.next(self._texts)
        if isinstance(heard, Final):
            self._watched.is_well()
        return heard


class LoneVoice:
    """Meets the port `Synthesizer` with the synthesizer that it observes."""

    def __init__(self, inner: Synthesizer, experience: Experience) -> None:
        self.name, self.voices = inner.name, inner.voices
        self._inner, self._watched = inner, _Watched("tts", inner.name, experience)

    def keep_warm(self, voice: Voice) -> AbstractContextManager[None]:
        """Keep the voice's connection ready."""
        return self._inner.keep_warm(voice)

    def open(self, voice: Voice) -> AbstractAsyncContextManager[Speech]:
        """Begin one turn's speech; raises what the synthesizer raises."""
        return self._open(voice)

    @asynccontextmanager
    async def _open(self, voice: Voice) -> AsyncIterator[Speech]:
        async with AsyncExitStack() as stack:
            yield _LoneSpeech(await self._watched.enter(stack, self._inner.open(voice)), self._watched)


class _LoneSpeech:
    """One turn's speech."""

    def __init__(self, inner: Speech, watched: _Watched) -> None:
        self._sound, self._watched = aiter(inner), watched
        self.say, self.finish = inner.say, inner.finish

    def __aiter__(self) -> _LoneSpeech:
        return self

    async def __anext__(self) -> Spoken:
        spoken = await self._watched.next(self._sound)
        self._watched.is_well()
        return spoken


@asynccontextmanager
async def lone_answer(
    model: Model, request: ModelRequest, experience: Experience
) -> AsyncIterator[AsyncIterator[ModelEvent]]:
    """Ask one model, as its own `open` does."""
    watched = _Watched("llm", model.name, experience)
    async with AsyncExitStack() as stack:
        answer = _LoneAnswer(await watched.enter(stack, model.open(request)), watched)
        yield answer
    watched.is_well()
    if answer.usage is not None:
        experience.board.speed(model.name).note(answer.usage.output_tokens, answer.span_ms)


class _LoneAnswer:
    """The events of one answer."""

    def __init__(self, events: AsyncIterator[ModelEvent], watched: _Watched) -> None:
        self._events, self._watched = events, watched
        self._first_ms: int | None = None
        self._last_ms = 0
        self.usage: Usage | None = None

    @property
    def span_ms(self) -> int:
        """Return the time from its first piece to its last."""
        return 0 if self._first_ms is None else self._last_ms - self._first_ms

    def __aiter__(self) -> _LoneAnswer:
        return self

    async def __anext__(self) -> ModelEvent:
        event = await self._watched.next(self._events)
        match event:
            case TextDelta() | CallDelta():
                self._last_ms = clock.monotonic_ms()
                self._first_ms = self._last_ms if self._first_ms is None else self._first_ms
            case Usage() if event.is_possible:
                self.usage = summed(self.usage, event)
        return event

"""A speech-to-speech model with a circuit breaker. It has no alternatives of its kind: LLM and TTS answer while the
breaker is open.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from voicepipe import clock
from voicepipe.errors import StageError
from voicepipe.ports.model import Finished, ModelRequest
from voicepipe.ports.speech_model import SpeechConversation, SpeechModel, SpeechModelEvent, SpeechOptions
from voicepipe.ports.speech_price import SpeechUsage
from voicepipe.router.health import record_failure
from voicepipe.router.pool import SharedStats


class ObservedSpeechModel:
    """Meets the port `SpeechModel` with the model that it observes."""

    def __init__(self, inner: SpeechModel, stats: SharedStats) -> None:
        self.name, self.rate_hz, self.voices = inner.name, inner.rate_hz, inner.voices
        self.lifetime_ms = inner.lifetime_ms
        self._inner, self._stats, self._breaker = inner, stats, stats.breaker_of(inner.name)

    def open(
        self, options: SpeechOptions, unused: Callable[[SpeechUsage], None]
    ) -> AbstractAsyncContextManager[SpeechConversation]:
        """Start a conversation, once the circuit breaker is no longer open."""
        return self._open(options, unused)

    @asynccontextmanager
    async def _open(
        self, options: SpeechOptions, unused: Callable[[SpeechUsage], None]
    ) -> AsyncIterator[SpeechConversation]:
        await asyncio.sleep(self._breaker.retry_in_ms(clock.monotonic_ms()) / 1_000)
        began_ms = clock.monotonic_ms()
        async with self._inner.open(options, unused) as conversation:
            yield _ObservedConversation(conversation, self, began_ms)

    def record_failure(self, failure: StageError) -> None:
        """Record and log a failure."""
        record_failure(self._breaker, self.name, failure, clock.monotonic_ms())

    def succeeded(self, *, began_ms: int) -> None:
        """Record a complete answer in a conversation that began at `began_ms`."""
        self._breaker.succeeded(began_ms=began_ms)


class _ObservedConversation:
    def __init__(self, inner: SpeechConversation, owner: ObservedSpeechModel, began_ms: int) -> None:
        self.push, self.drop = inner.push, inner.drop
        self._inner, self._owner, self._began_ms = inner, owner, began_ms
        self._is_failure_recorded = False

    @asynccontextmanager
    async def answer(self, request: ModelRequest, *, spoken: bool) -> AsyncIterator[AsyncIterator[SpeechModelEvent]]:
        try:
            async with self._inner.answer(request, spoken=spoken) as events:
                yield self._observed(events)
        except StageError as failure:
            self._record_failure(failure)
            raise

    async def broken(self) -> StageError:
        failure = await self._inner.broken()
        self._record_failure(failure)
        return failure

    def _observed(self, events: AsyncIterator[SpeechModelEvent]) -> AsyncIterator[SpeechModelEvent]:
        return _ObservedAnswer(events, self._owner, self._began_ms)

    def _record_failure(self, failure: StageError) -> None:
        if not self._is_failure_recorded:  # the same failure ends its answer and the conversation
            self._is_failure_recorded = True
            self._owner.record_failure(failure)


class _ObservedAnswer:
    def __init__(self, events: AsyncIterator[SpeechModelEvent], owner: ObservedSpeechModel, began_ms: int) -> None:
        self._events, self._owner, self._began_ms = events, owner, began_ms

    def __aiter__(self) -> _ObservedAnswer:
        return self

    async def __anext__(self) -> SpeechModelEvent:
        event = await anext(self._events)
        if isinstance(event, Finished):
            self._owner.succeeded(began_ms=self._began_ms)
        return event

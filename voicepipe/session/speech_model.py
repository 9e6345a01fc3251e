"""A session's conversation with a speech-to-speech model: open while the session runs, opened again when it breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Final, TypeVar

from msgspec import Struct

from voicepipe import clock
from voicepipe.audio.resample import Resampler
from voicepipe.audio.samples import Samples
from voicepipe.errors import Overload, StageBroken, StageError, StageTimeout
from voicepipe.freeing import FreeingTaskGroup
from voicepipe.ports.model import Content, Finished, ModelRequest
from voicepipe.ports.speech_model import SpeechConversation, SpeechModel, SpeechModelEvent, SpeechOptions
from voicepipe.ports.speech_price import SpeechPrice, SpeechUsage
from voicepipe.protocol.session_config import DEFAULT_VOICE
from voicepipe.tasks import AsyncEvent
from voicepipe.telemetry.log import log_crash
from voicepipe.turn.context import TurnContext

T = TypeVar("T")

FIRST_PAUSE_S: Final = 0.1
MAX_PAUSE_S: Final = 30.0
"""The pause before a conversation that broke is opened again, in seconds: doubled each time, until an answer comes."""

REPLAYED_S: Final = 120
"""How much of the user's audio is buffered, to send it again should the conversation with the provider break."""


class SpeechStage(Struct, frozen=True, kw_only=True):
    """The speech-to-speech model of an agent."""

    model: SpeechModel
    name: str
    """The model's name at its provider."""

    voice: str = ""
    """The voice's name at its provider; empty: the client's, if the model has it, or else the provider's choice."""

    timeout_ms: int = 3_000
    """How long it may take to the first audio of an answer, and from one piece to the next."""

    price: SpeechPrice | None = None

    def options(self, voice: str | None, speed: float) -> SpeechOptions:
        """Return the options for a reply with this voice and speed, as the client set them."""
        known = self.model.voices
        has_it = voice is not None and known is not None and voice in known
        return SpeechOptions(model=self.name, voice=self.voice or (voice if has_it else None), speed=speed)


def voice_of(context: TurnContext) -> Callable[[], tuple[str | None, float]]:
    """Return a function that returns the voice and the speed that the client has set."""

    def voice() -> tuple[str | None, float]:
        reply = context.settings.reply
        return None if reply.voice == DEFAULT_VOICE else reply.voice, reply.speed

    return voice


class SpeechSession:
    """The conversation of one session, or none. Gets the user's audio, from `begin` on."""

    def __init__(
        self,
        stage: SpeechStage | None,
        charge: Callable[[float], None],
        voice: Callable[[], tuple[str | None, float]],
    ) -> None:
        """`charge` gets the cost, in USD, of answers that were cancelled. `voice` returns the voice and the speed that
        the client has set."""
        self.stage, self._charge, self._voice = stage, charge, voice
        self._options: SpeechOptions | None = None
        self._conversation: SpeechConversation | None = None
        self._opened_s = 0.0
        self._changed, self._attached = AsyncEvent(), AsyncEvent()
        self._replayable: list[Samples] = []  # bounded by `REPLAYED_S`
        self._n_replayable = 0
        self._failed: ModelRequest | None = None
        """The latest request, if it failed: what was said of it is gone."""

        self._resampler: Resampler | None = None
        self._one_at_a_time = asyncio.Lock()
        self._pause_s = FIRST_PAUSE_S

    def use(self, stage: SpeechStage | None) -> SpeechSession | None:
        """Speak with another model from now on; return `listener`."""
        if stage != self.stage:
            self.stage, self._resampler = stage, None
            self._clear()
            self._renew()
        return self.listener

    @property
    def listener(self) -> SpeechSession | None:
        """Return what the user's audio goes to; None: there is no model."""
        return None if self.stage is None else self

    @property
    def is_ready(self) -> bool:
        """Return whether there is a conversation that is not known to be broken."""
        return self._conversation is not None

    async def run(self) -> None:
        """Keep the conversation open, until cancelled."""
        while True:
            self._changed.clear()
            async with FreeingTaskGroup() as group:
                opened = None if self.stage is None else group.create_task(self._keep_open(self.stage), name="speech")
                await self._changed.wait()
                if opened is not None:
                    opened.cancel()

    async def _keep_open(self, stage: SpeechStage) -> None:
        while True:
            options = stage.options(*self._voice())
            try:
                async with stage.model.open(options, self._charge_unused) as conversation:
                    self._attach(conversation, options)
                    await conversation.broken()
            except (StageError, Overload):
                pass  # the circuit breaker has logged it
            except Exception as bug:
                log_crash(f"speech to speech by {stage.model.name}", bug)
            self._detach()
            await asyncio.sleep(self._pause_s)
            self._pause_s = min(2 * self._pause_s, MAX_PAUSE_S)

    def _attach(self, conversation: SpeechConversation, options: SpeechOptions) -> None:
        for samples in self._replayable:
            conversation.push(samples)
        self._conversation, self._options, self._opened_s = conversation, options, clock.loop_s()
        self._attached.set()

    def _detach(self) -> None:
        self._conversation = None
        self._attached.clear()

    def _renew(self) -> None:
        """Open another conversation in place of this one."""
        self._detach()
        self._changed.set()

    def _charge_unused(self, usage: SpeechUsage) -> None:
        if self.stage is not None and self.stage.price is not None:
            self._charge(self.stage.price.cost_usd(usage))

    # --- the user -----------------------------------------------------------------------------

    def begin(self, padding: Samples, rate_hz: int) -> None:
        """Begin an utterance with the audio before the voice; int16, (n_samples,)."""
        self._resampler = None
        if self._conversation is not None and not self._one_at_a_time.locked() and self._has_changed:
            self._renew()
        self.push(padding, rate_hz)

    def push(self, samples: Samples, rate_hz: int) -> None:
        """Send more of the user's audio, and buffer it for another conversation."""
        if self.stage is None or not len(samples):
            return
        if self._resampler is None:
            self._resampler = Resampler(rate_hz, self.stage.model.rate_hz)
        resampled = self._resampler.push(samples)
        self._replayable.append(resampled)
        self._n_replayable += len(resampled)
        while self._n_replayable > REPLAYED_S * self.stage.model.rate_hz:
            self._n_replayable -= len(self._replayable.pop(0))
        if self._conversation is not None:
            self._conversation.push(resampled)

    def drop(self) -> None:
        """Discard what the user has said since the latest answer: it was no question."""
        self._clear()
        if self._conversation is not None:
            self._conversation.drop()

    def _clear(self) -> None:
        self._replayable, self._n_replayable = [], 0

    @property
    def _has_changed(self) -> bool:
        return self.stage is not None and self.stage.options(*self._voice()) != self._options

    # --- the answers --------------------------------------------------------------------------

    @asynccontextmanager
    async def answer(self, request: ModelRequest, *, spoken: bool) -> AsyncIterator[AsyncIterator[SpeechModelEvent]]:
        """Request an answer, as `SpeechConversation.answer`; each step takes the stage's `timeout_ms` at most.

        Raises:
            StageError: there is no conversation, or it refused, broke or stalled. Another one is opened.
        """
        async with self._one_at_a_time, AsyncExitStack() as stack:
            stage = self.stage
            if self._has_changed and self._conversation is not None:
                self._renew()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._timeout_s):
                        await self._attached.wait()
            conversation = self._conversation
            spoken = spoken and bool(self._replayable) and not self._goes_on_after_failure(request)
            if stage is None or conversation is None:
                self._drop_failed(request)
                raise StageBroken("llm", provider=self.name, why="there is no connection", retryable=True)
            try:
                opened = conversation.answer(request, spoken=spoken)
                events = await self._in_time(stack.enter_async_context(opened))
                self._clear()
                yield _TimelyAnswer(events, self)
                self._failed = None
            except StageError:
                self._drop_failed(request)
                if self._conversation is conversation:
                    self._renew()
                raise
        self._replace_old(conversation)

    def _drop_failed(self, request: ModelRequest) -> None:
        """Drop what was said: LLM and TTS answer it, and the next conversation gets it as text."""
        self._clear()
        self._failed = request

    def _goes_on_after_failure(self, request: ModelRequest) -> bool:
        """Return whether the last message goes on from one whose audio is gone: only its text is whole."""
        return self._failed is not None and _n_messages(self._failed) == _n_messages(request)

    @property
    def name(self) -> str:
        """Return the spec of the model; empty: there is none."""
        return "" if self.stage is None else self.stage.model.name

    @property
    def _timeout_s(self) -> float:
        return 0.0 if self.stage is None else self.stage.timeout_ms / 1_000

    async def _in_time(self, step: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await step
        except TimeoutError:
            why = f"nothing came for {self._timeout_s * 1_000:.0f} ms"
            raise StageTimeout("llm", provider=self.name, why=why, retryable=True) from None

    async def next(self, events: AsyncIterator[SpeechModelEvent]) -> SpeechModelEvent:
        """Return the next event of an answer; raises `StageTimeout` where it takes too long."""
        event = await self._in_time(anext(events))
        if isinstance(event, Finished):
            self._pause_s = FIRST_PAUSE_S
        return event

    def _replace_old(self, conversation: SpeechConversation) -> None:
        """Replace a conversation that its provider would soon end for its age."""
        lifetime_ms = None if self.stage is None else self.stage.model.lifetime_ms
        age_ms = 1_000 * (clock.loop_s() - self._opened_s)
        if lifetime_ms is not None and age_ms > lifetime_ms and self._conversation is conversation:
            self._renew()


def _n_messages(request: ModelRequest) -> int:
    """Return the number of messages without those of the system."""
    return sum(not (isinstance(each, Content) and each.role == "system") for each in request.messages)


class _TimelyAnswer:
    def __init__(self, events: AsyncIterator[SpeechModelEvent], owner: SpeechSession) -> None:
        self._events, self._owner = events, owner

    def __aiter__(self) -> _TimelyAnswer:
        return self

    async def __anext__(self) -> SpeechModelEvent:
        return await self._owner.next(self._events)

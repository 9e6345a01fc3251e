"""The LLM and TTS of one reply: the LLM's text to the synthesizer, the synthesizer's audio to the client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from voicepipe.audio.samples import Samples, first_audible
from voicepipe.errors import Overload, StageBroken, StageError
from voicepipe.freeing import FreeingTaskGroup
from voicepipe.ports.model import (
    Attempted,
    CallDelta,
    Finished,
    FollowsPlayback,
    Model,
    ModelRequest,
    Routed,
    TextDelta,
    Usage,
)
from voicepipe.ports.provider_events import (
    CachedSpeech,
    ModelConnected,
    ModelJoined,
    ProviderChanged,
    SynthesizerConnected,
    UnusedSpeech,
)
from voicepipe.ports.synthesizer import RATE_HZ, Spoken, Synthesizer, Voice
from voicepipe.ports.text_normalizer import NormalizedSpeech, open_normalized
from voicepipe.protocol.json_fields import MAX_ECHOED_CHARS
from voicepipe.session.knowledge import Knowledge
from voicepipe.telemetry.log import log_crash
from voicepipe.turn import events as e
from voicepipe.turn.clauses import ClauseSplitter
from voicepipe.turn.commands import StartReply, call_item_id
from voicepipe.turn.record.values import ModelAttempt
from voicepipe.values import replace

MAX_CHARS = MAX_ECHOED_CHARS
"""The longest text of a reply, and the longest arguments of its function calls together: the most that one event can
send to a client. At this limit the LLM's stream is closed, as at the LLM's own token limit."""

LEAD_MS = 20
"""Silence kept before the first audible sample: speech cut exactly at its first sample clicks."""


class ReplyOutput(Protocol):
    """The output of a reply: buffered until the gate opens, then sent to the client."""

    def text(self, delta: str) -> None: ...
    def call(self, item_id: str, arguments: str) -> None: ...
    def sound(self, samples: Samples, words: tuple[tuple[str, int], ...]) -> None:
        """Send audio. `words`: those that are known to begin in it or later, with where in the reply's audio, in ms."""
        ...

    async def wait_for_space(self) -> None:
        """Wait until more audio may be queued."""
        ...


class RunningReply:
    """One revision of one turn's reply."""

    def __init__(
        self,
        command: StartReply,
        request: ModelRequest,
        voice: Voice,
        *,
        model: Model,
        synthesizer: Synthesizer,
        output: ReplyOutput,
        queued_ms: Callable[[int, int], int],
        post: Callable[[e.Event], None],
        redact: Callable[[ModelRequest], Awaitable[ModelRequest]] | None = None,
        knowledge: Knowledge | None = None,
        prepare: Callable[[ModelRequest], Awaitable[ModelRequest]] | None = None,
    ) -> None:
        """`knowledge` has the documents to search. `queued_ms` returns how much audio of a reply, by turn and revision,
        is still to be played, in ms. `redact` returns the request without personal data, `prepare` with what a hook
        adds to it.
        """
        self._redact, self._prepare = redact, prepare
        self._turn, self._revision, self._item_id = command.turn, command.revision, command.item_id
        self._audible = command.reply.audible
        self._request = request
        self._voice = replace(voice, session=request.session)
        self._speaker = synthesizer.name
        """The provider whose voice it is: of several, the latest."""

        self._model, self._synthesizer = model, synthesizer
        self._output, self._queued_ms, self._post = output, queued_ms, post
        self._knowledge = knowledge
        self._clauses = ClauseSplitter()
        self._n_clauses = 0
        self._speech: NormalizedSpeech | None = None
        self._audible_yet = False
        self._broke: StageError | None = None
        """The LLM's error in a reply of which a part is being spoken."""

        self._writer = model.name
        """The LLM that answers: of several, the latest."""

        self._calls_function = False
        self._n_chars = self._n_argument_chars = 0
        self._blank: dict[int | None, str] = {}
        """White space that came last, of a function call or (None) of the text. It is sent with the text that
        follows, since alone it is no progress."""

        self._clause_from = (0, 0)
        """(clause, where it begins in the reply's audio, in ms)"""

        self._sound_ms = 0
        self._left_out = (0, 0)
        """(clause, ms of silence at its beginning that were left out)"""

    def continue_as(self, revision: int) -> None:
        """Go on as another revision of the turn: the next events are of that revision."""
        self._revision = revision

    def shorten(self) -> None:
        """Make the synthesizer begin with the text that is available, up to a whole word."""
        self._send_clauses(self._clauses.close_early(), self._speech)

    async def run(self) -> None:
        """Run the LLM and the TTS for one turn; return when both are done, or one has failed.

        Cancel the task that runs this to silence the turn: both children are cancelled and the providers freed before
        the cancellation leaves here.
        """
        try:
            if self._audible:
                await self._generate_and_synthesize()
            else:
                await self._generate(None)
                self._post(e.SynthesisFinished(self._turn, self._revision))
        except* StageError as failures:
            first = _first(failures)
            self._post(e.StageFailed(self._turn, self._revision, _stage(first), first.provider, first.why))
        finally:
            self._speech = self._broke = None  # they refer to this reply

    async def _generate_and_synthesize(self) -> None:
        async with (
            _stage_errors("tts", self._synthesizer.name),
            open_normalized(self._synthesizer, self._voice) as speech,
            FreeingTaskGroup() as group,
        ):
            group.create_task(self._generate_speech(speech), name=f"llm-{self._turn}")
            group.create_task(self._speak(speech), name=f"tts-{self._turn}")
        if self._broke is not None:
            raise self._broke

    async def _generate_speech(self, speech: NormalizedSpeech) -> None:
        """Run the LLM; if it breaks in its answer, synthesize the text so far before the turn fails."""
        try:
            await self._generate(speech)
        except StageError as failure:
            if not self._n_clauses:
                raise
            self._broke = failure
            self._send_clauses(self._clauses.flush(), speech)
            speech.finish()

    # --- the LLM ------------------------------------------------------------------------------

    def _unplayed_ms(self) -> int:
        return self._queued_ms(self._turn, self._revision)

    async def _generate(self, speech: NormalizedSpeech | None) -> None:
        """Send the request to the LLM, and pass its text on clause by clause."""
        self._speech = speech
        await self._complete_request()
        self._post(e.ModelRequested(self._turn, self._revision, self._model.name))
        await self._pass_on(speech)

    async def _complete_request(self) -> None:
        """Add what documents and hooks have to the request, without personal data."""
        if self._redact is not None:
            self._request = await self._redact(self._request)
        if self._knowledge is not None:
            self._request, found = await self._knowledge.found_for(self._request)
            self._post(e.KnowledgeSearched(self._turn, self._revision, found))
        if self._prepare is not None:
            self._request = await self._prepare(self._request)

    async def _pass_on(self, speech: NormalizedSpeech | None) -> None:
        reason: e.FinishReason | None = None
        async with _stage_errors("llm", self._model.name), self._model.open(self._request) as answer:
            if isinstance(answer, FollowsPlayback):
                answer.track_playback(self._unplayed_ms)
            async for event in answer:
                match event:
                    case TextDelta(text):
                        self._take_text(text, speech)
                    case CallDelta():
                        self._take_call(event)
                    case Usage():
                        if event.is_possible:
                            self._count(event)
                    case Finished():
                        reason = event.reason
                    case _:
                        self._record_request(event)
                if self._is_full:
                    reason = "length"
                    break
        self._push_text(self._blank.pop(None, ""), speech)
        self._send_clauses(self._clauses.flush(), speech)
        if speech is not None:
            speech.finish()
            self._check_speakable(speech)
        if reason is not None:
            self._post(e.ModelFinished(self._turn, self._revision, reason))

    def _check_speakable(self, speech: NormalizedSpeech) -> None:
        """Fail the reply if its answer has nothing to say: the user would wait for it in silence."""
        if not (speech.n_chars or self._calls_function or self._request.may_be_empty):
            why = "the answer has nothing that can be spoken"
            raise StageBroken("llm", provider=self._writer, why=why, retryable=True)

    @property
    def _is_full(self) -> bool:
        return max(self._n_chars, self._n_argument_chars) >= MAX_CHARS

    def _take_text(self, text: str, speech: NormalizedSpeech | None) -> None:
        text = text[: MAX_CHARS - self._n_chars]
        self._n_chars += len(text)
        self._push_text(self._with_blank(None, text), speech)

    def _push_text(self, text: str, speech: NormalizedSpeech | None) -> None:
        if not text:
            return
        self._post(e.ModelTextReceived(self._turn, self._revision, text))
        # The clause goes to the TTS before its text goes to the wire: the user waits for audio.
        self._send_clauses(self._clauses.push(text), speech)
        self._output.text(text)

    def _take_call(self, delta: CallDelta) -> None:
        arguments = delta.arguments[: MAX_CHARS - self._n_argument_chars]
        self._n_argument_chars += len(arguments)
        arguments = self._with_blank(delta.index, arguments, alone=bool(delta.call_id or delta.name))
        if not (arguments or delta.call_id or delta.name):
            return
        self._calls_function = True
        self._post(e.CallGrew(self._turn, self._revision, delta.index, delta.call_id, delta.name, arguments))
        self._output.call(call_item_id(self._item_id, delta.index), arguments)

    def _with_blank(self, owner: int | None, text: str, *, alone: bool = False) -> str:
        """Return the text after the white space that was held back; nothing while there is only white space, unless
        `alone`."""
        whole = self._blank.pop(owner, "") + text
        if whole.strip() or alone:
            return whole
        self._blank[owner] = whole
        return ""

    def _record_request(self, event: ModelConnected | ModelJoined | Routed | Attempted) -> None:
        key = (self._turn, self._revision)
        match event:
            case ModelConnected():
                self._post(e.ModelConnected(*key))
            case ModelJoined(provider, role):
                self._post(e.ModelJoined(*key, provider, role))
            case Routed(provider, why, pool, arm, waited_for):
                self._writer = provider
                self._post(e.ModelChosen(*key, provider, why, pool, arm, waited_for))
            case Attempted():
                self._post(e.ModelAttempted(*key, _attempt(event)))

    def _count(self, usage: Usage) -> None:
        counts = (usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.cache_write_tokens)
        self._post(e.TokensCounted(self._turn, self._revision, *counts))

    def _send_clauses(self, clauses: list[str], speech: NormalizedSpeech | None) -> None:
        if speech is None:
            return
        for clause in clauses:
            before = speech.n_chars
            speech.push(clause)
            cut = self._clauses.cut_short and not self._n_clauses
            key, n_chars = (self._turn, self._revision), speech.n_chars - before
            self._post(e.ClauseHandedOver(*key, self._n_clauses, clause, self._speaker, cut, n_chars))
            self._n_clauses += 1

    # --- the TTS ------------------------------------------------------------------------------

    async def _speak(self, speech: NormalizedSpeech) -> None:
        """Pass the synthesizer's audio on as it comes."""
        async with _stage_errors("tts", self._synthesizer.name):
            async for event in speech:
                if isinstance(event, Spoken):
                    self._take_sound(event)
                    await self._output.wait_for_space()
                else:
                    self._record_speech_event(event)
        self._post(e.SynthesisFinished(self._turn, self._revision))

    def _take_sound(self, spoken: Spoken) -> None:
        samples = spoken.samples
        audible_after_ms = None
        if not self._audible_yet and (audible := first_audible(samples)) is not None:
            self._audible_yet = True
            samples = samples[max(0, audible - LEAD_MS * RATE_HZ // 1_000) :]
            audible_after_ms = min(audible * 1_000 // RATE_HZ, LEAD_MS)
            self._record_left_out(spoken, len(spoken.samples) - len(samples))
        elif not self._audible_yet:
            self._record_left_out(spoken, len(samples))
            return  # a synthesizer's leading silence would only delay the reply
        duration_ms = len(samples) * 1_000 // RATE_HZ
        left_out_ms = self._left_out[1] if spoken.clause == self._left_out[0] else 0
        starts_ms = tuple(max(0, word.start_ms - left_out_ms) for word in spoken.words)
        self._post(e.SoundArrived(self._turn, self._revision, spoken.clause, duration_ms, audible_after_ms, starts_ms))
        if spoken.clause != self._clause_from[0]:
            self._clause_from = (spoken.clause, self._sound_ms)
        self._sound_ms += duration_ms
        from_ms = self._clause_from[1]
        self._output.sound(
            samples, tuple((word.word, from_ms + ms) for word, ms in zip(spoken.words, starts_ms, strict=True))
        )

    def _record_speech_event(self, event: SynthesizerConnected | ProviderChanged | UnusedSpeech | CachedSpeech) -> None:
        key = (self._turn, self._revision)
        match event:
            case SynthesizerConnected(hidden_ms):
                self._post(e.SynthesizerConnected(*key, hidden_ms))
            case ProviderChanged(provider, role, why, n_chars, waited_for):
                self._speaker = provider
                self._post(e.SynthesizerChanged(*key, provider, role, why, n_chars, waited_for))
            case UnusedSpeech(provider, n_chars):
                self._post(e.SynthesisUnused(*key, provider, n_chars))
            case CachedSpeech(provider, n_chars):
                self._post(e.CachedSpeechUsed(*key, provider, n_chars))

    def _record_left_out(self, spoken: Spoken, n_samples: int) -> None:
        """Record how much of a clause's audio is not sent: its words begin earlier by that."""
        clause, left_out_ms = self._left_out
        before_ms = left_out_ms if clause == spoken.clause else 0
        self._left_out = (spoken.clause, before_ms + n_samples * 1_000 // RATE_HZ)


@asynccontextmanager
async def _stage_errors(stage: e.StageName, provider: str) -> AsyncIterator[None]:
    """Turn an exception of a provider outside our error tree into one of the tree: a bug there is not the user's."""
    try:
        yield
    except (StageError, ExceptionGroup):
        raise
    except Overload as full:
        raise StageBroken(stage, provider=provider, why=full.why, retryable=True) from full
    except Exception as bug:
        log_crash(f"{stage} by {provider}", bug)
        raise StageBroken(
            stage, provider=provider, why=f"internal error ({type(bug).__name__})", retryable=False
        ) from bug


def _attempt(event: Attempted) -> ModelAttempt:
    return ModelAttempt(
        provider=event.provider,
        role=event.role,
        outcome=event.outcome,
        began_ms=event.began_ms,
        first_ms=event.first_ms,
        why=event.why,
        cost_usd=event.cost_usd,
    )


def _first(failures: BaseExceptionGroup[StageError]) -> StageError:
    first = failures.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


def _stage(failure: StageError) -> e.StageName:
    match failure.stage:
        case "stt" | "llm" | "tts" as stage:
            return stage
        case _:
            return "llm"

"""A candidate fails by a bug, by our own limits, ends too soon or not at all: another takes its place, and the log has
the bug."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from typing import Any, NoReturn

import numpy as np
import pytest

from voicepipe.errors import ConfigError, Overload, StageBroken, StageRefused
from voicepipe.ports.limits import ProviderLimits
from voicepipe.ports.model import (
    Attempted,
    Content,
    Finished,
    ModelEvent,
    ModelRequest,
    Routed,
    Text,
    TextDelta,
    Usage,
)
from voicepipe.ports.provider_events import ModelConnected, SynthesizerConnected
from voicepipe.ports.synthesizer import Speech, SpeechEvent, Spoken, Voice
from voicepipe.ports.transcriber import TranscriberCapabilities, TranscriptEvent, TranscriptionOptions
from voicepipe.router.build import build_pool
from voicepipe.router.candidate import Candidate
from voicepipe.router.limited import LimitedModel, LimitedSynthesizer, LimitedTranscriber, limited
from voicepipe.router.llm.model import MAX_REQUESTED_POOLS, RoutedModel, Routes
from voicepipe.router.llm.probe import Probes
from voicepipe.router.options import RouterOptions
from voicepipe.router.pool import Pool, SharedStats
from voicepipe.router.speech_order import SpeechOrder
from voicepipe.router.stt.transcriber import RoutedTranscriber, TranscriberCandidate
from voicepipe.router.tts.call import SynthesizerCandidate
from voicepipe.router.tts.synthesizer import RoutedSynthesizer
from voicepipe.testing.conformance.synthesizer import sound_of, speak
from voicepipe.testing.conformance.transcriber import final, push
from voicepipe.testing.fakes.cues import SttCue, TtsCue
from voicepipe.testing.fakes.ports import FakeSynthesizer, FakeTranscriber
from voicepipe.testing.fakes.tone import tone
from voicepipe.testing.waiting import WAIT_S
from voicepipe.turn.cost import Price

HI = ModelRequest(model="any", messages=(Content("user", (Text("Hi"),)),))
FULL = Overload("Too many requests at a time.", retry_after_ms=2_500)
BUG = RuntimeError("we forgot something")
FAULTS = pytest.mark.parametrize("fault", [FULL, BUG], ids=["full", "bug"])
WHOLE = (TextDelta("Hello."), Finished("stop"))


def crashes(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Where the log says that something of ours crashed."""
    return [
        record.__dict__["fields"]["where"]
        for record in caplog.records
        if record.levelno == logging.ERROR and record.message == "crashed"
    ]


# --- LLM ------------------------------------------------------------------------------------------


class Scripted:
    """A model that gives these events, after raising what it has to raise."""

    def __init__(self, name: str, *events: ModelEvent, fault: Exception | None = None) -> None:
        self.name, self.events, self.fault = name, events, fault
        self.warmed: list[str] = []
        self.requests: list[ModelRequest] = []

    def open(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
        return self._open(request)

    @asynccontextmanager
    async def _open(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        self.requests.append(request)
        if self.fault is not None:
            raise self.fault
        yield self._answer()

    async def _answer(self) -> AsyncIterator[ModelEvent]:
        for event in self.events:
            yield event

    async def warm(self, request: ModelRequest) -> None:
        self.warmed.append(request.model)


def routed_model(
    *models: Scripted, home: str = "voice", known: int | None = None, price: Price | None = None, **options: Any
) -> RoutedModel:
    """A routed model over these, in the order given; `known`: how many of them are in its pool (all)."""
    chosen, stats = RouterOptions(**{"policy": "single", "order": "given", **options}), SharedStats()
    by_name = {model.name: model for model in models}

    def pool_for(specs: tuple[str, ...], like: str) -> Pool:
        if unknown := [spec for spec in specs if spec not in by_name]:
            raise ConfigError(f"no model {unknown[0]}")
        return build_pool("voice", tuple(Candidate(spec=spec, price=price) for spec in specs), chosen, stats)

    routes = Routes(
        pools={"voice": pool_for(tuple(model.name for model in models[:known]), "")},
        rules=(),
        experiments=(),
        stats=stats,
        probes=Probes(stats),
        models=by_name.__getitem__,
        pool_for=pool_for,
    )
    return RoutedModel(models[0], home, routes, metadata={})


async def answer(model: Any, request: ModelRequest = HI) -> list[ModelEvent]:
    async with model.open(request) as events:
        return [event async for event in events]


def attempts(events: list[ModelEvent]) -> list[tuple[str, str]]:
    return [(event.provider, event.outcome) for event in events if isinstance(event, Attempted)]


@FAULTS
async def test_another_model_answers(fault: Exception, caplog: pytest.LogCaptureFixture) -> None:
    events = await answer(routed_model(Scripted("a/m", fault=fault), Scripted("b/m", *WHOLE)))
    assert attempts(events) == [("a/m", "failed"), ("b/m", "spoke")]
    assert TextDelta("Hello.") in events
    assert crashes(caplog) == (["llm by a/m"] if fault is BUG else [])


async def test_no_model_is_left_to_answer() -> None:
    """The user of a full server is told when to come again; a bug says what it was, without its text."""
    with pytest.raises(StageRefused) as refused:
        await answer(routed_model(Scripted("a/m", fault=FULL)))
    assert (refused.value.retry_after_ms, refused.value.retryable) == (2_500, True)
    with pytest.raises(StageBroken, match=r"internal error \(RuntimeError\)") as broken:
        await answer(routed_model(Scripted("a/m", fault=BUG)))
    assert not broken.value.retryable


async def test_an_answer_that_ends_without_a_reason_is_cut() -> None:
    """It never counts as complete."""
    with pytest.raises(StageBroken, match="the answer ended without a finish reason"):
        await answer(routed_model(Scripted("a/m", TextDelta("Hel")), continue_broken=False))


async def test_a_request_may_name_more_models() -> None:
    """They follow the pool's own, each once, and are warmed with no request of their own."""
    models = [Scripted("a/m", fault=BUG), Scripted("b/m", *WHOLE)]
    routed = routed_model(*models, known=1)
    named = ModelRequest(model="any", messages=HI.messages, models=("b/m", "a/m"))
    assert attempts(await answer(routed, named)) == [("a/m", "failed"), ("b/m", "spoke")]
    with pytest.raises(StageBroken):
        await answer(routed)


async def test_a_request_that_names_an_unknown_model_is_refused() -> None:
    routed = routed_model(Scripted("a/m", *WHOLE))
    with pytest.raises(StageRefused, match="no model c/m") as refused:
        await answer(routed, ModelRequest(model="any", messages=HI.messages, models=("c/m",)))
    assert refused.value.status == 404


async def test_pools_that_requests_name_are_bounded() -> None:
    """A client may name any models in any order: only the latest pools are stored."""
    models = [Scripted(f"v{n}/m", *WHOLE) for n in range(MAX_REQUESTED_POOLS + 3)]
    routed = routed_model(*models, known=1)
    for model in models[1:]:
        await answer(routed, ModelRequest(model="any", messages=HI.messages, models=(model.name,)))
    assert len(routed._requested_pools) == MAX_REQUESTED_POOLS


@pytest.mark.parametrize(("requested", "sent"), [(None, 50), (40, 40), (60, 50)])
async def test_an_answer_is_as_long_as_its_pool_allows(requested: int | None, sent: int) -> None:
    model = Scripted("a/m", *WHOLE)
    routed = routed_model(model, max_output_tokens=50)
    await answer(routed, ModelRequest(model="any", messages=HI.messages, max_output_tokens=requested))
    assert model.requests[0].max_output_tokens == sent


async def test_a_conversation_without_a_user_is_answered() -> None:
    """The agent's instructions alone make the request."""
    model = Scripted("a/m", *WHOLE)
    request = ModelRequest(model="any", messages=(Content("system", (Text("Greet the caller."),)),))
    assert TextDelta("Hello.") in await answer(routed_model(model), request)


async def test_without_a_pool_the_first_model_is_warmed() -> None:
    first, second = Scripted("a/m", *WHOLE), Scripted("b/m", *WHOLE)
    await routed_model(first, second, home="").warm(HI)
    assert (first.warmed, second.warmed) == (["any"], [])


async def test_the_tokens_of_an_impossible_count_are_estimated() -> None:
    """From the text; the provider's count is not passed on."""
    count, price = Usage(input_tokens=-7, output_tokens=2), Price(1.0, 1.0)
    events = await answer(routed_model(Scripted("a/m", *WHOLE[:1], count, *WHOLE[1:]), price=price))
    assert not [event for event in events if isinstance(event, Usage)]
    (attempt,) = (event for event in events if isinstance(event, Attempted))
    assert attempt.cost_usd is not None
    assert attempt.cost_usd > 0


async def test_a_router_behind_a_model_reports_nothing() -> None:
    """The outer one names the model that it has asked, and its attempts."""
    inner = Attempted(provider="x/m", role="primary", outcome="spoke", began_ms=0, first_ms=5)
    events = await answer(routed_model(Scripted("a/m", Routed("x/m", "first choice"), inner, *WHOLE)))
    assert [event.provider for event in events if isinstance(event, Routed)] == ["a/m"]
    assert attempts(events) == [("a/m", "spoke")]


class Stubborn(Scripted):
    """A model that gives its events when it is cancelled, and goes on to its end."""

    def __init__(self, name: str, *events: ModelEvent, end: Exception | None = None) -> None:
        super().__init__(name, *events)
        self.end, self.began, self.over = end, asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def _open(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        try:
            yield self._answer()
        finally:
            self.over.set()

    async def _answer(self) -> AsyncIterator[ModelEvent]:
        self.began.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        for event in self.events:
            yield event
        if self.end is not None:
            raise self.end


class Interrupted(Scripted):
    """A model that says one word, and each further one when the next of these has happened."""

    def __init__(self, name: str, *waits: asyncio.Event) -> None:
        super().__init__(name)
        self._waits = waits

    async def _answer(self) -> AsyncIterator[ModelEvent]:
        yield TextDelta("One")
        for wait in self._waits:
            await wait.wait()
            yield TextDelta(" more")
        yield Finished("stop")


LATE_ENDS = pytest.mark.parametrize("end", [None, FULL], ids=["ends", "fails"])


@LATE_ENDS
async def test_a_model_that_ignores_its_end_adds_nothing(end: Exception | None) -> None:
    """It has lost a race: neither its connection nor its words nor its failure count."""
    late = Stubborn("a/m", ModelConnected(), *WHOLE, end=end)
    routed = routed_model(late, Interrupted("b/m", late.over), policy="race")
    async with asyncio.timeout(WAIT_S):
        events = await answer(routed)
    assert [event for event in events if isinstance(event, TextDelta)] == [TextDelta("One"), TextDelta(" more")]
    assert ModelConnected() not in events
    assert attempts(events) == [("a/m", "lost"), ("b/m", "spoke")]
    stats = routed._routes.stats
    assert (stats.breaker_of("a/m").errors, stats.running) == ({}, {"a/m": 0, "b/m": 0})


@LATE_ENDS
async def test_a_continuation_that_ignores_its_end_adds_nothing(
    end: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model that had stalled has gone on by itself: its answer is whole, and no other is in it."""
    monkeypatch.setattr("voicepipe.router.llm.continuation.MIN_STALL_MS", 1)
    monkeypatch.setattr("voicepipe.router.llm.continuation.STALL_GAPS", 0)
    late = Stubborn("b/m", *WHOLE, end=end)
    routed = routed_model(Interrupted("a/m", late.began, late.over), late)
    async with asyncio.timeout(WAIT_S):
        events = await answer(routed)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "One more more"
    assert [event.provider for event in events if isinstance(event, Routed)] == ["a/m"]
    assert attempts(events) == [("a/m", "spoke"), ("b/m", "lost")]
    assert routed._routes.stats.breaker_of("b/m").errors == {}


# --- TTS ------------------------------------------------------------------------------------------


class Mute(FakeSynthesizer):
    """A synthesizer that raises when it is opened."""

    def __init__(self, name: str, fault: Exception) -> None:
        super().__init__(TtsCue(), name=name)
        self.fault = fault

    def open(self, voice: Voice) -> NoReturn:
        raise self.fault

    @contextmanager
    def keep_warm(self, voice: Voice) -> Iterator[None]:
        yield


def routed_voice(*voices: FakeSynthesizer) -> RoutedSynthesizer:
    candidates = tuple(Candidate(spec=voice.name) for voice in voices)
    options = RouterOptions(policy="fallback", fallback_after_ms=60_000, attempt_timeout_ms=60_000)
    speakers = tuple(
        SynthesizerCandidate(c, voice, i == 0) for i, (c, voice) in enumerate(zip(candidates, voices, strict=True))
    )
    return RoutedSynthesizer(speakers, SpeechOrder(candidates, options, SharedStats()))


@FAULTS
async def test_another_voice_speaks(fault: Exception, caplog: pytest.LogCaptureFixture) -> None:
    voices = (Mute("a/voice", fault), FakeSynthesizer(TtsCue(), name="b/voice"))
    spoken = await speak(routed_voice(*voices), Voice(model="any"), "One clause.")
    assert (sound_of(spoken, 0) == tone("One clause.")).all()
    assert crashes(caplog) == (["tts by a/voice"] if fault is BUG else [])


async def test_no_voice_is_left_to_speak() -> None:
    with pytest.raises(StageRefused) as refused:
        await speak(routed_voice(Mute("a/voice", FULL)), Voice(model="any"), "One clause.")
    assert refused.value.retry_after_ms == 2_500
    with pytest.raises(StageBroken, match=r"internal error \(RuntimeError\)"):
        await speak(routed_voice(Mute("a/voice", BUG)), Voice(model="any"), "One clause.")


class StubbornVoice(FakeSynthesizer):
    """A synthesizer that says one word and stalls, says more when it is cancelled, and goes on to its end."""

    def __init__(self, name: str, end: Exception | None) -> None:
        super().__init__(name=name)
        self.end, self.over = end, asyncio.Event()

    @asynccontextmanager
    async def open(self, voice: Voice) -> AsyncIterator[Any]:
        try:
            yield _StubbornSpeech(self.end)
        finally:
            self.over.set()


class _StubbornSpeech:
    def __init__(self, end: Exception | None) -> None:
        self._end = end

    def push(self, clause: str) -> None: ...

    def finish(self) -> None: ...

    async def __aiter__(self) -> AsyncIterator[SpeechEvent]:
        yield Spoken(0, tone("One"))
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        yield SynthesizerConnected(0)
        yield Spoken(0, tone("clause."))
        if self._end is not None:
            raise self._end


@LATE_ENDS
async def test_a_voice_that_ignores_its_end_adds_nothing(
    end: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has stalled, and another continues: neither its audio nor its end is the turn's."""
    monkeypatch.setattr("voicepipe.router.tts.synthesizer.STALL_MS", 50)
    first, second = StubbornVoice("a/voice", end), FakeSynthesizer(name="b/voice")
    routed = routed_voice(first, second)
    async with routed.open(Voice(model="any")) as speech, asyncio.timeout(WAIT_S):
        speech.push("One clause.")
        speech.finish()
        events = asyncio.create_task(_all_of(speech))
        rest = await second.script.nth(0)
        await first.over.wait()
        rest.send(tone("by b"))
        rest.finish()
        came = await events
    spoken = [event for event in came if isinstance(event, Spoken)]
    assert (sound_of(spoken, 0) == np.concatenate([tone("One"), tone("by b")])).all()
    assert SynthesizerConnected(0) not in came
    stats = routed._speech_order.stats
    assert (stats.breaker_of("a/voice").errors, stats.running) == ({"timeout": 1}, {"a/voice": 0, "b/voice": 0})


async def _all_of(speech: Speech) -> list[SpeechEvent]:
    return [event async for event in speech]


# --- STT ------------------------------------------------------------------------------------------

SPEECH = tone("as long as this takes", rate_hz=16_000)
STREAMS = TranscriberCapabilities(rate_hz=16_000, streams=True)


class Deaf(FakeTranscriber):
    """A transcriber that raises when it is opened."""

    def __init__(self, name: str, fault: Exception) -> None:
        super().__init__(lambda _: None, name=name, capabilities=STREAMS)
        self.fault = fault

    def open(self, options: TranscriptionOptions) -> NoReturn:
        raise self.fault


class Forgetful(FakeTranscriber):
    """A transcriber that ends its stream when a text is requested."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.ends, self.is_open = _EndsAtFlush(), asyncio.Event()

    def open(self, options: TranscriptionOptions) -> Any:
        return self._open_once()

    @asynccontextmanager
    async def _open_once(self) -> AsyncIterator[Any]:
        self.ends = _EndsAtFlush()
        self.is_open.set()
        yield self.ends


class _EndsAtFlush:
    def __init__(self) -> None:
        self._over = asyncio.Event()

    def begin(self, utterance: int) -> None: ...

    def push(self, samples: Any) -> None: ...

    def flush(self, flush: int) -> None:
        self._over.set()

    def __aiter__(self) -> _EndsAtFlush:
        return self

    async def __anext__(self) -> TranscriptEvent:
        await self._over.wait()
        raise StopAsyncIteration


def routed_transcriber(*transcribers: FakeTranscriber) -> RoutedTranscriber:
    candidates = tuple(Candidate(spec=transcriber.name) for transcriber in transcribers)
    options = RouterOptions(fallback_after_ms=60_000)
    each = tuple(TranscriberCandidate(c, t) for c, t in zip(candidates, transcribers, strict=True))
    return RoutedTranscriber(each, SpeechOrder(candidates, options, SharedStats()))


async def transcribed(routed: RoutedTranscriber) -> str:
    """The text of one utterance."""
    async with routed.open(TranscriptionOptions(model="any")) as stream, asyncio.timeout(WAIT_S):
        stream.begin(1)
        push(stream, SPEECH)
        stream.flush(1)
        return (await final(stream)).text


@FAULTS
async def test_another_transcriber_gets_all_of_it(fault: Exception, caplog: pytest.LogCaptureFixture) -> None:
    second = FakeTranscriber(lambda _: SttCue(text="all of it"), name="b/stt", capabilities=STREAMS)
    assert await transcribed(routed_transcriber(Deaf("a/stt", fault), second)) == "all of it"
    assert crashes(caplog) == (["stt by a/stt"] if fault is BUG else [])


async def test_no_transcriber_is_left() -> None:
    """As of an LLM: a full one says when to come again, and a bug is told without its text."""
    with pytest.raises(StageRefused, match="Too many requests at a time") as full:
        await transcribed(routed_transcriber(Deaf("a/stt", FULL)))
    assert (full.value.retry_after_ms, full.value.retryable) == (2_500, True)
    with pytest.raises(StageBroken, match=r"internal error \(RuntimeError\)") as bug:
        await transcribed(routed_transcriber(Deaf("a/stt", BUG)))
    assert not bug.value.retryable


async def test_a_stream_that_ends_with_a_text_due_is_broken() -> None:
    """Its end is no answer: another transcriber gets the utterance."""
    first = Forgetful(lambda _: None, name="a/stt", capabilities=STREAMS)
    second = FakeTranscriber(lambda _: SttCue(text="all of it"), name="b/stt", capabilities=STREAMS)
    assert await transcribed(routed_transcriber(first, second)) == "all of it"
    with pytest.raises(StageBroken, match="the stream ended before its last transcript"):
        await transcribed(routed_transcriber(first))


async def test_a_stream_that_ends_between_two_utterances_has_not_failed() -> None:
    """Its session opens another; no other transcriber takes its place."""
    first = Forgetful(lambda _: None, name="a/stt", capabilities=STREAMS)
    second = FakeTranscriber(lambda _: None, name="b/stt", capabilities=STREAMS)
    routed = routed_transcriber(first, second)
    async with routed.open(TranscriptionOptions(model="any")) as stream, asyncio.timeout(WAIT_S):
        await first.is_open.wait()
        first.ends.flush(1)
        assert [event async for event in stream] == []
    assert second.streams == []
    assert routed._speech_order.stats.breaker_of("a/stt").errors == {}


# --- limits ---------------------------------------------------------------------------------------


async def test_a_provider_of_each_stage_is_held_to_its_limits() -> None:
    """What it wraps is still asked to prepare."""
    limits, model = ProviderLimits(), Scripted("a/m", *WHOLE)
    held = limited("llm", model, limits)
    assert isinstance(held, LimitedModel)
    await held.warm(HI)
    assert model.warmed == ["any"]
    assert isinstance(limited("tts", FakeSynthesizer(TtsCue()), limits), LimitedSynthesizer)
    assert isinstance(limited("stt", FakeTranscriber(lambda _: None), limits), LimitedTranscriber)

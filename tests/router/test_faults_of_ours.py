"""A candidate fails by a bug, by our own limits, or ends too soon: another takes its place, and the log has the bug."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, NoReturn

import pytest

from voicepipe.errors import ConfigError, Overload, StageBroken, StageRefused
from voicepipe.ports.limits import ProviderLimits
from voicepipe.ports.model import Attempted, Finished, ModelEvent, ModelRequest, Said, Text, TextDelta
from voicepipe.ports.synthesizer import Voice
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

HI = ModelRequest(model="any", messages=(Said("user", (Text("Hi"),)),))
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


def routed_model(*models: Scripted, home: str = "voice", known: int | None = None, **options: Any) -> RoutedModel:
    """A routed model over these, in the order given; `known`: how many of them are in its pool (all)."""
    chosen, stats = RouterOptions(**{"policy": "single", "order": "given", **options}), SharedStats()
    by_name = {model.name: model for model in models}

    def pool_for(specs: tuple[str, ...], like: str) -> Pool:
        if unknown := [spec for spec in specs if spec not in by_name]:
            raise ConfigError(f"no model {unknown[0]}")
        return build_pool("voice", tuple(Candidate(spec=spec) for spec in specs), chosen, stats)

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
    request = ModelRequest(model="any", messages=(Said("system", (Text("Greet the caller."),)),))
    assert TextDelta("Hello.") in await answer(routed_model(model), request)


async def test_without_a_pool_the_first_model_is_warmed() -> None:
    first, second = Scripted("a/m", *WHOLE), Scripted("b/m", *WHOLE)
    await routed_model(first, second, home="").warm(HI)
    assert (first.warmed, second.warmed) == (["any"], [])


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

    def open(self, options: TranscriptionOptions) -> Any:
        return self._open_once()

    @asynccontextmanager
    async def _open_once(self) -> AsyncIterator[Any]:
        yield _EndsAtFlush()


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

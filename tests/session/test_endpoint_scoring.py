"""A session's pauses are scored by a local model and by the STT's own detection; what is late or stale is dropped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import numpy as np
import pytest

from tests.session.test_observers import noon, session, talk
from tests.session.test_third_party_faults import Client
from voicepipe.audio.samples import Samples
from voicepipe.errors import StageBroken, StageRefused
from voicepipe.ports.transcriber import EndOfTurn
from voicepipe.session import endpoint_scoring
from voicepipe.session.endpoint_scoring import EndpointScoring
from voicepipe.session.ports import SessionPorts
from voicepipe.session.utterance_audio import UtteranceAudio
from voicepipe.testing.fakes.cues import SttCue
from voicepipe.testing.fakes.ports import FakeTranscriber
from voicepipe.testing.waiting import eventually
from voicepipe.turn import events as e
from voicepipe.turn.endpointing.probability import SENTENCE_END, SMART_TURN, STT_END
from voicepipe.turn.endpointing.strategies import ADAPTIVE, SILENCE, SOFT
from voicepipe.turn.settings import TurnSettings

PAUSED = e.SpeechPaused(2_000, 2_000)
SPOKEN = e.TranscriptFinished(1, 1, "I would like a coffee.")
USED = e.SettingsChanged(TurnSettings(end_of_turn="a strategy that reads scores"))


class FakeScorer:
    """Answers each text when the test says so."""

    score_name = SENTENCE_END

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.answer: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self.n_cancelled = 0

    async def score(self, session: str, text: str) -> float:
        self.texts.append(f"{session}: {text}")
        try:
            return await self.answer
        except asyncio.CancelledError:
            self.n_cancelled += 1
            raise


@asynccontextmanager
async def running(scoring: EndpointScoring) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(scoring.run(), name="scores")
        yield
        task.cancel()


async def until(is_so: Callable[[], object]) -> None:
    async def probe() -> object:
        return is_so() or None

    await eventually(probe)


def made(scorer: FakeScorer | None, *events: e.Event) -> tuple[EndpointScoring, list[e.Event]]:
    posted: list[e.Event] = []
    scoring = EndpointScoring(scorer, "s", posted.append, stt_detects=scorer is None)
    for event in events:
        if isinstance(event, scoring.handled):
            scoring.handle(event)
    return scoring, posted


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that answers itself must not lose against the deadline."""
    monkeypatch.setattr(endpoint_scoring, "DEADLINE_S", 60.0)


@pytest.mark.parametrize("strategy", [SOFT, ADAPTIVE, "own"])
@pytest.mark.usefixtures("patient")
async def test_the_words_of_a_pause_are_scored(strategy: str) -> None:
    scorer = FakeScorer()
    scoring, posted = made(scorer, e.SettingsChanged(TurnSettings(end_of_turn=strategy)), PAUSED, SPOKEN)
    async with running(scoring):
        scorer.answer.set_result(0.7)
        await until(lambda: posted)
    assert scorer.texts == ["s: I would like a coffee."]
    assert posted == [e.EndpointScored(2_000, SENTENCE_END, 0.7)]


@pytest.mark.parametrize(
    "events",
    [
        (PAUSED, SPOKEN),
        (e.SettingsChanged(TurnSettings(end_of_turn=SILENCE)), PAUSED, SPOKEN),
        (USED, SPOKEN),
        (USED, PAUSED, e.SpeechStarted(2_300, 2_300), SPOKEN),
        (USED, PAUSED, SPOKEN, e.SpeechStarted(2_300, 2_300)),
        (USED, PAUSED, e.TranscriptFinished(1, 1, "")),
    ],
    ids=["no settings", "silence", "no pause", "went on", "went on before the model", "no words"],
)
@pytest.mark.usefixtures("patient")
async def test_no_model_runs_for_nothing(events: tuple[e.Event, ...]) -> None:
    scorer = FakeScorer()
    scoring, posted = made(scorer, *events)
    async with running(scoring):
        for _ in range(3):
            await asyncio.sleep(0)
    assert not scorer.texts
    assert not posted


@pytest.mark.usefixtures("patient")
async def test_of_many_texts_the_latest_is_scored_next() -> None:
    scorer = FakeScorer()
    scoring, posted = made(scorer, USED, PAUSED, SPOKEN)
    async with running(scoring):
        await until(lambda: scorer.texts)
        for text in ("one", "two", "three"):
            scoring.handle(e.TranscriptFinished(1, 1, text))
        scorer.answer.set_result(0.4)
        await until(lambda: len(posted) == 2)
    assert scorer.texts == ["s: I would like a coffee.", "s: three"]


async def test_a_late_score_is_cancelled_and_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_scoring, "DEADLINE_S", 0.0)
    scorer = FakeScorer()
    scoring, posted = made(scorer, USED, PAUSED, SPOKEN)
    async with running(scoring):
        await until(lambda: scorer.n_cancelled == 1)
    assert not posted


@pytest.mark.usefixtures("patient")
async def test_a_failing_model_costs_only_its_score() -> None:
    scorer = FakeScorer()
    scoring, posted = made(scorer, USED, PAUSED, SPOKEN)
    async with running(scoring):
        scorer.answer.set_exception(StageRefused("llm", provider="p", why="the queue is full", retryable=True))
        await until(lambda: scorer.texts)
        scorer.answer = asyncio.get_running_loop().create_future()
        scorer.answer.set_result(0.2)
        scoring.handle(SPOKEN)
        await until(lambda: posted)
    assert posted == [e.EndpointScored(2_000, SENTENCE_END, 0.2)]


async def test_without_a_local_model_no_task_runs() -> None:
    scoring, posted = made(None, USED, PAUSED, SPOKEN)
    await scoring.run()
    assert not posted


def test_without_a_source_of_scores_only_the_settings_are_followed() -> None:
    scoring = EndpointScoring(None, "s", lambda event: None)
    scoring.handle(USED)
    assert scoring.handled == (e.SettingsChanged,)


def posted_by(*events: e.Event) -> list[e.Event]:
    scoring, posted = made(None, *events)
    scoring.take(EndOfTurn(1, 0.9))
    return posted


def test_the_stts_own_end_of_turn_is_a_score_of_the_pause() -> None:
    assert posted_by(USED, PAUSED) == [e.EndpointScored(2_000, STT_END, 0.9)]
    assert posted_by(PAUSED) == []
    assert posted_by(USED) == []
    assert posted_by(USED, PAUSED, e.SpeechStarted(2_300, 2_300)) == []


@pytest.mark.parametrize(
    ("at_ms", "between", "scores"),
    [
        (2_100, (), [0.9]),
        (1_900, (), []),
        (2_100, (e.SpeechStarted(2_000, 2_000),), []),
        (2_100, (PAUSED, e.SpeechStarted(2_300, 2_300)), [0.9]),
    ],
    ids=["before the VAD's report", "the user went on", "another utterance", "used once"],
)
def test_the_stt_may_detect_the_end_before_the_vad(
    at_ms: int, between: tuple[e.Event, ...], scores: list[float]
) -> None:
    """The VAD reports a pause about 100 ms after its last voiced sample, in noise later."""
    posted: list[e.Event] = []
    scoring = EndpointScoring(None, "s", posted.append, stt_detects=True, now_ms=lambda: at_ms)
    scoring.handle(USED)
    scoring.take(EndOfTurn(1, 0.9))
    for event in (*between, PAUSED):
        scoring.handle(event)
    assert posted == [e.EndpointScored(2_000, STT_END, score) for score in scores]


# --- the audio -----------------------------------------------------------------------------------


class FakeAudioScorer:
    """Answers each pause's audio when the test says so."""

    score_name = SMART_TURN

    def __init__(self) -> None:
        self.judged: list[tuple[str, list[int], int]] = []
        self.outcomes: list[str] = []
        self.answer: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self.n_cancelled = 0

    async def score(self, session: str, samples: Samples, rate_hz: int) -> float:
        self.judged.append((session, samples.tolist(), rate_hz))
        try:
            return await self.answer
        except asyncio.CancelledError:
            self.n_cancelled += 1
            raise


def with_audio(scorer: FakeAudioScorer, *events: e.Event) -> tuple[EndpointScoring, list[e.Event]]:
    """A session's scores, with the audio of an utterance of three samples."""
    posted: list[e.Event] = []
    note = scorer.outcomes.append
    scoring = EndpointScoring(
        None, "s", posted.append, audio_scorer=scorer, count=lambda name, outcome: note(f"{name} {outcome}")
    )
    assert scoring.audio is not None
    scoring.audio.begin(np.array([1, 2], np.int16), 8_000)
    scoring.audio.push(np.array([3], np.int16), 8_000)
    for event in events:
        if isinstance(event, scoring.handled):
            scoring.handle(event)
    return scoring, posted


@pytest.mark.usefixtures("patient")
async def test_the_audio_of_a_pause_is_judged_once_after_100_ms() -> None:
    """And again in the next pause."""
    scorer = FakeAudioScorer()
    scorer.answer.set_result(0.9)
    scoring, posted = with_audio(scorer, USED, PAUSED, e.SilenceGrew(80))
    async with running(scoring):
        await asyncio.sleep(0)
        assert not scorer.judged
        scoring.handle(e.SilenceGrew(100))
        scoring.handle(e.SilenceGrew(120))
        await until(lambda: posted)
        scoring.handle(e.SpeechStarted(2_500, 2_500))
        scoring.handle(e.SpeechPaused(3_000, 3_000))
        scoring.handle(e.SilenceGrew(140))
        await until(lambda: len(posted) == 2)
    assert scorer.judged == [("s", [1, 2, 3], 8_000)] * 2
    assert posted == [e.EndpointScored(2_000, SMART_TURN, 0.9), e.EndpointScored(3_000, SMART_TURN, 0.9)]


@pytest.mark.parametrize(
    "events",
    [
        (PAUSED, e.SilenceGrew(100)),
        (e.SettingsChanged(TurnSettings(end_of_turn=SILENCE)), PAUSED, e.SilenceGrew(100)),
        (USED, e.SilenceGrew(100)),
        (USED, PAUSED, e.SpeechStarted(2_300, 2_300), e.SilenceGrew(100)),
        (USED, PAUSED, e.SilenceGrew(100), e.SpeechStarted(2_300, 2_300)),
        (USED, PAUSED, SPOKEN, e.SilenceGrew(99)),
    ],
    ids=["no settings", "silence", "no pause", "went on", "went on before the model", "too soon"],
)
@pytest.mark.usefixtures("patient")
async def test_no_audio_is_judged_for_nothing(events: tuple[e.Event, ...]) -> None:
    scorer = FakeAudioScorer()
    scoring, posted = with_audio(scorer, *events)
    async with running(scoring):
        for _ in range(3):
            await asyncio.sleep(0)
    assert not scorer.judged
    assert not posted


async def test_a_late_score_of_the_audio_is_cancelled_and_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """80 ms are over: the words alone decide."""
    assert endpoint_scoring.DEADLINE_S == 0.08
    monkeypatch.setattr(endpoint_scoring, "DEADLINE_S", 0.0)
    scorer = FakeAudioScorer()
    scoring, posted = with_audio(scorer, USED, PAUSED, e.SilenceGrew(100))
    async with running(scoring):
        await until(lambda: scorer.outcomes)
    assert (scorer.n_cancelled, scorer.outcomes) == (1, ["smart-turn late"])
    assert not posted


@pytest.mark.usefixtures("patient")
async def test_an_engine_that_dies_costs_only_its_score() -> None:
    scorer = FakeAudioScorer()
    scoring, posted = with_audio(scorer, USED, PAUSED, e.SilenceGrew(100))
    async with running(scoring):
        died = StageBroken("endpoint", provider="p", why="the engine process ended", retryable=True)
        scorer.answer.set_exception(died)
        await until(lambda: scorer.judged)
        scorer.answer = asyncio.get_running_loop().create_future()
        scorer.answer.set_result(0.2)
        for event in (e.SpeechStarted(2_300, 2_300), e.SpeechPaused(3_000, 3_000), e.SilenceGrew(100)):
            scoring.handle(event)
        await until(lambda: posted)
    assert posted == [e.EndpointScored(3_000, SMART_TURN, 0.2)]
    assert scorer.outcomes == ["smart-turn failed", "smart-turn in_time"]


@pytest.mark.usefixtures("patient")
async def test_neither_model_waits_for_the_other() -> None:
    words, audio, posted = FakeScorer(), FakeAudioScorer(), list[e.Event]()
    scoring = EndpointScoring(words, "s", posted.append, audio_scorer=audio)
    for event in (USED, PAUSED, SPOKEN, e.SilenceGrew(100)):
        scoring.handle(event)
    async with running(scoring):
        await until(lambda: words.texts and audio.judged)
        audio.answer.set_result(0.9)
        await until(lambda: posted)
        words.answer.set_result(0.7)
        await until(lambda: len(posted) == 2)
    assert posted == [e.EndpointScored(2_000, SMART_TURN, 0.9), e.EndpointScored(2_000, SENTENCE_END, 0.7)]


async def test_without_the_model_no_audio_is_held_and_no_silence_followed() -> None:
    for scorer in (None, FakeScorer()):
        scoring = EndpointScoring(scorer, "s", lambda event: None, stt_detects=True)
        scoring.handle(USED)
        assert scoring.audio is None
        assert e.SilenceGrew not in scoring.handled


def test_the_latest_8_s_of_an_utterance_are_held() -> None:
    """A copy, since the audio of the input is a view of its buffer; at another rate it starts anew."""
    held = UtteranceAudio()
    assert held.latest()[0].size == 0
    held.begin(np.full(100, 9, np.int16), 1_000)
    for n in range(10):
        piece = np.full(1_000, n, np.int16)
        held.push(piece, 1_000)
        piece[:] = -1
    samples, rate_hz = held.latest()
    assert (samples.size, rate_hz, sorted(set(samples.tolist()))) == (8_000, 1_000, list(range(2, 10)))
    held.push(np.ones(5, np.int16), 2_000)
    samples, rate_hz = held.latest()
    assert (samples.tolist(), rate_hz) == ([1] * 5, 2_000)


# --- in a session --------------------------------------------------------------------------------


class QuietClient(Client):
    """A client that stays until the test lets it go."""

    async def receive(self) -> str | None:
        await self._ready.wait()
        return None


class EventJournal:
    """Stores the events that the core gets."""

    def __init__(self) -> None:
        self.events: list[e.Event] = []

    def record(self, now_ms: int, event: e.Event, commands: object) -> None:
        self.events.append(event)

    def user_audio(self, samples: object, rate_hz: int) -> None: ...

    def agent_audio(self, samples: object, rate_hz: int) -> None: ...

    def close(self) -> None: ...


@pytest.mark.usefixtures("patient")
async def test_a_sessions_core_gets_the_scores_as_events() -> None:
    """They are in the journal, so that a replay needs no model."""
    journal, leave, scorer = EventJournal(), asyncio.Event(), FakeScorer()
    scorer.answer.set_result(0.7)
    expected = {(2_000, SENTENCE_END, 0.7), (2_000, STT_END, 0.9)}
    transcriber = FakeTranscriber(SttCue())
    made = session(
        noon(), SessionPorts(open_journal=lambda opening: journal), transcriber=transcriber, endpoint_scorer=scorer
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(talk(made, QuietClient(leave)), name="session")
        await until(lambda: transcriber.streams)
        made.post(USED)
        made.post(e.SpeechStarted(1_000, 1_000))
        made.post(PAUSED)
        made.post(SPOKEN)
        transcriber.streams[0].emit(EndOfTurn(1, 0.9))
        await until(lambda: expected <= set(scores(journal)))
        leave.set()
    assert expected == set(scores(journal))


def scores(journal: EventJournal) -> list[tuple[int, str, float]]:
    return [
        (each.last_voiced_ms, each.name, each.score) for each in journal.events if isinstance(each, e.EndpointScored)
    ]

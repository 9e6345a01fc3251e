"""A session with smart-turn: the answer begins sooner where the speech sounds finished, and as before if it is late."""

from __future__ import annotations

import asyncio
import base64
import json
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from tests.local.tiny_onnx import write_model
from tests.session.test_observers import noon, session, talk
from tests.session.test_third_party_faults import Client
from voicepipe.audio.samples import Samples
from voicepipe.clock import monotonic_ms
from voicepipe.evals.virtual_time import run_in_virtual_time
from voicepipe.ports.endpoint_scorer import AudioScorer
from voicepipe.providers.local.engine.smart_turn import SmartTurn
from voicepipe.session import endpoint_scoring
from voicepipe.session.ports import SessionPorts
from voicepipe.testing.fakes.cues import SttCue
from voicepipe.testing.fakes.ports import FakeTranscriber
from voicepipe.testing.journal_check import JournalCheck
from voicepipe.testing.user import WIRE_HZ, calling
from voicepipe.testing.waiting import eventually
from voicepipe.turn.endpointing.probability import SMART_TURN
from voicepipe.turn.events import EndpointScored

FRAME = WIRE_HZ // 50
SOFTLY = {"type": "realtime", "audio": {"input": {"turn_detection": {"type": "semantic_vad"}}}}
SAID = "what is the weather like"
"""No punctuation: the words alone do not tell an end from a pause."""


class Speaking(Client):
    """Send speech and then silence, frame by frame, until the answer is audible; note when."""

    def __init__(self, speech: Samples) -> None:
        super().__init__(asyncio.Event())
        self._frames = [speech[at : at + FRAME] for at in range(0, len(speech) - FRAME, FRAME)]
        self._began_ms, self._n_sent, self._is_set = monotonic_ms(), 0, False
        self.answered_ms: int | None = None
        """From the last frame of the speech to the first audio."""

    async def receive(self) -> str | None:
        if self.answered_ms is not None:
            return None
        if not self._is_set:
            self._is_set = True
            return json.dumps({"type": "session.update", "session": SOFTLY})
        await asyncio.sleep(max(0, self._began_ms + 20 * self._n_sent - monotonic_ms()) / 1_000)
        frame = self._frames[self._n_sent] if self._n_sent < len(self._frames) else np.zeros(FRAME, np.int16)
        self._n_sent += 1
        return json.dumps({"type": "input_audio_buffer.append", "audio": base64.b64encode(frame.tobytes()).decode()})

    async def send(self, frame: bytes) -> None:
        if json.loads(frame)["type"] == "response.output_audio.delta" and self.answered_ms is None:
            self.answered_ms = monotonic_ms() - self._began_ms - 20 * len(self._frames)


class InProcess:
    """The model without an engine, after a time of the test's own."""

    score_name = SMART_TURN

    def __init__(self, weights: Path, took_ms: int) -> None:
        self._model, self._took_ms = SmartTurn(weights), took_ms
        self.durations_ms: list[int] = []

    async def score(self, session: str, samples: Samples, rate_hz: int) -> float:
        self.durations_ms.append(len(samples) * 1_000 // rate_hz)
        await asyncio.sleep(self._took_ms / 1_000)
        return self._model.probability(samples, rate_hz)


@pytest.fixture
def spoken(question: Samples) -> Samples:
    """The question without the silence around it."""
    return question[WIRE_HZ // 2 : WIRE_HZ * 19 // 10]


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """A model that takes all speech for finished."""
    return write_model(tmp_path / "finished.onnx", bias=9.0)


def answered_ms(spoken: Samples, scorer: AudioScorer | None, *, words_after_ms: int) -> int:
    """Return in virtual time how soon the answer is audible."""

    async def call() -> int:
        client = Speaking(spoken)
        transcriber = FakeTranscriber(SttCue(text=SAID, delay_ms=words_after_ms))
        await talk(session(noon(), SessionPorts(), transcriber=transcriber, audio_scorer=scorer), client)
        assert client.answered_ms is not None
        return client.answered_ms

    return run_in_virtual_time(call)


@pytest.mark.parametrize("words_after_ms", [40, 300])
def test_the_answer_begins_sooner_where_the_speech_sounds_finished(
    spoken: Samples, finished: Path, words_after_ms: int
) -> None:
    """Also where the words come after the shortest wait is over. The model gets the utterance, with its padding."""
    without = answered_ms(spoken, None, words_after_ms=words_after_ms)
    scorer = InProcess(finished, took_ms=50)
    assert answered_ms(spoken, scorer, words_after_ms=words_after_ms) <= without - 100
    (duration_ms,) = scorer.durations_ms
    assert 1_200 <= duration_ms <= 1_900


def test_the_words_alone_decide_where_the_model_is_late_by_80_ms(spoken: Samples, finished: Path) -> None:
    without = answered_ms(spoken, None, words_after_ms=40)
    assert answered_ms(spoken, InProcess(finished, took_ms=90), words_after_ms=40) == without
    assert answered_ms(spoken, InProcess(finished, took_ms=70), words_after_ms=40) < without


def test_the_answer_waits_longer_where_the_speech_sounds_unfinished(spoken: Samples, tmp_path: Path) -> None:
    unfinished = InProcess(write_model(tmp_path / "unfinished.onnx", bias=-9.0), took_ms=50)
    without = answered_ms(spoken, None, words_after_ms=40)
    assert answered_ms(spoken, unfinished, words_after_ms=40) >= without + 100


# --- a whole server ------------------------------------------------------------------------------


@pytest.fixture
def more_settings(finished: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """With the engine of the model; a busy machine is not too late."""
    monkeypatch.setattr(endpoint_scoring, "DEADLINE_S", 60.0)
    return {"agents.default.smart_turn": str(finished)}


async def is_ready(server: Any) -> bool | None:
    async with aiohttp.ClientSession() as http, http.get(f"{server.base_url}/readyz") as answer:
        return answer.status == 200 or None


async def snapshot_of(server: Any, path: str) -> str:
    async with aiohttp.ClientSession() as http, http.get(server.base_url + path) as answer:
        return await answer.text()


@pytest.mark.slow
async def test_scores_are_journaled(server: Any, spoken: Samples) -> None:
    """A replay needs no engine."""
    sessions = JournalCheck()
    with sessions.watching():
        server.vendor.stt.usual = SttCue(text=SAID)
        await eventually(partial(is_ready, server))
        async with calling(server.base_url) as user:
            await user.speak_in_real_time(np.concatenate((spoken, np.zeros(2 * WIRE_HZ, np.int16))))
            await eventually(server.closed)
        metrics = await snapshot_of(server, "/metrics")
    (journal,) = sessions.journals()
    scores = [line.event for line in journal.lines if isinstance(line.event, EndpointScored)]
    assert {each.name for each in scores} == {SMART_TURN}
    assert all(each.score > 0.99 for each in scores)
    assert sessions.problems() == []
    (counted,) = (line for line in metrics.splitlines() if line.startswith("voicepipe_endpoint_scores_total{"))
    assert '"smart-turn"' in counted
    assert '"in_time"' in counted
    assert counted.endswith(f" {len(scores)}.0")

"""The Python user with all of it: binary frames, reports of an imagined loudspeaker, a line that breaks."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.audio.resample import Resampler
from voicepipe.audio.samples import silence
from voicepipe.client import RATE_HZ, Call, CallEnded, SessionOptions, connect
from voicepipe.client.speaker import Played, Speaker
from voicepipe.ports.transcriber import Samples
from voicepipe.testing.fakes.cues import LlmCue, tokens
from voicepipe.testing.waiting import WAIT_S, eventually

MS = RATE_HZ // 1_000

STT_HZ = 16_000
STT_EDGE = 100
"""Samples at either end of an utterance that the resampler's filter mixes with the silence outside of it."""


# --- the loudspeaker ------------------------------------------------------------------------------


def test_sound_plays_in_order_and_in_real_time() -> None:
    speaker = Speaker()
    speaker.play("a", 100 * MS, 1_000)
    speaker.play("b", 50 * MS, 1_010)
    assert speaker.reports(1_000) == []
    assert speaker.reports(1_040) == [Played("a", 40, 60)]
    assert speaker.reports(1_120) == [Played("a", 100, 0), Played("b", 20, 30)]
    assert speaker.reports(1_120) == []
    assert speaker.reports(9_000) == [Played("b", 50, 0)]
    assert speaker.reports(9_500) == []


def test_a_gap_is_silence() -> None:
    speaker = Speaker()
    speaker.play("a", 20 * MS, 0)
    speaker.play("a", 20 * MS, 100)
    assert speaker.reports(90) == [Played("a", 20, 20)]
    assert speaker.reports(110) == [Played("a", 30, 10)]


def test_dropped_audio_is_reported_once_with_its_position() -> None:
    speaker = Speaker()
    speaker.play("a", 100 * MS, 0)
    speaker.play("b", 100 * MS, 0)
    speaker.flush(30)
    assert speaker.reports(60) == [Played("a", 30, 0), Played("b", 0, 0)]
    assert speaker.reports(90) == []
    speaker.play("c", 10 * MS, 100)
    assert speaker.reports(105) == [Played("c", 5, 5)]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 300), st.integers(0, 300)), max_size=20))
def test_nothing_is_played_that_did_not_come(pieces: list[tuple[str, int, int]]) -> None:
    speaker, now_ms = Speaker(), 0
    received = dict.fromkeys("abc", 0)
    played = dict.fromkeys("abc", 0)
    for item_id, length_ms, wait_ms in pieces:
        speaker.play(item_id, length_ms * MS, now_ms)
        received[item_id] += length_ms
        now_ms += wait_ms
        for report in speaker.reports(now_ms):
            assert played[report.item_id] <= report.played_ms
            assert report.played_ms + report.buffered_ms == received[report.item_id]
            played[report.item_id] = report.played_ms


# --- a call ---------------------------------------------------------------------------------------


def lose_line(call: Call) -> None:
    """Break the connection, without a close message."""
    call._connection._websocket.transport.abort()


@pytest.mark.slow
async def test_call_reports_playback(server: Any, question: Samples) -> None:
    """The record and the client agree to two frames of the microphone, unless the machine was busy between the two: of
    five turns the best one counts."""
    apart_ms: list[float] = []
    async with connect(server.base_url) as call:
        assert call.extensions is not None
        assert call.extensions.binary_audio
        while len(apart_ms) < 5 and min(apart_ms, default=1_000) > 40:
            answer = await call.turn(question)
            turn_id = answer.turn_id
            record = await eventually(partial(server.closed, turn_id))
            assert record["latency_source"] == "reported"
            assert answer.latency_ms is not None
            apart_ms.append(abs(record["total_ms"] - answer.latency_ms))
            assert answer.duration_ms == record["spoken_ms"] > 0
    assert min(apart_ms) <= 40


async def test_call_without_extensions(server: Any) -> None:
    async with connect(server.base_url, session_options=SessionOptions(extensions=None)) as call:
        assert call.extensions is None
        answer = await call.text_turn("What time is it?")
        assert answer.status == "completed"
        assert answer.duration_ms > 0
        lose_line(call)
        with pytest.raises(CallEnded):
            await _to_the_end(call)


@pytest.mark.slow
async def test_a_call_outlives_its_line(server: Any, question: Samples) -> None:
    """It breaks while the user speaks and while the answer comes: one answer, all of it, and nothing twice."""
    async with connect(server.base_url) as call:
        whole = await call.turn(question)
    async with connect(server.base_url) as call, asyncio.TaskGroup() as group:
        turn = group.create_task(call.turn(question))
        await eventually(lambda: _reached(call.sent_ms >= 1_200))
        lose_line(call)
        await eventually(lambda: _reached(bool(call._streams)))
        lose_line(call)
        answer = await turn
    assert np.array_equal(answer.samples, whole.samples)
    assert (answer.agent_text, answer.status, answer.earlier) == (whole.agent_text, "completed", 0)
    assert len(server.vendor.llm.received) == 2
    # The VAD doesn't wait for late frames: they would move the turn's t0, and not what is transcribed.
    said = Resampler(RATE_HZ, STT_HZ).push(np.concatenate((question, silence(RATE_HZ))))
    transcribed = server.vendor.stt.received[-1].samples
    inner = transcribed[STT_EDGE:-STT_EDGE]
    assert len(inner) > STT_HZ
    assert inner.tobytes() in said.tobytes()


async def test_what_is_sent_while_the_line_is_down_arrives(server: Any) -> None:
    server.vendor.llm.usual = LlmCue(tokens=tokens("Noon."))
    async with connect(server.base_url, session_options=SessionOptions(text_only=True)) as call:
        lose_line(call)
        answer = await call.text_turn("What time is it?")
        assert answer.agent_text == "Noon."
        lose_line(call)
        assert (await call.text_turn("And now?")).status == "completed"


async def test_a_server_that_says_goodbye_is_not_called_again(server: Any) -> None:
    async with connect(server.base_url) as call:
        await call._connection._websocket.close()
        with pytest.raises(CallEnded):
            await _to_the_end(call)
        with pytest.raises(CallEnded):
            await call.respond()


async def test_a_session_that_is_gone_ends_the_call(server: Any) -> None:
    async with connect(server.base_url) as call:
        call._connection._secret = "wrong"
        lose_line(call)
        with pytest.raises(CallEnded):
            await _to_the_end(call)


async def _reached(holds: bool) -> bool | None:
    return holds or None


async def _to_the_end(call: Call) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            await call.next_event()

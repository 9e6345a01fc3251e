"""A recorded call: announced, both sides in one file, served in ranges, and deleted with the session."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import aiohttp
import numpy as np
import soundfile

from voicepipe.audio.samples import Samples
from voicepipe.testing.fakes.cues import LlmCue, Status, TtsCue, tokens
from voicepipe.testing.user import User, calling
from voicepipe.testing.waiting import eventually

Event = dict[str, Any]

RECORDS = {"agents.default.record_calls": True, "agents.default.end_of_turn": "silence"}
LOUD = 2_000
WATCHED = {"providerData": {"voicepipe": {"turn_events": True}}}


def session_of(user: User) -> str:
    return str(user.events[0]["session"]["id"])


async def recording_of(server: Any, session: str, **headers: str) -> tuple[int, bytes, Any]:
    """Status, body and headers of the recording, once the call is over."""

    async def probe() -> tuple[int, bytes, Any] | None:
        url = f"{server.url}/v1/sessions/{session}/recording"
        async with aiohttp.ClientSession() as http, http.get(url, headers=headers) as answer:
            return None if answer.status == 409 else (answer.status, await answer.read(), answer.headers)

    return await eventually(probe)


def channels(flac: bytes) -> tuple[Samples, Samples]:
    """Left and right."""
    samples, rate_hz = soundfile.read(io.BytesIO(flac), dtype="int16")
    assert (rate_hz, samples.shape[1]) == (24_000, 2)
    return samples[:, 0], samples[:, 1]


def loud(channel: Samples) -> Any:
    """Where the channel is loud: the indexes of its samples."""
    return np.flatnonzero(np.abs(channel.astype(int)) > LOUD)


async def test_a_call_is_recorded_with_the_user_left_and_the_agent_right(fake_server: Any, speech: Samples) -> None:
    """On one time line; the file is served whole and in ranges, and is gone with the session."""
    async with fake_server(RECORDS) as server:
        server.vendor.llm.usual = LlmCue(tokens=tokens("It is noon."))
        async with calling(server.url, session=WATCHED) as user:
            await user.speak_in_real_time(speech)
            await user.speak_in_real_time(np.zeros(24_000, np.int16))
            await user.until("voicepipe.turn.record")
            session = session_of(user)
        status, flac, headers = await recording_of(server, session)
        assert (status, headers["Content-Type"], headers["Accept-Ranges"]) == (200, "audio/flac", "bytes")
        left, right = channels(flac)
        said, answered = loud(left), loud(right)
        assert 0 < said[-1] - said[0] <= len(speech)
        assert answered[0] > said[-1], "the answer comes after the question"
        status, part, headers = await recording_of(server, session, Range="bytes=4-99")
        assert (status, part, headers["Content-Range"]) == (206, flac[4:100], f"bytes 4-99/{len(flac)}")
        status, _, headers = await recording_of(server, session, Range=f"bytes={len(flac)}-")
        assert (status, headers["Content-Range"]) == (416, f"bytes */{len(flac)}")
        url = f"{server.url}/v1/sessions/{session}"
        async with aiohttp.ClientSession() as http, http.delete(url) as answer:
            assert answer.status == 200
        assert (await recording_of(server, session))[0] == 404


async def test_an_answer_that_is_interrupted_is_cut(fake_server: Any, speech: Samples) -> None:
    """The client got more than it played: the rest is not in the recording."""
    settings = {**RECORDS, "agents.default.interruption": "immediate"}
    async with fake_server(settings) as server:
        server.vendor.llm.usual = LlmCue(tokens=tokens("It is noon, and this goes on for quite some time to come."))
        async with calling(server.url, session=WATCHED) as user:
            await user.speak(speech, then_silence_ms=800)
            await user.until("response.output_audio.delta")
            await user.speak_in_real_time(speech)
            await user.until("voicepipe.turn.record")
            sent, session = len(user.sound()), session_of(user)
        left, right = channels((await recording_of(server, session))[1])
    first = loud(right)[0]
    assert len(loud(left)) > 0
    assert np.count_nonzero(right[first : first + sent]) < sent - 24_000 // 4


async def test_nothing_is_recorded_before_it_was_announced(fake_server: Any, speech: Samples) -> None:
    """The agent says so first and can't be interrupted; then it greets, and from there on all is recorded."""
    settings = {
        **RECORDS,
        "agents.default.record_announcement": "This call is {{how}}.",
        "agents.default.variables.how": "recorded",
        "agents.default.first_speaker": "agent",
        "agents.default.greeting": "Hello.",
    }
    async with fake_server(settings) as server:
        async with calling(server.url, session=WATCHED) as user:
            await user.speak_in_real_time(speech)  # while it is announced
            spoken = list[tuple[str, str, str]]()
            while len(spoken) < 2:
                record = (await user.until("voicepipe.turn.record"))["record"]
                spoken.append((record["cause"], record["outcome"], record["agent_text"]))
            session = session_of(user)
        said = [each.question["input"] for each in server.vendor.tts.received]
        left, right = channels((await recording_of(server, session))[1])
    assert spoken[0] == ("greeting", "completed", "This call is recorded.")
    assert said[0] == "This call is recorded."
    assert len(loud(left)) == 0, "the user spoke before"
    assert len(loud(right)) < 24 * 40 * len(said[0]), "the announcement itself is not recorded"


async def test_an_announcement_that_fails_leaves_the_call_unrecorded(fake_server: Any, speech: Samples) -> None:
    """It is tried three times, as soon as nobody speaks; the call goes on without a recording."""
    settings = {**RECORDS, "agents.default.record_announcement": "This call is recorded.", "agents.default.apology": ""}
    async with fake_server(settings) as server:
        server.vendor.tts.usual = lambda query: TtsCue(fault=Status(400)) if "recorded" in query["input"] else TtsCue()
        async with calling(server.url, session=WATCHED) as user:
            for _ in range(3):
                record = (await user.until("voicepipe.turn.record"))["record"]
                assert (record["cause"], record["outcome"]) == ("greeting", "failed")
            server.vendor.llm.usual = LlmCue(tokens=tokens("It is noon."))
            await user.speak(speech, then_silence_ms=1_000)
            record = (await user.until("voicepipe.turn.record"))["record"]
            session = session_of(user)
        assert (record["cause"], record["outcome"]) == ("vad", "completed")
        assert (await recording_of(server, session))[0] == 404
    assert not await asyncio.to_thread(lambda: list((server.folder / "data" / "recordings").rglob("*.*")))


async def test_a_late_announcement_comes_in_silence(fake_server: Any) -> None:
    """A client that requests the first response is answered first; then it is announced, and recorded from there."""
    settings = {**RECORDS, "agents.default.record_announcement": "This call is recorded."}
    async with fake_server(settings) as server:
        async with calling(server.url, session=WATCHED) as user:
            await user.prompt("What time is it?")
            turns = list[tuple[str, str]]()
            while turns[-1:] != [("greeting", "completed")]:
                record = (await user.until("voicepipe.turn.record"))["record"]
                turns.append((record["cause"], record["outcome"]))
            session = session_of(user)
        assert turns[-2:] == [("create", "completed"), ("greeting", "completed")]
        assert (await recording_of(server, session))[0] == 200


async def test_calls_are_not_recorded_unless_it_is_set(fake_server: Any, speech: Samples) -> None:
    """Not even a folder is made."""
    async with fake_server() as server:
        async with calling(server.url) as user:
            await user.speak(speech)
            await user.until("response.done")
            session = session_of(user)
        assert (await recording_of(server, session))[0] == 404
        assert not await asyncio.to_thread((server.folder / "data" / "recordings").exists)

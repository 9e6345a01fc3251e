"""Audio in binary frames, both ways: the header, what is refused, and a whole turn."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.measure.wire import FRAME_SAMPLES, ways_in, ways_out
from voicepipe.errors import ProtocolError
from voicepipe.ports.transcriber import Samples
from voicepipe.protocol import binary
from voicepipe.protocol.inbound import AudioAppended, Unreadable, read
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.testing.user import BINARY, User, calling

PLAIN = SessionConfig.start(session_id="sess_b", model="default", voice="v", instructions="", expires_at=0)
BOTH_WAYS = {"providerData": {"voicepipe": {"binary_audio": True}}}
OPTED_IN = PLAIN.merged(BOTH_WAYS)
QUICK = {"audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 200}}}}


def test_the_header_is_the_documented_one() -> None:
    assert binary.user_frame(b"abc") == bytes([1, 1, 0, 0, 0, 0, 0, 0]) + b"abc"
    assert binary.agent_frame(0x0102, 0x03040506, b"abc") == bytes([1, 2, 2, 1, 6, 5, 4, 3]) + b"abc"


@given(st.integers(1, binary.MAX_STREAM), st.integers(0, binary.MAX_NUMBER), st.binary(max_size=64))
def test_what_is_written_is_read(stream: int, number: int, audio: bytes) -> None:
    assert binary.agent_sound(binary.agent_frame(stream, number, audio)) == binary.AgentSound(stream, number, audio)
    assert binary.user_audio(binary.user_frame(audio)) == audio


@pytest.mark.parametrize("frame", [b"", b"\x01", b"\x01\x02\x00\x00\x00\x00\x00", b"\x02\x02" + bytes(6), b"{}"])
def test_another_frame_is_no_sound(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        binary.agent_sound(frame)


@pytest.mark.parametrize("head", [b"\x01", b"\x01\x02" + bytes(6), b"\x01\x01\x01" + bytes(5), b"\x01\x01" + bytes(5)])
def test_a_wrong_header_is_refused_by_word(head: bytes) -> None:
    refused = read(head, OPTED_IN)
    assert isinstance(refused, Unreadable)
    assert refused.code == "invalid_event"
    assert "01 01 00 00 00 00 00 00" in refused.message


def test_frames_are_accepted_only_when_enabled() -> None:
    frame = binary.user_frame(b"\x01\x02")
    assert read(frame, OPTED_IN) == AudioAppended(b"\x01\x02")
    assert isinstance(read(frame, PLAIN), Unreadable)
    assert isinstance(read(frame, PLAIN.merged({"providerData": {"voicepipe": {"resume": True}}})), Unreadable)


def test_events_stay_text_beside_them() -> None:
    event = json.dumps({"type": "input_audio_buffer.append", "audio": "AQI="})
    assert read(event.encode(), OPTED_IN) == AudioAppended(b"\x01\x02")


async def turn(user: User, question: Samples, *, in_binary: bool) -> Samples:
    """The sound of an answer to a spoken question."""
    await (user.speak_binary(question) if in_binary else user.speak(question))
    await user.until("response.done")
    return user.sound()


async def test_a_turn_sounds_the_same_either_way(server: Any, question: Samples) -> None:
    async with calling(server.base_url, session=QUICK) as user:
        in_json = await turn(user, question, in_binary=False)
        json_bytes = sum(len(json.dumps(e)) for e in user.events if e["type"] == "response.output_audio.delta")
    async with calling(server.base_url, session={**QUICK, **BOTH_WAYS}) as user:
        in_binary = await turn(user, question, in_binary=True)
        frames = [event for event in user.events if event["type"] == BINARY]
        (started,) = [e for e in user.events if e["type"] == "voicepipe.output_audio.started"]
        (part,) = [e for e in user.events if e["type"] == "response.content_part.added"]
        kinds = user.kinds()
    assert len(in_json)
    assert np.array_equal(in_json, in_binary)
    assert {frame["stream"] for frame in frames} == {started["stream"]}
    assert {key: started[key] for key in ("response_id", "item_id", "output_index", "content_index")} == {
        key: part[key] for key in ("response_id", "item_id", "output_index", "content_index")
    }
    assert "response.output_audio.delta" not in kinds
    assert (
        kinds.index("voicepipe.output_audio.started") < kinds.index(BINARY) < kinds.index("response.output_audio.done")
    )
    assert sum(binary.HEADER.size + len(frame["audio"]) for frame in frames) < 0.75 * json_bytes


async def test_a_frame_has_the_number_that_its_event_would_have(server: Any, question: Samples) -> None:
    async with calling(server.base_url, session={**QUICK, **BOTH_WAYS}) as user:
        await turn(user, question, in_binary=True)
        numbers = [e["number"] if e["type"] == BINARY else int(e["event_id"].split("_")[-1], 16) for e in user.events]
    assert numbers == list(range(1, len(numbers) + 1))


async def test_g711_goes_as_it_is(server: Any, question: Samples) -> None:
    spoken = {"audio": {**QUICK["audio"], "output": {"format": {"type": "audio/pcmu"}}}}
    async with calling(server.base_url, session=spoken) as user:
        in_json = await turn(user, question, in_binary=False)
    async with calling(server.base_url, session={**spoken, **BOTH_WAYS}) as user:
        in_binary = await turn(user, question, in_binary=True)
    assert in_json.tobytes() == in_binary.tobytes()


async def test_two_answers_have_two_streams(server: Any, question: Samples) -> None:
    async with calling(server.base_url, session={**QUICK, **BOTH_WAYS}) as user:
        for _ in range(2):
            await turn(user, question, in_binary=True)
        streams = [e["stream"] for e in user.events if e["type"] == "voicepipe.output_audio.started"]
    assert streams == [1, 2]


async def test_sessions_without_the_extension_are_unchanged(server: Any, question: Samples) -> None:
    async with calling(server.base_url, session=QUICK) as user:
        await turn(user, question, in_binary=False)
        assert not [kind for kind in user.kinds() if kind == BINARY or kind.startswith("voicepipe.")]
        assert all("providerData" not in event.get("session", {}) for event in user.events)


def test_the_bench_measures_ways_that_work() -> None:
    frame = np.arange(FRAME_SAMPLES, dtype=np.int16)
    ways = (*ways_in(frame), *ways_out(frame))
    size = {way.name: way.n_bytes for way in ways if way.work() is not None}
    assert size["in, binary"] == size["out, audio/pcm, binary"] == binary.HEADER.size + 2 * FRAME_SAMPLES
    assert size["out, audio/pcmu, binary"] < size["out, audio/pcmu, JSON"]

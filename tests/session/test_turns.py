"""Turns on a real socket, with a fake vendor on another: what a client sees, and what the record says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from voicepipe.ports.transcriber import Samples
from voicepipe.testing.fakes.cues import (
    CallCue,
    Cut,
    Garbage,
    Hang,
    HangUp,
    Hold,
    InBandError,
    LlmCue,
    Malformed,
    NoEnd,
    Stall,
    Status,
    SttCue,
    TtsCue,
    tokens,
)
from voicepipe.testing.fakes.script import soon
from voicepipe.testing.user import calling
from voicepipe.testing.waiting import eventually

VAD = {"audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 200}}}}
DISPLAYED = {
    "audio": {
        "input": {
            "turn_detection": {"type": "server_vad", "silence_duration_ms": 200},
            "transcription": {"model": "whisper-1"},
        }
    }
}
MANUAL = {"audio": {"input": {"turn_detection": None}}}


async def closed(server: Any, turn_id: str) -> dict[str, Any]:
    """The record of that turn, once it has an outcome."""
    record: dict[str, Any] = await eventually(lambda: server.closed(turn_id))
    return record


async def test_a_spoken_question_gets_a_spoken_answer(server: Any, question: Samples) -> None:
    """The events come in the order of the wire, and the record's parts sum to what the user felt."""
    async with calling(server.base_url, session=DISPLAYED) as user:
        await user.speak(question)
        done = await user.until("response.done")
        assert done["response"]["status"] == "completed"
        assert user.kinds()[2:] == [
            "input_audio_buffer.speech_started",
            "input_audio_buffer.speech_stopped",
            "input_audio_buffer.committed",
            "conversation.item.added",
            "conversation.item.done",
            "conversation.item.input_audio_transcription.delta",
            "conversation.item.input_audio_transcription.completed",
            "response.created",
            "response.output_item.added",
            "conversation.item.added",
            "response.content_part.added",
            *[k for k in user.kinds() if k.endswith(".delta") and k.startswith("response.")],
            "response.output_audio.done",
            "response.output_audio_transcript.done",
            "response.content_part.done",
            "conversation.item.done",
            "response.output_item.done",
            "response.done",
        ]
        assert np.abs(user.sound()).max() > 1_000, "it can be heard"
        record = await closed(server, done["response"]["metadata"]["voicepipe_turn"])
    assert (record["outcome"], record["user_text"]) == ("completed", "what time is it")
    assert record["played_text"] == "It is noon. Anything else?"
    assert abs(record["unattributed_ms"]) <= 5
    received = (await server.vendor.stt.nth(0)).samples
    assert 1.2 < len(received) / 16_000 < 2.2, "the speech, its padding and little else"


async def test_the_model_reads_the_conversation(server: Any, question: Samples) -> None:
    """The second question comes with the first one and its answer."""
    async with calling(server.base_url, session=VAD | {"instructions": "Be brief."}) as user:
        for _ in range(2):
            await user.speak(question)
            await user.until("response.done")
    messages = (await server.vendor.llm.nth(1)).question["messages"]
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "user"]
    assert "It is noon. Anything else?".startswith(messages[2]["content"]), "at most what was said, as far as heard"


async def test_a_commit_by_hand_and_a_request(server: Any, question: Samples) -> None:
    """Without turn detection nothing happens until the client says so."""
    async with calling(server.base_url, session=MANUAL) as user:
        await user.speak(question)
        await user.send("input_audio_buffer.commit")
        await user.until("input_audio_buffer.committed")
        await user.send("response.create")
        done = await user.until("response.done")
        assert "input_audio_buffer.speech_started" not in user.kinds()
        record = await closed(server, done["response"]["metadata"]["voicepipe_turn"])
    assert (record["cause"], record["user_text"]) == ("commit", "what time is it")


async def test_a_text_only_reply(server: Any) -> None:
    """Text in, text out: the TTS gets no request."""
    async with calling(server.base_url, session={"output_modalities": ["text"]}) as user:
        await user.send(
            "conversation.item.create",
            item={"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]},
        )
        await user.send("response.create")
        done = await user.until("response.done")
    assert done["response"]["output"][0]["content"] == [{"type": "output_text", "text": "It is noon. Anything else?"}]
    assert server.vendor.tts.received == []


async def test_a_function_call_and_its_answer(server: Any) -> None:
    """The call comes with its arguments; the client's output is read by the model in the next response."""
    server.vendor.llm.cue(
        LlmCue(tokens=(), calls=(CallCue("get_weather", ('{"place":', '"Paris"}')),), finish="tool_calls")
    )
    tool = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
    async with calling(server.base_url, session={"tools": [tool]}) as user:
        await user.send("response.create")
        call = await user.until("response.function_call_arguments.done")
        assert (call["name"], call["arguments"]) == ("get_weather", '{"place":"Paris"}')
        await user.until("response.done")
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
        await user.send("conversation.item.create", item=output)
        await user.send("response.create")
        done = await user.until("response.done")
        assert done["response"]["status"] == "completed"
    messages = (await server.vendor.llm.nth(1)).question["messages"]
    assert [message["role"] for message in messages] == ["system", "assistant", "tool"]


async def test_user_interrupts(server: Any, question: Samples) -> None:
    """`speech_started` at once, then `cancelled/turn_detected`, no sound after it, and the vendor sees the cancel."""
    hold = Hold(after=6)
    server.vendor.llm.cue(LlmCue(tokens=tokens("It is noon. And I could go on for ever."), hold=hold))
    async with calling(server.base_url, session=VAD) as user:
        await user.speak(question)
        await user.until("response.output_audio.delta")
        await soon(hold.reached)
        await user.speak(question)
        await user.until("input_audio_buffer.speech_started")
        done = await user.until("response.done")
        assert done["response"]["status_details"] == {"type": "cancelled", "reason": "turn_detected"}
        await soon((await server.vendor.llm.nth(0)).gone)
        assert (await user.until("response.done"))["response"]["status"] == "completed"
        record = await closed(server, done["response"]["metadata"]["voicepipe_turn"])
    assert record["outcome"] == "interrupted"


async def test_truncation_uses_the_clients_position(server: Any, question: Samples) -> None:
    """`conversation.item.truncate` leaves in history what was played, and the model reads no more than that."""
    async with calling(server.base_url, session=VAD) as user:
        await user.speak(question)
        done = await user.until("response.done")
        item_id = done["response"]["output"][0]["id"]
        await user.send("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=100)
        await user.until("conversation.item.truncated")
        await user.send("response.create", response={"output_modalities": ["text"]})
        await user.until("response.done")
    assert (await server.vendor.llm.nth(1)).question["messages"][-1]["content"] in ("It", "It is")


FAULTS = {
    "refused": Status(401, "no such key"),
    "busy": Status(429, "slow down", retry_after="1"),
    "broken": Status(500),
    "hangs up": HangUp(),
    "never answers": Hang(),
    "cut at once": Cut(0),
    "cut later": Cut(2),
    "stalls at once": Stall(0),
    "stalls later": Stall(2),
    "garbage": Garbage(0),
}
LLM_FAULTS = FAULTS | {"malformed": Malformed(1), "error in band": InBandError(1), "no end": NoEnd()}


async def survives(server: Any, question: Samples) -> None:
    """The turn ends with a reason, `failed` or with an answer, and the next turn on the same socket works."""
    async with calling(server.base_url, session=DISPLAYED) as user:
        await user.speak(question)
        done = await user.until("response.done")
        status = done["response"]["status"]
        assert status in ("failed", "completed")
        record = await closed(server, done["response"]["metadata"]["voicepipe_turn"])
        if status == "failed":
            assert record["outcome"] == "failed"
            assert record["reason"]
            assert done["response"]["status_details"]["error"]["message"]
        await user.speak(question)
        assert (await user.until("response.done"))["response"]["status"] == "completed"


@pytest.mark.virtual_time
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_a_transcriber_that_fails_costs_one_turn(server: Any, question: Samples, fault: Any) -> None:
    """Each way of failing ends the turn with a reason inside its deadlines."""
    server.vendor.stt.cue(SttCue(fault=fault))
    await survives(server, question)


@pytest.mark.virtual_time
@pytest.mark.parametrize("fault", LLM_FAULTS.values(), ids=LLM_FAULTS)
async def test_a_model_that_fails_costs_one_turn(server: Any, question: Samples, fault: Any) -> None:
    """Before headers, before the first token, in mid-sentence: the client gets an error, and the call goes on."""
    server.vendor.llm.cue(LlmCue(tokens=tokens("It is noon. Anything else?"), fault=fault))
    await survives(server, question)


@pytest.mark.virtual_time
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_a_voice_that_fails_costs_one_turn(server: Any, question: Samples, fault: Any) -> None:
    """With the first sound or in the middle of it."""
    if isinstance(fault, Cut | Stall) and fault.after:
        fault = type(fault)(12_000)
    server.vendor.tts.cue(TtsCue(fault=fault))
    await survives(server, question)


async def test_a_vendor_that_dies_and_comes_back(server: Any, question: Samples) -> None:
    """The provider's address refuses connections for a turn; the next turn works."""
    async with calling(server.base_url, session=DISPLAYED) as user:
        server.vendor.unplug()
        await user.speak(question)
        assert (await user.until("response.done"))["response"]["status"] == "failed"
        await server.vendor.plug_in()
        await user.speak(question)
        assert (await user.until("response.done"))["response"]["status"] == "completed"


async def test_a_voice_that_the_provider_lacks_is_its_own_choice(server: Any) -> None:
    """A client may request any voice name; the vendor gets only a name that it can have."""
    async with calling(server.base_url, session={"audio": {"output": {"voice": "marin"}}}) as user:
        await user.send("response.create")
        await user.until("response.done")
        await user.send("session.update", session={"type": "realtime", "audio": {"output": {"voice": "default"}}})
        await user.send("response.create")
        await user.until("response.done")
    received = [received.question.get("voice") for received in server.vendor.tts.received]
    assert received[0] == "marin"
    assert "default" not in received

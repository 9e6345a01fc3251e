"""Section 5 of the contract: how the server behaves."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from voicepipe.audio import g711
from voicepipe.stages.transcriber import Samples
from voicepipe.testing.caller import Caller, calling
from voicepipe.testing.fakes.cues import CallCue, Hold, LlmCue, tokens
from voicepipe.testing.fakes.desk import soon

Event = dict[str, Any]

VAD = {"type": "server_vad", "silence_duration_ms": 200}
SILENT = {"output_modalities": ["text"]}
HELLO = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}
LOOK = {"type": "function", "name": "look", "description": "Look.", "parameters": {"type": "object"}}
LISTEN = {"type": "function", "name": "listen", "parameters": {"type": "object"}}


def heard_by(detection: object, **more: object) -> Event:
    """A session with this turn detection."""
    return {"audio": {"input": {"turn_detection": detection, **more}}}


def told(caller: Caller, kind: str) -> list[Event]:
    """All events of a type."""
    return [event for event in caller.events if event["type"] == kind]


async def settled(caller: Caller) -> None:
    """Wait until all that was sent before has been worked through."""
    await caller.send("conversation.item.retrieve", item_id="nobody")
    await caller.until("error")


async def messages_of(house: Any, n: int) -> list[Event]:
    """What the model read in the `n`th question, without the system's words."""
    messages = (await house.vendor.llm.nth(n)).question["messages"]
    return [message for message in messages if message["role"] != "system"]


@pytest.mark.parametrize(
    "detection",
    [None, VAD, *({"type": "semantic_vad", "eagerness": each} for each in ("low", "medium", "high", "auto"))],
    ids=lambda each: "default" if each is None else each.get("eagerness", each["type"]),
)
async def test_auto_turn(house: Any, speech: Samples, detection: Event | None) -> None:
    """The end of speech commits and answers; `server_vad` is what a session has from the start."""
    async with calling(house.url, session=heard_by(detection) if detection else None) as caller:
        await caller.say(speech)
        done = await caller.until("response.done")
    assert done["response"]["status"] == "completed"
    assert "input_audio_buffer.committed" in caller.kinds()


async def test_auto_turn_defaults(house: Any) -> None:
    """What the published service takes when a client leaves these out."""
    async with calling(house.url, session=heard_by({"type": "server_vad"})) as caller:
        for event in caller.events:
            detection = event["session"]["audio"]["input"]["turn_detection"]
            assert detection == {
                "type": "server_vad",
                "threshold": 0.5,
                "prefix_padding_ms": 300,
                "silence_duration_ms": 500,
                "idle_timeout_ms": None,
                "create_response": True,
                "interrupt_response": True,
            }


async def test_auto_turn_without_a_response(house: Any, speech: Samples) -> None:
    """`create_response: false`: committed and transcribed, and answered when the client asks."""
    session = heard_by(VAD | {"create_response": False}, transcription={"model": "whisper-1"})
    async with calling(house.url, session=session) as caller:
        await caller.say(speech)
        await caller.until("conversation.item.input_audio_transcription.completed")
        await settled(caller)
        assert told(caller, "response.created") == []
        await caller.send("response.create")
        await caller.until("response.done")
    (message,) = await messages_of(house, 0)
    assert message["content"] == "what time is it"


@pytest.mark.parametrize("off", [None, False])
async def test_turn_detection_off(house: Any, speech: Samples, off: object) -> None:
    """Null, or the `false` that pipecat sends: no speech events, no commit, no response; shown as null."""
    async with calling(house.url, session=heard_by(off)) as caller:
        assert caller.events[-1]["session"]["audio"]["input"]["turn_detection"] is None
        await caller.say(speech, then_silence_ms=2_000)
        await settled(caller)
        assert caller.kinds() == ["session.created", "session.updated", "error"]


@pytest.mark.parametrize("named", [{}, {"interrupt_response": True}])
async def test_barge_in(house: Any, speech: Samples, named: Event) -> None:
    """The running response ends as cancelled because of the caller's turn, and no sound of it comes after."""
    hold = Hold(after=6)
    house.vendor.llm.cue(LlmCue(tokens=tokens("It is noon. And I could go on for ever."), hold=hold))
    async with calling(house.url, session=heard_by(VAD | named)) as caller:
        assert caller.events[-1]["session"]["audio"]["input"]["turn_detection"]["interrupt_response"] is True
        await caller.say(speech)
        await caller.until("response.output_audio.delta")
        await soon(hold.reached)
        await caller.say(speech)
        done = (await caller.until("response.done"))["response"]
        assert (done["status"], done["status_details"]["reason"]) == ("cancelled", "turn_detected")
        assert len(told(caller, "input_audio_buffer.speech_started")) in (1, 2), "before it or with it"
        again = (await caller.until("response.done"))["response"]
        assert again["status"] == "completed"
        late = caller.events[caller.events.index(next(e for e in caller.events if e.get("response") == done)) :]
        assert all(e["response_id"] != done["id"] for e in late if e["type"] == "response.output_audio.delta")


async def test_barge_in_switched_off(house: Any, speech: Samples) -> None:
    """`interrupt_response: false`: the answer goes on to its end, and the next turn is answered after it."""
    hold = Hold(after=6)
    house.vendor.llm.cue(LlmCue(tokens=tokens("It is noon. And I could go on for ever."), hold=hold))
    async with calling(house.url, session=heard_by(VAD | {"interrupt_response": False})) as caller:
        assert caller.events[-1]["session"]["audio"]["input"]["turn_detection"]["interrupt_response"] is False
        await caller.say(speech)
        await caller.until("response.output_audio.delta")
        await soon(hold.reached)
        await caller.say(speech)
        await caller.until("input_audio_buffer.committed", lambda event: event["previous_item_id"] is not None)
        hold.release.set()
        for _ in range(2):
            assert (await caller.until("response.done"))["response"]["status"] == "completed"


async def test_history_after_an_interrupt(house: Any, speech: Samples) -> None:
    """The client's truncation leaves what was heard; the model reads no more of its own words than that."""
    hold = Hold(after=6)
    house.vendor.llm.cue(LlmCue(tokens=tokens("It is noon. And I could go on for ever."), hold=hold))
    async with calling(house.url, session=heard_by(VAD)) as caller:
        await caller.say(speech)
        await caller.until("response.output_audio.delta")
        await soon(hold.reached)
        await caller.send("response.cancel")
        item_id = (await caller.until("response.done"))["response"]["output"][0]["id"]
        await caller.send("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=200)
        await caller.until("conversation.item.truncated")
        await caller.send("response.create")
        await caller.until("response.done")
    assert [message["role"] for message in await messages_of(house, 1)] == ["user", "assistant"]
    assert (await messages_of(house, 1))[-1]["content"] in ("It", "It is")


async def test_manual_turn(house: Any, speech: Samples) -> None:
    """Append, commit, ask."""
    async with calling(house.url, session=heard_by(None)) as caller:
        await caller.say(speech)
        await caller.send("input_audio_buffer.commit")
        await caller.send("response.create")
        assert (await caller.until("response.done"))["response"]["status"] == "completed"
    (message,) = await messages_of(house, 0)
    assert message["content"] == "what time is it"


async def test_response_create_overrides(house: Any) -> None:
    """Instructions, tools, limit and metadata of one response are its own; the session keeps its own."""
    async with calling(house.url, session={"instructions": "Mine.", **SILENT}) as caller:
        override = {
            "instructions": "Yours.",
            "tools": [LOOK],
            "tool_choice": "none",
            "max_output_tokens": 7,
            "metadata": {"a": "b"},
        }
        for response in (override, {}):
            await caller.send("response.create", response=response)
            done = (await caller.until("response.done"))["response"]
            assert done["max_output_tokens"] == response.get("max_output_tokens", "inf")
    first, second = (asked.question for asked in house.vendor.llm.asked)
    assert (first["messages"][0]["content"], second["messages"][0]["content"]) == ("Yours.", "Mine.")
    assert first["tools"][0]["function"]["name"] == "look"
    assert (first["tool_choice"], "tools" in second) == ("none", False)


async def test_response_create_in_another_voice_and_modality(house: Any) -> None:
    """`audio.output.voice`, and `modalities` as the older shape has it."""
    async with calling(house.url) as caller:
        await caller.send("response.create", response={"audio": {"output": {"voice": "nova"}}})
        assert (await caller.until("response.done"))["response"]["audio"]["output"]["voice"] == "nova"
        await caller.send("response.create", response={"modalities": ["text"]})
        assert (await caller.until("response.done"))["response"]["output_modalities"] == ["text"]
    assert {asked.question["voice"] for asked in house.vendor.tts.asked} == {"nova"}


async def test_out_of_band(house: Any) -> None:
    """Beside a running response, joining no history: no events of items, `conversation_id` null."""
    hold = Hold(after=2)
    house.vendor.llm.cue(LlmCue(tokens=("One", " two", " three"), hold=hold))
    aside = {"conversation": "none", "output_modalities": ["text"], "metadata": {"topic": "aside"}, "input": [HELLO]}
    async with calling(house.url, session=SILENT) as caller:
        await caller.send("response.create")
        await soon(hold.reached)
        await caller.send("response.create", response=aside)
        done = (await caller.until("response.done"))["response"]
        assert (done["conversation_id"], done["metadata"]["topic"]) == (None, "aside")
        assert done["status"] == "completed"
        item_id = done["output"][0]["id"]
        hold.release.set()
        in_band = (await caller.until("response.done"))["response"]
        assert in_band["conversation_id"]
        items = [e["item"]["id"] for e in caller.events if e["type"].startswith("conversation.item.")]
        assert items
        assert item_id not in items
    assert [message["content"] for message in await messages_of(house, 1)] == ["hello"]


async def test_out_of_band_with_references(house: Any) -> None:
    """`input` replaces the context: its items, and those of the conversation that it names."""
    async with calling(house.url, session=SILENT) as caller:
        for item_id in ("a", "b"):
            item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": item_id}]}
            await caller.send("conversation.item.create", item={"id": item_id, **item})
        context = [{"type": "item_reference", "id": "b"}, HELLO]
        await caller.send("response.create", response={"conversation": "none", "input": context})
        await caller.until("response.done")
        await caller.send("response.create", response={"conversation": "none", "input": []})
        await caller.until("response.done")
        lost = [{"type": "item_reference", "id": "nobody"}]
        await caller.send("response.create", response={"conversation": "none", "input": lost}, event_id="lost")
        error = (await caller.until("error"))["error"]
        assert (error["param"], error["event_id"]) == ("response.input[0].id", "lost")
    assert [message["content"] for message in await messages_of(house, 0)] == ["b", "hello"]
    assert await messages_of(house, 1) == []


async def test_conversation_by_any_other_name(house: Any) -> None:
    """Any string but `none` counts as auto."""
    async with calling(house.url, session=SILENT) as caller:
        await caller.send("response.create", response={"conversation": "whatever"})
        assert (await caller.until("response.done"))["response"]["conversation_id"]
        assert told(caller, "conversation.item.done")


async def test_text_only(house: Any, answer: str) -> None:
    """Events of text and none of sound; the part is called `text`; no voice is asked."""
    async with calling(house.url, session=SILENT) as caller:
        await caller.send("response.create")
        done = (await caller.until("response.done"))["response"]
        assert told(caller, "response.content_part.added")[0]["part"]["type"] == "text"
        assert "response.output_text.delta" in caller.kinds()
        assert not any("audio" in kind for kind in caller.kinds())
    assert done["output"][0]["content"] == [{"type": "output_text", "text": answer}]
    assert house.vendor.tts.asked == []


async def test_audio_and_text(house: Any) -> None:
    """`["audio","text"]` is speech."""
    async with calling(house.url, session={"output_modalities": ["audio", "text"]}) as caller:
        await caller.send("response.create")
        await caller.until("response.done")
        assert told(caller, "response.output_audio.delta")


async def test_tools(house: Any) -> None:
    """Several calls are several items; the client answers each, and then asks: we never start one ourselves."""
    calls = (CallCue("look", ('{"at":"it"}',), "c1"), CallCue("listen", ("{}",), "c2"))
    house.vendor.llm.cue(LlmCue(tokens=(), calls=calls, finish="tool_calls"))
    async with calling(house.url, session={"tools": [LOOK, LISTEN], **SILENT}) as caller:
        await caller.send("response.create")
        done = (await caller.until("response.done"))["response"]
        assert [item["name"] for item in done["output"]] == ["look", "listen"]
        added = told(caller, "response.output_item.added")
        assert [event["output_index"] for event in added] == [0, 1]
        for item in done["output"]:
            output = {"type": "function_call_output", "call_id": item["call_id"], "output": f"out of {item['name']}"}
            await caller.send("conversation.item.create", item=output)
        await settled(caller)
        assert len(told(caller, "response.created")) == 1
        await caller.send("response.create")
        assert (await caller.until("response.done"))["response"]["status"] == "completed"
    messages = await messages_of(house, 1)
    assert [message["role"] for message in messages] == ["assistant", "tool", "tool"]
    assert [message["content"] for message in messages[1:]] == ["out of look", "out of listen"]


async def test_tools_after_words(house: Any) -> None:
    """A call may follow words of the same response: the message is the first item."""
    house.vendor.llm.usual = LlmCue(tokens=tokens("Let me see."))
    first = b'data: {"choices":[{"index":0,"delta":{"content":"Let me see. "}}]}\n\n'
    call = b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":'
    call += b'{"name":"look","arguments":"{}"}}]}}]}\n\n'
    end = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\ndata: [DONE]\n\n'
    house.vendor.llm.cue(LlmCue(raw=(first, call, end)))
    async with calling(house.url, session={"tools": [LOOK]}) as caller:
        await caller.send("response.create")
        done = (await caller.until("response.done"))["response"]
    assert [item["type"] for item in done["output"]] == ["message", "function_call"]


@pytest.mark.parametrize("choice", ["auto", "none", "required", {"type": "function", "name": "look"}], ids=str)
async def test_tool_choice(house: Any, choice: Any) -> None:
    """Echoed, and told to the model in its own words."""
    async with calling(house.url, session={"tools": [LOOK], "tool_choice": choice, **SILENT}) as caller:
        assert caller.events[-1]["session"]["tool_choice"] == choice
        await caller.send("response.create")
        await caller.until("response.done")
    wanted = (await house.vendor.llm.nth(0)).question["tool_choice"]
    assert wanted == ({"type": "function", "function": {"name": "look"}} if isinstance(choice, dict) else choice)


async def test_image(house: Any) -> None:
    """Stored, acknowledged and passed on to the model."""
    url = "data:image/png;base64,iVBORw0KGgo="
    content = [{"type": "input_text", "text": "What is it?"}, {"type": "input_image", "image_url": url}]
    async with calling(house.url, session=SILENT) as caller:
        await caller.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
        shown = (await caller.until("conversation.item.done"))["item"]["content"][1]
        assert (shown["type"], shown["image_url"]) == ("input_image", url)
        await caller.send("response.create")
        await caller.until("response.done")
    (message,) = await messages_of(house, 0)
    assert message["content"][1]["image_url"]["url"] == url


@pytest.mark.parametrize("by", ["intent", "type"])
@pytest.mark.parametrize("detection", [VAD, {"type": "semantic_vad", "eagerness": "high"}, None], ids=str)
async def test_transcription_session(house: Any, speech: Samples, by: str, detection: Event | None) -> None:
    """Commits and texts, no responses; the session has neither output nor model nor tools."""
    transcription = {"model": "whisper-1", "language": "en"}
    update = heard_by(detection, transcription=transcription) | ({"type": "transcription"} if by == "type" else {})
    async with calling(house.url, query="intent=transcription" if by == "intent" else "") as caller:
        await caller.send("session.update", session=update)
        shown = (await caller.until("session.updated"))["session"]
        assert set(shown) == {"type", "object", "id", "audio", "include", "expires_at"}
        assert (shown["type"], shown["object"]) == ("transcription", "realtime.transcription_session")
        assert set(shown["audio"]) == {"input"}
        await caller.say(speech)
        if detection is None:
            await caller.send("input_audio_buffer.commit")
        done = await caller.until("conversation.item.input_audio_transcription.completed")
        assert done["transcript"] == "what time is it"
        await caller.send("response.create", event_id="no")
        assert (await caller.until("error"))["error"]["event_id"] == "no"
        assert told(caller, "response.created") == []
    assert house.vendor.llm.asked == []
    assert (await house.vendor.stt.nth(0)).question["language"] == "en"


@pytest.mark.parametrize("session", [heard_by(VAD), heard_by(None)], ids=["by detection", "by hand"])
async def test_language_and_prompt(house: Any, speech: Samples, session: Event) -> None:
    """They reach the transcriber from the next utterance on, in the middle of a call too."""
    async with calling(house.url, session=session) as caller:
        for language, prompt in (("de", "Bern"), ("fr", "Paris")):
            wanted = {"model": "whisper-1", "language": language, "prompt": prompt}
            await caller.send("session.update", session={"audio": {"input": {"transcription": wanted}}})
            await caller.until("session.updated")
            await caller.send("input_audio_buffer.clear")
            await caller.say(speech)
            if session == heard_by(None):
                await caller.send("input_audio_buffer.commit")
            await caller.until("conversation.item.input_audio_transcription.completed")
    asked = [question.question for question in house.vendor.stt.asked]
    assert [(form["language"], form["prompt"]) for form in asked] == [("de", "Bern"), ("fr", "Paris")]


async def test_transcription_session_from_the_start(house: Any, speech: Samples) -> None:
    """`?intent=transcription` needs no update: texts come."""
    async with calling(house.url, query="intent=transcription") as caller:
        assert caller.events[0]["session"]["type"] == "transcription"
        await caller.say(speech)
        await caller.until("conversation.item.input_audio_transcription.completed")


async def test_transcription_session_of_the_beta(house: Any, speech: Samples) -> None:
    """`transcription_session.update` is answered in kind."""
    headers = {"OpenAI-Beta": "realtime=v1"}
    async with calling(house.url, query="intent=transcription", headers=headers) as caller:
        update = {"input_audio_transcription": {"model": "whisper-1"}, "turn_detection": VAD}
        await caller.send("transcription_session.update", session=update)
        shown = (await caller.until("transcription_session.updated"))["session"]
        assert shown["input_audio_transcription"] == {"model": "whisper-1"}
        await caller.say(speech)
        await caller.until("conversation.item.input_audio_transcription.completed")
        assert told(caller, "response.created") == []


async def test_idle_timeout(house: Any, speech: Samples) -> None:
    """After so long without a word since the answer was heard, the silence is committed and the agent speaks up."""
    async with calling(house.url, session=heard_by(VAD | {"idle_timeout_ms": 300})) as caller:
        shown = caller.events[-1]["session"]["audio"]["input"]["turn_detection"]
        assert shown["idle_timeout_ms"] == 300
        await caller.say(speech, then_silence_ms=500)
        await caller.until("response.done")
        timed_out = await caller.until("input_audio_buffer.timeout_triggered")
        assert timed_out["audio_end_ms"] - timed_out["audio_start_ms"] == 300
        committed = await caller.until("input_audio_buffer.committed")
        added = await caller.until("conversation.item.added")
        assert committed["item_id"] == added["item"]["id"] == timed_out["item_id"]
        assert (await caller.until("response.done"))["response"]["status"] == "completed"
        before = [event["type"] for event in caller.events]
        assert before.index("input_audio_buffer.timeout_triggered") > before.index("response.output_audio.done")


async def test_idle_timeout_before_the_first_word(house: Any) -> None:
    """A caller may take their time to begin."""
    async with calling(house.url, session=heard_by(VAD | {"idle_timeout_ms": 1})) as caller:
        await caller.send("response.create", response={"conversation": "none"})
        await caller.until("response.done")
        await settled(caller)
        assert "input_audio_buffer.timeout_triggered" not in caller.kinds()


@pytest.mark.parametrize("kind", ["near_field", "far_field", None])
async def test_noise_reduction(house: Any, kind: str | None) -> None:
    """Taken and shown."""
    wanted = kind and {"type": kind}
    async with calling(house.url, session={"audio": {"input": {"noise_reduction": wanted}}}) as caller:
        assert caller.events[-1]["session"]["audio"]["input"]["noise_reduction"] == wanted


CODES = {"audio/pcmu": g711.encode_mulaw, "audio/pcma": g711.encode_alaw}
DECODES = {"audio/pcmu": g711.decode_mulaw, "audio/pcma": g711.decode_alaw}


@pytest.mark.parametrize("name", CODES)
async def test_formats_of_the_input(house: Any, speech: Samples, name: str) -> None:
    """G.711 in, pcm out: the transcriber hears speech, the answer is at 24 kHz."""
    async with calling(house.url, session=heard_by(VAD, format={"type": name})) as caller:
        assert caller.events[-1]["session"]["audio"]["input"]["format"] == {"type": name}
        assert caller.events[-1]["session"]["audio"]["output"]["format"] == {"type": "audio/pcm", "rate": 24_000}
        coded = CODES[name](speech[::3].copy())
        await caller.send("input_audio_buffer.append", audio=base64.b64encode(coded).decode())
        await caller.until("response.done")
        assert np.abs(caller.sound().astype(int)).max() > 1_000
    heard = (await house.vendor.stt.nth(0)).samples.astype(float)
    assert np.abs(np.diff(heard)).mean() < np.abs(heard).mean()


@pytest.mark.parametrize("name", CODES)
async def test_formats_of_the_output(house: Any, name: str) -> None:
    """Pcm in, G.711 out: as long a sound at 8 kHz with one byte a sample."""
    lengths_ms = {}
    for wanted in ("audio/pcm", name):
        async with calling(house.url, session={"audio": {"output": {"format": {"type": wanted}}}}) as caller:
            await caller.send("response.create")
            await caller.until("response.done")
            deltas = told(caller, "response.output_audio.delta")
        coded = b"".join(base64.b64decode(event["delta"]) for event in deltas)
        lengths_ms[wanted] = len(coded) // (48 if wanted == "audio/pcm" else 8)
    assert abs(lengths_ms["audio/pcm"] - lengths_ms[name]) <= 20
    assert np.abs(DECODES[name](coded).astype(int)).max() > 1_000


async def test_formats_that_are_not_published(house: Any) -> None:
    """A rate other than 24 kHz breaks clients that compute from the echo: it is refused, the session unchanged."""
    async with calling(house.url) as caller:
        wanted = {"type": "audio/pcm", "rate": 16_000}
        await caller.send("session.update", session={"audio": {"output": {"format": wanted}}})
        assert (await caller.until("error"))["error"]["param"] == "session.audio.output.format.rate"


@pytest.mark.parametrize("voice", ["marin", {"id": "voice_1234"}], ids=str)
async def test_voice(house: Any, voice: Any) -> None:
    """Any name, also as an object, also after the agent has spoken."""
    name = voice if isinstance(voice, str) else voice["id"]
    async with calling(house.url) as caller:
        await caller.send("response.create")
        await caller.until("response.done")
        await caller.send("session.update", session={"audio": {"output": {"voice": voice, "speed": 1.5}}})
        shown = (await caller.until("session.updated"))["session"]["audio"]["output"]
        assert (shown["voice"], shown["speed"]) == (name, 1.5)
        await caller.send("response.create")
        await caller.until("response.done")
    last = house.vendor.tts.asked[-1].question
    assert (last["voice"], last["speed"]) == (name, 1.5)


async def test_model_can_not_change(house: Any) -> None:
    """Taken in an update without a word, and the effective one is shown."""
    async with calling(house.url, query="model=gpt-realtime") as caller:
        await caller.send("session.update", session={"type": "realtime", "model": "gpt-5-realtime"})
        assert (await caller.until("session.updated"))["session"]["model"] == "gpt-realtime"


async def test_keep_alive(house: Any) -> None:
    """A client that comes back replays its history, the first item at the front; the model reads it in order."""
    async with calling(house.url, session=SILENT) as caller:
        previous = "root"
        for n, role in enumerate(("user", "assistant", "user")):
            kind = "output_text" if role == "assistant" else "input_text"
            item = {"id": f"i{n}", "type": "message", "role": role, "content": [{"type": kind, "text": f"t{n}"}]}
            await caller.send("conversation.item.create", item=item, previous_item_id=previous)
            assert (await caller.until("conversation.item.added"))["item"]["id"] == f"i{n}"
            previous = f"i{n}"
        await caller.send("response.create")
        await caller.until("response.done")
    assert [message["content"] for message in await messages_of(house, 0)] == ["t0", "t1", "t2"]

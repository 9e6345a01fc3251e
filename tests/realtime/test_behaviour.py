"""Section 5 of the contract: how the server behaves."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from voicepipe.audio import g711
from voicepipe.ports.transcriber import Samples
from voicepipe.testing.fakes.cues import CallCue, Hold, LlmCue, tokens
from voicepipe.testing.fakes.script import soon
from voicepipe.testing.user import User, calling

Event = dict[str, Any]

VAD = {"type": "server_vad", "silence_duration_ms": 200}
SILENT = {"output_modalities": ["text"]}
HELLO = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}
LOOK = {"type": "function", "name": "look", "description": "Look.", "parameters": {"type": "object"}}
LISTEN = {"type": "function", "name": "listen", "parameters": {"type": "object"}}


def transcribed_by(detection: object, **more: object) -> Event:
    """A session with this turn detection."""
    return {"audio": {"input": {"turn_detection": detection, **more}}}


def events_of(user: User, kind: str) -> list[Event]:
    """All events of a type."""
    return [event for event in user.events if event["type"] == kind]


async def wait_until_processed(user: User) -> None:
    """Wait until all that was sent before has been worked through."""
    await user.send("conversation.item.retrieve", item_id="nobody")
    while (await user.until("error"))["error"]["param"] != "item_id":
        pass


async def messages_of(server: Any, n: int) -> list[Event]:
    """What the model read in the `n`th question, without the system's words."""
    messages = (await server.vendor.llm.nth(n)).question["messages"]
    return [message for message in messages if message["role"] != "system"]


@pytest.mark.parametrize(
    "detection",
    [None, VAD, *({"type": "semantic_vad", "eagerness": each} for each in ("low", "medium", "high", "auto"))],
    ids=lambda each: "default" if each is None else each.get("eagerness", each["type"]),
)
async def test_auto_turn(server: Any, speech: Samples, detection: Event | None) -> None:
    """The end of speech commits and answers; `server_vad` is what a session has from the start."""
    async with calling(server.url, session=transcribed_by(detection) if detection else None) as user:
        await user.speak(speech)
        done = await user.until("response.done")
    assert done["response"]["status"] == "completed"
    assert "input_audio_buffer.committed" in user.kinds()


async def test_auto_turn_defaults(server: Any) -> None:
    """What the published service takes when a client leaves these out."""
    async with calling(server.url, session=transcribed_by({"type": "server_vad"})) as user:
        for event in user.events:
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


async def test_auto_turn_without_a_response(server: Any, speech: Samples) -> None:
    """`create_response: false`: committed and transcribed, and answered when the client requests it."""
    session = transcribed_by(VAD | {"create_response": False}, transcription={"model": "whisper-1"})
    async with calling(server.url, session=session) as user:
        await user.speak(speech)
        await user.until("conversation.item.input_audio_transcription.completed")
        await wait_until_processed(user)
        assert events_of(user, "response.created") == []
        await user.send("response.create")
        await user.until("response.done")
    (message,) = await messages_of(server, 0)
    assert message["content"] == "what time is it"


@pytest.mark.parametrize("off", [None, False])
async def test_turn_detection_off(server: Any, speech: Samples, off: object) -> None:
    """Null, or the `false` that pipecat sends: no speech events, no commit, no response; shown as null."""
    async with calling(server.url, session=transcribed_by(off)) as user:
        assert user.events[-1]["session"]["audio"]["input"]["turn_detection"] is None
        await user.speak(speech, then_silence_ms=2_000)
        await wait_until_processed(user)
        assert user.kinds() == ["session.created", "session.updated", "error"]


@pytest.mark.parametrize("named", [{}, {"interrupt_response": True}])
async def test_barge_in(server: Any, speech: Samples, named: Event) -> None:
    """The running response ends as cancelled because of the user's turn, and no sound of it comes after."""
    hold = Hold(after=6)
    server.vendor.llm.cue(LlmCue(tokens=tokens("It is noon. And I could go on for ever."), hold=hold))
    async with calling(server.url, session=transcribed_by(VAD | named)) as user:
        assert user.events[-1]["session"]["audio"]["input"]["turn_detection"]["interrupt_response"] is True
        await user.speak(speech)
        await user.until("response.output_audio.delta")
        await soon(hold.reached)
        await user.speak(speech)
        done = (await user.until("response.done"))["response"]
        assert (done["status"], done["status_details"]["reason"]) == ("cancelled", "turn_detected")
        assert len(events_of(user, "input_audio_buffer.speech_started")) in (1, 2), "before it or with it"
        again = (await user.until("response.done"))["response"]
        assert again["status"] == "completed"
        late = user.events[user.events.index(next(e for e in user.events if e.get("response") == done)) :]
        assert all(e["response_id"] != done["id"] for e in late if e["type"] == "response.output_audio.delta")


async def test_barge_in_switched_off(server: Any, speech: Samples) -> None:
    """`interrupt_response: false`: the answer goes on to its end, and the next turn is answered after it."""
    hold = Hold(after=6)
    server.vendor.llm.cue(LlmCue(tokens=tokens("It is noon. And I could go on for ever."), hold=hold))
    async with calling(server.url, session=transcribed_by(VAD | {"interrupt_response": False})) as user:
        assert user.events[-1]["session"]["audio"]["input"]["turn_detection"]["interrupt_response"] is False
        await user.speak(speech)
        await user.until("response.output_audio.delta")
        await soon(hold.reached)
        await user.speak(speech)
        await user.until("input_audio_buffer.committed", lambda event: event["previous_item_id"] is not None)
        hold.release.set()
        for _ in range(2):
            assert (await user.until("response.done"))["response"]["status"] == "completed"


async def test_history_after_an_interrupt(server: Any, speech: Samples) -> None:
    """The client's truncation leaves what was played; the model reads no more of its own words than that."""
    hold = Hold(after=6)
    server.vendor.llm.cue(LlmCue(tokens=tokens("It is noon. And I could go on for ever."), hold=hold))
    async with calling(server.url, session=transcribed_by(VAD)) as user:
        await user.speak(speech)
        await user.until("response.output_audio.delta")
        await soon(hold.reached)
        await user.send("response.cancel")
        item_id = (await user.until("response.done"))["response"]["output"][0]["id"]
        await user.send("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=200)
        await user.until("conversation.item.truncated")
        await user.send("response.create")
        await user.until("response.done")
    assert [message["role"] for message in await messages_of(server, 1)] == ["user", "assistant"]
    assert (await messages_of(server, 1))[-1]["content"] in ("It", "It is")


async def test_manual_turn(server: Any, speech: Samples) -> None:
    """Append, commit, ask."""
    async with calling(server.url, session=transcribed_by(None)) as user:
        await user.speak(speech)
        await user.send("input_audio_buffer.commit")
        await user.send("response.create")
        assert (await user.until("response.done"))["response"]["status"] == "completed"
    (message,) = await messages_of(server, 0)
    assert message["content"] == "what time is it"


async def test_response_create_overrides(server: Any) -> None:
    """Instructions, tools, limit and metadata of one response are its own; the session keeps its own."""
    async with calling(server.url, session={"instructions": "Mine.", **SILENT}) as user:
        override = {
            "instructions": "Yours.",
            "tools": [LOOK],
            "tool_choice": "none",
            "max_output_tokens": 7,
            "metadata": {"a": "b"},
        }
        for response in (override, {}):
            await user.send("response.create", response=response)
            done = (await user.until("response.done"))["response"]
            assert done["max_output_tokens"] == response.get("max_output_tokens", "inf")
    first, second = (received.question for received in server.vendor.llm.received)
    assert (first["messages"][0]["content"], second["messages"][0]["content"]) == ("Yours.", "Mine.")
    assert first["tools"][0]["function"]["name"] == "look"
    assert (first["tool_choice"], "tools" in second) == ("none", False)


async def test_response_create_in_another_voice_and_modality(server: Any) -> None:
    """`audio.output.voice`, and `modalities` as the older shape has it."""
    async with calling(server.url) as user:
        await user.send("response.create", response={"audio": {"output": {"voice": "nova"}}})
        assert (await user.until("response.done"))["response"]["audio"]["output"]["voice"] == "nova"
        await user.send("response.create", response={"modalities": ["text"]})
        assert (await user.until("response.done"))["response"]["output_modalities"] == ["text"]
    assert {received.question["voice"] for received in server.vendor.tts.received} == {"nova"}


async def test_out_of_band(server: Any) -> None:
    """Beside a running response, joining no history: no events of items, `conversation_id` null."""
    hold = Hold(after=2)
    server.vendor.llm.cue(LlmCue(tokens=("One", " two", " three"), hold=hold))
    out_of_band = {
        "conversation": "none",
        "output_modalities": ["text"],
        "metadata": {"topic": "out_of_band"},
        "input": [HELLO],
    }
    async with calling(server.url, session=SILENT) as user:
        await user.send("response.create")
        await soon(hold.reached)
        await user.send("response.create", response=out_of_band)
        done = (await user.until("response.done"))["response"]
        assert (done["conversation_id"], done["metadata"]["topic"]) == (None, "out_of_band")
        assert done["status"] == "completed"
        item_id = done["output"][0]["id"]
        hold.release.set()
        in_band = (await user.until("response.done"))["response"]
        assert in_band["conversation_id"]
        items = [e["item"]["id"] for e in user.events if e["type"].startswith("conversation.item.")]
        assert items
        assert item_id not in items
    assert [message["content"] for message in await messages_of(server, 1)] == ["hello"]


async def test_out_of_band_with_references(server: Any) -> None:
    """`input` replaces the context: its items, and those of the conversation that it names."""
    async with calling(server.url, session=SILENT) as user:
        for item_id in ("a", "b"):
            item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": item_id}]}
            await user.send("conversation.item.create", item={"id": item_id, **item})
        context = [{"type": "item_reference", "id": "b"}, HELLO]
        await user.send("response.create", response={"conversation": "none", "input": context})
        await user.until("response.done")
        await user.send("response.create", response={"conversation": "none", "input": []})
        await user.until("response.done")
        lost = [{"type": "item_reference", "id": "nobody"}]
        await user.send("response.create", response={"conversation": "none", "input": lost}, event_id="lost")
        error = (await user.until("error"))["error"]
        assert (error["param"], error["event_id"]) == ("response.input[0].id", "lost")
    assert [message["content"] for message in await messages_of(server, 0)] == ["b", "hello"]
    assert await messages_of(server, 1) == []


async def test_conversation_by_any_other_name(server: Any) -> None:
    """Any string but `none` counts as auto."""
    async with calling(server.url, session=SILENT) as user:
        await user.send("response.create", response={"conversation": "whatever"})
        assert (await user.until("response.done"))["response"]["conversation_id"]
        assert events_of(user, "conversation.item.done")


async def test_text_only(server: Any, answer: str) -> None:
    """Events of text and none of audio; the part is called `text`; the TTS gets no request."""
    async with calling(server.url, session=SILENT) as user:
        await user.send("response.create")
        done = (await user.until("response.done"))["response"]
        assert events_of(user, "response.content_part.added")[0]["part"]["type"] == "text"
        assert "response.output_text.delta" in user.kinds()
        assert not any("audio" in kind for kind in user.kinds())
    assert done["output"][0]["content"] == [{"type": "output_text", "text": answer}]
    assert server.vendor.tts.received == []


async def test_audio_and_text(server: Any) -> None:
    """`["audio","text"]` is speech."""
    async with calling(server.url, session={"output_modalities": ["audio", "text"]}) as user:
        await user.send("response.create")
        await user.until("response.done")
        assert events_of(user, "response.output_audio.delta")


async def test_tools(server: Any) -> None:
    """Several calls are several items; the client answers each, and then requests a response: the server never starts
    one.
    """
    calls = (CallCue("look", ('{"at":"it"}',), "c1"), CallCue("listen", ("{}",), "c2"))
    server.vendor.llm.cue(LlmCue(tokens=(), calls=calls, finish="tool_calls"))
    async with calling(server.url, session={"tools": [LOOK, LISTEN], **SILENT}) as user:
        await user.send("response.create")
        done = (await user.until("response.done"))["response"]
        assert [item["name"] for item in done["output"]] == ["look", "listen"]
        added = events_of(user, "response.output_item.added")
        assert [event["output_index"] for event in added] == [0, 1]
        for item in done["output"]:
            output = {"type": "function_call_output", "call_id": item["call_id"], "output": f"out of {item['name']}"}
            await user.send("conversation.item.create", item=output)
        await wait_until_processed(user)
        assert len(events_of(user, "response.created")) == 1
        await user.send("response.create")
        assert (await user.until("response.done"))["response"]["status"] == "completed"
    messages = await messages_of(server, 1)
    assert [message["role"] for message in messages] == ["assistant", "tool", "tool"]
    assert [message["content"] for message in messages[1:]] == ["out of look", "out of listen"]


async def test_tools_after_words(server: Any) -> None:
    """A call may follow words of the same response: the message is the first item."""
    server.vendor.llm.usual = LlmCue(tokens=tokens("Let me see."))
    first = b'data: {"choices":[{"index":0,"delta":{"content":"Let me see. "}}]}\n\n'
    call = b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":'
    call += b'{"name":"look","arguments":"{}"}}]}}]}\n\n'
    end = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\ndata: [DONE]\n\n'
    server.vendor.llm.cue(LlmCue(raw=(first, call, end)))
    async with calling(server.url, session={"tools": [LOOK]}) as user:
        await user.send("response.create")
        done = (await user.until("response.done"))["response"]
    assert [item["type"] for item in done["output"]] == ["message", "function_call"]


@pytest.mark.parametrize("choice", ["auto", "none", "required", {"type": "function", "name": "look"}], ids=str)
async def test_tool_choice(server: Any, choice: Any) -> None:
    """Echoed, and sent to the model in the model's own terms."""
    async with calling(server.url, session={"tools": [LOOK], "tool_choice": choice, **SILENT}) as user:
        assert user.events[-1]["session"]["tool_choice"] == choice
        await user.send("response.create")
        await user.until("response.done")
    requested = (await server.vendor.llm.nth(0)).question["tool_choice"]
    assert requested == ({"type": "function", "function": {"name": "look"}} if isinstance(choice, dict) else choice)


async def test_image(server: Any) -> None:
    """Stored, acknowledged and passed on to the model."""
    url = "data:image/png;base64,iVBORw0KGgo="
    content = [{"type": "input_text", "text": "What is it?"}, {"type": "input_image", "image_url": url}]
    async with calling(server.url, session=SILENT) as user:
        await user.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
        displayed = (await user.until("conversation.item.done"))["item"]["content"][1]
        assert (displayed["type"], displayed["image_url"]) == ("input_image", url)
        await user.send("response.create")
        await user.until("response.done")
    (message,) = await messages_of(server, 0)
    assert message["content"][1]["image_url"]["url"] == url


@pytest.mark.parametrize("by", ["intent", "type"])
@pytest.mark.parametrize("detection", [VAD, {"type": "semantic_vad", "eagerness": "high"}, None], ids=str)
async def test_transcription_session(server: Any, speech: Samples, by: str, detection: Event | None) -> None:
    """Commits and texts, no responses; the session has neither output nor model nor tools."""
    transcription = {"model": "whisper-1", "language": "en"}
    update = transcribed_by(detection, transcription=transcription) | (
        {"type": "transcription"} if by == "type" else {}
    )
    async with calling(server.url, query="intent=transcription" if by == "intent" else "") as user:
        await user.send("session.update", session=update)
        displayed = (await user.until("session.updated"))["session"]
        assert set(displayed) == {"type", "object", "id", "audio", "include", "expires_at"}
        assert (displayed["type"], displayed["object"]) == ("transcription", "realtime.transcription_session")
        assert set(displayed["audio"]) == {"input"}
        await user.speak(speech)
        if detection is None:
            await user.send("input_audio_buffer.commit")
        done = await user.until("conversation.item.input_audio_transcription.completed")
        assert done["transcript"] == "what time is it"
        await user.send("response.create", event_id="no")
        assert (await user.until("error"))["error"]["event_id"] == "no"
        assert events_of(user, "response.created") == []
    assert server.vendor.llm.received == []
    assert (await server.vendor.stt.nth(0)).question["language"] == "en"


@pytest.mark.parametrize("session", [transcribed_by(VAD), transcribed_by(None)], ids=["by detection", "by hand"])
async def test_language_and_prompt(server: Any, speech: Samples, session: Event) -> None:
    """They reach the transcriber from the next utterance on, in the middle of a call too."""
    async with calling(server.url, session=session) as user:
        for language, prompt in (("de", "Bern"), ("fr", "Paris")):
            requested = {"model": "whisper-1", "language": language, "prompt": prompt}
            await user.send("session.update", session={"audio": {"input": {"transcription": requested}}})
            await user.until("session.updated")
            await user.send("input_audio_buffer.clear")
            await user.speak(speech)
            if session == transcribed_by(None):
                await user.send("input_audio_buffer.commit")
            await user.until("conversation.item.input_audio_transcription.completed")
    received = [question.question for question in server.vendor.stt.received]
    assert [(form["language"], form["prompt"]) for form in received] == [("de", "Bern"), ("fr", "Paris")]


async def test_transcription_session_from_the_start(server: Any, speech: Samples) -> None:
    """`?intent=transcription` needs no update: texts come."""
    async with calling(server.url, query="intent=transcription") as user:
        assert user.events[0]["session"]["type"] == "transcription"
        await user.speak(speech)
        await user.until("conversation.item.input_audio_transcription.completed")


async def test_transcription_session_of_the_beta(server: Any, speech: Samples) -> None:
    """`transcription_session.update` is answered in kind."""
    headers = {"OpenAI-Beta": "realtime=v1"}
    async with calling(server.url, query="intent=transcription", headers=headers) as user:
        update = {"input_audio_transcription": {"model": "whisper-1"}, "turn_detection": VAD}
        await user.send("transcription_session.update", session=update)
        displayed = (await user.until("transcription_session.updated"))["session"]
        assert displayed["input_audio_transcription"] == {"model": "whisper-1"}
        await user.speak(speech)
        await user.until("conversation.item.input_audio_transcription.completed")
        assert events_of(user, "response.created") == []


async def test_idle_timeout(server: Any, speech: Samples) -> None:
    """After the timeout without a word since the answer was played, the silence is committed and the agent
    speaks up.
    """
    async with calling(server.url, session=transcribed_by(VAD | {"idle_timeout_ms": 300})) as user:
        displayed = user.events[-1]["session"]["audio"]["input"]["turn_detection"]
        assert displayed["idle_timeout_ms"] == 300
        await user.speak(speech, then_silence_ms=500)
        await user.until("response.done")
        timed_out = await user.until("input_audio_buffer.timeout_triggered")
        assert timed_out["audio_end_ms"] - timed_out["audio_start_ms"] == 300
        committed = await user.until("input_audio_buffer.committed")
        added = await user.until("conversation.item.added")
        assert committed["item_id"] == added["item"]["id"] == timed_out["item_id"]
        assert (await user.until("response.done"))["response"]["status"] == "completed"
        before = [event["type"] for event in user.events]
        assert before.index("input_audio_buffer.timeout_triggered") > before.index("response.output_audio.done")


async def test_idle_timeout_before_the_first_word(server: Any) -> None:
    """A user may take their time to begin."""
    async with calling(server.url, session=transcribed_by(VAD | {"idle_timeout_ms": 1})) as user:
        await user.send("response.create", response={"conversation": "none"})
        await user.until("response.done")
        await wait_until_processed(user)
        assert "input_audio_buffer.timeout_triggered" not in user.kinds()


@pytest.mark.parametrize("kind", ["near_field", "far_field", None])
async def test_noise_reduction(server: Any, kind: str | None) -> None:
    """Accepted, null, and named if it was requested."""
    requested = kind and {"type": kind}
    async with calling(server.url, session={"audio": {"input": {"noise_reduction": requested}}}) as user:
        displayed = next(event for event in user.events if event["type"] == "session.updated")
        assert displayed["session"]["audio"]["input"]["noise_reduction"] is None
        await wait_until_processed(user)
        named = [event["error"]["param"] for event in user.events if event["type"] == "error"]
        assert named == [*(["session.audio.input.noise_reduction"] if kind else []), "item_id"]


async def test_what_one_response_can_not_change(server: Any) -> None:
    """Named once in the session, and the response comes; a misspelt field is refused."""
    async with calling(server.url) as user:
        for _ in range(2):
            await user.send("response.create", response={"reasoning": {"effort": "low"}, "conversation": "none"})
            await user.until("response.done")
        await user.send("response.create", response={"instruction": "Be brief."})
        await wait_until_processed(user)
        errors = [event["error"] for event in user.events if event["type"] == "error"]
        assert [(error["code"], error["param"]) for error in errors[:2]] == [
            ("unsupported_parameter", "response.reasoning"),
            ("unknown_parameter", "response.instruction"),
        ]
        assert user.kinds().count("response.done") == 2


async def test_strict_of_a_function_reaches_the_provider(server: Any) -> None:
    function = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": True}
    async with calling(server.url, session={"tools": [function]}) as user:
        await user.send("response.create", response={"conversation": "none"})
        await user.until("response.done")
    question = (await server.vendor.llm.nth(0)).question
    assert question["tools"][0]["function"]["strict"] is True


CODES = {"audio/pcmu": g711.encode_mulaw, "audio/pcma": g711.encode_alaw}
DECODES = {"audio/pcmu": g711.decode_mulaw, "audio/pcma": g711.decode_alaw}


@pytest.mark.parametrize("name", CODES)
async def test_formats_of_the_input(server: Any, speech: Samples, name: str) -> None:
    """G.711 in, pcm out: the STT receives the speech, the answer is at 24 kHz."""
    async with calling(server.url, session=transcribed_by(VAD, format={"type": name})) as user:
        assert user.events[-1]["session"]["audio"]["input"]["format"] == {"type": name}
        assert user.events[-1]["session"]["audio"]["output"]["format"] == {"type": "audio/pcm", "rate": 24_000}
        coded = CODES[name](speech[::3].copy())
        await user.send("input_audio_buffer.append", audio=base64.b64encode(coded).decode())
        await user.until("response.done")
        assert np.abs(user.sound().astype(int)).max() > 1_000
    samples = (await server.vendor.stt.nth(0)).samples.astype(float)
    assert np.abs(np.diff(samples)).mean() < np.abs(samples).mean()


@pytest.mark.parametrize("name", CODES)
async def test_formats_of_the_output(server: Any, name: str) -> None:
    """Pcm in, G.711 out: as long a sound at 8 kHz with one byte a sample."""
    lengths_ms = {}
    for requested in ("audio/pcm", name):
        async with calling(server.url, session={"audio": {"output": {"format": {"type": requested}}}}) as user:
            await user.send("response.create")
            await user.until("response.done")
            deltas = events_of(user, "response.output_audio.delta")
        coded = b"".join(base64.b64decode(event["delta"]) for event in deltas)
        lengths_ms[requested] = len(coded) // (48 if requested == "audio/pcm" else 8)
    assert abs(lengths_ms["audio/pcm"] - lengths_ms[name]) <= 20
    assert np.abs(DECODES[name](coded).astype(int)).max() > 1_000


async def test_formats_that_are_not_published(server: Any) -> None:
    """A rate other than 24 kHz breaks clients that compute from the echo: it is refused, the session unchanged."""
    async with calling(server.url) as user:
        requested = {"type": "audio/pcm", "rate": 16_000}
        await user.send("session.update", session={"audio": {"output": {"format": requested}}})
        assert (await user.until("error"))["error"]["param"] == "session.audio.output.format.rate"


@pytest.mark.parametrize("voice", ["marin", {"id": "voice_1234"}], ids=str)
async def test_voice(server: Any, voice: Any) -> None:
    """Any name, also as an object, also after the agent has spoken."""
    name = voice if isinstance(voice, str) else voice["id"]
    async with calling(server.url) as user:
        await user.send("response.create")
        await user.until("response.done")
        await user.send("session.update", session={"audio": {"output": {"voice": voice, "speed": 1.5}}})
        displayed = (await user.until("session.updated"))["session"]["audio"]["output"]
        assert (displayed["voice"], displayed["speed"]) == (name, 1.5)
        await user.send("response.create")
        await user.until("response.done")
    last = server.vendor.tts.received[-1].question
    assert (last["voice"], last["speed"]) == (name, 1.5)


async def test_model_can_not_change(server: Any) -> None:
    """Taken in an update without a word, and the effective one is shown."""
    async with calling(server.url, query="model=gpt-realtime") as user:
        await user.send("session.update", session={"type": "realtime", "model": "gpt-5-realtime"})
        assert (await user.until("session.updated"))["session"]["model"] == "gpt-realtime"


async def test_keep_alive(server: Any) -> None:
    """A client that comes back replays its history, the first item at the front; the model reads it in order."""
    async with calling(server.url, session=SILENT) as user:
        previous = "root"
        for n, role in enumerate(("user", "assistant", "user")):
            kind = "output_text" if role == "assistant" else "input_text"
            item = {"id": f"i{n}", "type": "message", "role": role, "content": [{"type": kind, "text": f"t{n}"}]}
            await user.send("conversation.item.create", item=item, previous_item_id=previous)
            assert (await user.until("conversation.item.added"))["item"]["id"] == f"i{n}"
            previous = f"i{n}"
        await user.send("response.create")
        await user.until("response.done")
    assert [message["content"] for message in await messages_of(server, 0)] == ["t0", "t1", "t2"]

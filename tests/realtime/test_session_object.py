"""Section 6 of the contract: the session object, and what an update does to it."""

from __future__ import annotations

from typing import Any

import pytest

from voicepipe.testing.user import User, calling

Event = dict[str, Any]

LOOK = {"type": "function", "name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}}

MEMBERS = """type object id model output_modalities instructions audio tools tool_choice max_output_tokens tracing
truncation prompt include expires_at"""


async def answered(user: User) -> None:
    """All that was sent is answered: events are, in order."""
    n_before = user.kinds().count("session.updated")
    await user.send("session.update", session={"type": "realtime"})
    while user.kinds().count("session.updated") == n_before:
        await user.until("session.updated")


async def updated(server: Any, *updates: Event) -> Event:
    """The session after these updates."""
    async with calling(server.url) as user:
        for update in updates:
            await user.send("session.update", session=update)
            session: Event = (await user.until("session.updated"))["session"]
        return session


async def test_session_object(server: Any) -> None:
    """Every member is there, from the first event on."""
    async with calling(server.url, query="model=gpt-realtime") as user:
        session = user.events[0]["session"]
    assert set(session) == set(MEMBERS.split())
    assert (session["type"], session["object"]) == ("realtime", "realtime.session")
    assert (session["model"], session["id"][:5]) == ("gpt-realtime", "sess_")
    assert set(session["audio"]["input"]) == {"format", "transcription", "noise_reduction", "turn_detection"}
    assert set(session["audio"]["output"]) == {"format", "voice", "speed"}
    assert isinstance(session["expires_at"], int)


@pytest.mark.parametrize("kind", ["server_vad", "semantic_vad"])
async def test_turn_detection_type(server: Any, kind: str) -> None:
    """One of the two published names, with both flags; another name is refused."""
    async with calling(server.url, session={"audio": {"input": {"turn_detection": {"type": kind}}}}) as user:
        displayed = user.events[-1]["session"]["audio"]["input"]["turn_detection"]
        assert (displayed["type"], displayed["create_response"], displayed["interrupt_response"]) == (kind, True, True)
        await user.send("session.update", session={"audio": {"input": {"turn_detection": {"type": "psychic"}}}})
        assert (await user.until("error"))["error"]["param"] == "session.audio.input.turn_detection.type"


@pytest.mark.parametrize(
    "requested", [None, {"model": "whisper-1"}, {"model": "m", "language": "de", "prompt": "Bern"}]
)
async def test_transcription(server: Any, requested: Event | None) -> None:
    """Shown as it was requested, or null."""
    session = await updated(server, {"audio": {"input": {"transcription": requested}}})
    assert session["audio"]["input"]["transcription"] == requested


IGNORED = {
    "tracing": "auto",
    "parallel_tool_calls": True,
    "prompt_cache_key": "k",
    "temperature": 0.8,
    "providerData": {"stt": {"a": 1}, "tts": None},
    "audio": {"output": {"model": "some-voice-model"}},
}


@pytest.mark.parametrize("key", IGNORED)
async def test_accept_and_ignore(server: Any, key: str) -> None:
    """What clients send by default: without an error, which some of them take for the end."""
    async with calling(server.url) as user:
        await user.send("session.update", session={"type": "realtime", key: IGNORED[key]})
        session = (await user.until("session.updated"))["session"]
        assert set(session) == set(MEMBERS.split())
        await answered(user)
        assert "error" not in user.kinds()


UNSERVED = {
    "include": ["item.input_audio_transcription.logprobs"],
    "prompt": {"id": "pmpt_1"},
    "reasoning": {"effort": "low"},
    "parallel_tool_calls": False,
    "model": "another",
    "tracing": {"workflow_name": "w"},
    "tools": [LOOK, {"type": "web_search"}],
}


@pytest.mark.parametrize("key", UNSERVED)
async def test_accept_and_name(fake_server: Any, key: str) -> None:
    """One error names the field, once in a session, and the rest of the update is in force."""
    llm = {"agents.another.llm": "fake/llm", "agents.another.stt": "fake/stt", "agents.another.tts": "fake/tts"}
    async with fake_server(llm) as server, calling(server.url) as user:
        for instructions in ("One.", "Two."):
            update = {"type": "realtime", "instructions": instructions, key: UNSERVED[key]}
            await user.send("session.update", session=update, event_id=instructions)
            session = (await user.until("session.updated"))["session"]
            assert session["instructions"] == instructions
            assert session.get(key) in (None, "default", [session["tools"][0]] if session["tools"] else [])
        await answered(user)
        (error,) = [event["error"] for event in user.events if event["type"] == "error"]
        assert error["param"].startswith(f"session.{key}")
        assert (error["code"], error["event_id"]) == ("unsupported_parameter", "One.")


async def test_the_log_names_them_by_setting(fake_server: Any, caplog: pytest.LogCaptureFixture) -> None:
    """For clients that end at every error: once a session for each, of updates and of responses."""
    caplog.set_level("INFO", "voicepipe")
    async with fake_server({"agents.default.unserved_fields": "log"}) as server, calling(server.url) as user:
        noise = {"audio": {"input": {"noise_reduction": {"type": "near_field"}}}}
        for _ in range(2):
            await user.send("session.update", session=noise)
            displayed = (await user.until("session.updated"))["session"]
            assert displayed["audio"]["input"]["noise_reduction"] is None
        await user.send("response.create", response={"reasoning": {"effort": "low"}, "conversation": "none"})
        await user.until("response.done")
        assert "error" not in user.kinds()
        session = user.events[0]["session"]["id"]
    named = [each.__dict__["fields"] for each in caplog.records if each.message == "field_not_served"]
    assert [(each["session"], each["field"]) for each in named] == [
        (session, "session.audio.input.noise_reduction"),
        (session, "response.reasoning"),
    ]


async def test_fields_that_are_not_published_are_refused(server: Any) -> None:
    """A misspelt field changes nothing, and neither does the rest of its update."""
    async with calling(server.url) as user:
        await user.send("session.update", session={"type": "realtime", "instructions": "Hi.", "instruction": "Hi."})
        error = (await user.until("error"))["error"]
        assert (error["code"], error["param"]) == ("unknown_parameter", "session.instruction")
        await user.send("session.update", session={"type": "realtime"})
        assert (await user.until("session.updated"))["session"] == user.events[0]["session"]


async def test_update_merges(server: Any) -> None:
    """Objects merge by key; what is absent stays."""
    session = await updated(
        server,
        {
            "audio": {"output": {"voice": "v"}, "input": {"transcription": {"model": "m"}}},
            "instructions": "A.",
        },
        {"type": "realtime", "audio": {"output": {"speed": 1.2}}},
    )
    assert session["instructions"] == "A."
    assert (session["audio"]["output"]["voice"], session["audio"]["output"]["speed"]) == ("v", 1.2)
    assert session["audio"]["input"]["transcription"] == {"model": "m"}


async def test_update_replaces_whole(server: Any) -> None:
    """`turn_detection`, `transcription`, `format` and `tools` are taken as a whole."""
    many = {"type": "server_vad", "threshold": 0.9, "silence_duration_ms": 900}
    session = await updated(
        server,
        {
            "type": "realtime",
            "tools": [LOOK, LOOK | {"name": "listen"}],
            "audio": {"input": {"turn_detection": many, "transcription": {"model": "m", "language": "de"}}},
        },
        {
            "type": "realtime",
            "tools": [LOOK],
            "audio": {"input": {"turn_detection": {"type": "server_vad"}, "transcription": {"model": "n"}}},
        },
    )
    assert session["tools"] == [LOOK]
    assert session["audio"]["input"]["transcription"] == {"model": "n"}
    detection = session["audio"]["input"]["turn_detection"]
    assert (detection["threshold"], detection["silence_duration_ms"]) == (0.5, 500)


async def test_update_null_turns_off(server: Any) -> None:
    """An explicit null is not the same as absence."""
    audio_input = {"transcription": {"model": "m"}, "noise_reduction": {"type": "far_field"}}
    off = {"transcription": None, "noise_reduction": None, "turn_detection": None}
    session = await updated(server, {"audio": {"input": audio_input}}, {"audio": {"input": off}})
    assert {key: session["audio"]["input"][key] for key in off} == off


WRONG: dict[str, dict[str, Any]] = {
    "session.output_modalities[0]": {"output_modalities": ["song"]},
    "session.audio.output.speed": {"audio": {"output": {"speed": 9}}},
    "session.audio.input.turn_detection.silence_duration_ms": {
        "audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": "long"}}}
    },
    "session.tools[0].name": {"tools": [{"type": "function"}]},
    "session.max_output_tokens": {"max_output_tokens": "many"},
}


@pytest.mark.parametrize("param", WRONG)
async def test_update_refused(server: Any, param: str) -> None:
    """The error names the field; nothing of the update is taken, and no session.updated comes."""
    async with calling(server.url) as user:
        wrong = {"type": "realtime", "instructions": "Mine.", **WRONG[param]}
        await user.send("session.update", session=wrong, event_id="e")
        error = (await user.until("error"))["error"]
        assert (error["param"], error["event_id"]) == (param, "e")
        await user.send("session.update", session={"type": "realtime"})
        assert (await user.until("session.updated"))["session"] == user.events[0]["session"]


PCM = {"type": "audio/pcm", "rate": 24_000}
FULL: dict[str, Any] = {
    "type": "realtime",
    "instructions": "Be brief.",
    "output_modalities": ["audio"],
    "audio": {
        "input": {
            "format": PCM,
            "noise_reduction": None,
            "transcription": {"model": "gpt-4o-mini-transcribe"},
            "turn_detection": {"type": "semantic_vad", "eagerness": "auto", "create_response": True},
        },
        "output": {"format": PCM, "voice": "marin", "speed": 1},
    },
    "tools": [],
    "tool_choice": "auto",
}
FIRST: dict[str, list[dict[str, Any]]] = {
    "agents-js": [{"type": "realtime", "tracing": "auto"}, FULL | {"model": "gpt-realtime", "prompt": None}],
    "livekit": [FULL | {"max_output_tokens": "inf", "tracing": None}, {"type": "realtime", "tools": [LOOK]}],
    "pipecat": [{"type": "realtime", "instructions": "Be brief."}, FULL | {"tools": [LOOK], "tool_choice": "auto"}],
    "openai-agents": [FULL | {"model": "gpt-realtime", "tracing": "auto", "tools": [LOOK]}],
    "Twilio": [
        {
            "type": "realtime",
            "model": "gpt-realtime",
            "output_modalities": ["audio"],
            "audio": {
                "input": {"format": {"type": "audio/pcmu"}, "turn_detection": {"type": "server_vad"}},
                "output": {"format": {"type": "audio/pcmu"}, "voice": "alloy"},
            },
            "instructions": "Be brief.",
        }
    ],
}


@pytest.mark.parametrize("client", FIRST)
async def test_what_clients_send_first(server: Any, client: str) -> None:
    """One `session.updated` for each, without an error, also when nothing of ours was waited for."""
    async with calling(server.url) as user:
        for update in FIRST[client]:
            await user.send("session.update", session=update)
        for _ in FIRST[client]:
            displayed = await user.until("session.updated")
        assert displayed["session"]["instructions"] == "Be brief."
        await answered(user)
        assert "error" not in user.kinds()


async def test_published_update_on_an_older_connection(server: Any) -> None:
    """A client that sends the older header and a published session gets the published events from then on."""
    async with calling(server.url, headers={"OpenAI-Beta": "realtime=v1"}) as user:
        assert "modalities" in user.events[0]["session"]
        await user.send("session.update", session=FULL)
        assert (await user.until("session.updated"))["session"]["audio"]["output"]["voice"] == "marin"
        await user.send("response.create")
        await user.until("response.done")
        assert "response.output_audio.delta" in user.kinds()
        assert "response.audio.delta" not in user.kinds()


async def test_flat_update(server: Any) -> None:
    """The older, flat shape is read on any connection, and answered in the connection's own."""
    flat = {"modalities": ["text"], "voice": "v", "turn_detection": None, "input_audio_format": "g711_ulaw"}
    session = await updated(server, flat)
    assert (session["output_modalities"], session["audio"]["output"]["voice"]) == (["text"], "v")
    assert session["audio"]["input"]["format"] == {"type": "audio/pcmu"}
    assert session["audio"]["input"]["turn_detection"] is None


async def test_inworld_extras(server: Any) -> None:
    """Names of models for each stage, an object of provider data, a reply by the older modalities."""
    session = {
        "type": "realtime",
        "model": "openai/gpt-4.1-mini",
        "providerData": {"stt": {"x": 1}, "tts": {"y": 2}, "memory": {"z": 3}},
        "output_modalities": ["audio", "text"],
        "audio": {
            "input": {"transcription": {"model": "inworld/stt"}},
            "output": {"model": "inworld-tts-1", "voice": "Hades"},
        },
    }
    async with calling(server.url) as user:
        await user.send("session.update", session=session)
        displayed = (await user.until("session.updated"))["session"]
        assert displayed["audio"]["output"]["voice"] == "Hades"
        await user.send("response.create", response={"modalities": ["audio", "text"]})
        assert (await user.until("response.done"))["response"]["output_modalities"] == ["audio"]

"""The page's modules without a page: in Node, at a real server, at one that takes no wishes, at one that is gone."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import WSMsgType, web

from tests.web.node import json_from_node
from voicepipe.protocol.binary import agent_frame
from voicepipe.testing.fakes.cues import CallCue, LlmCue, TtsCue

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent


async def played(address: str, secret: str, scene: str) -> dict[str, Any]:
    """What came of a scene of `wire.mjs`."""
    web_folder = str(HERE.parents[1] / "web")
    result: dict[str, Any] = await json_from_node(str(HERE / "wire.mjs"), web_folder, address, secret, scene)
    return result


class Server:
    """Another project's server, which answers each message as `answer` says."""

    def __init__(self) -> None:
        self.queries: list[str] = []
        """The query of each connection."""

        self.came: list[Any] = []

    async def talk(self, request: web.Request) -> web.StreamResponse:
        """One connection."""
        self.queries.append(request.query_string)
        line = web.WebSocketResponse(protocols=("realtime",))
        await line.prepare(request)
        await self.greet(request, line)
        async for message in line:
            came = message.data if message.type is WSMsgType.BINARY else json.loads(message.data)
            self.came.append(came)
            await self.answer(request, line, came)
        return line

    async def greet(self, request: web.Request, line: web.WebSocketResponse) -> None:
        """Say that there is a session."""
        await say(line, "session.created", session={"id": "sess_1"})

    async def answer(self, request: web.Request, line: web.WebSocketResponse, came: Any) -> None:
        """React to what came."""


class Strict(Server):
    """Refuses what it does not know, and answers to sound with sound."""

    async def answer(self, request: web.Request, line: web.WebSocketResponse, came: Any) -> None:
        """Refuse a wish for extensions."""
        if "providerData" in came.get("session", {}):
            error = {"type": "invalid_request_error", "code": "unknown_parameter", "message": "?", "param": None}
            await say(line, "error", error={**error, "event_id": came.get("event_id")})
            await say(line, "session.updated", session={"id": "sess_1"})  # of its own accord
        else:
            place = {"response_id": "r", "item_id": "i", "output_index": 0, "content_index": 0}
            await say(line, "response.output_audio.delta", **place, delta="AQACAA==")


class Gone(Server):
    """Permit resumption for 300 ms, break the connection, and refuse every resumption."""

    async def greet(self, request: web.Request, line: web.WebSocketResponse) -> None:
        """Greet only a client that does not resume."""
        if "resume" in request.query:
            abort(request)
        else:
            await super().greet(request, line)

    async def answer(self, request: web.Request, line: web.WebSocketResponse, came: Any) -> None:
        """Give the secret, and break once there is sound."""
        if "session" not in came:
            return abort(request)
        result = {"resume": True, "resume_secret": "s", "resume_window_ms": 300}
        await say(line, "session.updated", session={"id": "sess_1", "providerData": {"voicepipe": result}})
        return None


class Breaks(Server):
    """Sends 2 samples of an item and a frame of 20 ms of the next one; breaks at the client's first audio, and lets it
    resume."""

    async def greet(self, request: web.Request, line: web.WebSocketResponse) -> None:
        """Greet only a client that does not resume."""
        if "resume" not in request.query:
            await super().greet(request, line)

    async def answer(self, request: web.Request, line: web.WebSocketResponse, came: Any) -> None:
        """Give the secret and send audio; break; let the client resume."""
        if came["type"] == "input_audio_buffer.append":
            return abort(request)
        if came["type"] == "voicepipe.resume":
            rest = {"session_id": "sess_1", "secret": "t", "input_received_ms": 0, "window_ms": 9_000, "moved": True}
            return await say(line, "voicepipe.resumed", **rest)
        result = {"resume": True, "resume_secret": "s", "resume_window_ms": 9_000}
        await say(line, "session.updated", session={"id": "sess_1", "providerData": {"voicepipe": result}})
        place = {"response_id": "r", "output_index": 0, "content_index": 0}
        await say(line, "response.output_audio.delta", **place, item_id="i", delta="AQACAA==")
        await say(line, "voicepipe.output_audio.started", **place, item_id="j", stream=1)
        await say(
            line, "voicepipe.output_audio.words", response_id="r", item_id="j", words=["Yes", "sir"], starts_ms=[0, 90]
        )
        await line.send_bytes(bytes(agent_frame(1, 2, b"\1\0" * 480)))
        return None


class Stops(Breaks):
    """Asks its client to resume elsewhere, or closes with "service restart", in place of breaking."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self.code = code

    async def answer(self, request: web.Request, line: web.WebSocketResponse, came: Any) -> None:
        """Say that it stops, at the client's first audio."""
        if came["type"] != "input_audio_buffer.append":
            await super().answer(request, line, came)
        elif self.code:
            await line.close(code=self.code)
        else:
            await say(line, "voicepipe.going_away", within_ms=5_000)


async def say(line: web.WebSocketResponse, kind: str, **fields: Any) -> None:
    """Send an event."""
    await line.send_json({"type": kind, "event_id": "event_1", **fields})


def abort(request: web.Request) -> None:
    """Break the connection, once what was sent has left."""
    assert request.transport is not None
    request.transport.close()


@asynccontextmanager
async def serving(server: Server) -> AsyncIterator[str]:
    """Run it; gives its address."""
    app = web.Application()
    app.router.add_get("/v1/realtime", server.talk)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"ws://127.0.0.1:{runner.addresses[0][1]}/v1/realtime"
    finally:
        await runner.cleanup()


async def test_a_conversation_without_a_page(fake_server: Any) -> None:
    """Nothing of the wire needs a document; the session has every extension, and its sound comes whole."""
    async with fake_server() as server:
        server.vendor.llm.usual = LlmCue(tokens=("Yes.",))  # one clause, so that it is said once
        server.vendor.tts.usual = TtsCue(raw=b"\1\1" * 12_345)
        async with aiohttp.ClientSession() as http, http.post(f"{server.url}/v1/realtime/client_secrets") as minted:
            secret = (await minted.json())["value"]
        result = await played(server.url.replace("http", "ws") + "/v1/realtime", secret, "talk")
    assert result["states"] == ["connecting", "open", "closed"]
    assert (result["errors"], result["unexpectedFrames"]) == ([], 0)
    assert result["has"] == ["binary_audio", "playback_reports", "turn_events", "resume", "ducking"]
    assert result["samples"] == 12_345
    assert "response.output_audio.delta" not in result["types"]


async def test_the_agent_calls_functions_of_the_page(fake_server: Any) -> None:
    """The model gets their definitions, both results together, and answers in the same turn."""
    calls = (CallCue("weather", ('{"place":', '"Oslo"}'), "c1"), CallCue("tide", ("{}",), "c2"))
    async with fake_server() as server:
        server.vendor.llm.cue(LlmCue(calls=calls, finish="tool_calls", tokens=()))
        server.vendor.llm.usual = LlmCue(tokens=("Clear.",))
        server.vendor.tts.usual = TtsCue(raw=b"\1\1" * 12_345)
        async with aiohttp.ClientSession() as http, http.post(f"{server.url}/v1/realtime/client_secrets") as minted:
            secret = (await minted.json())["value"]
        result = await played(server.url.replace("http", "ws") + "/v1/realtime", secret, "tools")
        first, second = (each.question for each in server.vendor.llm.received)
    assert [(each["name"], each["failed"]) for each in result["tools"]] == [("weather", False), ("tide", True)]
    assert [tool["function"]["name"] for tool in first["tools"]] == ["weather", "tide"]
    outputs = [message for message in second["messages"] if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in outputs] == ["c1", "c2"]
    assert [json.loads(message["content"]) for message in outputs] == [
        {"place": "Oslo", "sky": "clear"},
        {"error": "no sea here"},
    ]
    assert result["errors"] == []
    assert result["scenes"].count("thinking") == 1, "it thinks on while the functions run"


async def test_results_are_sent_together_and_each_once() -> None:
    """Those that the server has confirmed are not sent again after a break; those of a lost session never are."""
    result = await played("ws://127.0.0.1:1/v1/realtime", "ek_1", "results")
    request, probe = "response.create", "conversation.item.retrieve"
    assert result["types"] == ["quick", "slow", request, "--", probe, "slow", request]
    busy, aborted = [True, True, False, True, False], [True, True]
    assert result["scenes"] == [*busy, *aborted], "their handlers learn that the session is lost"


async def test_server_that_refuses_extensions() -> None:
    """Its refusal of the extensions shows no error, and the client sends it base64."""
    server = Strict()
    async with serving(server) as address:
        result = await played(address, "ek_1", "strict")
    request, sound = server.came
    assert request["session"].keys() == {"type", "providerData"}
    assert sound == {"type": "input_audio_buffer.append", "audio": base64.b64encode(b"\1\0" * 480).decode()}
    assert (result["errors"], result["has"], result["samples"]) == ([], [], 2)


async def test_a_session_that_is_not_found_in_time_is_given_up() -> None:
    """Line after line is tried, less and less often, until the server's window is over; then comes a new session. The
    agent had not spoken: it may greet.
    """
    server = Gone()
    async with serving(server) as address:
        result = await played(address, "ek_1", "gone")
    assert result["states"] == ["connecting", "open", "resuming", "connecting", "open", "closed"]
    assert server.queries[0] == server.queries[-1] == ""
    assert len(server.queries) > 2
    assert set(server.queries[1:-1]) == {"resume=sess_1"}


class Spoke(Gone):
    """As `Gone`; its agent has begun an answer."""

    async def greet(self, request: web.Request, line: web.WebSocketResponse) -> None:
        """Send the answer's first event after the greeting."""
        await super().greet(request, line)
        if "resume" not in request.query:
            await say(line, "response.created", response={"id": "resp_1"})


async def test_an_agent_that_has_spoken_need_not_greet_in_the_next_session() -> None:
    """Until the client closes the call: the session after that is another call."""
    server = Spoke()
    async with serving(server) as address:
        result = await played(address, "ek_1", "again")
    assert result["states"][-4:] == ["closed", "connecting", "open", "closed"]
    assert (server.queries[0], server.queries[-2], server.queries[-1]) == ("", "continues=true", "")


async def test_the_last_sound_that_came_is_named() -> None:
    """In ms of the latest item alone, whether it came in events or in frames: there another node goes on."""
    server = Breaks()
    async with serving(server) as address:
        result = await played(address, "ek_1", "broken")
    request = next(each for each in server.came if each["type"] == "voicepipe.resume")
    fields = [request[f"received_{name}"] for name in ("item_id", "ms", "text")]
    assert fields == ["j", 20, "Yes"], "the words that begin in it"
    assert result["samples"] == 482


@pytest.mark.parametrize("code", [0, 1012])
async def test_a_server_that_stops_is_left(code: int) -> None:
    """When it asks, and when it closes with "service restart": the session goes on, without a new one."""
    server = Stops(code)
    async with serving(server) as address:
        result = await played(address, "ek_1", "broken")
    assert result["states"] == ["connecting", "open", "resuming", "open", "closed"]
    assert [each["type"] for each in server.came].count("voicepipe.resume") == 1


async def test_volume_is_lowered_during_overlap() -> None:
    """And up again if they do not take the floor; if they do it is silent, and the next item has the full volume."""
    result = await played("ws://127.0.0.1:1/v1/realtime", "ek_1", "ducking")
    assert result["loudspeaker"] == ["duck", "restore", "duck", "flush", "restore"]


async def test_question_is_resent_until_its_response_starts() -> None:
    """Its words and the wish for an answer are two events, and the line may break between them."""
    result = await played("ws://127.0.0.1:1/v1/realtime", "ek_1", "delivery")
    words, request, probe = "words", "response.create", "conversation.item.retrieve"
    whole = [words, request, "--", probe, words, request, "==", "--"]
    half = [words, request, "--", probe, request, "==", "--"]
    none = [words, request, "--", probe, "=="]
    behind_another = [words, request, request, "==", "--"]
    assert result["types"] == [*whole, *half, *none, *behind_another]


async def test_why_there_is_no_secret() -> None:
    """What an address and a function of the page answer: a value, or the reason, and whether to try again."""
    result = await played("ws://127.0.0.1:1/v1/realtime", "ek_1", "tokens")
    expected = "expected a client secret, or an object with it as `value`"
    assert result["tools"] == [
        "ek_1",
        ["refused", "invalid_key", "?", False, 0],
        ["refused", "token_refused", "HTTP 500", False, 0],
        ["unreachable", "token_refused", "HTTP 502", True, 0],
        ["full", "token_refused", "HTTP 503", True, 2000],
        ["refused", "token_invalid", "", False, 0],
        ["refused", "token_invalid", "", False, 0],
        ["unreachable", "token_unreachable", "", True, 0],
        ["refused", "token_failed", expected, False, 0],
        ["refused", "token_failed", "signed out", False, 0],
        "ek_2",
    ]

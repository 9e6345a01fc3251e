"""Calls over a real socket: to a whole server with fake vendors, and to servers that misbehave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import websockets

from voicepipe.agents import Agent
from voicepipe.audio.files import read_sound
from voicepipe.auth.apikeys import ApiKeys
from voicepipe.client import (
    RATE_HZ,
    CallEnded,
    CallFailed,
    CallRefused,
    NoAnswer,
    ServerUnreachable,
    SessionOptions,
    answers,
    closed_turn,
    connect,
    fetch_turn,
    until_ready,
)
from voicepipe.client import events as e
from voicepipe.protocol.extensions import Extensions
from voicepipe.testing.fakes.cues import CallCue, LlmCue, Status, SttCue, tokens
from voicepipe.testing.waiting import WAIT_S
from voicepipe.values import replace

Talk = Callable[[websockets.ServerConnection], Awaitable[None]]
SESSION = {"session": {"id": "sess_1", "model": "m"}}


@pytest.mark.slow
async def test_a_spoken_question_is_answered(fake_server: Any, question: Path) -> None:
    async with fake_server() as server:
        server.vendor.stt.cue(SttCue(text="No."))
        server.vendor.llm.cue(LlmCue(tokens=("Fine", " then.")))
        async with connect(server.url) as call:
            answer = await call.turn(read_sound(question, RATE_HZ))
            record = await closed_turn(server.url, answer.turn_id, timeout_ms=20_000)
    assert (answer.status, answer.user_text, answer.agent_text) == ("completed", "No.", "Fine then.")
    assert answer.t0_ms is not None
    assert abs(answer.t0_ms - 1_045) < 150  # the recording's label
    assert answer.latency_ms is not None
    assert answer.duration_ms > 0
    assert record is not None
    assert (record.id, record.outcome, record.user_text) == (answer.turn_id, "completed", "No.")


@pytest.mark.slow
async def test_a_second_turn_counts_on_where_the_first_ended(fake_server: Any, question: Path) -> None:
    async with fake_server() as server, connect(server.url) as call:
        sound = read_sound(question, RATE_HZ)
        first = await call.turn(sound)
        sent_ms = call.sent_ms
        second = await call.turn(sound)
    assert first.t0_ms is not None
    assert second.t0_ms is not None
    assert abs((second.t0_ms - sent_ms) - first.t0_ms) < 150
    assert second.turn_id != first.turn_id


async def test_a_written_question_gets_a_written_answer(fake_server: Any) -> None:
    async with fake_server() as server:
        server.vendor.llm.cue(LlmCue(tokens=("It is", " noon.")))
        async with connect(
            server.url, session_options=SessionOptions(text_only=True, instructions="Be brief.")
        ) as call:
            answer = await call.text_turn("What time is it?")
        messages = (await server.vendor.llm.nth(0)).question["messages"]
    assert (answer.agent_text, answer.duration_ms) == ("It is noon.", 0)
    assert answer.latency_ms is not None
    assert answer.latency_ms >= 0
    assert messages[0]["content"] == "Be brief."
    assert not server.vendor.tts.received


def clinic(free: asyncio.Event | None = None, called: asyncio.Event | None = None, *, filler: str = "") -> Agent:
    """An agent that speaks first and has a tool, which sets `called`, and whose result waits for `free`."""
    agent = Agent("You are a clinic.", first_speaker="agent", greeting="Hello, how can I help?", filler=filler)

    async def free_slots() -> list[str]:
        if called is not None:
            called.set()
        if free is not None:
            await free.wait()
        return ["9:00"]

    agent.tool(side_effects=False)(free_slots)
    return agent


def slots(call_id: str = "c1") -> LlmCue:
    """The LLM asks for the free slots."""
    return LlmCue(calls=(CallCue("free_slots", ("{}",), call_id),), tokens=())


@pytest.mark.parametrize("text_only", [True, False])
async def test_a_greeting_is_no_answer(fake_server: Any, text_only: bool) -> None:
    """Neither one that the question overtakes nor one that the client has not read before."""
    options = SessionOptions(text_only=text_only)
    async with fake_server(agents=[clinic()]) as server:
        server.vendor.llm.usual = LlmCue(tokens=tokens("It is noon."))
        async with connect(server.url, session_options=options) as call:
            first = await call.text_turn("What time is it?")
            second = await call.text_turn("And now?")
        async with connect(server.url, session_options=options) as call:
            while not isinstance(await call.next_event(), e.ReplyStarted):
                pass
            third = await call.text_turn("What time is it?")
    for answer in (first, second, third):
        assert (answer.status, answer.agent_text, answer.earlier) == ("completed", "It is noon.", 0)


@pytest.mark.slow
async def test_an_answer_plays_behind_the_greeting(fake_server: Any) -> None:
    """The record says so, and the client measures what it says: both count from the message to the answer's sound."""
    greeting = "Hello. " + 8 * "How can I help you today? "
    async with fake_server(agents=[Agent("Be brief.", first_speaker="agent", greeting=greeting)]) as server:
        server.vendor.llm.usual = LlmCue(tokens=tokens("It is noon."))
        async with connect(server.url) as call:
            while not isinstance(await call.next_event(), e.ReplyEnded):
                pass
            answer = await call.text_turn("What time is it?")
            record = await closed_turn(server.url, answer.turn_id, timeout_ms=20_000)
    assert record is not None
    assert record.breach is not None
    assert (record.breach.stage, record.breach.owner, record.breach.depends_on) == (
        "earlier_audio",
        "settings",
        "greeting",
    )
    stages = {span.stage: span.critical_ms for span in record.stages}
    assert answer.latency_ms is not None
    assert answer.latency_ms > stages["earlier_audio"] > 1_000


async def test_each_question_gets_the_answer_to_its_tools_result(fake_server: Any) -> None:
    """Not the response that only calls, and so not the answer before."""
    free = asyncio.Event()
    async with fake_server(agents=[clinic(free)]) as server:
        server.vendor.llm.cue(slots(), LlmCue(tokens=tokens("At nine.")))
        server.vendor.llm.cue(slots("c2"), LlmCue(tokens=tokens("Still at nine.")))
        async with connect(server.url) as call, asyncio.TaskGroup() as group:
            question = group.create_task(call.text_turn("When are you free?"))
            await server.vendor.llm.nth(0)
            free.set()
            first = await question
            second = await call.text_turn("And now?")
    assert (first.agent_text, second.agent_text) == ("At nine.", "Still at nine.")
    assert first.turn_id != second.turn_id
    assert first.duration_ms > 0


async def test_the_late_answer_of_another_turn_is_left_out(fake_server: Any) -> None:
    """The question overtakes a tool, whose result is told behind the answer."""
    free = asyncio.Event()
    async with fake_server(agents=[clinic(free)]) as server:
        server.vendor.llm.cue(slots(), LlmCue(tokens=tokens("Fine.")), LlmCue(tokens=tokens("At nine.")))
        server.vendor.llm.usual = LlmCue(tokens=tokens("Goodbye."))
        async with connect(server.url, session_options=SessionOptions(text_only=True)) as call:
            await call.write("When are you free?")
            await call.respond()
            while not (isinstance(event := await call.next_event(), e.ReplyEnded) and event.goes_on):
                pass
            second = await call.text_turn("How are you?")
            free.set()
            await server.vendor.llm.nth(2)
            third = await call.text_turn("Goodbye.")
    assert (second.agent_text, third.agent_text) == ("Fine.", "Goodbye.")


@pytest.mark.slow
async def test_a_spoken_turn_ends_with_the_answer_to_its_tools_result(fake_server: Any, question: Path) -> None:
    async with fake_server(agents=[clinic()]) as server:
        server.vendor.llm.usual = lambda request: (
            LlmCue(tokens=tokens("At nine.")) if request["messages"][-1]["role"] == "tool" else slots()
        )
        async with connect(server.url) as call:
            answer = await call.turn(read_sound(question, RATE_HZ))
    assert (answer.agent_text, answer.earlier) == ("At nine.", 0)
    assert answer.latency_ms is not None


@pytest.mark.slow
async def test_a_filler_before_the_call_does_not_end_the_turn(fake_server: Any, question: Path) -> None:
    """The response that calls says nothing else, and the recording is long over by then."""
    free, called = asyncio.Event(), asyncio.Event()
    async with fake_server(agents=[clinic(free, called, filler="One moment, please.")]) as server:
        late, at_nine = replace(slots(), ttft_ms=3_000), LlmCue(tokens=tokens("At nine."))
        server.vendor.llm.usual = lambda request: at_nine if request["messages"][-1]["role"] == "tool" else late
        async with connect(server.url) as call, asyncio.TaskGroup() as group:
            spoken = group.create_task(call.turn(read_sound(question, RATE_HZ), timeout_ms=20_000))
            await called.wait()
            await asyncio.wait({spoken}, timeout=1)  # a client that takes the call for the answer leaves meanwhile
            free.set()
            answer = await spoken
    assert (answer.preamble, answer.agent_text) == ("One moment, please.", "At nine.")


async def test_requests_of_a_turn_keep_the_sessions_metadata(fake_server: Any) -> None:
    options = SessionOptions(text_only=True, extensions=Extensions(metadata=(("floor", "3"),)))
    async with fake_server() as server, connect(server.url, session_options=options) as call:
        await call.text_turn("Hello?")
        await call.write("Hello?")
        await call.respond()
        started = await _next(call, e.ReplyStarted)
        assert call._metadata["floor"] == "3"
        assert started.request == ""


async def test_an_agent_is_chosen_by_name(fake_server: Any) -> None:
    async with fake_server({"agents.support.llm": "fake/better"}) as server:
        async with connect(server.url, agent="support", session_options=SessionOptions(text_only=True)) as call:
            assert call.session_id.startswith("sess_")
            await call.text_turn("Hello?")
        assert (await server.vendor.llm.nth(0)).question["model"] == "better"
        with pytest.raises(CallRefused, match="There is no agent 'unknown'") as refused:
            async with connect(server.url, agent="unknown"):
                pass
    assert (refused.value.status, refused.value.code) == (404, "agent_not_found")


async def test_a_function_is_called_and_its_output_given_back(fake_server: Any) -> None:
    async with fake_server() as server:
        server.vendor.llm.cue(LlmCue(calls=(CallCue("weather", ('{"place":"Oslo"}',), "c1"),)))
        server.vendor.llm.cue(LlmCue(tokens=("Sunny.",)))
        async with connect(server.url, session_options=SessionOptions(text_only=True)) as call:
            await call.write("How is the weather?")
            await call.respond()
            called = await _next(call, e.FunctionCalled)
            await _next(call, e.ReplyEnded)
            await call.return_result(called.call_id, "sunny")
            await call.respond()
            words = await _next(call, e.ReplyText)
    assert (called.name, called.arguments, words.text) == ("weather", '{"place":"Oslo"}', "Sunny.")


async def test_a_failed_stage_is_an_answer_that_says_so(fake_server: Any) -> None:
    async with fake_server() as server, connect(server.url, session_options=SessionOptions(text_only=True)) as call:
        server.vendor.llm.cue(LlmCue(fault=Status(500, "out of order")))
        answer = await call.text_turn("Hello?")
        assert answer.status == "failed"
        assert "fake/llm" in answer.why
        assert (await call.text_turn("Hello?")).status == "completed"


async def test_silence_is_no_question(fake_server: Any) -> None:
    async with fake_server() as server, connect(server.url) as call:
        with pytest.raises(NoAnswer, match="the server detected no speech"):
            await call.turn(np.zeros(RATE_HZ // 5, dtype=np.int16), timeout_ms=300)


async def test_a_server_that_wants_a_key_says_so_and_takes_it(fake_server: Any) -> None:
    async with fake_server() as server:
        key = ApiKeys(server.folder / "data").create("acme", now_s=1).text
        with pytest.raises(CallRefused, match="Expected a credential, got none") as refused:
            async with connect(server.url):
                pass
        assert (refused.value.status, refused.value.code) == (401, "missing_credential")
        with pytest.raises(CallRefused, match="malformed"):
            async with connect(server.url, key="vp_wrong"):
                pass
        async with connect(server.url, key=key, session_options=SessionOptions(text_only=True)) as call:
            answer = await call.text_turn("Hello?")
            record = await closed_turn(server.url, answer.turn_id, key=key, timeout_ms=20_000)
            assert record is not None
            with pytest.raises(CallRefused, match="HTTP 401"):
                await fetch_turn(server.url, answer.turn_id)


async def test_a_turn_that_never_was_has_no_record(fake_server: Any) -> None:
    async with fake_server() as server:
        assert await fetch_turn(server.url, "turn_unknown") is None
        assert await closed_turn(server.url, "turn_unknown", timeout_ms=0) is None


async def test_a_server_is_known_by_its_health(fake_server: Any, unused_tcp_port: int) -> None:
    lines: list[str] = []
    async with fake_server() as server:
        assert await answers(server.url)
        await until_ready(server.url, lines.append)
    assert lines == []
    nowhere = f"http://127.0.0.1:{unused_tcp_port}"
    assert not await answers(nowhere)
    with pytest.raises(ServerUnreachable, match=nowhere):
        await until_ready(nowhere, lines.append)
    with pytest.raises(ServerUnreachable, match="no server answers at ws://"):
        async with connect(nowhere):
            pass


async def test_a_line_that_closes_in_mid_answer_ends_the_turn() -> None:
    async def talk(line: websockets.ServerConnection) -> None:
        await _greet(line)
        await line.recv()
        await line.close(1001, "going away")

    async with _serving(talk) as url, connect(url) as call:
        with pytest.raises(CallEnded, match="going away") as ended:
            await call.turn(np.zeros(RATE_HZ // 10, dtype=np.int16))
        assert ended.value.close_code == 1001
        with pytest.raises(CallEnded):
            await call.respond()
        assert [event async for event in call] == []


async def test_a_greeting_that_begins_before_the_settings_are_confirmed_is_not_lost() -> None:
    """The server greets after a second without settings: on a slow network they come later."""

    async def greet_first(line: websockets.ServerConnection) -> None:
        await line.send(json.dumps({"type": "session.created", **SESSION}))
        for response_id in ("resp_1", "resp_2"):
            response: dict[str, Any] = {
                "id": response_id,
                "object": "realtime.response",
                "status": "in_progress",
                "output": [],
            }
            await line.send(json.dumps({"type": "response.created", "response": response}))
        await line.recv()
        await line.send(json.dumps({"type": "session.updated", **SESSION}))
        await line.send(json.dumps({"type": "input_audio_buffer.speech_started", "item_id": "a", "audio_start_ms": 0}))
        await line.wait_closed()

    async with _serving(greet_first) as url, connect(url) as call, asyncio.timeout(WAIT_S):
        came = [await call.next_event() for _ in range(3)]
    assert [each.response_id for each in came if isinstance(each, e.ReplyStarted)] == ["resp_1", "resp_2"]
    assert not isinstance(came[2], e.ReplyStarted)


async def test_refused_settings_and_invalid_events_fail_the_call() -> None:
    async def refuse(line: websockets.ServerConnection) -> None:
        await line.send(json.dumps({"type": "session.created", **SESSION}))
        await line.recv()
        await line.send(json.dumps({"type": "error", "error": {"code": "x", "message": "not that voice"}}))
        await line.wait_closed()

    async def rubbish(line: websockets.ServerConnection) -> None:
        await line.send("hello")
        await line.wait_closed()

    for talk, why in ((refuse, "not that voice"), (rubbish, "expected a Realtime event")):
        async with _serving(talk) as url:
            with pytest.raises(CallFailed, match=why):
                async with connect(url):
                    pass


async def test_unknown_refusal_is_reported_by_its_status(fake_server: Any) -> None:
    async def refuse(line: websockets.ServerConnection, request: Any) -> Any:
        return line.respond(418, "short and stout")

    async def talk(line: websockets.ServerConnection) -> None:
        """Never reached."""

    async with websockets.serve(talk, "127.0.0.1", 0, process_request=refuse) as server:
        with pytest.raises(CallRefused, match="HTTP 418: I'm a Teapot"):
            async with connect(f"ws://127.0.0.1:{port_of(server)}"):
                pass


def port_of(server: websockets.Server) -> int:
    (socket,) = server.sockets
    return int(socket.getsockname()[1])


@asynccontextmanager
async def _serving(talk: Talk) -> AsyncIterator[str]:
    async with websockets.serve(talk, "127.0.0.1", 0) as server:
        yield f"ws://127.0.0.1:{port_of(server)}"


async def _greet(line: websockets.ServerConnection) -> None:
    await line.send(json.dumps({"type": "session.created", **SESSION}))
    await line.recv()
    await line.send(json.dumps({"type": "session.updated", **SESSION}))


async def _next(call: Any, kind: type) -> Any:
    async with asyncio.timeout(WAIT_S):
        while not isinstance(event := await call.next_event(), kind):
            pass
    return event

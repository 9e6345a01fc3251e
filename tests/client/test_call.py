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

from voicepipe.audio.files import read_sound
from voicepipe.auth.apikeys import ApiKeys
from voicepipe.client import (
    RATE_HZ,
    CallEnded,
    CallFailed,
    CallRefused,
    NoAnswer,
    ServerUnreachable,
    Wishes,
    answers,
    closed_turn,
    connect,
    fetch_turn,
    until_ready,
)
from voicepipe.client import events as e
from voicepipe.testing.fakes.cues import CallCue, LlmCue, Status, SttCue

Talk = Callable[[websockets.ServerConnection], Awaitable[None]]
SESSION = {"session": {"id": "sess_1", "model": "m"}}


async def test_a_spoken_question_is_answered(fake_house: Any, question: Path) -> None:
    async with fake_house() as house:
        house.vendor.stt.cue(SttCue(text="No."))
        house.vendor.llm.cue(LlmCue(tokens=("Fine", " then.")))
        async with connect(house.url) as call:
            answer = await call.turn(read_sound(question, RATE_HZ))
            record = await closed_turn(house.url, answer.turn_id, patience_ms=20_000)
    assert (answer.status, answer.caller_text, answer.agent_text) == ("completed", "No.", "Fine then.")
    assert answer.t0_ms is not None
    assert abs(answer.t0_ms - 1_045) < 150  # the recording's label
    assert answer.latency_ms is not None
    assert answer.duration_ms > 0
    assert record is not None
    assert (record.id, record.outcome, record.caller_text) == (answer.turn_id, "completed", "No.")


async def test_a_second_turn_counts_on_where_the_first_ended(fake_house: Any, question: Path) -> None:
    async with fake_house() as house, connect(house.url) as call:
        sound = read_sound(question, RATE_HZ)
        first = await call.turn(sound)
        sent_ms = call.sent_ms
        second = await call.turn(sound)
    assert first.t0_ms is not None
    assert second.t0_ms is not None
    assert abs((second.t0_ms - sent_ms) - first.t0_ms) < 150
    assert second.turn_id != first.turn_id


async def test_a_written_question_gets_a_written_answer(fake_house: Any) -> None:
    async with fake_house() as house:
        house.vendor.llm.cue(LlmCue(tokens=("It is", " noon.")))
        async with connect(house.url, wishes=Wishes(text_only=True, instructions="Be brief.")) as call:
            answer = await call.ask("What time is it?")
        asked = (await house.vendor.llm.nth(0)).question["messages"]
    assert (answer.agent_text, answer.duration_ms, answer.latency_ms) == ("It is noon.", 0, None)
    assert asked[0]["content"] == "Be brief."
    assert not house.vendor.tts.asked


async def test_an_agent_is_chosen_by_name(fake_house: Any) -> None:
    async with fake_house({"agents.support.llm": "fake/better"}) as house:
        async with connect(house.url, agent="support", wishes=Wishes(text_only=True)) as call:
            assert call.session_id.startswith("sess_")
            await call.ask("Hello?")
        assert (await house.vendor.llm.nth(0)).question["model"] == "better"
        with pytest.raises(CallRefused, match="There is no agent 'nobody'") as refused:
            async with connect(house.url, agent="nobody"):
                pass
    assert (refused.value.status, refused.value.code) == (404, "agent_not_found")


async def test_a_function_is_called_and_its_output_given_back(fake_house: Any) -> None:
    async with fake_house() as house:
        house.vendor.llm.cue(LlmCue(calls=(CallCue("weather", ('{"place":"Oslo"}',), "c1"),)))
        house.vendor.llm.cue(LlmCue(tokens=("Sunny.",)))
        async with connect(house.url, wishes=Wishes(text_only=True)) as call:
            await call.write("How is the weather?")
            await call.respond()
            called = await _next(call, e.FunctionCalled)
            await _next(call, e.ReplyEnded)
            await call.give(called.call_id, "sunny")
            await call.respond()
            words = await _next(call, e.ReplyWords)
    assert (called.name, called.arguments, words.text) == ("weather", '{"place":"Oslo"}', "Sunny.")


async def test_a_failed_stage_is_an_answer_that_says_so(fake_house: Any) -> None:
    async with fake_house() as house, connect(house.url, wishes=Wishes(text_only=True)) as call:
        house.vendor.llm.cue(LlmCue(fault=Status(500, "out of order")))
        answer = await call.ask("Hello?")
        assert answer.status == "failed"
        assert "fake/mind" in answer.why
        assert (await call.ask("Hello?")).status == "completed"


async def test_silence_is_no_question(fake_house: Any) -> None:
    async with fake_house() as house, connect(house.url) as call:
        with pytest.raises(NoAnswer, match="the server heard no speech in it"):
            await call.turn(np.zeros(RATE_HZ // 5, dtype=np.int16), patience_ms=300)


async def test_a_server_that_wants_a_key_says_so_and_takes_it(fake_house: Any) -> None:
    async with fake_house() as house:
        key = ApiKeys(house.folder / "data").create("acme", now_s=1).text
        with pytest.raises(CallRefused, match="No credential came") as refused:
            async with connect(house.url):
                pass
        assert (refused.value.status, refused.value.code) == (401, "missing_credential")
        with pytest.raises(CallRefused, match="malformed"):
            async with connect(house.url, key="vp_wrong"):
                pass
        async with connect(house.url, key=key, wishes=Wishes(text_only=True)) as call:
            answer = await call.ask("Hello?")
            record = await closed_turn(house.url, answer.turn_id, key=key, patience_ms=20_000)
            assert record is not None
            with pytest.raises(CallRefused, match="HTTP 401"):
                await fetch_turn(house.url, answer.turn_id)


async def test_a_turn_that_never_was_has_no_record(fake_house: Any) -> None:
    async with fake_house() as house:
        assert await fetch_turn(house.url, "turn_nobody") is None
        assert await closed_turn(house.url, "turn_nobody", patience_ms=0) is None


async def test_a_server_is_known_by_its_health(fake_house: Any, unused_tcp_port: int) -> None:
    lines: list[str] = []
    async with fake_house() as house:
        assert await answers(house.url)
        await until_ready(house.url, lines.append)
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


async def test_refused_wishes_and_rubbish_fail_the_call() -> None:
    async def refuse(line: websockets.ServerConnection) -> None:
        await line.send(json.dumps({"type": "session.created", **SESSION}))
        await line.recv()
        await line.send(json.dumps({"type": "error", "error": {"code": "x", "message": "not that voice"}}))
        await line.wait_closed()

    async def rubbish(line: websockets.ServerConnection) -> None:
        await line.send("hello")
        await line.wait_closed()

    for talk, why in ((refuse, "not that voice"), (rubbish, "no Realtime event")):
        async with _serving(talk) as url:
            with pytest.raises(CallFailed, match=why):
                async with connect(url):
                    pass


async def test_a_refusal_in_other_words_is_told_by_its_status(fake_house: Any) -> None:
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
    async with asyncio.timeout(20):
        while not isinstance(event := await call.next_event(), kind):
            pass
    return event

"""Calls of each carrier's fake to a whole server: what all carriers have to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.phone.carriers import CARRIERS, HUNG_UP, FakeCarrier, metric, played, turns, user_number, webhook
from voicepipe.testing.fakes.carrier import FRAME_BYTES
from voicepipe.testing.fakes.cues import CallCue, LlmCue, SttCue, tokens
from voicepipe.testing.waiting import eventually

pytestmark = pytest.mark.slow  # whole calls, of five carriers

LONG = "One two three four five six seven eight nine ten. " * 12
END = (CallCue("end_call", ("{}",), "c1"),)
SETTINGS: dict[str, object] = {
    "phone.main.transfer_to.sales": "+4930999",
    "agents.default.tools": "end_call, transfer_call, send_dtmf",
    "records.text": "always",
}


@pytest.fixture(params=CARRIERS)
async def carrier(request: pytest.FixtureRequest) -> AsyncIterator[FakeCarrier]:
    fake = CARRIERS[request.param]()
    async with fake.opened():
        yield fake


@pytest.fixture
async def server(fake_server: Any, carrier: FakeCarrier) -> AsyncIterator[Any]:
    async with fake_server(SETTINGS | carrier.settings) as opened:
        opened.vendor.llm.usual = LlmCue(tokens=tokens("It is noon."))
        yield opened


async def estimate(server: Any) -> int | None:
    """Return what the record of the first turn has of the carrier's part; None: nothing yet."""
    turn, *_ = await turns(server, 1)
    found: int | None = turn["carrier_estimated_ms"]
    return found


@pytest.mark.virtual_time
async def test_a_call_is_answered_and_what_was_played_is_reported_by_marks(
    server: Any, carrier: FakeCarrier, http: aiohttp.ClientSession, no: bytes
) -> None:
    async with carrier.calling(http, webhook(server)) as call:
        call.speak(no)
        await played(call)
        assert call.n_marks > 0
        await eventually(lambda: estimate(server))
        await call.hang_up()
    turn, *_ = await turns(server, 1)
    assert turn["outcome"] == "completed"
    assert turn["latency_source"] == "reported"
    assert turn["user"] == user_number(1)
    assert 0 <= turn["carrier_estimated_ms"] <= turn["total_ms"]


@pytest.mark.virtual_time
async def test_a_carrier_that_holds_audio_back_is_in_the_record_as_an_estimate(
    server: Any, carrier: FakeCarrier, http: aiohttp.ClientSession, no: bytes
) -> None:
    async with carrier.calling(http, webhook(server)) as call:
        call.hold_frames = 15
        call.speak(no)
        await played(call)
        # Before the call ends: of a call that has ended, messages that were not read are not read any more.
        estimated_ms = await eventually(lambda: estimate(server))
        await call.hang_up()
    assert estimated_ms >= 15 * 20 - 20


@pytest.mark.virtual_time
async def test_speech_over_the_agent_clears_what_the_carrier_has_not_played(
    server: Any, carrier: FakeCarrier, http: aiohttp.ClientSession, no: bytes
) -> None:
    server.vendor.llm.cue(LlmCue(tokens=tokens(LONG)))
    server.vendor.stt.cue(SttCue(text="Tell me a lot."), SttCue(text="Stop, that is enough now."))
    async with carrier.calling(http, webhook(server)) as call:
        call.speak(no)
        await call.until(lambda: len(call.played) > 8_000)
        call.speak(no + no)
        await call.until(lambda: bool(call.cleared))
        assert call.cleared[0] > 0
        await call.until(lambda: len(server.vendor.llm.received) > 1)  # before that the call is only left
        await call.hang_up()
    first, *_ = await turns(server, 1)
    assert first["outcome"] == "interrupted"
    assert first["latency_source"] == "reported"


@pytest.mark.virtual_time
async def test_pressed_keys_are_text_for_the_agent_and_stop_it(
    server: Any, carrier: FakeCarrier, http: aiohttp.ClientSession, no: bytes
) -> None:
    server.vendor.llm.cue(LlmCue(tokens=tokens(LONG)))
    async with carrier.calling(http, webhook(server)) as call:
        call.speak(no)
        await call.until(lambda: len(call.played) > 8_000)
        await call.press("12#")
        await call.until(lambda: bool(call.cleared))
        await call.until(lambda: len(server.vendor.llm.received) > 1)
        said = [each["content"] for each in server.vendor.llm.received[-1].question["messages"]]
        assert said[-1] == "[DTMF: 12#]"
        assert len(said[-2]) < len(LONG)
        await call.hang_up()
    first, *_ = await turns(server, 2)
    assert first["outcome"] == "interrupted"


@pytest.mark.virtual_time
async def test_the_agent_hangs_up_after_its_last_word(
    server: Any, carrier: FakeCarrier, http: aiohttp.ClientSession, no: bytes
) -> None:
    server.vendor.llm.cue(LlmCue(before_calls=tokens("Goodbye, and thank you."), calls=END))
    async with carrier.calling(http, webhook(server)) as call:
        call.speak(no)
        await call.ended()
        assert call.close_code == 1000
        assert call.played
        assert call.unplayed_bytes == 0, "the stream was closed before the last word was played"
        assert await carrier.outcome(http, webhook(server), call) == HUNG_UP


@pytest.mark.virtual_time
async def test_the_end_of_a_call_waits_for_the_last_mark(
    server: Any, carrier: FakeCarrier, http: aiohttp.ClientSession, no: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voicepipe.server.phone.socket.LAST_MARK_S", 30.0)  # on a slow machine, too
    server.vendor.llm.cue(LlmCue(before_calls=tokens("Goodbye, and thank you."), calls=END))
    async with carrier.calling(http, webhook(server)) as call:
        call.speak(no)
        await call.until(lambda: bool(call.played) and 0 < call.unplayed_bytes <= 5 * FRAME_BYTES)
        call.stall(20)
        await call.ended()
        assert call.unplayed_bytes == 0, "the stream was closed before the last word was played"


@pytest.mark.virtual_time
async def test_a_carrier_that_never_returns_the_last_mark_ends_no_later_than_its_limit(
    server: Any, carrier: FakeCarrier, http: aiohttp.ClientSession, no: bytes
) -> None:
    server.vendor.llm.cue(LlmCue(before_calls=tokens("Goodbye, and thank you."), calls=END))
    async with carrier.calling(http, webhook(server)) as call:
        call.speak(no)
        await call.until(lambda: bool(call.played) and 0 < call.unplayed_bytes <= 5 * FRAME_BYTES)
        call.stall(100_000)
        await call.ended()
        assert call.close_code == 1000


@pytest.mark.virtual_time
async def test_a_call_is_transferred_after_the_announcement(
    server: Any, carrier: FakeCarrier, http: aiohttp.ClientSession, no: bytes
) -> None:
    transfer = CallCue("transfer_call", ('{"to":"sales"}',), "c1")
    server.vendor.llm.cue(LlmCue(before_calls=tokens("I connect you with sales."), calls=(transfer,)))
    async with carrier.calling(http, webhook(server)) as call:
        call.speak(no)
        await call.ended()
        assert call.unplayed_bytes == 0
        assert await carrier.outcome(http, webhook(server), call) == "+4930999"
    await eventually(lambda: _counted(server, "transferred", 1))


async def test_the_agent_presses_keys_and_the_conversation_goes_on(
    server: Any, carrier: FakeCarrier, http: aiohttp.ClientSession, no: bytes
) -> None:
    press = CallCue("send_dtmf", ('{"digits":"4711#"}',), "c1")
    server.vendor.llm.cue(LlmCue(calls=(press,)))
    async with carrier.calling(http, webhook(server)) as call:
        call.speak(no)
        assert await carrier.pressed(call) == "4711#"
        await played(call)
        result = server.vendor.llm.received[-1].question["messages"][-1]["content"]
        assert result == "The keys 4711# are pressed. Wait for what follows."
        assert call.close_code is None


async def test_a_webhook_with_a_wrong_signature_is_refused(
    server: Any, carrier: FakeCarrier, http: aiohttp.ClientSession
) -> None:
    statuses = await carrier.forged(http, webhook(server))
    assert set(statuses) == {403}
    assert await metric(server, "unsigned") == len(statuses)


@pytest.mark.virtual_time
async def test_garbage_is_counted_and_the_call_goes_on(
    server: Any, carrier: FakeCarrier, http: aiohttp.ClientSession, no: bytes
) -> None:
    async with carrier.calling(http, webhook(server)) as call:
        for message in carrier.garbage:
            await call.send_raw(message)
        call.speak(no)
        await played(call)
    async with http.get(f"{server.url}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    assert f"voicepipe_phone_messages_invalid_total {len(carrier.garbage)}.0" in lines


@pytest.mark.virtual_time
async def test_a_connection_that_is_cut_ends_the_session(
    server: Any, carrier: FakeCarrier, http: aiohttp.ClientSession, no: bytes
) -> None:
    server.vendor.llm.cue(LlmCue(tokens=tokens(LONG)))
    async with carrier.calling(http, webhook(server)) as call:
        call.speak(no)
        await call.until(lambda: len(call.played) > 8_000)
        call.cut()
    turn, *_ = await turns(server, 1)
    assert turn["outcome"] in ("abandoned", "completed")
    await eventually(lambda: _no_sessions(server))


async def _no_sessions(server: Any) -> bool | None:
    async with aiohttp.ClientSession() as session, session.get(f"{server.url}/metrics") as answer:
        return "voicepipe_sessions 0.0" in (await answer.text()).splitlines() or None


async def _counted(server: Any, result: str, n: int) -> bool | None:
    return await metric(server, result) == n or None


def _by_keys(question: Any) -> LlmCue:
    """Return the answer to keys: every fourth is long, and every fourth a transfer."""
    said = str(question["messages"][-1]["content"])
    n = int(said.removeprefix("[DTMF: ").removesuffix("#]")) if said.startswith("[DTMF: ") else 0
    if n % 4 == 2:
        return LlmCue(tokens=tokens(LONG))
    transfer = CallCue("transfer_call", ('{"to":"sales"}',), "c1")
    return LlmCue(tokens=tokens("It is noon."), calls=(transfer,) if n % 4 == 3 else ())


@pytest.mark.virtual_time
async def test_twenty_calls_at_once_with_speech_keys_interruptions_and_transfers(
    server: Any, carrier: FakeCarrier, http: aiohttp.ClientSession, no: bytes
) -> None:
    server.vendor.llm.usual = _by_keys

    async def talk(n: int) -> str:
        async with carrier.calling(http, webhook(server), n=n) as call:
            if n % 4 == 0:
                call.speak(no)
            else:
                await call.press(f"{n}#")
            if n % 4 == 2:
                await call.until(lambda: len(call.played) > 8_000)
                call.speak(no + no)
                await call.until(lambda: bool(call.cleared))
            if n % 4 == 3:
                await call.ended()
                return await carrier.outcome(http, webhook(server), call)
            await played(call)
            await call.hang_up()
            return ""

    outcomes = await asyncio.gather(*(talk(n) for n in range(20)))
    assert outcomes == ["", "", "", "+4930999"] * 5
    numbers = {user_number(n) for n in range(20)}

    async def all_ended() -> list[dict[str, Any]] | None:
        found = await turns(server, 20)  # who interrupts has two
        return found if {each["user"] for each in found} == numbers else None

    found = await eventually(all_ended)
    assert sum(each["outcome"] == "interrupted" for each in found) == 5
    assert await metric(server, "answered") == 20
    await eventually(lambda: _counted(server, "transferred", 5))
    digits = {each.question["messages"][-1]["content"] for each in server.vendor.llm.received}
    assert {f"[DTMF: {n}#]" for n in range(20) if n % 4} <= digits


async def test_the_server_calls_a_number_and_a_machine_or_a_person_answers(
    server: Any, carrier: FakeCarrier, http: aiohttp.ClientSession
) -> None:
    body = {"to": "+4915112345678", "agent": "default"}
    async with http.post(f"{webhook(server)}/calls", json=body) as answer:
        assert answer.status == 201
        assert (await answer.json())["id"]
    assert await metric(server, "dialed") == 1
    assert await carrier.answered_by(http, webhook(server), body["to"], machine=False)
    assert not await carrier.answered_by(http, webhook(server), body["to"], machine=True)
    assert await metric(server, "voicemail") == carrier.reports_machines


async def test_a_call_that_the_carrier_does_not_take_is_a_bad_gateway(
    server: Any, carrier: FakeCarrier, http: aiohttp.ClientSession
) -> None:
    for refused in (web.Response(status=422), web.Response(text="no json")):
        carrier.api.answer = refused
        async with http.post(f"{webhook(server)}/calls", json={"to": "+4915112345678"}) as answer:
            assert answer.status == 502
    assert await metric(server, "dialed") == 0

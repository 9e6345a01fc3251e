"""Keys that the agent presses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from tests.phone.carriers import FakeTelnyx, FakeTwilio, FakeVonage, keys_in, metric, played, turns, webhook
from voicepipe.phone.calls import PhoneCall, PhoneCalls
from voicepipe.phone.dtmf_tones import TONE_MS, tones
from voicepipe.phone.send_dtmf import SendDtmf
from voicepipe.ports.server_tool import ToolError, ToolSession
from voicepipe.testing.fakes.cues import CallCue, Hold, LlmCue, tokens

SESSION = ToolSession(session_id="sess_1", project="default", agent="default")
TOOLS: dict[str, object] = {"agents.default.tools": "send_dtmf"}
PRESS = LlmCue(calls=(CallCue("send_dtmf", ('{"digits":"12"}',), "c1"),))


def test_each_key_has_its_tone_and_a_pause() -> None:
    keys = "1234567890*#ABCD"
    assert keys_in(tones(keys)) == keys
    assert keys_in(tones("11")) == "11"
    assert len(tones("1")) == 2 * TONE_MS * 8


@pytest.mark.parametrize("arguments", ["", "[]", '{"digits":7}', '{"digits":""}', '{"digits":"12 34"}'])
async def test_wrong_keys_are_named(arguments: str) -> None:
    calls, pressed = PhoneCalls(), []

    async def send_dtmf(digits: str) -> None:
        pressed.append(digits)

    call = PhoneCall(transfer_to={}, transfer=send_dtmf, send_dtmf=send_dtmf)
    with calls.running("sess_1", call), pytest.raises(ToolError, match="Expected an object with `digits`"):
        await SendDtmf(calls).call(arguments, SESSION)
    assert pressed == []


async def test_keys_need_a_phone_call() -> None:
    with pytest.raises(ToolError, match="no phone call"):
        await SendDtmf(PhoneCalls()).call('{"digits":"1"}', SESSION)


@pytest.fixture
async def telnyx() -> AsyncIterator[FakeTelnyx]:
    fake = FakeTelnyx()
    async with fake.opened():
        yield fake


@pytest.mark.slow  # a call takes as long as what is said in it
async def test_keys_that_the_carrier_does_not_take_are_an_error_for_the_agent(
    fake_server: Any, telnyx: FakeTelnyx, http: aiohttp.ClientSession, no: bytes
) -> None:
    telnyx.api.refused = "send_dtmf"
    async with fake_server(TOOLS | telnyx.settings) as server, telnyx.calling(http, webhook(server)) as call:
        server.vendor.llm.cue(PRESS, LlmCue(tokens=tokens("That did not work.")))
        call.speak(no)
        await played(call)
        assert "did not take them" in server.vendor.llm.received[-1].question["messages"][-1]["content"]
        assert await metric(server, "failed") == 1


@pytest.mark.slow  # a call takes as long as what is said in it
async def test_keys_at_vonage_need_the_private_key(fake_server: Any, http: aiohttp.ClientSession, no: bytes) -> None:
    vonage = FakeVonage()
    settings = {
        key: vonage.settings[key] for key in ("phone.main.carrier", "phone.main.secret", "phone.main.public_url")
    }
    async with fake_server(TOOLS | settings) as server, vonage.calling(http, webhook(server)) as call:
        server.vendor.llm.cue(PRESS, LlmCue(tokens=tokens("That did not work.")))
        call.speak(no)
        await played(call)
        assert "can't be pressed on this line" in server.vendor.llm.received[-1].question["messages"][-1]["content"]


@pytest.mark.slow  # a call takes as long as what is said in it
async def test_tones_are_no_part_of_the_answer_behind_them(
    fake_server: Any, http: aiohttp.ClientSession, no: bytes
) -> None:
    twilio = FakeTwilio()
    async with fake_server(TOOLS | twilio.settings) as server, twilio.calling(http, webhook(server)) as call:
        server.vendor.llm.cue(PRESS, LlmCue(tokens=tokens("Now I wait.")))
        call.speak(no)
        assert await twilio.pressed(call) == "12"
        await call.until(lambda: call.n_marks > 1)
        await played(call)
        await call.hang_up()
        turn, *_ = await turns(server, 1)
    assert turn["latency_source"] == "reported"
    assert turn["carrier_estimated_ms"] is None, "the answer waited for the tones, which is no way to the carrier"


@pytest.mark.slow  # a call takes as long as what is said in it
async def test_a_key_of_the_user_stops_the_tones_of_the_agent(
    fake_server: Any, http: aiohttp.ClientSession, no: bytes
) -> None:
    twilio, hold = FakeTwilio(), Hold()
    press = CallCue("send_dtmf", (f'{{"digits":"{"7" * 32}"}}',), "c1")
    async with fake_server(TOOLS | twilio.settings) as server, twilio.calling(http, webhook(server)) as call:
        server.vendor.llm.cue(LlmCue(calls=(press,)), LlmCue(tokens=tokens("Too late."), hold=hold))
        call.speak(no)
        await call.until(lambda: bool(call.played))
        await call.press("5#")
        await call.until(lambda: bool(call.cleared))
        assert call.cleared[0] > 0
        await call.until(lambda: len(server.vendor.llm.received) > 2)
        assert server.vendor.llm.received[-1].question["messages"][-1]["content"] == "[DTMF: 5#]"
        hold.release.set()

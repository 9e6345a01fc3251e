"""Calls of a fake Twilio to a whole server, on real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.phone.carriers import keys_received, metric, played, turns, webhook
from voicepipe.auth.apikeys import ApiKeys
from voicepipe.clock import unix_s
from voicepipe.phone.calls import PhoneCall, PhoneCalls
from voicepipe.phone.transfer_call import TransferCall
from voicepipe.ports.server_tool import ToolError, ToolSession
from voicepipe.testing.fakes.cues import CallCue, Hold, LlmCue, tokens
from voicepipe.testing.fakes.twilio import ACCOUNT, TwilioApi, TwilioCall, calling, post
from voicepipe.testing.user import calling as calling_by_websocket
from voicepipe.testing.waiting import eventually

pytestmark = pytest.mark.slow  # a call takes as long as what is said in it

SECRET = "twilio-auth-token"
LONG = "One two three four five six seven eight nine ten. " * 12
SETTINGS: dict[str, object] = {
    "phone.main.carrier": "twilio",
    "phone.main.secret": SECRET,
    "phone.main.transfer_to.sales": "+4930999",
    "agents.default.tools": "end_call, transfer_call",
    "records.text": "always",
}


@pytest.fixture
async def server(fake_server: Any) -> AsyncIterator[Any]:
    async with fake_server(SETTINGS) as opened:
        opened.vendor.llm.usual = LlmCue(tokens=tokens("It is noon."))
        yield opened


async def test_keys_without_a_hash_are_sent_after_a_pause(server: Any, http: aiohttp.ClientSession) -> None:
    async with calling(http, webhook(server), SECRET) as call:
        await call.press("42")
        await played(call)
        assert server.vendor.llm.received[-1].question["messages"][-1]["content"] == "[DTMF: 42]"


async def test_a_transfer_to_an_unknown_name_does_not_end_the_call(
    server: Any, http: aiohttp.ClientSession, no: bytes
) -> None:
    wrong = CallCue("transfer_call", ('{"to":"nowhere"}',), "c1")
    server.vendor.llm.cue(LlmCue(calls=(wrong,)), LlmCue(tokens=tokens("There is nobody there.")))
    async with calling(http, webhook(server), SECRET) as call:
        call.speak(no)
        await played(call)
        result = server.vendor.llm.received[-1].question["messages"][-1]["content"]
        assert "Expected one of sales" in result
        assert call.close_code is None


async def test_a_webhook_of_an_unknown_line_or_without_a_call_is_not_found(
    server: Any, http: aiohttp.ClientSession
) -> None:
    for url, fields in ((f"{server.url}/v1/phone/other", {"CallSid": "CA1"}), (webhook(server), {"From": "+1"})):
        status, _ = await post(http, url, fields, SECRET)
        assert status == 404


async def test_a_media_stream_needs_a_call_that_was_announced_and_opens_once(
    server: Any, http: aiohttp.ClientSession
) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await http.ws_connect(f"{webhook(server)}/stream/guessed")
    assert refused.value.status == 401
    status, twiml = await post(http, webhook(server), {"CallSid": "CA1"}, SECRET)
    stream = twiml.find("Connect/Stream")
    assert stream is not None
    async with http.ws_connect(stream.attrib["url"]):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await http.ws_connect(stream.attrib["url"])
        assert refused.value.status == 401
    assert status == 200


async def test_a_stream_of_another_call_than_the_announced_one_is_closed(
    server: Any, http: aiohttp.ClientSession
) -> None:
    _, twiml = await post(http, webhook(server), {"CallSid": "CA1"}, SECRET)
    stream = twiml.find("Connect/Stream")
    assert stream is not None
    async with http.ws_connect(stream.attrib["url"]) as websocket:
        other = TwilioCall(websocket, "CA2", "")
        await other.start()
        assert (await websocket.receive()).data == 1008
    assert await metric(server, "answered") == 0


async def test_a_full_server_answers_with_the_busy_tone(fake_server: Any, http: aiohttp.ClientSession) -> None:
    async with (
        fake_server(SETTINGS | {"server.max_sessions": 1}) as server,
        calling(http, webhook(server), SECRET) as call,
    ):
        await call.send("media", media={"payload": "////"})
        await eventually(lambda: _answered(server))
        status, twiml = await post(http, webhook(server), {"CallSid": "CA2"}, SECRET)
        assert status == 200
        assert twiml.find("Reject") is not None
        assert await metric(server, "refused") == 1


async def _answered(server: Any) -> bool | None:
    return await metric(server, "answered") == 1 or None


async def test_the_tool_for_transfers_needs_a_phone_call(server: Any) -> None:
    transfer = CallCue("transfer_call", ('{"to":"sales"}',), "c1")
    server.vendor.llm.cue(LlmCue(calls=(transfer,)), LlmCue(tokens=tokens("I can't do that here.")))
    async with calling_by_websocket(server.url) as user:
        await user.prompt("Give me a person.")
        result = server.vendor.llm.received[-1].question["messages"][-1]["content"]
        assert "no phone call" in result


@pytest.fixture
async def api() -> TwilioApi:
    return TwilioApi(SECRET)


@pytest.fixture
async def dialing(fake_server: Any, api: TwilioApi) -> AsyncIterator[Any]:
    async with api.serving() as address:
        more = {"phone.main.account": ACCOUNT, "phone.main.number": "+493012345", "phone.main.api_url": address}
        async with fake_server(SETTINGS | more) as server:
            yield server


async def test_the_server_calls_a_number_and_the_agent_talks(
    dialing: Any, api: TwilioApi, http: aiohttp.ClientSession, no: bytes
) -> None:
    body = {"to": "+4915112345678", "agent": "default"}
    async with http.post(f"{webhook(dialing)}/calls", json=body) as answer:
        assert answer.status == 201
        call_sid = (await answer.json())["id"]
    (dialed,) = api.dialed
    assert (dialed["To"], dialed["From"], dialed["MachineDetection"]) == ("+4915112345678", "+493012345", "Enable")
    assert dialed["Url"].startswith(f"{webhook(dialing)}?dial=")
    picked_up = {"Direction": "outbound-api", "AnsweredBy": "human", "number": dialed["From"], "to": dialed["To"]}
    async with calling(http, dialed["Url"], SECRET, call_sid=call_sid, **picked_up) as call:
        call.speak(no)
        await played(call)
        await call.hang_up()
    turn, *_ = await turns(dialing, 1)
    assert turn["user"] == "+4915112345678"
    assert await metric(dialing, "dialed") == 1


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("main", {"to": "015112345"}, 400),
        ("main", {"to": "+4915112345678", "agent": "other"}, 404),
        ("other", {"to": "+4915112345678"}, 404),
        ("main", {"to": "+4915112345678"}, 502),
    ],
)
async def test_a_call_that_cannot_be_made_is_refused(
    dialing: Any, api: TwilioApi, http: aiohttp.ClientSession, path: str, body: dict[str, str], status: int
) -> None:
    api.answer = web.json_response({"code": 21211, "message": "Invalid 'To'", "status": 400}, status=400)
    async with http.post(f"{dialing.url}/v1/phone/{path}/calls", json=body) as answer:
        assert answer.status == status


async def test_a_line_without_a_number_makes_no_calls(server: Any, http: aiohttp.ClientSession) -> None:
    async with http.post(f"{webhook(server)}/calls", json={"to": "+4915112345678"}) as answer:
        assert answer.status == 400


async def test_a_client_secret_and_another_project_make_no_calls(
    dialing: Any, api: TwilioApi, http: aiohttp.ClientSession
) -> None:
    async with http.post(f"{dialing.url}/v1/realtime/client_secrets") as minted:
        secret = (await minted.json())["value"]
    other = ApiKeys(dialing.folder / "data").create("acme", now_s=unix_s()).text
    for key in (secret, other):
        headers = {"Authorization": f"Bearer {key}"}
        async with http.post(f"{webhook(dialing)}/calls", json={"to": "+4915112345678"}, headers=headers) as answer:
            assert answer.status == 403
    assert api.dialed == []


async def test_keys_pressed_before_the_agent_speaks_stop_what_it_is_about_to_say(
    server: Any, http: aiohttp.ClientSession, no: bytes
) -> None:
    hold = Hold()
    server.vendor.llm.cue(LlmCue(tokens=tokens("Too late."), hold=hold))
    async with calling(http, webhook(server), SECRET) as call:
        call.speak(no)
        await call.until(lambda: len(server.vendor.llm.received) > 0)
        await call.press("7#")
        await call.until(lambda: len(server.vendor.llm.received) > 1)
        assert server.vendor.llm.received[-1].question["messages"][-1]["content"] == "[DTMF: 7#]"
        await played(call)
    hold.release.set()


async def test_an_answer_of_the_api_without_a_call_is_a_bad_gateway(
    dialing: Any, api: TwilioApi, http: aiohttp.ClientSession
) -> None:
    api.answer = web.Response(text="no json", status=201)
    async with http.post(f"{webhook(dialing)}/calls", json={"to": "+4915112345678"}) as answer:
        assert answer.status == 502
    assert await metric(dialing, "dialed") == 0


async def test_an_api_that_cannot_be_reached_is_a_bad_gateway(fake_server: Any, http: aiohttp.ClientSession) -> None:
    away = {
        "phone.main.account": ACCOUNT,
        "phone.main.number": "+493012345",
        "phone.main.api_url": "http://127.0.0.1:1",
    }
    async with (
        fake_server(SETTINGS | away) as server,
        http.post(f"{webhook(server)}/calls", json={"to": "+4915112345678"}) as answer,
    ):
        assert answer.status == 502


async def test_an_agent_may_talk_to_a_machine(fake_server: Any, http: aiohttp.ClientSession, no: bytes) -> None:
    async with fake_server(SETTINGS | {"phone.main.voicemail": "talk"}) as server:
        machine = {"Direction": "outbound-api", "AnsweredBy": "machine_end_beep"}
        async with calling(http, webhook(server), SECRET, **machine) as call:
            call.speak(no)
            await played(call)
        assert await metric(server, "voicemail") == 1


async def test_a_server_that_has_filled_since_the_webhook_closes_the_stream(
    fake_server: Any, http: aiohttp.ClientSession
) -> None:
    async with fake_server(SETTINGS | {"server.max_sessions": 1}) as server:
        _, twiml = await post(http, webhook(server), {"CallSid": "CA2"}, SECRET)
        stream = twiml.find("Connect/Stream")
        assert stream is not None
        async with calling(http, webhook(server), SECRET):
            await eventually(lambda: _answered(server))
            async with http.ws_connect(stream.attrib["url"]) as websocket:
                other = TwilioCall(websocket, "CA2", "")
                await other.start()
                assert (await websocket.receive()).data == 1013
        assert await metric(server, "refused") == 1


@pytest.mark.parametrize("arguments", ["", "[]", '{"to":7}'])
async def test_wrong_arguments_of_a_transfer_are_named(arguments: str) -> None:
    calls = PhoneCalls()
    session = ToolSession(session_id="sess_1", project="default", agent="default")
    transferred: list[str] = []

    async def transfer(number: str) -> None:
        transferred.append(number)

    call = PhoneCall(transfer_to={"sales": "+49"}, transfer=transfer, send_dtmf=transfer)
    with calls.running("sess_1", call), pytest.raises(ToolError, match="Expected an object with `to`"):
        await TransferCall(calls, ["sales"]).call(arguments, session)
    assert transferred == []


async def test_a_voice_does_not_cut_the_keys_that_the_agent_presses(
    fake_server: Any, http: aiohttp.ClientSession, no: bytes
) -> None:
    """A telephone system talks while its menu waits for keys."""
    press = CallCue("send_dtmf", ('{"digits":"471108159#"}',), "c1")
    async with (
        fake_server(SETTINGS | {"agents.default.tools": "send_dtmf"}) as server,
        calling(http, webhook(server), SECRET) as call,
    ):
        server.vendor.llm.cue(LlmCue(calls=(press,)))
        server.vendor.llm.usual = LlmCue(tokens=tokens("Thank you."))
        call.speak(no)
        await call.until(lambda: bool(call.played))
        call.speak(no + no)
        assert await keys_received(call) == "471108159#"
        assert call.cleared == []

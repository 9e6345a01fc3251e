"""Calls of a fake Twilio to a whole server, on real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from voicepipe.audio import g711
from voicepipe.audio.files import read_sound
from voicepipe.auth.apikeys import ApiKeys
from voicepipe.clock import unix_s
from voicepipe.phone.calls import PhoneCall, PhoneCalls
from voicepipe.phone.transfer_call import TransferCall
from voicepipe.ports.server_tool import ToolError, ToolSession
from voicepipe.testing.fakes.cues import CallCue, Hold, LlmCue, SttCue, tokens
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
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
async def server(fake_server: Any) -> AsyncIterator[Any]:
    async with fake_server(SETTINGS) as opened:
        opened.vendor.llm.usual = LlmCue(tokens=tokens("It is noon."))
        yield opened


@pytest.fixture
def no(question: Path) -> bytes:
    """Return a spoken "no", mu-law at 8 kHz."""
    return g711.encode_mulaw(read_sound(question, 8_000))


def webhook(server: Any) -> str:
    return f"{server.url}/v1/phone/main"


async def turns(server: Any, n: int) -> list[dict[str, Any]]:
    """Return the records of at least `n` ended turns, the oldest first."""
    async with aiohttp.ClientSession() as session:

        async def read() -> list[dict[str, Any]] | None:
            async with session.get(f"{server.url}/v1/turns") as answer:
                listed: list[dict[str, Any]] = (await answer.json())["data"]
            found = [each for each in reversed(listed) if each["outcome"] is not None]
            return found if len(found) >= n else None

        return await eventually(read)


async def metric(server: Any, result: str) -> float:
    """Return how many calls had this result."""
    async with aiohttp.ClientSession() as session, session.get(f"{server.url}/metrics") as answer:
        line = f'voicepipe_phone_calls_total{{result="{result}"}} '
        return next(float(each[len(line) :]) for each in (await answer.text()).splitlines() if each.startswith(line))


async def played(call: TwilioCall) -> None:
    """Wait until an answer was played to its end."""
    await call.until(lambda: bool(call.played) and not call.unplayed_bytes)


async def test_a_call_is_answered_and_what_was_played_is_reported_by_marks(
    server: Any, http: aiohttp.ClientSession, no: bytes
) -> None:
    async with calling(http, webhook(server), SECRET) as call:
        call.say(no)
        await played(call)
        assert call.n_marks > 0
        await call.hang_up()
    turn, *_ = await turns(server, 1)
    assert turn["outcome"] == "completed"
    assert turn["latency_source"] == "reported"
    assert turn["user"] == "+4915112345678"


async def test_speech_over_the_agent_clears_what_the_carrier_has_not_played(
    server: Any, http: aiohttp.ClientSession, no: bytes
) -> None:
    server.vendor.llm.cue(LlmCue(tokens=tokens(LONG)))
    server.vendor.stt.cue(SttCue(text="Tell me a lot."), SttCue(text="Stop, that is enough now."))
    async with calling(http, webhook(server), SECRET) as call:
        call.say(no)
        await call.until(lambda: len(call.played) > 8_000)
        call.say(no + no)
        await call.until(lambda: bool(call.cleared))
        assert call.cleared[0] > 0
        await call.hang_up()
    first, *_ = await turns(server, 1)
    assert first["outcome"] == "interrupted"
    assert first["latency_source"] == "reported"


async def test_pressed_keys_are_text_for_the_agent_and_stop_it(
    server: Any, http: aiohttp.ClientSession, no: bytes
) -> None:
    server.vendor.llm.cue(LlmCue(tokens=tokens(LONG)))
    async with calling(http, webhook(server), SECRET) as call:
        call.say(no)
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


async def test_keys_without_a_hash_are_sent_after_a_pause(server: Any, http: aiohttp.ClientSession) -> None:
    async with calling(http, webhook(server), SECRET) as call:
        await call.press("42")
        await played(call)
        assert server.vendor.llm.received[-1].question["messages"][-1]["content"] == "[DTMF: 42]"


async def test_the_agent_hangs_up_after_its_last_word(server: Any, http: aiohttp.ClientSession, no: bytes) -> None:
    server.vendor.llm.cue(LlmCue(tokens=tokens("Goodbye, and thank you."), calls=(CallCue("end_call", ("{}",), "c1"),)))
    async with calling(http, webhook(server), SECRET) as call:
        call.say(no)
        await call.ended()
        assert call.close_code == 1000
        assert call.played
        assert call.unplayed_bytes == 0, "the stream was closed before the last word was played"
        assert (await call.next(http, SECRET)).find("Hangup") is not None


async def test_a_call_is_transferred_after_the_announcement(
    server: Any, http: aiohttp.ClientSession, no: bytes
) -> None:
    transfer = CallCue("transfer_call", ('{"to":"sales"}',), "c1")
    server.vendor.llm.cue(LlmCue(tokens=tokens("I connect you with sales."), calls=(transfer,)))
    async with calling(http, webhook(server), SECRET) as call:
        call.say(no)
        await call.ended()
        assert call.unplayed_bytes == 0
        dial = (await call.next(http, SECRET)).find("Dial")
        assert dial is not None
        assert dial.text == "+4930999"
    assert await metric(server, "transferred") == 1


async def test_a_transfer_to_an_unknown_name_does_not_end_the_call(
    server: Any, http: aiohttp.ClientSession, no: bytes
) -> None:
    wrong = CallCue("transfer_call", ('{"to":"nowhere"}',), "c1")
    server.vendor.llm.cue(LlmCue(calls=(wrong,)), LlmCue(tokens=tokens("There is nobody there.")))
    async with calling(http, webhook(server), SECRET) as call:
        call.say(no)
        await played(call)
        result = server.vendor.llm.received[-1].question["messages"][-1]["content"]
        assert "Expected one of sales" in result
        assert call.close_code is None


async def test_a_webhook_with_a_wrong_signature_is_refused(server: Any, http: aiohttp.ClientSession) -> None:
    fields = {"AccountSid": ACCOUNT, "CallSid": "CA1", "From": "+1", "To": "+2"}
    for path in ("", "/next"):
        status, _ = await post(http, webhook(server) + path, fields, "another secret")
        assert status == 403
    assert await metric(server, "unsigned") == 2


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
    async with http.ws_connect(stream.attrib["url"]) as line:
        other = TwilioCall(line, "CA2", "")
        await other.start()
        assert (await line.receive()).data == 1008
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


async def test_garbage_is_counted_and_the_call_goes_on(server: Any, http: aiohttp.ClientSession, no: bytes) -> None:
    garbage = ("", "no json", "[]", '{"event":"media"}', '{"event":"media","media":{"payload":"%"}}', b"\xff\x00")
    more = ('{"event":"dtmf","dtmf":{"digit":"99"}}', '{"event":"mark","mark":{"name":"vp999"}}', "[" * 5_000)
    async with calling(http, webhook(server), SECRET) as call:
        for message in (*garbage, *more):
            await call.send_raw(message)
        call.say(no)
        await played(call)
    async with http.get(f"{server.url}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    assert "voicepipe_phone_messages_unread_total 8.0" in lines


async def test_a_connection_that_is_cut_ends_the_session(server: Any, http: aiohttp.ClientSession, no: bytes) -> None:
    server.vendor.llm.cue(LlmCue(tokens=tokens(LONG)))
    async with calling(http, webhook(server), SECRET) as call:
        call.say(no)
        await call.until(lambda: len(call.played) > 8_000)
        call.cut()
    turn, *_ = await turns(server, 1)
    assert turn["outcome"] in ("abandoned", "completed")
    await eventually(lambda: _no_sessions(server))


async def _no_sessions(server: Any) -> bool | None:
    async with aiohttp.ClientSession() as session, session.get(f"{server.url}/metrics") as answer:
        return "voicepipe_sessions 0.0" in (await answer.text()).splitlines() or None


async def test_twenty_calls_at_once_each_with_its_own_script(
    server: Any, http: aiohttp.ClientSession, no: bytes
) -> None:
    async def talk(n: int) -> TwilioCall:
        async with calling(http, webhook(server), SECRET, call_sid=f"CA{n:032}", number=f"+4915{n:08}") as call:
            if n % 2:
                await call.press(f"{n}#")
            else:
                call.say(no)
            await played(call)
            await call.hang_up()
            return call

    calls = await asyncio.gather(*(talk(n) for n in range(20)))
    assert len({call.stream_sid for call in calls}) == 20
    found = await turns(server, 20)
    assert len(found) == 20
    assert {each["user"] for each in found} == {f"+4915{n:08}" for n in range(20)}
    assert await metric(server, "answered") == 20
    digits = {each.question["messages"][-1]["content"] for each in server.vendor.llm.received}
    assert {f"[DTMF: {n}#]" for n in range(1, 20, 2)} <= digits


async def test_the_tool_for_transfers_needs_a_phone_call(server: Any) -> None:
    transfer = CallCue("transfer_call", ('{"to":"sales"}',), "c1")
    server.vendor.llm.cue(LlmCue(calls=(transfer,)), LlmCue(tokens=tokens("I can't do that here.")))
    async with calling_by_websocket(server.url) as user:
        await user.prompt("Give me a person.")
        result = server.vendor.llm.received[-1].question["messages"][-1]["content"]
        assert "no phone call" in result


@pytest.fixture
async def api() -> TwilioApi:
    return TwilioApi()


@pytest.fixture
async def dialing(fake_server: Any, api: TwilioApi) -> AsyncIterator[Any]:
    async with api.serving(SECRET) as address:
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
    assert dialed["Url"] == f"{webhook(dialing)}?agent=default"
    picked_up = {"Direction": "outbound-api", "AnsweredBy": "human", "number": dialed["From"], "to": dialed["To"]}
    async with calling(http, dialed["Url"], SECRET, call_sid=call_sid, **picked_up) as call:
        call.say(no)
        await played(call)
        await call.hang_up()
    turn, *_ = await turns(dialing, 1)
    assert turn["user"] == "+4915112345678"
    assert await metric(dialing, "dialed") == 1


async def test_a_call_that_a_machine_answers_ends(dialing: Any, http: aiohttp.ClientSession) -> None:
    fields = {"CallSid": "CA1", "Direction": "outbound-api", "AnsweredBy": "machine_start", "From": "+1", "To": "+2"}
    _, twiml = await post(http, webhook(dialing), fields, SECRET)
    assert twiml.find("Hangup") is not None
    assert await metric(dialing, "voicemail") == 1


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
        call.say(no)
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
            call.say(no)
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
            async with http.ws_connect(stream.attrib["url"]) as line:
                other = TwilioCall(line, "CA2", "")
                await other.start()
                assert (await line.receive()).data == 1013
        assert await metric(server, "refused") == 1


@pytest.mark.parametrize("arguments", ["", "[]", '{"to":7}'])
async def test_wrong_arguments_of_a_transfer_are_named(arguments: str) -> None:
    calls = PhoneCalls()
    session = ToolSession(session_id="sess_1", project="default", agent="default")
    transferred: list[str] = []

    async def transfer(number: str) -> None:
        transferred.append(number)

    call = PhoneCall(transfer_to={"sales": "+49"}, transfer=transfer)
    with calls.running("sess_1", call), pytest.raises(ToolError, match="Expected an object with `to`"):
        await TransferCall(calls, ["sales"]).call(arguments, session)
    assert transferred == []

"""Telnyx's wire: its signature, its messages, its commands."""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

import pytest

from voicepipe.audio.g711 import decode_alaw, encode_mulaw
from voicepipe.phone.carrier import (
    AnnouncedCall,
    AudioReceived,
    CarrierAccount,
    DigitPressed,
    IgnoredMessage,
    IgnoredWebhook,
    MarkPlayed,
    StreamStarted,
    StreamStopped,
    WebhookRequest,
)
from voicepipe.phone.telnyx import MAX_OUT_OF_ORDER, Telnyx, TelnyxSerializer

ACCOUNT = CarrierAccount(secret=base64.b64encode(bytes(32)).decode(), api_key="KEY", account_id="app")


def started(encoding: str = "PCMU") -> TelnyxSerializer:
    serializer = TelnyxSerializer()
    start = {"call_control_id": "v3:1", "media_format": {"encoding": encoding, "sample_rate": 8000}}
    assert serializer.read(json.dumps({"event": "start", "stream_id": "s", "start": start})) == StreamStarted(
        call_id="v3:1"
    )
    return serializer


def media(audio: bytes, chunk: int | str | None = None, track: str = "inbound") -> str:
    number = {} if chunk is None else {"chunk": chunk}
    payload = base64.b64encode(audio).decode()
    return json.dumps({"event": "media", "stream_id": "s", "media": {"track": track, "payload": payload, **number}})


@pytest.mark.parametrize(
    ("message", "event"),
    [
        ({"event": "connected", "version": "1.0.0"}, IgnoredMessage()),
        ({"event": "dtmf", "stream_id": "s", "occurred_at": "2026-11-23", "dtmf": {"digit": "*"}}, DigitPressed("*")),
        ({"event": "mark", "stream_id": "s", "mark": {"name": "vp1"}}, MarkPlayed("vp1")),
        ({"event": "stop", "stop": {}}, StreamStopped()),
        ({"event": "error", "payload": {"code": 100002, "title": "unknown_error"}}, IgnoredMessage(is_invalid=True)),
        ({"event": "start", "start": {"call_control_id": "v3:1"}}, IgnoredMessage(is_invalid=True)),
        ({"event": "start", "start": {"media_format": {"encoding": "PCMU"}}}, IgnoredMessage(is_invalid=True)),
    ],
)
def test_messages_of_the_stream(message: object, event: object) -> None:
    assert TelnyxSerializer().read(json.dumps(message)) == event


def test_messages_to_the_stream_have_no_id() -> None:
    serializer = started()
    payload = base64.b64encode(b"\xff").decode()
    assert [json.loads(each) for each in serializer.audio(b"\xff")] == [
        {"event": "media", "media": {"payload": payload}}
    ]
    assert [json.loads(each) for each in serializer.mark("m")] == [{"event": "mark", "mark": {"name": "m"}}]
    assert json.loads(serializer.clear()) == {"event": "clear"}


def test_alaw_is_read_as_mulaw() -> None:
    alaw = bytes(range(256))
    assert started("PCMA").read(media(alaw)) == AudioReceived(encode_mulaw(decode_alaw(alaw)))


def test_the_order_of_the_audio_is_restored() -> None:
    serializer = started()
    assert serializer.read(media(b"2", "2")) == AudioReceived(b"2")
    assert serializer.read(media(b"4", "4")) == IgnoredMessage()
    assert serializer.read(media(b"5", "5")) == IgnoredMessage()
    assert serializer.read(media(b"3", "3")) == AudioReceived(b"345")
    assert serializer.read(media(b"3", "3")) == IgnoredMessage()
    assert serializer.read(media(b"6", 6)) == AudioReceived(b"6")
    assert serializer.read(media(b"x", 7, track="outbound")) == IgnoredMessage()
    assert serializer.read(media(b"7", "seven")) == IgnoredMessage(is_invalid=True)


def test_a_lost_piece_is_not_waited_for_forever() -> None:
    serializer = started()
    serializer.read(media(b"\x00", 1))
    late = [serializer.read(media(bytes((n,)), n)) for n in range(3, 3 + MAX_OUT_OF_ORDER)]
    assert late == [IgnoredMessage()] * MAX_OUT_OF_ORDER
    last = 3 + MAX_OUT_OF_ORDER
    assert serializer.read(media(bytes((last,)), last)) == AudioReceived(bytes(range(3, last + 1)))
    assert serializer.read(media(b"\x02", 2)) == IgnoredMessage()


def event_of(event_type: str, **payload: Any) -> object:
    body = json.dumps({"data": {"event_type": event_type, "payload": payload}}).encode()
    return Telnyx().event(WebhookRequest(url="https://a/", headers={}, body=body))


def test_only_a_call_that_can_be_connected_is_announced() -> None:
    numbers = {"from": "+1", "to": "+2", "call_control_id": "v3:1"}
    incoming = event_of("call.initiated", direction="incoming", **numbers)
    assert incoming == AnnouncedCall(call_id="v3:1", user_number="+1", line_number="+2")
    withheld = event_of("call.initiated", direction="incoming", call_control_id="v3:1", **{"from": "anonymous"})
    assert withheld == AnnouncedCall(call_id="v3:1")
    dialed = AnnouncedCall(call_id="v3:1", user_number="+2", line_number="+1", is_dialed=True)
    assert event_of("call.machine.detection.ended", result="not_sure", **numbers) == dialed
    for other in ("call.answered", "call.hangup", "streaming.started"):
        assert event_of(other, **numbers) == IgnoredWebhook()
    assert event_of("call.initiated", direction="outgoing", **numbers) == IgnoredWebhook()
    assert event_of("call.initiated") is None
    for garbage in (b"", b"[]", b"{}", b"[" * 100_000):
        assert Telnyx().event(WebhookRequest(url="", headers={}, body=garbage)) is None


def test_a_command_is_for_one_call_of_the_account() -> None:
    (request,) = Telnyx().reject("v3:a/../b", ACCOUNT).requests
    assert request.url == "https://api.telnyx.com/v2/calls/v3:a%2F..%2Fb/actions/reject"
    assert request.authorization == "Bearer KEY"
    assert json.loads(request.body) == {"command_id": "voicepipe-reject", "cause": "USER_BUSY"}
    assert "KEY" not in repr(request) + repr(ACCOUNT)


@pytest.mark.parametrize(
    ("secret", "api_key", "why"),
    [("no base64", "KEY", "secret: "), (base64.b64encode(bytes(31)).decode(), "KEY", "secret: "), ("", "", "secret: ")],
)
def test_a_line_without_a_public_key_is_refused(secret: str, api_key: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Telnyx().check(CarrierAccount(secret=secret, api_key=api_key))


def test_signatures_need_the_extra_crypto(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    with pytest.raises(ValueError, match=r"carrier: .*\[crypto\]"):
        Telnyx().check(ACCOUNT)


def test_a_line_without_an_api_key_is_refused() -> None:
    with pytest.raises(ValueError, match="api_key: "):
        Telnyx().check(CarrierAccount(secret=ACCOUNT.secret))

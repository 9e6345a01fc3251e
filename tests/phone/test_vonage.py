"""Vonage's wire: its messages, its NCCO, its requests."""

from __future__ import annotations

import json
import sys

import jwt
import pytest

from voicepipe.audio.g711 import decode_mulaw
from voicepipe.audio.samples import to_pcm
from voicepipe.phone.carrier import (
    AnnouncedCall,
    AudioReceived,
    CarrierAccount,
    DigitPressed,
    IgnoredMessage,
    IgnoredWebhook,
    MarkPlayed,
    StreamStarted,
    WebhookRequest,
)
from voicepipe.phone.vonage import TOKEN_LIFETIME_S, Vonage, VonageSerializer
from voicepipe.testing.fakes.vonage import pem, private_key

FRAME = bytes(range(160))
ACCOUNT = CarrierAccount(secret="s" * 32, account_id="app", number="+493012345")


def l16(mulaw: bytes) -> bytes:
    return to_pcm(decode_mulaw(mulaw))


def started() -> VonageSerializer:
    serializer = VonageSerializer()
    first = {"event": "websocket:connected", "content-type": "audio/l16;rate=8000", "call": "u-1"}
    assert serializer.read(json.dumps(first)) == StreamStarted(call_id="u-1")
    return serializer


@pytest.mark.parametrize(
    ("message", "event"),
    [
        ({"event": "websocket:dtmf", "digit": "#", "duration": 260}, DigitPressed("#")),
        ({"event": "websocket:notify", "payload": {"mark": "vp1"}}, MarkPlayed("vp1")),
        ({"event": "websocket:notify", "payload": {"mark": 1}}, IgnoredMessage(is_invalid=True)),
        ({"event": "websocket:cleared"}, IgnoredMessage()),
        ({"event": "websocket:connected", "content-type": "audio/l16;rate=8000"}, IgnoredMessage(is_invalid=True)),
    ],
)
def test_messages_of_the_stream(message: object, event: object) -> None:
    assert VonageSerializer().read(json.dumps(message)) == event


def test_audio_is_converted_both_ways() -> None:
    serializer = started()
    loud = bytes(each | 0x80 for each in FRAME)  # both zeros of mu-law are one sample
    assert serializer.read(l16(loud)) == AudioReceived(loud)
    assert serializer.read(l16(loud)[:-2]) == IgnoredMessage(is_invalid=True)
    assert VonageSerializer().read(l16(loud)) == IgnoredMessage(is_invalid=True), "before the stream has begun"
    assert serializer.audio(FRAME + FRAME) == [l16(FRAME), l16(FRAME)]


def test_a_message_has_20_ms_and_the_last_one_is_filled_up() -> None:
    serializer = started()
    assert serializer.audio(FRAME[:100]) == ()
    assert serializer.audio(FRAME[:100]) == [l16(FRAME[:100] + FRAME[:60])]
    assert serializer.flush() == [l16(FRAME[60:100].ljust(160, b"\xff"))]
    assert serializer.flush() == ()
    serializer.audio(FRAME[:100])
    assert json.loads(serializer.clear()) == {"action": "clear"}
    assert serializer.flush() == (), "what was dropped is not played"


def test_a_mark_is_behind_the_message_with_the_last_sample_before_it() -> None:
    def notify(name: str) -> bytes:
        return json.dumps({"action": "notify", "payload": {"mark": name}}, separators=(",", ":")).encode()

    serializer = started()
    serializer.audio(FRAME)
    assert serializer.mark("a") == (notify("a"),)
    serializer.audio(FRAME[:100])
    assert serializer.mark("b") == serializer.mark("c") == ()
    whole = FRAME[:100] + FRAME + FRAME[:60]
    assert serializer.audio(FRAME + FRAME[:60]) == [l16(whole[:160]), notify("b"), notify("c"), l16(whole[160:])]
    serializer.audio(FRAME[:1])
    serializer.mark("d")
    assert serializer.flush()[1:] == [notify("d")]
    serializer.audio(FRAME[:1])
    serializer.mark("e")
    serializer.clear()
    assert serializer.audio(FRAME) == [l16(FRAME)], "a mark of dropped audio is dropped"


def event_of(fields: object, *, is_dialed: bool = False) -> object:
    body = json.dumps(fields).encode()
    return Vonage().event(WebhookRequest(url="https://a/?dialed=1", headers={}, body=body, is_dialed=is_dialed))


def test_the_answer_webhook_announces_a_call() -> None:
    fields = {"from": "491511", "to": "493012", "uuid": "u-1", "conversation_uuid": "CON-1"}
    assert event_of(fields) == AnnouncedCall(call_id="u-1", user_number="+491511", line_number="+493012")
    dialed = AnnouncedCall(call_id="u-1", user_number="+493012", line_number="+491511", is_dialed=True)
    assert event_of(fields, is_dialed=True) == dialed
    assert event_of({**fields, "from": None}) == AnnouncedCall(call_id="u-1", line_number="+493012")


def test_only_the_end_of_the_websocket_is_announced_again() -> None:
    leg = {"uuid": "u-2", "headers": {"call": "u-1"}}
    assert event_of({"status": "disconnected", **leg}) == AnnouncedCall(call_id="u-1")
    for state in ("started", "answered", "completed"):
        assert event_of({"status": state, **leg}) == IgnoredWebhook()
    assert event_of({"status": "disconnected", "uuid": "u-1"}) == IgnoredWebhook(), "the leg of the user"
    assert event_of({"from": "491511"}) is None
    for garbage in (b"", b"[]", b"[" * 100_000):
        assert Vonage().event(WebhookRequest(url="", headers={}, body=garbage)) is None


def test_a_call_is_made_with_a_token_of_the_application() -> None:
    key = private_key()
    account = CarrierAccount(secret="s", api_key=pem(key), account_id="app", number="+493012345", api_url="https://eu")
    talk, hang_up = (
        Vonage().dial(account, user_number="+4915", webhook_url="https://a/?b=1", hangs_up_on_voicemail=hangs, now_s=9)
        for hangs in (False, True)
    )
    assert talk.url == "https://eu/v1/calls"
    fields = json.loads(talk.body)
    assert fields["to"] == [{"type": "phone", "number": "4915"}]
    assert fields["from"] == {"type": "phone", "number": "493012345"}
    assert fields["answer_url"] == ["https://a/?b=1"]
    assert "machine_detection" not in fields
    assert json.loads(hang_up.body)["machine_detection"] == "hangup"
    token = talk.authorization.removeprefix("Bearer ")
    claims = jwt.decode(token, key.public_key(), algorithms=["RS256"], options={"verify_exp": False})
    assert (claims["application_id"], claims["iat"], claims["exp"]) == ("app", 9, 9 + TOKEN_LIFETIME_S)


def test_a_transfer_shows_a_number_of_the_account_if_there_is_one() -> None:
    phone = {"type": "phone", "number": "4930999"}
    transfer = {"action": "connect", "from": "493012345", "endpoint": [phone]}
    assert json.loads(Vonage().transfer("u-1", "+4930999", ACCOUNT).body) == [transfer]
    without = CarrierAccount(secret="s")
    assert json.loads(Vonage().transfer("u-1", "+4930999", without).body) == [
        {"action": "connect", "endpoint": [phone]}
    ]
    assert Vonage().reject("u-1", ACCOUNT).body == "[]"


def test_a_line_that_makes_calls_needs_a_private_key() -> None:
    with pytest.raises(ValueError, match=r"api_key: .*none"):
        Vonage().check(ACCOUNT)
    with pytest.raises(ValueError, match=r"api_key: .*another text"):
        Vonage().check(CarrierAccount(secret="s", api_key="no key"))
    Vonage().check(CarrierAccount(secret="s", api_key=pem(private_key())))
    Vonage().check(CarrierAccount(secret="s"))


def test_the_private_key_needs_the_extra_crypto(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    with pytest.raises(ValueError, match=r"api_key: .*\[crypto\]"):
        Vonage().check(CarrierAccount(secret="s", api_key="any"))

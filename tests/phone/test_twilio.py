"""Twilio's wire: its signature, its messages, its TwiML."""

from __future__ import annotations

import base64
import json

import pytest

from voicepipe.phone.carrier import (
    AnnouncedCall,
    AudioReceived,
    CarrierAccount,
    DigitPressed,
    IgnoredMessage,
    MarkPlayed,
    StreamStarted,
    StreamStopped,
    WebhookRequest,
)
from voicepipe.phone.twilio import Twilio, TwilioSerializer, signature

ACCOUNT = CarrierAccount(secret="secret")


def test_the_signature_is_that_of_the_documentation() -> None:
    """The example of Twilio and of its own libraries."""
    fields = [
        ("CallSid", "CA1234567890ABCDE"),
        ("Caller", "+14158675309"),
        ("Digits", "1234"),
        ("From", "+14158675309"),
        ("To", "+18005551212"),
    ]
    url = "https://mycompany.com/myapp.php?foo=1&bar=2"
    assert signature(url, fields, "12345") == "RSOYDt4T1cUTdK1PDd93/VVr8B8="


@pytest.mark.parametrize(
    ("message", "event"),
    [
        ({"event": "connected", "protocol": "Call", "version": "1.0.0"}, IgnoredMessage()),
        ({"event": "media", "media": {"track": "inbound", "payload": "/38="}}, AudioReceived(b"\xff\x7f")),
        ({"event": "media", "media": {"track": "outbound", "payload": "/38="}}, IgnoredMessage()),
        ({"event": "dtmf", "dtmf": {"track": "inbound_track", "digit": "*"}}, DigitPressed("*")),
        ({"event": "dtmf", "dtmf": {"digit": "12"}}, IgnoredMessage(is_invalid=True)),
        ({"event": "mark", "mark": {"name": "vp1"}}, MarkPlayed("vp1")),
        ({"event": "stop", "stop": {}}, StreamStopped()),
        ({"event": "unheard of"}, IgnoredMessage(is_invalid=True)),
        ({"event": "start"}, IgnoredMessage(is_invalid=True)),
        ({"event": "media", "media": {"payload": "%%"}}, IgnoredMessage(is_invalid=True)),
    ],
)
def test_messages_of_the_stream(message: object, event: object) -> None:
    assert TwilioSerializer().read(json.dumps(message)) == event


def test_messages_to_the_stream_have_its_id() -> None:
    serializer = TwilioSerializer()
    started = serializer.read('{"event":"start","streamSid":"MZ1","start":{"callSid":"CA1"}}')
    assert started == StreamStarted(call_id="CA1")
    media = {"event": "media", "streamSid": "MZ1", "media": {"payload": base64.b64encode(b"\xff").decode()}}
    assert [json.loads(each) for each in serializer.audio(b"\xff")] == [media]
    assert [json.loads(each) for each in serializer.mark("m")] == [
        {"event": "mark", "streamSid": "MZ1", "mark": {"name": "m"}}
    ]
    assert json.loads(serializer.clear()) == {"event": "clear", "streamSid": "MZ1"}


def test_twiml_is_escaped() -> None:
    call = AnnouncedCall(call_id="CA1")
    answer = Twilio().connect(call, ACCOUNT, stream_url='wss://a/"&', next_url="https://a/?b&c")
    assert "<Stream url='wss://a/\"&amp;'/>" in answer.body
    assert '<Redirect method="POST">https://a/?b&amp;c</Redirect>' in answer.body
    assert "<Dial>&lt;+1</Dial>" in Twilio().transfer("CA1", "<+1", ACCOUNT).body


def test_a_request_without_a_signature_is_not_signed() -> None:
    request = WebhookRequest(url="https://a/", headers={})
    assert not Twilio().is_signed(request, ACCOUNT)
    assert Twilio().event(request) is None

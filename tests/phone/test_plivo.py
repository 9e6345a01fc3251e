"""Plivo's wire: its signature, its messages, its XML."""

from __future__ import annotations

import base64
import json

import pytest

from voicepipe.phone.carrier import (
    AnnouncedCall,
    CarrierAccount,
    DigitPressed,
    IgnoredMessage,
    IgnoredWebhook,
    MarkPlayed,
    StreamStarted,
    WebhookRequest,
)
from voicepipe.phone.plivo import Plivo, PlivoSerializer, signature
from voicepipe.testing.fakes import plivo

ACCOUNT = CarrierAccount(secret="secret", account_id="MA1", number="+4930")


@pytest.mark.parametrize("url", ["https://a.example/v1/x", "https://a.example/v1/x?b=2&a=1"])
@pytest.mark.parametrize("fields", [{}, {"To": "2", "CallUUID": "u", "From": "1"}])
def test_the_signature_is_that_of_the_documentation(url: str, fields: dict[str, str]) -> None:
    assert signature(url, list(fields.items()), plivo.NONCE, "token") == plivo.sign(url, fields, "token")


@pytest.mark.parametrize(
    ("url", "known"),
    [
        ("https://a.example/answer", "y5+Q3J6eDCG9+TBCueMpyXjuE4mzdlD/dFfpvCvofg0="),
        ("https://a.example/answer?x=1", "6cTU2fVJOkseJ5wEN0mw8ikJkJtDICKP/Pq7Jvoy6JQ="),
    ],
)
def test_the_signature_is_that_of_plivos_library(url: str, known: str) -> None:
    """Made with `plivo.utils.signature_v3` of plivo 4.63.0."""
    assert signature(url, [("To", "2"), ("From", "1")], "12345", "token") == known


@pytest.mark.parametrize(
    ("message", "event"),
    [
        ({"event": "dtmf", "streamId": "s", "dtmf": {"track": "inbound", "digit": "5"}}, DigitPressed("5")),
        ({"event": "playedStream", "streamId": "s", "name": "vp1"}, MarkPlayed("vp1")),
        ({"event": "clearedAudio", "streamId": "s"}, IgnoredMessage()),
        ({"event": "connected"}, IgnoredMessage(is_invalid=True)),
        ({"event": "start", "start": {"streamId": "s"}}, IgnoredMessage(is_invalid=True)),
    ],
)
def test_messages_of_the_stream(message: object, event: object) -> None:
    assert PlivoSerializer().read(json.dumps(message)) == event


def test_messages_to_the_stream() -> None:
    serializer = PlivoSerializer()
    start = {"event": "start", "start": {"callId": "c", "streamId": "s"}}
    assert serializer.read(json.dumps(start)) == StreamStarted(call_id="c")
    payload = base64.b64encode(b"\xff").decode()
    media = {"contentType": "audio/x-mulaw", "sampleRate": 8000, "payload": payload}
    assert [json.loads(each) for each in serializer.audio(b"\xff")] == [{"event": "playAudio", "media": media}]
    assert [json.loads(each) for each in serializer.mark("m")] == [
        {"event": "checkpoint", "streamId": "s", "name": "m"}
    ]
    assert json.loads(serializer.clear()) == {"event": "clearAudio", "streamId": "s"}


def event_of(**form: str) -> object:
    return Plivo().event(WebhookRequest(url="https://a/", headers={}, form=tuple(form.items())))


def test_a_call_that_runs_is_announced() -> None:
    numbers = {"From": "491511", "To": "493012", "CallUUID": "u"}
    inbound = event_of(**numbers, Direction="inbound", CallStatus="ringing")
    assert inbound == AnnouncedCall(call_id="u", user_number="+491511", line_number="+493012")
    dialed = event_of(**numbers, Direction="outbound", CallStatus="in-progress", Machine="true")
    assert dialed == AnnouncedCall(
        call_id="u", user_number="+493012", line_number="+491511", is_dialed=True, is_voicemail=True
    )
    assert event_of(**numbers, CallStatus="completed") == IgnoredWebhook()
    assert event_of(From="1") is None


def test_xml_is_escaped() -> None:
    call = AnnouncedCall(call_id="u")
    answer = Plivo().connect(call, ACCOUNT, stream_url="wss://a/<&", next_url="https://a/?b&c")
    assert ">wss://a/&lt;&amp;</Stream>" in answer.body
    assert '<Redirect method="POST">https://a/?b&amp;c</Redirect>' in answer.body
    assert "<Dial><Number>&lt;+1</Number></Dial>" in Plivo().transfer("u", "<+1", ACCOUNT).body
    assert '<Hangup reason="busy"/>' in Plivo().reject("u", ACCOUNT).body

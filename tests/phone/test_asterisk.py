"""Asterisk's wire: its messages, and the texts for its dialplan."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest

from voicepipe.phone.asterisk import MESSAGE_BYTES, Asterisk, AsteriskSerializer
from voicepipe.phone.carrier import (
    AnnouncedCall,
    AudioReceived,
    CarrierAccount,
    DigitPressed,
    IgnoredMessage,
    MarkPlayed,
    StreamStarted,
    WebhookRequest,
)

FRAME = bytes(range(160))
ACCOUNT = CarrierAccount(
    secret="s", account_id="ari", api_key="KEY", api_url="http://127.0.0.1:8088", number="+493012345"
)


@pytest.mark.parametrize(
    ("message", "event"),
    [
        ({"event": "MEDIA_START", "channel_id": "1.9", "format": "ulaw"}, StreamStarted(call_id="")),
        ({"event": "DTMF_END", "channel_id": "1.9", "digit": "#"}, DigitPressed("#")),
        ({"event": "DTMF_END", "digit": "12"}, IgnoredMessage(is_invalid=True)),
        ({"event": "MEDIA_MARK_PROCESSED", "correlation_id": "vp1"}, MarkPlayed("vp1")),
        ({"event": "MEDIA_XOFF", "channel_id": "1.9"}, IgnoredMessage()),
        ({"event": "ERROR", "error_text": "Unable to parse JSON command"}, IgnoredMessage(is_invalid=True)),
    ],
)
def test_messages_of_the_stream(message: object, event: object) -> None:
    assert AsteriskSerializer().read(json.dumps(message)) == event


def test_audio_comes_in_the_pieces_of_the_telephone() -> None:
    serializer = AsteriskSerializer()
    for n_ms in (10, 20, 30, 60, 120):
        piece = FRAME[:8] * n_ms
        assert serializer.read(piece) == AudioReceived(piece)
    for garbage in (b"", FRAME[:7], FRAME + b"1", FRAME * 7, "speech"):
        assert serializer.read(garbage) == IgnoredMessage(is_invalid=True)


def test_audio_that_begins_as_json_does_is_audio() -> None:
    piece = b'{"event":'.ljust(160, b"\xff")
    assert AsteriskSerializer().read(piece) == AudioReceived(piece)


def test_audio_is_sent_in_whole_frames_and_never_in_too_large_messages() -> None:
    serializer = AsteriskSerializer()
    assert serializer.audio(FRAME[:100]) == ()
    assert serializer.audio(FRAME[:100]) == [FRAME[:100] + FRAME[:60]]
    assert serializer.flush() == [FRAME[60:100].ljust(160, b"\xff")]
    assert [len(each) for each in serializer.audio(FRAME * 250)] == [MESSAGE_BYTES, MESSAGE_BYTES, 50 * 160]


def test_a_call_is_announced_by_a_form() -> None:
    def event_of(fields: dict[str, str], *, is_dialed: bool = False) -> AnnouncedCall | None:
        form = tuple(fields.items())
        return Asterisk().event(WebhookRequest(url="", headers={}, form=form, is_dialed=is_dialed))

    numbers = {"call": "1.1", "from": "4915", "to": "100"}
    assert event_of(numbers) == AnnouncedCall(call_id="1.1", user_number="4915", line_number="100")
    withheld = AnnouncedCall(call_id="1.1", line_number="+493012345")
    assert event_of({"call": "1.1", "to": "493012345", "from": "anonymous"}) == withheld
    dialed = {"call": "1.1", "from": "493012345", "to": "+4915112345678", "machine": "MACHINE"}
    assert event_of(dialed, is_dialed=True) == AnnouncedCall(
        call_id="1.1", user_number="+4915112345678", line_number="+493012345", is_dialed=True, is_voicemail=True
    )
    assert event_of({"from": "4915"}) is None


@pytest.mark.parametrize(
    ("authorization", "is_signed"),
    [
        (f"Basic {b64encode(b'asterisk:s').decode()}", True),
        (f"basic {b64encode(b':s').decode()}", True),
        (f"Basic {b64encode(b's').decode()}", False),
        (f"Basic {b64encode(b'asterisk:S').decode()}", False),
        (f"Bearer {b64encode(b'asterisk:s').decode()}", False),
        ("Basic %", False),
        ("Basic \udcff", False),
        ("", False),
    ],
)
def test_the_password_is_the_secret_of_the_line(authorization: str, is_signed: bool) -> None:
    request = WebhookRequest(url="", headers={"authorization": authorization})
    assert Asterisk().is_signed(request, ACCOUNT) is is_signed


def test_a_call_is_made_by_the_rest_interface() -> None:
    request = Asterisk().dial(
        ACCOUNT, user_number="+4915", webhook_url="http://a/?dial=1", hangs_up_on_voicemail=True, now_s=0
    )
    assert request.url == "http://127.0.0.1:8088/ari/channels"
    assert request.authorization == f"Basic {b64encode(b'ari:KEY').decode()}"
    fields = json.loads(request.body)
    assert (fields["endpoint"], fields["context"], fields["extension"]) == (
        "Local/+4915@voicepipe-out",
        "voicepipe",
        "dialed",
    )
    numbers = {"VOICEPIPE_FROM": "+493012345", "VOICEPIPE_TO": "+4915"}
    assert fields["variables"] == {"VOICEPIPE_URL": "http://a/?dial=1", **numbers}
    assert Asterisk().dialed_call_id(b'{"id":"1.4","state":"Down"}') == "1.4"


@pytest.mark.parametrize(("missing", "why"), [("api_url", "api_url: "), ("api_key", "api_key: ")])
def test_a_line_that_makes_calls_needs_the_rest_interface(missing: str, why: str) -> None:
    Asterisk().check(CarrierAccount(secret="s"))
    Asterisk().check(ACCOUNT)
    options = {"api_url": "http://a", "api_key": "KEY", missing: ""}
    with pytest.raises(ValueError, match=why):
        Asterisk().check(CarrierAccount(secret="s", number="+4930", **options))

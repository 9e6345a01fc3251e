"""Twilio: TwiML for the webhook, Media Streams for the audio.

Sources: twilio.com/docs/voice/media-streams/websocket-messages, /docs/voice/twiml/stream, /docs/api/rest/making-calls
and the OpenAPI description of `Calls.json`, read on 2026-11-23; for `X-Twilio-Signature` the example of Twilio's own
libraries. Not confirmed: the values of `AnsweredBy` and `Direction`. Audio is mu-law at 8 kHz both ways. A stream that
the server closes lets Twilio go on with the next verb.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import Annotated, Final
from xml.sax.saxutils import escape, quoteattr

import msgspec

from voicepipe.phone.carrier import (
    AnnouncedCall,
    AudioReceived,
    DialRequest,
    DigitPressed,
    MarkPlayed,
    StreamEvent,
    StreamStarted,
    StreamStopped,
    Unread,
    WebhookAnswer,
    WebhookRequest,
)

API_URL: Final = "https://api.twilio.com"
SIGNATURE_HEADER: Final = "x-twilio-signature"
DIGITS: Final = frozenset("0123456789*#ABCD")

_Text = Annotated[str, msgspec.Meta(max_length=256)]


class _Start(msgspec.Struct, frozen=True):
    callSid: _Text  # noqa: N815 (the wire's name)


class _Media(msgspec.Struct, frozen=True):
    payload: str
    track: str = "inbound"


class _Dtmf(msgspec.Struct, frozen=True):
    digit: _Text


class _Mark(msgspec.Struct, frozen=True):
    name: _Text


class _Dialed(msgspec.Struct, frozen=True):
    sid: _Text


class _Message(msgspec.Struct, frozen=True):
    """Any message of Twilio: `event` says which part it has."""

    event: _Text
    streamSid: _Text = ""  # noqa: N815
    start: _Start | None = None
    media: _Media | None = None
    dtmf: _Dtmf | None = None
    mark: _Mark | None = None


_DECODER: Final = msgspec.json.Decoder(_Message)


class TwilioCodec:
    """Implements `StreamCodec` with the messages of Media Streams."""

    def __init__(self) -> None:
        self._stream = ""

    def read(self, raw: str | bytes) -> StreamEvent:
        """Return what a message means."""
        try:
            return self._event(_DECODER.decode(raw))
        except (ValueError, RecursionError):  # not JSON, not UTF-8, another shape, or no base64
            return Unread(is_garbage=True)

    def _event(self, message: _Message) -> StreamEvent:
        match message:
            case _Message(event="media", media=_Media(payload=payload, track=track)):
                return AudioReceived(_decoded(payload)) if track == "inbound" else Unread()
            case _Message(event="mark", mark=_Mark(name=name)):
                return MarkPlayed(name)
            case _Message(event="dtmf", dtmf=_Dtmf(digit=digit)) if digit in DIGITS:
                return DigitPressed(digit)
            case _Message(event="start", start=_Start() as start):
                self._stream = message.streamSid
                return StreamStarted(call_id=start.callSid)
            case _Message(event="stop"):
                return StreamStopped()
            case _Message(event="connected"):
                return Unread()
        return Unread(is_garbage=True)

    def audio(self, audio: bytes) -> bytes:
        """Return a `media` message."""
        payload = base64.b64encode(audio).decode()
        return msgspec.json.encode({"event": "media", "streamSid": self._stream, "media": {"payload": payload}})

    def mark(self, name: str) -> bytes:
        """Return a `mark` message."""
        return msgspec.json.encode({"event": "mark", "streamSid": self._stream, "mark": {"name": name}})

    def clear(self) -> bytes:
        """Return a `clear` message."""
        return msgspec.json.encode({"event": "clear", "streamSid": self._stream})


def _decoded(payload: str) -> bytes:
    try:
        return base64.b64decode(payload, validate=True)
    except binascii.Error as why:
        raise ValueError("no base64") from why


def signature(url: str, form: list[tuple[str, str]], secret: str) -> str:
    """Return `X-Twilio-Signature`: the address, then each field's name and value in order of the names; HMAC-SHA1."""
    signed = url + "".join(name + value for name, value in sorted(set(form)))
    return base64.b64encode(hmac.digest(secret.encode(), signed.encode(), "sha1")).decode()


class Twilio:
    """Implements `Carrier`."""

    def is_signed(self, request: WebhookRequest, secret: str) -> bool:
        """Return whether `X-Twilio-Signature` is right."""
        expected = signature(request.url, list(request.form), secret)
        return hmac.compare_digest(expected.encode(), request.headers.get(SIGNATURE_HEADER, "").encode())

    def announced(self, request: WebhookRequest) -> AnnouncedCall | None:
        """Return the call of `CallSid`, `From` and `To`."""
        fields = dict(request.form)
        if not fields.get("CallSid"):
            return None
        is_outbound = fields.get("Direction", "").startswith("outbound")
        user, line = ("To", "From") if is_outbound else ("From", "To")
        return AnnouncedCall(
            call_id=fields["CallSid"],
            user_number=fields.get(user, ""),
            line_number=fields.get(line, ""),
            is_voicemail=fields.get("AnsweredBy", "").startswith(("machine", "fax")),
        )

    def connect(self, call: AnnouncedCall, *, stream_url: str, next_url: str) -> WebhookAnswer:
        """Return `<Connect><Stream>`, and a `<Redirect>` behind it, which is reached when the server closes."""
        stream = f"<Connect><Stream url={quoteattr(stream_url)}/></Connect>"
        return _twiml(f'{stream}<Redirect method="POST">{escape(next_url)}</Redirect>')

    def transfer(self, number: str) -> WebhookAnswer:
        """Return `<Dial>`."""
        return _twiml(f"<Dial>{escape(number)}</Dial>")

    def hang_up(self) -> WebhookAnswer:
        """Return `<Hangup>`."""
        return _twiml("<Hangup/>")

    def reject(self) -> WebhookAnswer:
        """Return `<Reject>`, with the busy tone."""
        return _twiml('<Reject reason="busy"/>')

    def dial(
        self, *, api_url: str, account: str, secret: str, line_number: str, user_number: str, webhook_url: str
    ) -> DialRequest:
        """Return the request that makes a call, with the detection of answering machines."""
        form = {
            "To": user_number,
            "From": line_number,
            "Url": webhook_url,
            "Method": "POST",
            "MachineDetection": "Enable",
        }
        url = f"{api_url or API_URL}/2010-04-01/Accounts/{account}/Calls.json"
        return DialRequest(url=url, user=account, password=secret, form=form)

    def dialed(self, body: bytes) -> str:
        """Return the call's `sid`."""
        return msgspec.json.decode(body, type=_Dialed).sid

    def codec(self) -> TwilioCodec:
        """Return the messages of a new stream."""
        return TwilioCodec()


def _twiml(verbs: str) -> WebhookAnswer:
    return WebhookAnswer(f'<?xml version="1.0" encoding="UTF-8"?><Response>{verbs}</Response>', "text/xml")

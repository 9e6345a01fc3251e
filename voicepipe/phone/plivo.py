"""Plivo: XML for the webhook, audio streaming over a WebSocket for the audio.

Sources, read on 2026-11-23: plivo.com/docs/voice/audio-streaming/audio-streaming (messages), docs.plivo.com/docs/voice/
xml/audiostream (`<Stream>`), docs.plivo.com/docs/voice/api/call/machine-detection, and Plivo's own Python library (V3
signature). Not confirmed: that `Machine` comes with the answer URL when `machine_detection_url` is not set; that the
numbers of the answer URL have no `+`; that a `checkpoint` of cleared audio is never reported.

Audio is mu-law at 8 kHz both ways. `<Stream keepCallAlive="true">` holds the call; when the server closes a stream,
Plivo goes on with the next element.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qsl, urlsplit
from xml.sax.saxutils import escape

import msgspec

from voicepipe.phone.api_requests import basic, json_request, xml_answer
from voicepipe.phone.carrier import (
    AnnouncedCall,
    ApiRequest,
    CarrierAccount,
    IgnoredMessage,
    IgnoredWebhook,
    MarkPlayed,
    StreamEvent,
    StreamSerializer,
    WebhookAnswer,
    WebhookEvent,
    WebhookRequest,
)
from voicepipe.phone.json_stream import CarrierMessage, JsonStreamSerializer, StreamStart, Text
from voicepipe.phone.numbers import e164

API_URL: Final = "https://api.plivo.com"
SIGNATURE_HEADER: Final = "x-plivo-signature-v3"
NONCE_HEADER: Final = "x-plivo-signature-v3-nonce"
CONTENT_TYPE: Final = "audio/x-mulaw"

RUNNING: Final = frozenset({"ringing", "in-progress"})
"""Values of `CallStatus` in a call that can be connected."""


class _Dialed(msgspec.Struct, frozen=True):
    request_uuid: Text


class PlivoSerializer(JsonStreamSerializer):
    """Implements `StreamSerializer` with the messages of audio streaming."""

    STREAM_FIELD = "streamId"

    def ids(self, message: CarrierMessage, start: StreamStart) -> tuple[str, str]:
        """Return `callId` and `streamId`."""
        return start.callId, start.streamId

    def other_event(self, message: CarrierMessage) -> StreamEvent:
        """Return the mark of a `playedStream`."""
        match message.event:
            case "playedStream":
                return MarkPlayed(message.name)
            case "clearedAudio":
                return IgnoredMessage()
        return IgnoredMessage(is_invalid=True)

    def audio(self, audio: bytes) -> Sequence[bytes]:
        """Return a `playAudio` message."""
        payload = b64encode(audio).decode()
        media = {"contentType": CONTENT_TYPE, "sampleRate": 8_000, "payload": payload}
        return (msgspec.json.encode({"event": "playAudio", "media": media}),)

    def mark(self, name: str) -> Sequence[bytes]:
        """Return a `checkpoint` message."""
        return (self.message("checkpoint", name=name),)

    def clear(self) -> bytes:
        """Return a `clearAudio` message."""
        return self.message("clearAudio")


def signature(url: str, form: Sequence[tuple[str, str]], nonce: str, secret: str) -> str:
    """Return `X-Plivo-Signature-V3` of a POST: the address with its query in order of the names, each field's name and
    value in order of the names, and the nonce; HMAC-SHA256."""
    address = urlsplit(url)
    query = "&".join(f"{name}={value}" for name, value in sorted(parse_qsl(address.query, keep_blank_values=True)))
    signed = f"{address.scheme}://{address.netloc}{address.path}"
    signed += f"?{query}" if query or form else ""
    signed += "." if query and form else ""
    signed += "".join(name + value for name, value in sorted(form))
    signed += f".{nonce}"
    return b64encode(hmac.digest(secret.encode(), signed.encode(errors="replace"), "sha256")).decode()


class Plivo:
    """Implements `Carrier`."""

    signs_address = True

    def check(self, account: CarrierAccount) -> None:
        """Check nothing more: the auth token is the key of the API too."""

    def is_signed(self, request: WebhookRequest, account: CarrierAccount) -> bool:
        """Return whether `X-Plivo-Signature-V3` has the right signature: it may have several, with commas."""
        nonce = request.headers.get(NONCE_HEADER, "")
        expected = signature(request.url, request.form, nonce, account.secret).encode()
        signatures = request.headers.get(SIGNATURE_HEADER, "").split(",")
        return any(hmac.compare_digest(expected, each.strip().encode(errors="replace")) for each in signatures)

    def event(self, request: WebhookRequest) -> WebhookEvent | None:
        """Return the call of `CallUUID`, `From` and `To`. Its end is reported to the same address."""
        fields = dict(request.form)
        if not fields.get("CallUUID"):
            return None
        if fields.get("CallStatus", "in-progress") not in RUNNING:
            return IgnoredWebhook()
        is_dialed = fields.get("Direction") == "outbound"
        user, line = ("To", "From") if is_dialed else ("From", "To")
        return AnnouncedCall(
            call_id=fields["CallUUID"],
            user_number=e164(fields.get(user, "")),
            line_number=e164(fields.get(line, "")),
            is_dialed=is_dialed,
            is_voicemail=fields.get("Machine", "").casefold() == "true",
        )

    def connect(self, call: AnnouncedCall, account: CarrierAccount, *, stream_url: str, next_url: str) -> WebhookAnswer:
        """Return `<Stream>`, and a `<Redirect>` behind it, which is reached when the server closes."""
        attributes = f'bidirectional="true" keepCallAlive="true" contentType="{CONTENT_TYPE};rate=8000"'
        stream = f"<Stream {attributes}>{escape(stream_url)}</Stream>"
        return xml_answer(f'{stream}<Redirect method="POST">{escape(next_url)}</Redirect>')

    def transfer(self, call_id: str, number: str, account: CarrierAccount) -> WebhookAnswer:
        """Return `<Dial><Number>`."""
        return xml_answer(f"<Dial><Number>{escape(number)}</Number></Dial>")

    def hang_up(self, call_id: str, account: CarrierAccount) -> WebhookAnswer:
        """Return `<Hangup>`."""
        return xml_answer("<Hangup/>")

    def reject(self, call_id: str, account: CarrierAccount) -> WebhookAnswer:
        """Return `<Hangup>`, with the busy tone."""
        return xml_answer('<Hangup reason="busy"/>')

    def dial(
        self, account: CarrierAccount, *, user_number: str, webhook_url: str, hangs_up_on_voicemail: bool, now_s: int
    ) -> ApiRequest:
        """Return the request that makes a call, with the detection of answering machines."""
        fields = {
            "from": account.number,
            "to": user_number,
            "answer_url": webhook_url,
            "answer_method": "POST",
            "machine_detection": "true",
        }
        url = f"{account.api_url or API_URL}/v1/Account/{account.account_id}/Call/"
        return json_request(url, basic(account.account_id, account.secret), fields)

    def send_dtmf(
        self, call_id: str, digits: str, account: CarrierAccount, serializer: StreamSerializer, *, now_s: int
    ) -> Sequence[bytes]:
        """Return a `sendDTMF` message."""
        return (msgspec.json.encode({"event": "sendDTMF", "dtmf": digits}),)

    def dialed_call_id(self, body: bytes) -> str:
        """Return the call's `request_uuid`."""
        return msgspec.json.decode(body, type=_Dialed).request_uuid

    def serializer(self) -> PlivoSerializer:
        """Return the serializer of a new media stream."""
        return PlivoSerializer()

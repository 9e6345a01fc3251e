"""Telnyx: Voice API webhooks and commands ("Call Control"), media streaming over WebSocket for the audio.

Sources, read on 2026-11-23: developers.telnyx.com/docs/voice/programmable-voice/media-streaming and its AsyncAPI page
/api-reference/websockets/stream-call-media-over-websocket (messages), /api-reference/call-commands (answer, transfer,
reject, hangup, send DTMF, streaming start, dial), /docs/voice/programmable-voice/answering-machine-detection, and the
types of Telnyx's own Python library (fields of webhooks; the signature is of `timestamp|body`). The documentation does
not state that `stream_bidirectional_target_legs` must be `self`: the code of several users does. Not confirmed: that a
call goes on after the server has closed its stream, which is why the server then sends a command in any case.

The server receives and sends mu-law. Where Telnyx can't transcode the user's audio, the audio has the encoding of the
call: A-law is read too.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Mapping
from functools import cache
from typing import Any, Final
from urllib.parse import quote

import msgspec

from voicepipe.audio.g711 import decode_alaw, encode_mulaw
from voicepipe.extras import install_command
from voicepipe.phone.api_requests import json_request
from voicepipe.phone.carrier import (
    AnnouncedCall,
    ApiRequest,
    AudioReceived,
    CarrierAccount,
    FailedStream,
    IgnoredMessage,
    IgnoredWebhook,
    StreamEvent,
    StreamSerializer,
    WebhookAnswer,
    WebhookEvent,
    WebhookRequest,
)
from voicepipe.phone.json_stream import CarrierMessage, JsonStreamSerializer, Media, StreamStart, Text, decode_base64
from voicepipe.phone.numbers import e164

API_URL: Final = "https://api.telnyx.com"
SIGNATURE_HEADER: Final = "telnyx-signature-ed25519"
TIMESTAMP_HEADER: Final = "telnyx-timestamp"

MAX_AGE_S: Final = 300
"""Age at which a signed request is refused as a replay; Telnyx's guide names 5 minutes."""

KEY_BYTES: Final = 32
"""Length of an Ed25519 public key (RFC 8032, 5.1.5)."""

MAX_OUT_OF_ORDER: Final = 5
"""Pieces that wait for a missing piece: 100 ms. Telnyx does not guarantee the order of `media` messages."""

STREAM: Final[Mapping[str, Any]] = {
    "stream_track": "inbound_track",
    "stream_codec": "PCMU",
    "stream_bidirectional_mode": "rtp",
    "stream_bidirectional_codec": "PCMU",
    "stream_bidirectional_sampling_rate": 8_000,
    "stream_bidirectional_target_legs": "self",
}
"""Mu-law both ways, and the agent's audio to the leg of the user."""


class _Payload(msgspec.Struct, frozen=True):
    call_control_id: Text = ""
    direction: Text = ""
    from_: Text = msgspec.field(default="", name="from")
    to: Text = ""
    result: Text = ""


class _Data(msgspec.Struct, frozen=True):
    event_type: Text = ""
    payload: _Payload = _Payload()


class _Webhook(msgspec.Struct, frozen=True):
    data: _Data = _Data()


class _DialedData(msgspec.Struct, frozen=True):
    call_control_id: Text


class _Dialed(msgspec.Struct, frozen=True):
    data: _DialedData


class TelnyxSerializer(JsonStreamSerializer):
    """Implements `StreamSerializer` with the messages of media streaming, and restores the order of the user's
    audio."""

    def __init__(self) -> None:
        super().__init__()
        self._is_alaw = False
        self._next_number = 0
        """The number of the next piece in order; 0: no piece was received."""

        self._out_of_order: dict[int, bytes] = {}  # bounded by `MAX_OUT_OF_ORDER`

    def ids(self, message: CarrierMessage, start: StreamStart) -> tuple[str, str]:
        """Return `call_control_id`, and no stream. A stream in another encoding than G.711 can't be read."""
        encoding = start.media_format.encoding
        self._is_alaw = encoding == "PCMA"
        return (start.call_control_id if encoding in ("PCMU", "PCMA") else ""), ""

    def media_event(self, media: Media) -> StreamEvent:
        """Return the audio that is in order now."""
        number, audio = int(media.chunk), decode_base64(media.payload)
        if self._is_alaw:
            audio = audio.translate(_mulaw_of_alaw())
        if not number or not self._next_number:
            self._next_number = number + 1 if number else 0
            return AudioReceived(audio)
        if number < self._next_number:  # too late: the pieces behind it were returned without it
            return IgnoredMessage()
        self._out_of_order[number] = audio
        if len(self._out_of_order) > MAX_OUT_OF_ORDER:
            self._next_number = min(self._out_of_order)
        ordered = b""
        while (piece := self._out_of_order.pop(self._next_number, None)) is not None:
            ordered += piece
            self._next_number += 1
        return AudioReceived(ordered) if ordered else IgnoredMessage()


@cache
def _mulaw_of_alaw() -> bytes:
    return encode_mulaw(decode_alaw(bytes(range(256))))


class Telnyx:
    """Implements `Carrier`. Telnyx takes no commands from a webhook's answer: each is a request to its API."""

    signs_address = False

    def check(self, account: CarrierAccount) -> None:
        """Check the public key of the account, and that there is an API key.

        Raises:
            ValueError: one is missing or wrong.
        """
        if len(_public_key(account.secret)) != KEY_BYTES:
            raise ValueError("secret: expected the account's public key, base64 of 32 bytes, got another text")
        if not account.api_key:
            raise ValueError("api_key: expected a key of Telnyx's API, got none: no call could be answered")
        try:
            import cryptography.hazmat.primitives.asymmetric.ed25519  # noqa: F401
        except ImportError as missing:
            why = f"carrier: telnyx needs the package cryptography: {install_command('crypto')}"
            raise ValueError(why) from missing

    def is_signed(self, request: WebhookRequest, account: CarrierAccount) -> bool:
        """Return whether `telnyx-signature-ed25519` is right, and not older than `MAX_AGE_S`."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        timestamp = request.headers.get(TIMESTAMP_HEADER, "")
        try:
            age_s = request.unix_s - int(timestamp)
            signature = b64decode(request.headers.get(SIGNATURE_HEADER, ""), validate=True)
            key = Ed25519PublicKey.from_public_bytes(_public_key(account.secret))
            key.verify(signature, f"{timestamp}|".encode() + request.body)
        except (ValueError, InvalidSignature):
            return False
        return abs(age_s) <= MAX_AGE_S

    def event(self, request: WebhookRequest) -> WebhookEvent | None:
        """Return an incoming call once it is initiated, a dialed call once Telnyx has detected a person or a machine,
        and a stream that has failed."""
        try:
            data = msgspec.json.decode(request.body, type=_Webhook).data
        except (ValueError, RecursionError):  # not JSON, or another shape
            return None
        payload = data.payload
        if not payload.call_control_id:
            return None
        user, line = e164(payload.from_), e164(payload.to)
        match data.event_type, payload.direction:
            case "call.initiated", "incoming":
                return AnnouncedCall(call_id=payload.call_control_id, user_number=user, line_number=line)
            case "call.machine.detection.ended", _:
                return AnnouncedCall(
                    call_id=payload.call_control_id,
                    user_number=line,
                    line_number=user,
                    is_dialed=True,
                    is_voicemail=payload.result == "machine",
                )
            case "streaming.failed", _:
                return FailedStream(call_id=payload.call_control_id)
        return IgnoredWebhook()

    def connect(self, call: AnnouncedCall, account: CarrierAccount, *, stream_url: str, next_url: str) -> WebhookAnswer:
        """Return the command that answers the call with a stream, or that starts the stream of an answered call."""
        action = "streaming_start" if call.is_dialed else "answer"
        return _command(call.call_id, action, account, {"stream_url": stream_url, **STREAM})

    def transfer(self, call_id: str, number: str, account: CarrierAccount) -> WebhookAnswer:
        """Return the command `transfer`."""
        return _command(call_id, "transfer", account, {"to": number})

    def hang_up(self, call_id: str, account: CarrierAccount) -> WebhookAnswer:
        """Return the command `hangup`."""
        return _command(call_id, "hangup", account, {})

    def reject(self, call_id: str, account: CarrierAccount) -> WebhookAnswer:
        """Return the command `reject`, as busy."""
        return _command(call_id, "reject", account, {"cause": "USER_BUSY"})

    def dial(
        self, account: CarrierAccount, *, user_number: str, webhook_url: str, hangs_up_on_voicemail: bool, now_s: int
    ) -> ApiRequest:
        """Return the command `dial`, with the detection of answering machines."""
        fields = {
            "connection_id": account.account_id,
            "to": user_number,
            "from": account.number,
            "webhook_url": webhook_url,
            "answering_machine_detection": "detect",
        }
        return json_request(f"{account.api_url or API_URL}/v2/calls", _bearer(account), fields)

    def send_dtmf(
        self, call_id: str, digits: str, account: CarrierAccount, serializer: StreamSerializer, *, now_s: int
    ) -> ApiRequest:
        """Return the command `send_dtmf`, without an ID: the same keys may be pressed twice."""
        return json_request(_action_url(call_id, "send_dtmf", account), _bearer(account), {"digits": digits})

    def dialed_call_id(self, body: bytes) -> str:
        """Return the call's `call_control_id`."""
        return msgspec.json.decode(body, type=_Dialed).data.call_control_id

    def serializer(self) -> TelnyxSerializer:
        """Return the serializer of a new media stream."""
        return TelnyxSerializer()


def _public_key(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except binascii.Error:
        return b""


def _bearer(account: CarrierAccount) -> str:
    return f"Bearer {account.api_key}"


def _action_url(call_id: str, action: str, account: CarrierAccount) -> str:
    return f"{account.api_url or API_URL}/v2/calls/{quote(call_id, safe=':')}/actions/{action}"


def _command(call_id: str, action: str, account: CarrierAccount, fields: Mapping[str, Any]) -> WebhookAnswer:
    """Return a command to a call. A webhook that comes twice sends it once: Telnyx drops a repeated `command_id`."""
    identified = {"command_id": f"voicepipe-{action}", **fields}
    request = json_request(_action_url(call_id, action, account), _bearer(account), identified)
    return WebhookAnswer(requests=(request,))

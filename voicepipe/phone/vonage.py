"""Vonage: NCCO for the webhook, a WebSocket with L16 for the audio.

Sources, read on 2026-11-23: developer.vonage.com/en/voice/voice-api/concepts/websockets (messages, `clear` and
`notify`), an earlier edition of the same page in mheap/nexmo-developer (20 ms a message, `eventType: synchronous`,
`disconnected`), Vonage's own Python library (fields of webhooks, REST paths, claims of the API's JWT), and
api.support.vonage.com articles 115016024247 (repeated requests) and 19033783342876 (`payload_hash`). Not confirmed:
that `payload_hash` is of the body byte by byte (the article has it of the fields as JSON without blanks, which is how
Vonage sends them); that an NCCO without actions ends a call; that a dropped mark is never reported.

Audio is L16 at 8 kHz. It is converted to mu-law, which is all that a telephone network has, and the STT receives the
mu-law unchanged. `notify` is Vonage's mark.
"""

from __future__ import annotations

import hashlib
import hmac
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec

from voicepipe.audio.g711 import decode_mulaw, encode_mulaw
from voicepipe.audio.samples import PcmJoiner, to_pcm
from voicepipe.extras import install_command
from voicepipe.phone.api_requests import json_request
from voicepipe.phone.carrier import (
    AnnouncedCall,
    ApiRequest,
    AudioReceived,
    CarrierAccount,
    DigitPressed,
    IgnoredMessage,
    IgnoredWebhook,
    MarkPlayed,
    StreamEvent,
    StreamSerializer,
    StreamStarted,
    WebhookAnswer,
    WebhookEvent,
    WebhookRequest,
)
from voicepipe.phone.framed_stream import FRAME_BYTES, FramedSerializer
from voicepipe.phone.json_stream import DIGITS, Text
from voicepipe.phone.numbers import e164
from voicepipe.protocol.binary import SoundFrame

API_URL: Final = "https://api.nexmo.com"
CONTENT_TYPE: Final = "audio/l16;rate=8000"

QUEUE_MS: Final = 60_000
"""Audio that Vonage may have in its queue. Vonage drops what exceeds 3,072 messages of 20 ms, which are 61 s."""

MAX_AGE_S: Final = 300
"""Age at which a signed request is refused as a replay: what Telnyx recommends, since Vonage names none."""

TOKEN_LIFETIME_S: Final = 900
"""Lifetime of a token for the API: that of Vonage's own libraries."""

STREAM_ENDED: Final = frozenset({"disconnected", "failed", "unanswered"})
"""States of a WebSocket's leg at which Vonage takes another NCCO: the server has closed it, or it was never open."""


class _Event(msgspec.Struct, frozen=True):
    event: Text = ""
    call: Text = ""
    """Of `websocket:connected`: the header of this name in the NCCO."""

    digit: Text = ""
    payload: Mapping[str, Any] = {}


class _Headers(msgspec.Struct, frozen=True):
    call: Text = ""


class _Webhook(msgspec.Struct, frozen=True):
    uuid: Text = ""
    from_: Text | None = msgspec.field(default=None, name="from")
    to: Text | None = None
    status: Text = ""
    direction: Text = ""
    headers: _Headers = _Headers()


class _Dialed(msgspec.Struct, frozen=True):
    uuid: Text


_DECODER: Final = msgspec.json.Decoder(_Event)


class VonageSerializer(FramedSerializer):
    """Implements `StreamSerializer`: audio is binary, L16 in messages of 20 ms; all else is JSON."""

    queue_ms = QUEUE_MS

    def __init__(self) -> None:
        super().__init__()
        self._is_started = False

    def read(self, raw: str | bytes) -> StreamEvent:
        """Return the event of a message: JSON, or 20 ms of audio after the first JSON."""
        data = raw.encode() if isinstance(raw, str) else raw
        try:
            return self._event(_DECODER.decode(data))
        except (ValueError, RecursionError):  # not JSON, not UTF-8, or another shape
            if self._is_started and len(data) == 2 * FRAME_BYTES:
                return AudioReceived(encode_mulaw(PcmJoiner().push(data)))
            return IgnoredMessage(is_invalid=True)

    def _event(self, message: _Event) -> StreamEvent:
        match message.event:
            case "websocket:connected" if message.call and not self._is_started:
                self._is_started = True
                return StreamStarted(call_id=message.call)
            case "websocket:dtmf" if message.digit in DIGITS:
                return DigitPressed(message.digit)
            case "websocket:notify" if isinstance(name := message.payload.get("mark"), str):
                return MarkPlayed(name)
            case "websocket:cleared":
                return IgnoredMessage()
        return IgnoredMessage(is_invalid=True)

    def frames(self, audio: bytes) -> Sequence[bytes]:
        """Return binary messages of one frame each."""
        return [_l16(audio[at : at + FRAME_BYTES]) for at in range(0, len(audio), FRAME_BYTES)]

    def mark_message(self, name: str) -> bytes:
        """Return `notify`."""
        return msgspec.json.encode({"action": "notify", "payload": {"mark": name}})

    def clear_message(self) -> bytes:
        """Return `clear`."""
        return msgspec.json.encode({"action": "clear"})


def _l16(mulaw: bytes) -> bytes:
    return SoundFrame(to_pcm(decode_mulaw(mulaw)))


class Vonage:
    """Implements `Carrier`."""

    signs_address = False

    def check(self, account: CarrierAccount) -> None:
        """Check the private key of the application, which the API needs.

        Raises:
            ValueError: it is missing or wrong.
        """
        if account.number and not account.api_key:
            raise ValueError("api_key: expected the application's private key in PEM, got none: no call could be made")
        if account.api_key:
            _check_private_key(account.api_key)

    def is_signed(self, request: WebhookRequest, account: CarrierAccount) -> bool:
        """Return whether the JWT is right, of this body, and not older than `MAX_AGE_S`."""
        import jwt

        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        options: Any = {"require": ["iat", "payload_hash"], "verify_iat": False, "verify_exp": False}
        try:
            claims = jwt.decode(token, account.secret, algorithms=["HS256"], options=options)
            age_s = request.unix_s - int(claims["iat"])
        except (jwt.PyJWTError, ValueError, TypeError):
            return False
        expected = hashlib.sha256(request.body).hexdigest()
        is_same = hmac.compare_digest(expected.encode(), str(claims["payload_hash"]).encode())
        return scheme.casefold() == "bearer" and is_same and abs(age_s) <= MAX_AGE_S

    def event(self, request: WebhookRequest) -> WebhookEvent | None:
        """Return the call of the answer webhook, or of a WebSocket's end: then the headers have the ID of the call."""
        try:
            webhook = msgspec.json.decode(request.body, type=_Webhook)
        except (ValueError, RecursionError):  # not JSON, or another shape
            return None
        if webhook.status:
            is_over = webhook.status in STREAM_ENDED and bool(webhook.headers.call)
            return AnnouncedCall(call_id=webhook.headers.call) if is_over else IgnoredWebhook()
        if not webhook.uuid:
            return None
        numbers = e164(webhook.from_ or ""), e164(webhook.to or "")
        line, user = numbers if request.is_dialed else numbers[::-1]
        return AnnouncedCall(call_id=webhook.uuid, user_number=user, line_number=line, is_dialed=request.is_dialed)

    def connect(self, call: AnnouncedCall, account: CarrierAccount, *, stream_url: str, next_url: str) -> WebhookAnswer:
        """Return `connect`. It is synchronous: Vonage calls `next_url` when the server has closed the WebSocket."""
        endpoint = {
            "type": "websocket",
            "uri": stream_url,
            "content-type": CONTENT_TYPE,
            "headers": {"call": call.call_id},
        }
        return _ncco({"action": "connect", "eventType": "synchronous", "eventUrl": [next_url], "endpoint": [endpoint]})

    def transfer(self, call_id: str, number: str, account: CarrierAccount) -> WebhookAnswer:
        """Return `connect` with a number."""
        line = {"from": account.number.lstrip("+")} if account.number else {}
        return _ncco({"action": "connect", **line, "endpoint": [_phone(number)]})

    def hang_up(self, call_id: str, account: CarrierAccount) -> WebhookAnswer:
        """Return no action: the call is complete."""
        return _ncco()

    def reject(self, call_id: str, account: CarrierAccount) -> WebhookAnswer:
        """Return no action: NCCO has no busy tone."""
        return _ncco()

    def dial(
        self, account: CarrierAccount, *, user_number: str, webhook_url: str, hangs_up_on_voicemail: bool, now_s: int
    ) -> ApiRequest:
        """Return the request that makes a call. With `hangs_up_on_voicemail` Vonage itself ends a call that a machine
        answers: the webhook receives the result of the detection only after the call is connected."""
        fields: dict[str, Any] = {
            "to": [_phone(user_number)],
            "from": _phone(account.number),
            "answer_url": [webhook_url],
            "answer_method": "POST",
        }
        if hangs_up_on_voicemail:
            fields["machine_detection"] = "hangup"
        return json_request(f"{account.api_url or API_URL}/v1/calls", _bearer(account, now_s), fields)

    def send_dtmf(
        self, call_id: str, digits: str, account: CarrierAccount, serializer: StreamSerializer, *, now_s: int
    ) -> ApiRequest:
        """Return the request that plays the keys to the user.

        Raises:
            ValueError: the line has no private key for Vonage's API.
        """
        if not account.api_key:
            raise ValueError("api_key: expected the application's private key in PEM, got none: no key can be pressed")
        url = f"{account.api_url or API_URL}/v1/calls/{quote(call_id, safe='')}/dtmf"
        return json_request(url, _bearer(account, now_s), {"digits": digits}, method="PUT")

    def dialed_call_id(self, body: bytes) -> str:
        """Return the call's `uuid`."""
        return msgspec.json.decode(body, type=_Dialed).uuid

    def serializer(self) -> VonageSerializer:
        """Return the serializer of a new media stream."""
        return VonageSerializer()


def _check_private_key(pem: str) -> None:
    try:
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError as missing:
        why = f"api_key: Vonage's API needs the package cryptography: {install_command('crypto')}"
        raise ValueError(why) from missing
    try:
        load_pem_private_key(pem.encode(), password=None)
    except (ValueError, TypeError) as wrong:  # TypeError: the key is encrypted
        raise ValueError("api_key: expected the application's private key in PEM, got another text") from wrong


def _bearer(account: CarrierAccount, now_s: int) -> str:
    """Return the token of the API: a JWT that the application's private key signs."""
    import jwt

    claims = {
        "application_id": account.account_id,
        "iat": now_s,
        "exp": now_s + TOKEN_LIFETIME_S,
        "jti": str(uuid.uuid4()),
    }
    return f"Bearer {jwt.encode(claims, account.api_key, algorithm='RS256')}"


def _phone(number: str) -> Mapping[str, str]:
    """Return an endpoint. Vonage writes numbers without their `+`."""
    return {"type": "phone", "number": number.lstrip("+")}


def _ncco(*actions: Mapping[str, Any]) -> WebhookAnswer:
    return WebhookAnswer(msgspec.json.encode(actions).decode(), "application/json")

"""Asterisk, and the SIP telephones behind it: its WebSocket channel for the audio, its dialplan for the rest.

Sources, read on 2026-11-23: docs.asterisk.org/Configuration/Channel-Drivers/WebSocket and `channels/chan_websocket.c`
(messages, sizes, flow control), /Latest_API/API_Documentation/Asterisk_REST_Interface/Channels_REST_API (`POST
/channels`) and the functions `CURL` and `CURLOPT`. Control messages in JSON and `MARK_MEDIA` need Asterisk 20.18, 22.8
or 23.2. Tried with Asterisk 22.10.1, see `tests.measure.asterisk`.

The dialplan is the carrier here: it requests the webhook with `CURL`, dials the WebSocket with the token that it gets,
and requests where the call goes when the WebSocket is closed. HTTP Basic with the line's secret stands for a signature.
Asterisk transcodes to mu-law at 8 kHz, and plays from a queue with its own clock.
"""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode
from collections.abc import Sequence
from typing import Final

import msgspec

from voicepipe.phone.api_requests import basic, json_request
from voicepipe.phone.carrier import (
    BYTES_PER_MS,
    AnnouncedCall,
    ApiRequest,
    AudioReceived,
    CarrierAccount,
    DigitPressed,
    DtmfTones,
    IgnoredMessage,
    MarkPlayed,
    StreamEvent,
    StreamSerializer,
    StreamStarted,
    WebhookAnswer,
    WebhookRequest,
)
from voicepipe.phone.dtmf_tones import tones
from voicepipe.phone.framed_stream import FRAME_BYTES, FramedSerializer
from voicepipe.phone.json_stream import DIGITS, Text
from voicepipe.phone.numbers import e164
from voicepipe.protocol.binary import SoundFrame

QUEUE_MS: Final = 15_000
"""Audio that Asterisk may have in its queue. From 18 s (900 frames) on Asterisk sends `MEDIA_XOFF`; from 20 s on it
drops audio."""

MESSAGE_BYTES: Final = 100 * FRAME_BYTES
"""The largest message to Asterisk. Asterisk hangs up at a message of more than 65,500 bytes."""

UNIT_BYTES: Final = 10 * BYTES_PER_MS
MAX_UNITS: Final = 12
"""Asterisk forwards audio in the pieces that the telephone sends: usually 20 ms, at most 120 ms."""

DIAL_CONTEXT: Final = "voicepipe-out"
"""The dialplan's context that calls a number for the server."""

ANSWERED_AT: Final = ("voicepipe", "dialed")
"""The dialplan's context and extension where a dialed call continues once it is answered."""

IGNORED_EVENTS: Final = frozenset({"MEDIA_XOFF", "MEDIA_XON", "QUEUE_DRAINED", "STATUS", "MEDIA_BUFFERING_COMPLETED"})
"""Events that need no action: the server does not request them, and stays below the limit of the queue."""


class _Event(msgspec.Struct, frozen=True):
    event: Text
    digit: Text = ""
    correlation_id: Text = ""


class _Dialed(msgspec.Struct, frozen=True):
    id: Text


_DECODER: Final = msgspec.json.Decoder(_Event)


class AsteriskSerializer(FramedSerializer):
    """Implements `StreamSerializer` with the messages of the WebSocket channel: audio is binary, all else is JSON."""

    queue_ms = QUEUE_MS

    def read(self, raw: str | bytes) -> StreamEvent:
        """Return the event of a message: JSON, or mu-law."""
        data = raw.encode() if isinstance(raw, str) else raw
        if data[:1] == b"{":
            try:
                return self._event(_DECODER.decode(data))
            except (ValueError, RecursionError):  # audio may begin with this byte too
                pass
        if data and len(data) % UNIT_BYTES == 0 and len(data) <= MAX_UNITS * UNIT_BYTES:
            return AudioReceived(data)
        return IgnoredMessage(is_invalid=True)

    def _event(self, message: _Event) -> StreamEvent:
        match message.event:
            case "MEDIA_START":
                return StreamStarted(call_id="")
            case "DTMF_END" if message.digit in DIGITS:
                return DigitPressed(message.digit)
            case "MEDIA_MARK_PROCESSED":
                return MarkPlayed(message.correlation_id)
        return IgnoredMessage(is_invalid=message.event not in IGNORED_EVENTS)

    def frames(self, audio: bytes) -> Sequence[bytes]:
        """Return binary messages of whole frames: Asterisk drops partial frames."""
        return [SoundFrame(audio[at : at + MESSAGE_BYTES]) for at in range(0, len(audio), MESSAGE_BYTES)]

    def mark_message(self, name: str) -> bytes:
        """Return `MARK_MEDIA`."""
        return msgspec.json.encode({"command": "MARK_MEDIA", "correlation_id": name})

    def clear_message(self) -> bytes:
        """Return `FLUSH_MEDIA`."""
        return msgspec.json.encode({"command": "FLUSH_MEDIA"})


class Asterisk:
    """Implements `Carrier`. The answers to webhooks are texts for the dialplan: a token, a number, or nothing."""

    signs_address = True

    def check(self, account: CarrierAccount) -> None:
        """Check that a line that makes calls can reach the REST interface (ARI).

        Raises:
            ValueError: its address or password is missing.
        """
        if account.number and not account.api_url:
            raise ValueError("api_url: expected the address of Asterisk's HTTP server, got none: no call could be made")
        if account.number and not account.api_key:
            raise ValueError("api_key: expected the password of an ARI user, got none: no call could be made")

    def is_signed(self, request: WebhookRequest, account: CarrierAccount) -> bool:
        """Return whether the password of HTTP Basic is the line's secret; any user name will do."""
        scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
        try:
            _, _, password = b64decode(credentials, validate=True).partition(b":")
        except (binascii.Error, ValueError):  # ValueError: not ASCII
            return False
        return scheme.casefold() == "basic" and hmac.compare_digest(password, account.secret.encode())

    def event(self, request: WebhookRequest) -> AnnouncedCall | None:
        """Return the call of the fields `call`, `from`, `to` and `machine`, which is `AMDSTATUS`."""
        fields = dict(request.form)
        if not fields.get("call"):
            return None
        user, line = ("to", "from") if request.is_dialed else ("from", "to")
        return AnnouncedCall(
            call_id=fields["call"],
            user_number=e164(fields.get(user, "")),
            line_number=e164(fields.get(line, "")),
            is_dialed=request.is_dialed,
            is_voicemail=fields.get("machine", "") == "MACHINE",
        )

    def connect(self, call: AnnouncedCall, account: CarrierAccount, *, stream_url: str, next_url: str) -> WebhookAnswer:
        """Return the stream's token, with which the dialplan dials the WebSocket."""
        return WebhookAnswer(stream_url.rpartition("/")[2])

    def transfer(self, call_id: str, number: str, account: CarrierAccount) -> WebhookAnswer:
        """Return the number."""
        return WebhookAnswer(number)

    def hang_up(self, call_id: str, account: CarrierAccount) -> WebhookAnswer:
        """Return no number."""
        return WebhookAnswer()

    def reject(self, call_id: str, account: CarrierAccount) -> WebhookAnswer:
        """Return no token."""
        return WebhookAnswer()

    def dial(
        self, account: CarrierAccount, *, user_number: str, webhook_url: str, hangs_up_on_voicemail: bool, now_s: int
    ) -> ApiRequest:
        """Return the request of ARI that has the dialplan call the user, and go on at `ANSWERED_AT`."""
        context, extension = ANSWERED_AT
        fields = {
            "endpoint": f"Local/{user_number}@{DIAL_CONTEXT}",
            "context": context,
            "extension": extension,
            "priority": 1,
            "callerId": account.number,
            "variables": {
                "VOICEPIPE_URL": webhook_url,
                "VOICEPIPE_FROM": account.number,
                "VOICEPIPE_TO": user_number,
            },
        }
        return json_request(f"{account.api_url}/ari/channels", basic(account.account_id, account.api_key), fields)

    def send_dtmf(
        self, call_id: str, digits: str, account: CarrierAccount, serializer: StreamSerializer, *, now_s: int
    ) -> DtmfTones:
        """Return the tones: the WebSocket has no message for keys to the user."""
        return DtmfTones(tones(digits))

    def dialed_call_id(self, body: bytes) -> str:
        """Return the `id` of the channel, which the dialplan sends as `call`."""
        return msgspec.json.decode(body, type=_Dialed).id

    def serializer(self) -> AsteriskSerializer:
        """Return the serializer of a new media stream."""
        return AsteriskSerializer()

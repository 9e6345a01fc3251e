"""The port to a phone carrier: the requests and answers of the webhook, and the messages of the media stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from msgspec import Struct

RATE_HZ: Final = 8_000
"""Sampling rate of G.711: one byte a sample."""

BYTES_PER_MS: Final = RATE_HZ // 1_000

CarrierName = Literal["twilio", "telnyx", "vonage", "plivo", "asterisk"]
"""The carriers of `carriers.CARRIERS`, which also loads their code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CarrierAccount:
    """An account at a carrier, as the settings of a phone line have it."""

    account_id: str = ""
    """The ID of the account, or of the application that owns the numbers."""

    secret: str = field(repr=False)
    """Verifies the signatures of the carrier's webhook."""

    api_key: str = field(default="", repr=False)
    """The key of the carrier's API; empty: `secret` is the key of both, or the API is not used."""

    api_url: str = ""
    """The address of the carrier's API, without a slash at its end; empty: its usual one."""

    number: str = ""
    """The number from which the server calls; empty: it makes no calls."""


class AnnouncedCall(Struct, frozen=True, kw_only=True):
    """A call that the carrier's webhook announces: the user calls, or has answered a call of the server."""

    call_id: str
    """The carrier's ID of the call."""

    user_number: str = ""
    """The user's number, as the carrier writes it; empty: withheld."""

    line_number: str = ""
    """The number of the line."""

    is_dialed: bool = False
    """Whether the server has called the user."""

    is_voicemail: bool = False
    """Whether a machine has answered a call of the server, as far as the carrier reports it."""


class IgnoredWebhook(Struct, frozen=True):
    """A request of the webhook that needs no action: the carrier reports a step of a call."""


class FailedStream(Struct, frozen=True, kw_only=True):
    """The carrier could not open, or lost, the media stream of a call that goes on."""

    call_id: str


WebhookEvent = AnnouncedCall | FailedStream | IgnoredWebhook


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """A request to the carrier's API."""

    url: str
    body: bytes
    content_type: str
    authorization: str = field(repr=False)
    """The header of this name."""

    method: str = "POST"


class DtmfTones(Struct, frozen=True):
    """DTMF as audio, for a carrier that has no other way to send it: mu-law at 8 kHz."""

    audio: bytes


class StreamStarted(Struct, frozen=True, kw_only=True):
    """The media stream begins."""

    call_id: str
    """Empty: the carrier does not name the call; the stream's token identifies it."""


class AudioReceived(Struct, frozen=True):
    """Audio of the user, mu-law at 8 kHz."""

    audio: bytes


class DigitPressed(Struct, frozen=True):
    """The user pressed a key: `0` to `9`, `*`, `#`, `A` to `D`."""

    digit: str


class MarkPlayed(Struct, frozen=True):
    """Everything sent before this mark was played, or dropped by a `clear`."""

    name: str


class StreamStopped(Struct, frozen=True):
    """The media stream is over: the user hung up, or the carrier went on with the call elsewhere."""


class IgnoredMessage(Struct, frozen=True):
    """A message that changes nothing."""

    is_invalid: bool = False
    """Whether the carrier does not document it, or it can't be read."""


StreamEvent = StreamStarted | AudioReceived | DigitPressed | MarkPlayed | StreamStopped | IgnoredMessage


class StreamSerializer(Protocol):
    """Reads and writes the messages of one media stream. A message is bytes: a `SoundFrame` is sent as binary, any
    other as text."""

    @property
    def queue_ms(self) -> int | None:
        """Return how much audio the carrier may have that it has not played; None: there is no limit."""
        ...

    def read(self, raw: str | bytes) -> StreamEvent:
        """Return the event of a message of the carrier. Never raises: a message may be anything."""
        ...

    def audio(self, audio: bytes) -> Sequence[bytes]:
        """Return the messages that play mu-law audio at 8 kHz after what is queued."""
        ...

    def flush(self) -> Sequence[bytes]:
        """Return the messages that play the audio that `audio` has buffered: more may not come soon."""
        ...

    def mark(self, name: str) -> Sequence[bytes]:
        """Return the messages that have the carrier report when all audio so far was played. Behind buffered
        audio, the mark is sent with that audio."""
        ...

    def clear(self) -> bytes:
        """Return the message that drops what is queued."""
        ...


class WebhookRequest(Struct, frozen=True, kw_only=True):
    """A request of the carrier's webhook."""

    url: str
    """The address as the carrier called it."""

    headers: Mapping[str, str]
    """By lower-case name."""

    form: Sequence[tuple[str, str]] = ()
    """The body's fields; empty unless it is a form."""

    body: bytes = b""
    unix_s: int = 0
    """When the request came."""

    is_dialed: bool = False
    """Whether the server has given this address to the carrier, for a call that it makes."""


class WebhookAnswer(Struct, frozen=True):
    """The answer to a webhook: commands for the call."""

    body: str = ""
    content_type: str = "text/plain"
    requests: Sequence[ApiRequest] = ()
    """Commands as requests to the carrier's API, for a carrier that takes none from the answer."""


class Carrier(Protocol):
    """One carrier. It serves many calls at once."""

    @property
    def signs_address(self) -> bool:
        """Return whether the signature of a webhook covers the requested address, or the answer does not depend on that
        address. If not, the settings of the line must name the server's address: otherwise an attacker could replay a
        signed request with another `Host`, and the carrier would send the call's audio there.
        """
        ...

    def check(self, account: CarrierAccount) -> None:
        """Check the settings of a line.

        Raises:
            ValueError: one is missing or wrong; the text begins with its name.
        """
        ...

    def is_signed(self, request: WebhookRequest, account: CarrierAccount) -> bool:
        """Return whether the carrier made the request: its signature is right."""
        ...

    def event(self, request: WebhookRequest) -> WebhookEvent | None:
        """Return what a webhook reports; None: the request has no call."""
        ...

    def connect(self, call: AnnouncedCall, account: CarrierAccount, *, stream_url: str, next_url: str) -> WebhookAnswer:
        """Return the answer that connects the call with a media stream. The carrier calls `next_url` when the
        stream is over, unless the answers of `transfer` and `hang_up` have requests: then the server sends these."""
        ...

    def transfer(self, call_id: str, number: str, account: CarrierAccount) -> WebhookAnswer:
        """Return the answer that connects the call with another number."""
        ...

    def hang_up(self, call_id: str, account: CarrierAccount) -> WebhookAnswer:
        """Return the answer that ends the call."""
        ...

    def reject(self, call_id: str, account: CarrierAccount) -> WebhookAnswer:
        """Return the answer to a call that can't be taken: busy."""
        ...

    def dial(
        self, account: CarrierAccount, *, user_number: str, webhook_url: str, hangs_up_on_voicemail: bool, now_s: int
    ) -> ApiRequest:
        """Return the request that calls the user, and has the carrier call `webhook_url` once the call is answered.

        `hangs_up_on_voicemail` is for a carrier that ends such a call itself; any other reports it to `webhook_url`.
        """
        ...

    def send_dtmf(
        self, call_id: str, digits: str, account: CarrierAccount, serializer: StreamSerializer, *, now_s: int
    ) -> ApiRequest | DtmfTones | Sequence[bytes]:
        """Return DTMF for a running call: a request to the API, audio, or messages of the media stream."""
        ...

    def dialed_call_id(self, body: bytes) -> str:
        """Return the ID of the call from the API's answer.

        Raises:
            ValueError: it has none.
        """
        ...

    def serializer(self) -> StreamSerializer:
        """Return the serializer of a new media stream."""
        ...

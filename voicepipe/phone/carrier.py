"""The port to a phone carrier: its webhook's requests and answers, and the messages of its media stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

RATE_HZ: Final = 8_000
"""Sampling rate of G.711: one byte a sample."""

BYTES_PER_MS: Final = RATE_HZ // 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncedCall:
    """A call that the carrier's webhook announces: the user calls, or has answered a call of the server."""

    call_id: str
    """The carrier's ID of the call."""

    user_number: str
    """The user's number, as the carrier writes it; empty: withheld."""

    line_number: str
    """The number of the line."""

    is_voicemail: bool = False
    """Whether a machine has answered a call of the server, as far as the carrier can say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DialRequest:
    """A request to the carrier's API that calls a number."""

    url: str
    user: str
    password: str = field(repr=False)
    """With `user`: the credentials of HTTP Basic."""

    form: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStarted:
    """The media stream begins."""

    call_id: str


@dataclass(frozen=True, slots=True)
class AudioReceived:
    """Audio of the user, mu-law at 8 kHz."""

    audio: bytes


@dataclass(frozen=True, slots=True)
class DigitPressed:
    """The user pressed a key: `0` to `9`, `*`, `#`, `A` to `D`."""

    digit: str


@dataclass(frozen=True, slots=True)
class MarkPlayed:
    """Everything sent before this mark was played, or dropped by a `clear`."""

    name: str


@dataclass(frozen=True, slots=True)
class StreamStopped:
    """The media stream is over: the user hung up, or the carrier went on with the call elsewhere."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A message that changes nothing."""

    is_garbage: bool = False
    """Whether it is none that the carrier documents."""


StreamEvent = StreamStarted | AudioReceived | DigitPressed | MarkPlayed | StreamStopped | Unread


class StreamCodec(Protocol):
    """The messages of one media stream."""

    def read(self, raw: str | bytes) -> StreamEvent:
        """Return what a message of the carrier means. Never raises: a message may be anything."""
        ...

    def audio(self, audio: bytes) -> bytes:
        """Return the message that plays mu-law audio at 8 kHz after what is queued."""
        ...

    def mark(self, name: str) -> bytes:
        """Return the message that has the carrier report when everything queued so far was played."""
        ...

    def clear(self) -> bytes:
        """Return the message that drops what is queued."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookRequest:
    """A request of the carrier's webhook."""

    url: str
    """The address as the carrier called it."""

    headers: Mapping[str, str]
    """By lower-case name."""

    form: Sequence[tuple[str, str]]
    """The body's fields; empty unless it is a form."""


@dataclass(frozen=True, slots=True)
class WebhookAnswer:
    """The answer to a webhook: what the carrier does with the call."""

    body: str
    content_type: str


class Carrier(Protocol):
    """One carrier. It serves many calls at once."""

    def is_signed(self, request: WebhookRequest, secret: str) -> bool:
        """Return whether the carrier made the request: its signature is right."""
        ...

    def announced(self, request: WebhookRequest) -> AnnouncedCall | None:
        """Return the call that a webhook announces; None: the request has no call."""
        ...

    def connect(self, call: AnnouncedCall, *, stream_url: str, next_url: str) -> WebhookAnswer:
        """Return the answer that connects the call with a media stream, and asks at `next_url` when it is over."""
        ...

    def transfer(self, number: str) -> WebhookAnswer:
        """Return the answer that connects the call with another number."""
        ...

    def hang_up(self) -> WebhookAnswer:
        """Return the answer that ends the call."""
        ...

    def reject(self) -> WebhookAnswer:
        """Return the answer to a call that can't be taken: busy."""
        ...

    def dial(
        self, *, api_url: str, account: str, secret: str, line_number: str, user_number: str, webhook_url: str
    ) -> DialRequest:
        """Return the request that calls the user, and has `webhook_url` asked once the call is answered."""
        ...

    def dialed(self, body: bytes) -> str:
        """Return the ID of the call from the API's answer.

        Raises:
            ValueError: it has none.
        """
        ...

    def codec(self) -> StreamCodec:
        """Return the messages of a new media stream."""
        ...

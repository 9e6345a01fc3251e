"""Build webhook requests: the body, and the signature that proves its sender.

Headers, signature and secrets follow the Standard Webhooks specification, version 1 (standardwebhooks.com), so its
libraries verify them.
"""

from __future__ import annotations

import binascii
import secrets
from base64 import b64decode
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal, get_args

import msgspec
import standardwebhooks

from voicepipe.errors import ConfigError

WebhookKind = Literal[
    "session.started", "turn.completed", "turn.over_budget", "tool.called", "session.ended", "bench.drifted"
]

KINDS: Final[tuple[WebhookKind, ...]] = get_args(WebhookKind)

SECRET_PREFIX: Final = "whsec_"

SECRET_BYTES: Final = (24, 64)
"""Minimum and maximum bytes of a secret, by the specification."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """A receiver, and the events it subscribes to."""

    name: str
    url: str = field(repr=False)
    """The address, never shown: it may hold a key."""

    secrets: tuple[bytes, ...] = field(repr=False)
    """The secrets, which all sign: while a secret is replaced, both the old and the new one do."""

    kinds: tuple[WebhookKind, ...] = KINDS
    project: str = ""
    """The project of its events; empty: of all projects."""

    timeout_ms: int = 10_000

    def subscribes_to(self, kind: WebhookKind, project: str) -> bool:
        """Return whether an event is to be delivered here."""
        return kind in self.kinds and self.project in ("", project)


class WebhookEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event to be sent."""

    id: str
    """The same at every attempt: a receiver detects duplicates by it."""

    kind: WebhookKind
    project: str
    session: str
    at: str
    """Time of the event, ISO 8601 in UTC."""

    data: dict[str, Any]

    def body(self) -> bytes:
        """Return the body: `{"type", "timestamp", "data"}`."""
        return msgspec.json.encode({"type": self.kind, "timestamp": self.at, "data": self.data})


def new_event_id() -> str:
    """Return a unique event id."""
    return f"msg_{secrets.token_urlsafe(18)}"


def read_secrets(text: str) -> tuple[bytes, ...]:
    """Return the secrets in a text, separated by white space.

    Raises:
        ConfigError: there is none, or one is not `whsec_` and 24 to 64 bytes in base64. The text doesn't repeat it.
    """
    found = tuple(_read_secret(word) for word in text.split())
    if not found:
        raise ConfigError(f"expected {SECRET_PREFIX} and 24 to 64 bytes in base64, got nothing")
    return found


def _read_secret(word: str) -> bytes:
    low, high = SECRET_BYTES
    try:
        secret = b64decode(word.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if not word.startswith(SECRET_PREFIX) or not low <= len(secret) <= high:
        raise ConfigError(f"expected {SECRET_PREFIX} and {low} to {high} bytes in base64, got something else")
    return secret


def signed_headers(webhook: Webhook, id: str, body: bytes, *, now_s: int) -> dict[str, str]:
    """Return the headers for a body: its id, the time of this attempt, and a signature by each secret."""
    signature = signature_headers(webhook.secrets, id, body, now_s=now_s)
    return {**signature, "Content-Type": "application/json", "User-Agent": "voicepipe"}


def signature_headers(secrets: tuple[bytes, ...], id: str, body: bytes, *, now_s: int) -> dict[str, str]:
    """Return the headers that sign a body: its id, the time, and a signature by each secret."""
    at, text = datetime.fromtimestamp(now_s, UTC), body.decode()
    signatures = (standardwebhooks.Webhook(secret).sign(id, at, text) for secret in secrets)
    return {
        "webhook-id": id,
        "webhook-timestamp": str(now_s),
        "webhook-signature": " ".join(signatures),
    }

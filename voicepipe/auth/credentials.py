"""Find a client's key: it can be in 5 places, under one rule."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from voicepipe.auth.request_credentials import Handshake
from voicepipe.errors import AuthError

SUBPROTOCOL: Final = "realtime"
"""The only subprotocol that the server selects."""

KEY_SUBPROTOCOL: Final = "openai-insecure-api-key."
"""Browsers cannot set headers on a WebSocket: their SDKs offer a subprotocol of this prefix plus the key."""

MAX_CREDENTIAL_CHARS: Final = 4_096
"""Twice the longest token that the server mints; longer credentials are refused unread."""


@dataclass(frozen=True, slots=True)
class Presented:
    """A credential as it came: an API key, an `ek_` client secret or a bare JWT, not yet checked."""

    secret: str = field(repr=False)
    where: str
    """`authorization`, `api-key`, `subprotocol` or `query`: safe to log, unlike the secret."""


def find_credential(handshake: Handshake, *, allow_query: bool = False) -> Presented | None:
    """Return the one credential of a request, or None when it has none of a known kind.

    It reads `Authorization: Bearer` and `Basic`, `api-key`, the subprotocol `openai-insecure-api-key.` and, when
    `allow_query`, `?token=`. Some clients send the same value in two places, which is allowed.

    Raises:
        AuthError: two different credentials came, one is malformed, or `?token=` came and isn't allowed.
    """
    found = list(_presented(handshake, allow_query=allow_query))
    if not found:
        _refuse_silent_query_token(handshake, allow_query=allow_query)
        return None
    first = found[0]
    for other in found[1:]:
        if other.secret != first.secret:
            raise AuthError(
                f"Expected one credential, got two different ones ({first.where}, {other.where}).",
                code="ambiguous_credential",
            )
    _refuse_unreadable(first)
    return first


def missing_credential() -> AuthError:
    """Return the refusal for a request without a credential, with the places where a credential may be."""
    return AuthError(
        "Expected a credential, got none. Send an API key (vp_...) or a client secret (ek_...) as 'Authorization: "
        f"Bearer KEY', as 'api-key: KEY', or from a browser as the WebSocket subprotocols '{SUBPROTOCOL}' and "
        f"'{KEY_SUBPROTOCOL}KEY'.",
        code="missing_credential",
    )


def answer_subprotocol(handshake: Handshake) -> str | None:
    """Return the subprotocol to select: `realtime` when it was offered, else none; never the one that holds the key."""
    return SUBPROTOCOL if SUBPROTOCOL in handshake.subprotocols() else None


def _presented(handshake: Handshake, *, allow_query: bool) -> Iterator[Presented]:
    for value in handshake.values("authorization"):
        scheme, _, rest = value.partition(" ")
        if scheme.lower() == "bearer" and rest.strip():
            yield Presented(rest.strip(), "authorization")
        elif scheme.lower() == "basic":
            yield Presented(_basic_secret(rest.strip()), "authorization")
    for value in filter(None, handshake.values("api-key")):
        yield Presented(value, "api-key")
    for name in handshake.subprotocols():
        if name.startswith(KEY_SUBPROTOCOL) and name != KEY_SUBPROTOCOL:
            yield Presented(name.removeprefix(KEY_SUBPROTOCOL), "subprotocol")
    if allow_query:
        for name, value in handshake.query:
            if name == "token" and value:
                yield Presented(value, "query")


def _basic_secret(text: str) -> str:
    """Return the secret in HTTP Basic (RFC 7617): the password, or the user name when there is no password.

    Some clients put the bare key after `Basic`, or the base64 of the key without a colon.
    """
    if text.startswith(("vp_", "ek_")):
        return text
    try:
        decoded = b64decode(text, validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        decoded = ""
    user, _, password = decoded.partition(":")
    if not (password or user):
        raise AuthError(
            "'Authorization: Basic' must hold base64 of 'anything:KEY', 'KEY:' or 'KEY'; 'Authorization: Bearer KEY' "
            "needs no encoding.",
            code="invalid_api_key",
        )
    return password or user


def _refuse_silent_query_token(handshake: Handshake, *, allow_query: bool) -> None:
    if not allow_query and any(name == "token" and value for name, value in handshake.query):
        raise AuthError(
            "The server ignores a token in the URL, since URLs end up in logs. Send it as 'Authorization: Bearer "
            f"KEY' or as the subprotocol '{KEY_SUBPROTOCOL}KEY', or set server.query_token.",
            code="query_token_not_allowed",
        )


def _refuse_unreadable(presented: Presented) -> None:
    if len(presented.secret) > MAX_CREDENTIAL_CHARS:
        raise AuthError(
            f"The credential is longer than {MAX_CREDENTIAL_CHARS} characters; what voicepipe mints is under 2048.",
        )
    if not presented.secret.isascii() or not presented.secret.isprintable():
        raise AuthError("The credential has characters that no key has. Copy it whole, and nothing else.")

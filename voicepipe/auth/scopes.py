"""The permissions of a credential."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

REALTIME: Final = "realtime"
"""Hold conversations on the WebSocket."""

TOKENS: Final = "tokens"
"""Mint and revoke client secrets. Never given to a client secret."""

TURNS: Final = "turns"
"""Read the records of the project's turns and sessions."""

CHAT: Final = "chat"
"""Chat completions over REST, and the list of models for them."""

AUDIO: Final = "audio"
"""Speech and transcriptions over REST."""

OPERATE: Final = "operate"
"""Operate the server for the key's own project: the dashboard, providers, webhooks, deletions."""

OPERATE_ALL: Final = "operate_all"
"""The same for all projects, and metrics, which have no project."""

ALL: Final = (REALTIME, TOKENS, TURNS, CHAT, AUDIO, OPERATE, OPERATE_ALL)

INCLUDED: Final = {OPERATE: (TURNS,), OPERATE_ALL: (TURNS, OPERATE)}
"""The scopes that a scope includes."""

KEY_DEFAULT: Final = (REALTIME, TOKENS, TURNS, CHAT, AUDIO)
"""The scopes of an API key, unless it was created with others."""

TOKEN_DEFAULT: Final = (REALTIME,)
"""The scopes of a client secret, unless it was minted with others."""

TOKEN_ALLOWED: Final = (REALTIME, TURNS, CHAT, AUDIO)
"""The maximum scopes of a client secret: it is stored in a user's browser."""


def granted(scopes: Collection[str]) -> frozenset[str]:
    """Return everything that these scopes allow, including themselves."""
    return frozenset(scopes).union(*(INCLUDED.get(scope, ()) for scope in scopes))

"""What a credential may do."""

from __future__ import annotations

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
"""The dashboard, metrics, and everything else that shows more than one project."""

ALL: Final = (REALTIME, TOKENS, TURNS, CHAT, AUDIO, OPERATE)

KEY_DEFAULT: Final = (REALTIME, TOKENS, TURNS, CHAT, AUDIO)
"""Of an API key, unless it was created with others."""

TOKEN_DEFAULT: Final = (REALTIME,)
"""Of a client secret, unless it was minted with others."""

TOKEN_ALLOWED: Final = (REALTIME, TURNS, CHAT, AUDIO)
"""What a client secret can have at most: it lives in a stranger's browser."""

"""Has the caller finished? How long a silence must last before the turn is over."""

from __future__ import annotations

from voicepipe.turn.settings import TurnSettings


def wait_ms(settings: TurnSettings) -> int:
    """The silence, in ms since the last voiced sample, that ends a turn: what the client asked for."""
    return settings.silence_ms

"""Pass on turns as they end, each once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from voicepipe.telemetry.isolation import isolated
from voicepipe.telemetry.store.port import StoredTurn

REMEMBERED: Final = 4_096
"""Ended turns that are remembered, so that a renewed record isn't passed on again; renewals come within minutes."""


class EndedTurns:
    """Takes every record of every turn, and passes on the first that has an outcome."""

    def __init__(self, handlers: Sequence[Callable[[StoredTurn], None]]) -> None:
        """The handlers `handlers` return at once; one that fails does not affect the others."""
        self._handlers = tuple(handlers)
        # Full: the oldest is forgotten.
        self._ended: dict[tuple[str, str], None] = {}

    def on_record(self, turn: StoredTurn) -> None:
        """Take a record: new, renewed, or one that renews another turn's end. An end is passed on as it was at
        first."""
        key = (turn.project, turn.record.id)
        if turn.record.outcome is None or key in self._ended:
            return
        self._ended[key] = None
        if len(self._ended) > REMEMBERED:
            del self._ended[next(iter(self._ended))]
        for handler in self._handlers:
            with isolated("telemetry"):
                handler(turn)

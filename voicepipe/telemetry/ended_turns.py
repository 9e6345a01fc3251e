"""Pass on turns as they end, each once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from voicepipe.telemetry.isolation import isolated
from voicepipe.telemetry.store.port import StoredTurn

MAX_ENDED_TURNS: Final = 4_096
"""Number of ended turns whose ids are stored, so that a renewed record isn't passed on again. Renewals come within
minutes."""


class EndedTurns:
    """Gets every record of every turn, and passes on the first that has an outcome."""

    def __init__(self, handlers: Sequence[Callable[[StoredTurn], None]]) -> None:
        """Each of `handlers` returns at once; one that fails does not affect the others."""
        self._handlers = tuple(handlers)
        # Full: the oldest is dropped.
        self._ended: dict[tuple[str, str], None] = {}

    def on_record(self, turn: StoredTurn) -> None:
        """Pass a record on if it is the first of its turn with an outcome; a renewed one is dropped."""
        key = (turn.project, turn.record.id)
        if turn.record.outcome is None or key in self._ended:
            return
        self._ended[key] = None
        if len(self._ended) > MAX_ENDED_TURNS:
            del self._ended[next(iter(self._ended))]
        for handler in self._handlers:
            with isolated("telemetry"):
                handler(turn)

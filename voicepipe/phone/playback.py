"""Follow what a carrier has played of the agent's audio, by the marks that it returns.

A mark follows each piece of audio. Between two marks the audio plays in real time, and the clock is the user's own
audio, which the carrier sends without a pause.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from voicepipe.phone.carrier import BYTES_PER_MS

MAX_PIECES: Final = 8_192
"""Pieces whose marks have not come back: half an hour of pieces of 200 ms. A carrier that returns no marks loses the
oldest."""


@dataclass(frozen=True, slots=True)
class Played:
    """The played part of one item's audio."""

    item_id: str
    played_ms: int
    buffered_ms: int
    """Sent and not played yet."""


@dataclass(frozen=True, slots=True)
class _Piece:
    mark: str
    item_id: str
    from_bytes: int
    to_bytes: int


class CarrierPlayback:
    """Follows the audio of one call. `input_ms` is how much of the user's audio has come so far."""

    def __init__(self) -> None:
        # Full: the oldest piece is dropped, and counts as played.
        self._pieces: deque[_Piece] = deque(maxlen=MAX_PIECES)
        self._sent: dict[str, int] = {}
        """Item -> the bytes of its audio; of items that have not ended."""

        self._since_ms = 0
        """`input_ms` when the oldest piece began to play."""

        self._number = 0

    @property
    def is_playing(self) -> bool:
        """Whether the carrier has audio that was not played."""
        return bool(self._pieces)

    def send(self, item_id: str, n_bytes: int, input_ms: int) -> str:
        """Note audio of an item that is sent now; return the name of the mark behind it."""
        if not self._pieces:
            self._since_ms = input_ms
        if item_id not in self._sent:
            self._sent = {each: its for each, its in self._sent.items() if self._is_pending(each)}
        before = self._sent.get(item_id, 0)
        self._sent[item_id] = before + n_bytes
        self._number += 1
        piece = _Piece(f"vp{self._number}", item_id, before, before + n_bytes)
        self._pieces.append(piece)
        return piece.mark

    def mark(self, name: str, input_ms: int) -> Played | None:
        """Return what a mark says that was played; None: the mark is of audio that was dropped."""
        marks = [piece.mark for piece in self._pieces]
        if name not in marks:
            return None
        for _ in range(marks.index(name)):
            self._pieces.popleft()
        piece = self._pieces.popleft()
        self._since_ms = input_ms
        buffered = self._sent[piece.item_id] - piece.to_bytes
        return Played(piece.item_id, piece.to_bytes // BYTES_PER_MS, buffered // BYTES_PER_MS)

    def clear(self, input_ms: int) -> tuple[Played, ...]:
        """Drop what was not played; return how much was played of each item that is cut."""
        if not self._pieces:
            return ()
        first = self._pieces[0]
        n_bytes = max(0, input_ms - self._since_ms) * BYTES_PER_MS
        played = {piece.item_id: piece.from_bytes for piece in reversed(self._pieces)}
        played[first.item_id] = min(first.from_bytes + n_bytes, first.to_bytes)
        self._pieces.clear()
        return tuple(Played(item_id, its // BYTES_PER_MS, 0) for item_id, its in reversed(played.items()))

    def _is_pending(self, item_id: str) -> bool:
        return any(piece.item_id == item_id for piece in self._pieces)

"""Track how much of the agent's audio a carrier has played, by the marks that the carrier returns.

A mark follows each piece of audio. Between two marks the audio plays in real time, and the clock is the user's own
audio, which the carrier sends without a pause.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from typing import Final

from msgspec import Struct

from voicepipe.phone.carrier import BYTES_PER_MS

MAX_PIECES: Final = 8_192
"""Number of pieces whose marks were not returned: half an hour of pieces of 200 ms. Beyond it the oldest piece counts
as played."""


class Played(Struct, frozen=True):
    """The played part of one item's audio."""

    item_id: str
    played_ms: int
    buffered_ms: int
    """Audio of the item that was sent and not played yet."""

    carrier_estimated_ms: int | None = None
    """Delay of the audio to the carrier and of its mark back: the time until the mark was returned, less the duration
    of the audio. None: other audio was playing when this audio was sent."""


class _Piece(Struct, frozen=True):
    mark: str
    item_id: str
    from_bytes: int
    to_bytes: int
    sent_ms: int | None
    """`input_ms` when the piece was sent, if nothing was playing; None: other audio was playing."""


class CarrierPlayback:
    """Tracks the agent's audio in one call. `input_ms` is the duration of the user's audio so far."""

    def __init__(self) -> None:
        self._pieces: deque[_Piece] = deque()
        self._n_bytes = 0
        self._sent_bytes: dict[str, int] = {}
        """Item -> bytes of audio that were sent; of items that are not completely played."""

        self._playing_since_ms = 0
        """`input_ms` when the oldest piece began to play."""

        self._n_marks = 0

    @property
    def is_playing(self) -> bool:
        """Whether the carrier has unplayed audio."""
        return bool(self._pieces)

    @property
    def unplayed_ms(self) -> int:
        """Audio that was not played yet, by the marks."""
        return self._n_bytes // BYTES_PER_MS

    def marks_to(self, mark: str) -> frozenset[str]:
        """Return the outstanding marks up to and including this one; none if this one is not outstanding."""
        marks = [piece.mark for piece in self._pieces]
        return frozenset(marks[: marks.index(mark) + 1] if mark in marks else ())

    def send(self, item_id: str, n_bytes: int, input_ms: int) -> str:
        """Record audio of an item that is sent now; return the name of the mark behind that audio."""
        if not self._pieces:
            self._playing_since_ms = input_ms
        if item_id not in self._sent_bytes:
            self._sent_bytes = {each: n_sent for each, n_sent in self._sent_bytes.items() if self._is_pending(each)}
        before, sent_ms = self._sent_bytes.get(item_id, 0), None if self._pieces else input_ms
        self._sent_bytes[item_id] = before + n_bytes
        self._n_marks += 1
        piece = _Piece(f"vp{self._n_marks}", item_id, before, before + n_bytes, sent_ms)
        if len(self._pieces) == MAX_PIECES:  # the oldest one counts as played
            self._drop_first()
        self._pieces.append(piece)
        self._n_bytes += n_bytes
        return piece.mark

    def mark(self, name: str, input_ms: int) -> Played | None:
        """Return how much was played at a mark; None: the audio of the mark was dropped."""
        marks = [piece.mark for piece in self._pieces]
        if name not in marks:
            return None
        for _ in range(marks.index(name)):
            self._drop_first()
        piece = self._drop_first()
        self._playing_since_ms = input_ms
        buffered = self._sent_bytes[piece.item_id] - piece.to_bytes
        estimated_ms = None
        if piece.sent_ms is not None:
            estimated_ms = max(0, input_ms - piece.sent_ms - (piece.to_bytes - piece.from_bytes) // BYTES_PER_MS)
        return Played(piece.item_id, piece.to_bytes // BYTES_PER_MS, buffered // BYTES_PER_MS, estimated_ms)

    def clear(self, input_ms: int, keep: Container[str] = ()) -> tuple[Played, ...]:
        """Drop unplayed audio, except for pieces whose marks are in `keep`. Return how much was played of each item
        that is cut; an item with a piece in `keep` is reported by its marks.
        """
        cut = [piece for piece in self._pieces if piece.mark not in keep]
        if not cut:
            return ()
        first = self._pieces[0]
        self._pieces = deque(piece for piece in self._pieces if piece.mark in keep)
        self._n_bytes = sum(piece.to_bytes - piece.from_bytes for piece in self._pieces)
        played = {piece.item_id: piece.from_bytes for piece in reversed(cut)}
        if cut[0] is first:
            n_bytes = max(0, input_ms - self._playing_since_ms) * BYTES_PER_MS
            played[first.item_id] = min(first.from_bytes + n_bytes, first.to_bytes)
        self._sent_bytes |= {item_id: n_played for item_id, n_played in played.items() if self._is_pending(item_id)}
        return tuple(
            Played(item_id, n_played // BYTES_PER_MS, 0)
            for item_id, n_played in reversed(played.items())
            if not self._is_pending(item_id)
        )

    def _drop_first(self) -> _Piece:
        piece = self._pieces.popleft()
        self._n_bytes -= piece.to_bytes - piece.from_bytes
        return piece

    def _is_pending(self, item_id: str) -> bool:
        return any(piece.item_id == item_id for piece in self._pieces)

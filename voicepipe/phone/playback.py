"""Follow what a carrier has played of the agent's audio, by the marks that it returns.

A mark follows each piece of audio. Between two marks the audio plays in real time, and the clock is the user's own
audio, which the carrier sends without a pause.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
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

    carrier_estimated_ms: int | None = None
    """How long the audio of a mark was on its way to the carrier and the mark on the way back: what a mark took, less
    the audio before it. None: other audio was playing when this was sent."""


@dataclass(frozen=True, slots=True)
class _Piece:
    mark: str
    item_id: str
    from_bytes: int
    to_bytes: int
    sent_ms: int | None
    """When it was sent, if nothing else was playing."""


class CarrierPlayback:
    """Follows the audio of one call. `input_ms` is how much of the user's audio has come so far."""

    def __init__(self) -> None:
        self._pieces: deque[_Piece] = deque()
        self._n_bytes = 0
        self._sent: dict[str, int] = {}
        """Item -> the bytes of its audio; of items that have not ended."""

        self._since_ms = 0
        """`input_ms` when the oldest piece began to play."""

        self._number = 0

    @property
    def is_playing(self) -> bool:
        """Whether the carrier has audio that was not played."""
        return bool(self._pieces)

    @property
    def unplayed_ms(self) -> int:
        """Audio that was not played yet, as far as the marks say."""
        return self._n_bytes // BYTES_PER_MS

    def marks_to(self, mark: str) -> frozenset[str]:
        """Return the marks that have not come back, from the first one to this one; none without this one."""
        marks = [piece.mark for piece in self._pieces]
        return frozenset(marks[: marks.index(mark) + 1] if mark in marks else ())

    def send(self, item_id: str, n_bytes: int, input_ms: int) -> str:
        """Note audio of an item that is sent now; return the name of the mark behind it."""
        if not self._pieces:
            self._since_ms = input_ms
        if item_id not in self._sent:
            self._sent = {each: its for each, its in self._sent.items() if self._is_pending(each)}
        before, sent_ms = self._sent.get(item_id, 0), None if self._pieces else input_ms
        self._sent[item_id] = before + n_bytes
        self._number += 1
        piece = _Piece(f"vp{self._number}", item_id, before, before + n_bytes, sent_ms)
        if len(self._pieces) == MAX_PIECES:  # the oldest one counts as played
            self._drop_first()
        self._pieces.append(piece)
        self._n_bytes += n_bytes
        return piece.mark

    def mark(self, name: str, input_ms: int) -> Played | None:
        """Return what a mark says that was played; None: the mark is of audio that was dropped."""
        marks = [piece.mark for piece in self._pieces]
        if name not in marks:
            return None
        for _ in range(marks.index(name)):
            self._drop_first()
        piece = self._drop_first()
        self._since_ms = input_ms
        buffered = self._sent[piece.item_id] - piece.to_bytes
        estimated_ms = None
        if piece.sent_ms is not None:
            estimated_ms = max(0, input_ms - piece.sent_ms - (piece.to_bytes - piece.from_bytes) // BYTES_PER_MS)
        return Played(piece.item_id, piece.to_bytes // BYTES_PER_MS, buffered // BYTES_PER_MS, estimated_ms)

    def clear(self, input_ms: int, keep: Container[str] = ()) -> tuple[Played, ...]:
        """Drop what was not played, but for the pieces with the marks in `keep`; return how much was played of each
        item that is cut. Of an item that has a kept piece, the marks report it.
        """
        cut = [piece for piece in self._pieces if piece.mark not in keep]
        if not cut:
            return ()
        first = self._pieces[0]
        self._pieces = deque(piece for piece in self._pieces if piece.mark in keep)
        self._n_bytes = sum(piece.to_bytes - piece.from_bytes for piece in self._pieces)
        played = {piece.item_id: piece.from_bytes for piece in reversed(cut)}
        if cut[0] is first:
            n_bytes = max(0, input_ms - self._since_ms) * BYTES_PER_MS
            played[first.item_id] = min(first.from_bytes + n_bytes, first.to_bytes)
        self._sent |= {item_id: its for item_id, its in played.items() if self._is_pending(item_id)}
        return tuple(
            Played(item_id, its // BYTES_PER_MS, 0)
            for item_id, its in reversed(played.items())
            if not self._is_pending(item_id)
        )

    def _drop_first(self) -> _Piece:
        piece = self._pieces.popleft()
        self._n_bytes -= piece.to_bytes - piece.from_bytes
        return piece

    def _is_pending(self, item_id: str) -> bool:
        return any(piece.item_id == item_id for piece in self._pieces)

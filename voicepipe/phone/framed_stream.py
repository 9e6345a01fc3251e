"""Write a media stream for carriers that take audio only in whole frames of 20 ms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

from voicepipe.phone.carrier import BYTES_PER_MS

FRAME_BYTES: Final = 20 * BYTES_PER_MS
"""Mu-law of a frame."""

SILENCE: Final = b"\xff"
"""A sample of silence in mu-law."""


class FramedSerializer(ABC):
    """Implements the sending half of `StreamSerializer`: audio that fills no frame waits for more. A carrier has its
    own messages."""

    def __init__(self) -> None:
        self._rest = b""
        """Mu-law that fills no frame yet."""

        self._marks: list[bytes] = []
        """The marks behind it; bounded: one for each piece, and no piece of the agent's audio is empty."""

    @abstractmethod
    def frames(self, audio: bytes) -> Sequence[bytes]:
        """Return the messages that play whole frames of mu-law, at least one."""

    @abstractmethod
    def mark_message(self, name: str) -> bytes:
        """Return the message that has the carrier report when all audio so far was played."""

    @abstractmethod
    def clear_message(self) -> bytes:
        """Return the message that drops what is queued."""

    def audio(self, audio: bytes) -> Sequence[bytes]:
        """Return the messages of whole frames; less than that waits for more, or for `flush`."""
        self._rest += audio
        whole = len(self._rest) - len(self._rest) % FRAME_BYTES
        frames, self._rest = self._rest[:whole], self._rest[whole:]
        if not self._marks or not whole:
            return self.frames(frames) if whole else ()
        marks, self._marks = self._marks, []
        first, more = frames[:FRAME_BYTES], frames[FRAME_BYTES:]
        return [*self.frames(first), *marks, *(self.frames(more) if more else ())]

    def flush(self) -> Sequence[bytes]:
        """Return what waits, filled up with silence."""
        return self.audio(SILENCE * (FRAME_BYTES - len(self._rest))) if self._rest else ()

    def mark(self, name: str) -> Sequence[bytes]:
        """Return the message for a mark; if audio waits, it does so too."""
        message = self.mark_message(name)
        if self._rest:
            self._marks.append(message)
            return ()
        return (message,)

    def clear(self) -> bytes:
        """Return the message that drops what is queued, and drop what waits."""
        self._rest, self._marks = b"", []
        return self.clear_message()

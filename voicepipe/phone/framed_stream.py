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
    """Implements the sending half of `StreamSerializer`: a partial frame waits for more audio. The subclass of a
    carrier makes the messages."""

    def __init__(self) -> None:
        self._partial_frame = b""
        """Mu-law that does not fill a frame yet."""

        self._marks: list[bytes] = []
        """The marks behind the partial frame; bounded: one for each piece, and no piece of audio is empty."""

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
        """Return the messages of whole frames; a partial frame waits for more audio, or for `flush`."""
        self._partial_frame += audio
        n_whole = len(self._partial_frame) - len(self._partial_frame) % FRAME_BYTES
        frames, self._partial_frame = self._partial_frame[:n_whole], self._partial_frame[n_whole:]
        if not self._marks or not n_whole:
            return self.frames(frames) if n_whole else ()
        marks, self._marks = self._marks, []
        first, more = frames[:FRAME_BYTES], frames[FRAME_BYTES:]
        return [*self.frames(first), *marks, *(self.frames(more) if more else ())]

    def flush(self) -> Sequence[bytes]:
        """Return the message of the partial frame, padded with silence."""
        return self.audio(SILENCE * (FRAME_BYTES - len(self._partial_frame))) if self._partial_frame else ()

    def mark(self, name: str) -> Sequence[bytes]:
        """Return the message of a mark; behind a partial frame the mark waits, too."""
        message = self.mark_message(name)
        if self._partial_frame:
            self._marks.append(message)
            return ()
        return (message,)

    def clear(self) -> bytes:
        """Drop the partial frame and its marks; return the message that drops the carrier's queue."""
        self._partial_frame, self._marks = b"", []
        return self.clear_message()

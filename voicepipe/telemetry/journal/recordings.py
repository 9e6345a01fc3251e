"""Read the audio that lies beside a session's journal: one file for each side and sample rate, end to end."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
from msgspec import Struct

_NAME: Final = re.compile(r"\.(user|agent)-(\d{4,6})hz\.au$")
_HEADER_BYTES: Final = 24
_SAMPLE_BYTES: Final = 2

PIECE_BYTES: Final = 1 << 18
"""Audio that is read at a time: some 5 s."""


class SideRecording(Struct, frozen=True):
    """The audio of one side of a session: 16-bit, mono."""

    path: Path
    side: str
    """`user` or `agent`."""

    rate_hz: int
    n_samples: int
    """How much was written when it was found; the session may still go on."""

    @property
    def duration_ms(self) -> int:
        """Return how long it plays, in ms."""
        return self.n_samples * 1_000 // self.rate_hz

    @property
    def wav_bytes(self) -> int:
        """Return the length of the WAV file that `wav` yields."""
        return 44 + self.n_samples * _SAMPLE_BYTES

    def wav(self) -> Iterator[bytes]:
        """Yield the recording as a WAV file, piece by piece. Waits for the disk.

        Raises:
            OSError: the file can't be read.
        """
        n_bytes = self.n_samples * _SAMPLE_BYTES
        form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, self.rate_hz, self.rate_hz * _SAMPLE_BYTES, 2, 16)
        yield struct.pack("<4sI4s", b"RIFF", 36 + n_bytes, b"WAVE") + form + struct.pack("<4sI", b"data", n_bytes)
        with self.path.open("rb") as file:
            file.seek(_HEADER_BYTES)
            while n_bytes and (read := file.read(min(PIECE_BYTES, n_bytes))):
                n_bytes -= len(read)
                yield np.frombuffer(read, ">i2").astype("<i2").tobytes()


def recording_in(path: Path) -> SideRecording | None:
    """Return the recording in a file; None: the file is no recording, is empty, or does not exist."""
    named = _NAME.search(path.name)
    if named is None:
        return None
    try:
        n_samples = (path.stat().st_size - _HEADER_BYTES) // _SAMPLE_BYTES
    except FileNotFoundError:
        return None
    return SideRecording(path, named[1], int(named[2]), n_samples) if n_samples > 0 else None

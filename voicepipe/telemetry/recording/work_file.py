"""The file of a recording while its call runs, and its compression afterwards."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

from voicepipe.telemetry.recording.timeline import RATE_HZ, PlacedAudio

USER: Final = 0
AGENT: Final = 1
"""Channels: the user is on the left, the agent on the right."""

FRAME_BYTES: Final = 4
"""Two samples of 16 bits."""

_PIECE_FRAMES: Final = 1 << 18
"""Frames that are compressed in one step: 11 s, about 1 MB."""


class WorkFile:
    """Two channels of 16-bit PCM, written at any place; what was not written is silent.

    The file is locked while it is open, so that another process detects whether its owner still runs.
    """

    def __init__(self, path: Path, *, is_new: bool = True) -> None:
        """Open the file, with access for its owner only.

        Raises:
            OSError: it can't be made or opened, or (BlockingIOError) another process has it open.
        """
        self.path = path
        flags = os.O_RDWR | (os.O_CREAT | os.O_EXCL if is_new else 0)
        self._file = os.open(path, flags, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise

    def write(self, channel: int, placed: PlacedAudio) -> int:
        """Write audio into one channel; return by how many bytes the file has grown.

        Raises:
            OSError: the disk is full, or fails.
        """
        n_frames, offset = len(placed.samples), placed.start * FRAME_BYTES
        before = os.pread(self._file, n_frames * FRAME_BYTES, offset)
        frames = np.zeros((n_frames, 2), dtype="<i2")
        frames.reshape(-1)[: len(before) // 2] = np.frombuffer(before, dtype="<i2", count=len(before) // 2)
        frames[:, channel] = placed.samples
        if os.pwrite(self._file, frames.tobytes(), offset) < n_frames * FRAME_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return n_frames * FRAME_BYTES - len(before)

    def end_at(self, n_frames: int) -> None:
        """Truncate the file to this length, or extend it with silence."""
        os.ftruncate(self._file, n_frames * FRAME_BYTES)

    def compress(self, target: Path) -> None:
        """Write the audio to `target` as FLAC, and delete this file. Blocks: about a second for ten minutes of audio.

        Raises:
            OSError: the disk is full or fails. This file is then still there.
        """
        import soundfile  # costly to import, and needed only where calls are recorded

        new = target.with_suffix(".new")
        try:
            offset = 0
            os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
            with soundfile.SoundFile(new, "w", RATE_HZ, 2, "PCM_16", format="FLAC") as flac:
                while data := os.pread(self._file, _PIECE_FRAMES * FRAME_BYTES, offset):
                    flac.write(np.frombuffer(data, dtype="<i2", count=len(data) // 4 * 2).reshape(-1, 2))
                    offset += len(data)
            if soundfile.info(new).frames != offset // FRAME_BYTES:  # libsndfile reports no error of its last write
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if self.path.exists():  # otherwise the recording was deleted meanwhile
                new.replace(target)
        except soundfile.SoundFileError as why:
            new.unlink(missing_ok=True)
            raise OSError(errno.EIO, str(why)) from why
        except BaseException:
            new.unlink(missing_ok=True)
            raise
        new.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file, and release its lock."""
        with suppress(OSError):
            os.close(self._file)

    def delete(self) -> None:
        """Close the file, and delete it."""
        self.close()
        self.path.unlink(missing_ok=True)

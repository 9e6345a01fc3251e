"""Write one session's journal to disk. All of it runs in the writer's thread, except for the methods of
`SessionJournal`.

Each file is locked while it is open: that shows other processes that it is being written. The lock ends with the
process.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from io import BufferedWriter
from pathlib import Path
from typing import Final

import numpy as np

from voicepipe.audio.samples import Samples
from voicepipe.telemetry.journal import format
from voicepipe.telemetry.journal.format import Texts
from voicepipe.telemetry.journal.plain import Words
from voicepipe.turn.commands import Command
from voicepipe.turn.events import Event

_AU: Final = (b".snd", 24, 0xFFFF_FFFF, 3, 1)
"""Sun's audio header: magic, offset of the audio, its length (unknown: so a file that was cut off is complete), 16-bit
PCM, the rate comes between, one channel. Source: Sun's audio_filehdr(5)."""


class SessionFiles:
    """The files of one session, created at the first write."""

    def __init__(self, path: Path, *, head: Callable[[], bytes], texts: Texts, words: Words, max_bytes: int) -> None:
        """`path`: of the journal; its audio files lie beside it."""
        self._path, self._head, self._texts, self._words = path, head, texts, words
        self._left_bytes = max_bytes
        self._files: dict[Path, BufferedWriter] = {}
        self._is_new = False
        """Whether something was written since the last flush."""

        self._n_events = 0
        self._gap = ""
        """Why no further events are written."""

    def begin(self) -> None:
        """Create the journal: from here on it is open for all processes."""
        self._file(self._path)

    def record(self, now_ms: int, event: Event, commands: tuple[Command, ...]) -> None:
        """Write an event's line."""
        if self._gap:
            return
        first = b"" if self._n_events else self._head()
        self._n_events += 1
        line = format.line(self._n_events, now_ms, event, commands, texts=self._texts, words=self._words)
        if not self._write(self._path, first + line):
            self.break_off(0, "the file had reached its limit, journals.session_mb")

    def write_audio(self, side: str, samples: Samples, rate_hz: int) -> None:
        """Write audio: of the `user` or the `agent`, one file for each side and rate."""
        magic, begins, length, kind, channels = _AU
        path = self._path.with_suffix(f".{side}-{rate_hz}hz.au")
        header = (
            b"" if path in self._files else magic + np.array([begins, length, kind, rate_hz, channels], ">u4").tobytes()
        )
        self._write(path, header + samples.astype(">i2").tobytes())

    def break_off(self, n_lost: int, why: str) -> None:
        """Write once that events are missing from here on; later events would have no meaning."""
        if not self._gap:
            self._gap = why
            self._file(self._path).write(format.gap(n_lost, why))

    def give_up(self) -> None:
        """Stop writing without a note: there is no space for it."""
        self._gap, self._left_bytes = "no room", 0
        for file in self._files.values():
            with suppress(OSError):
                file.close()
        self._files.clear()

    def refuse(self) -> None:
        """Give up before the first line, and leave no file."""
        self.give_up()
        self._path.unlink(missing_ok=True)

    def flush(self) -> bool:
        """Flush the files; return whether anything was written."""
        for file in self._files.values():
            file.flush()
        was_new, self._is_new = self._is_new, False
        return was_new

    def close(self, *, ended: bool) -> None:
        """Close the files. `ended`: the session is over, and all of it was written."""
        if ended and self._n_events and not self._gap:
            self._file(self._path).write(format.end())
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _write(self, path: Path, data: bytes) -> bool:
        if len(data) > self._left_bytes:
            return False
        self._left_bytes -= len(data)
        self._is_new = True
        self._file(path).write(data)
        return True

    def _file(self, path: Path) -> BufferedWriter:
        if path not in self._files:
            self._files[path] = _private(path)
        return self._files[path]


def is_open(path: Path) -> bool:
    """Return whether a process has this journal open. Once it is closed, it is never opened again."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: others may look at the same time
    except (FileNotFoundError, PermissionError):  # another user's: all processes of a server have the same user
        return False
    except BlockingIOError:
        return True
    return False


def _private(path: Path) -> BufferedWriter:
    """Open a new file with access for its owner only, and lock it."""
    unlocked = path.with_suffix(".new")
    file = os.fdopen(os.open(unlocked, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        unlocked.rename(path)  # not before: a file that others find unlocked may be deleted
    except OSError:
        file.close()
        unlocked.unlink(missing_ok=True)
        raise
    return file

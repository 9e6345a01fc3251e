"""Find and delete recordings in their folder.

A recording is `PROJECT/BEGAN-SESSION.USER.flac`; while it is written, `.part`. Project and user are hashes: their names
may have any character, and the user's name may be personal data.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

DONE_SUFFIX: Final = ".flac"
UNFINISHED_SUFFIX: Final = ".part"

_DAY_MS: Final = 86_400_000
_HASH_CHARS: Final = 32


class StoredRecording(Struct, frozen=True):
    """A recording in the folder."""

    path: Path

    @property
    def session(self) -> str:
        """Return the session's id."""
        return self._name_parts[0].partition("-")[2]

    @property
    def user(self) -> str:
        """Return the hash of the user, as `hash_of` returns it."""
        return self._name_parts[2]

    @property
    def began_unix_ms(self) -> int:
        """Return when the session began."""
        began = self._name_parts[0].partition("-")[0]
        return int(began) if began.isdecimal() else 0

    @property
    def is_done(self) -> bool:
        """Return whether the recording is complete and compressed."""
        return self.path.suffix == DONE_SUFFIX

    def duration_ms(self) -> int:
        """Return the duration; 0: the file is deleted or damaged. Blocks on the disk."""
        import soundfile  # costly to import, and needed only where calls are recorded

        try:
            return int(soundfile.info(self.path).duration * 1_000)
        except (OSError, soundfile.SoundFileError):
            return 0

    @property
    def _name_parts(self) -> tuple[str, str, str]:
        return self.path.stem.rpartition(".")


class RecordingFolder:
    """Finds and deletes recordings. Every method blocks on the disk: call it in a thread."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def new_path(self, project: str, session: str, user: str, began_unix_ms: int) -> Path:
        """Return the path of a new recording, without the suffix. Creates the folder.

        Raises:
            OSError: the folder can't be created.
        """
        folder = self.path / hash_of(project)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder / f"{began_unix_ms}-{session}.{hash_of(user) if user else ''}"

    def all(self, project: str | None = None) -> list[StoredRecording]:
        """Return all recordings, or those of a project."""
        folders = hash_of(project) if project is not None else "*"
        found = (StoredRecording(path) for path in self.path.glob(f"{folders}/*-*.*"))
        return [each for each in found if each.path.suffix in (DONE_SUFFIX, UNFINISHED_SUFFIX)]

    def of_session(self, project: str | None, session: str) -> list[StoredRecording]:
        """Return the recordings of a session."""
        return [each for each in self.all(project) if each.session == session]

    def of_user(self, project: str, user: str) -> list[StoredRecording]:
        """Return the recordings of a user."""
        return [each for each in self.all(project) if each.user == hash_of(user)] if user else []

    def trim(self, now_unix_ms: int, *, keep_days: int | None, max_bytes: float) -> float:
        """Delete recordings that are too old, and the oldest beyond `max_bytes`; return the bytes beyond it that
        remain.

        Recordings that are being written count, and are never deleted.
        """
        oldest_ms = 0 if keep_days is None else now_unix_ms - keep_days * _DAY_MS
        sized = [(each, _size_bytes(each.path)) for each in self.all()]
        excess_bytes = sum(size for _, size in sized) - max_bytes
        for each, size in sorted(sized, key=lambda one: one[0].began_unix_ms):
            if each.is_done and (excess_bytes > 0 or each.began_unix_ms < oldest_ms):
                each.path.unlink(missing_ok=True)
                excess_bytes -= size
        return excess_bytes


def delete_all(recordings: Iterable[StoredRecording]) -> int:
    """Delete recordings, and return their number."""
    n_deleted = 0
    for each in recordings:
        with suppress(FileNotFoundError):
            each.path.unlink()
            n_deleted += 1
    return n_deleted


def hash_of(name: str) -> str:
    """Return a project or a user as in file names."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARS]


def _size_bytes(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0

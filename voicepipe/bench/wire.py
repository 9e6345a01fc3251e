"""What one 20 ms frame costs on the wire, each way: `python -m voicepipe.bench.wire`.

CPU time of this process, microseconds a frame, the best of several rounds (the machine's noise only adds).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pybase64

from voicepipe.protocol.binary import caller_frame
from voicepipe.protocol.client_events import read
from voicepipe.protocol.extensions import Extensions
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.protocol.session_parts import AudioFormat, FormatName
from voicepipe.protocol.writer import Wire
from voicepipe.turn.announcements import OutputStarted, ResponseStarted
from voicepipe.turn.conversation import Message
from voicepipe.turn.settings import ReplySettings

FRAME_SAMPLES: Final = 480
"""20 ms at 24 kHz."""

FORMATS: Final[tuple[FormatName, ...]] = ("audio/pcm", "audio/pcmu")

N_FRAMES: Final = 20_000
N_ROUNDS: Final = 5


def cost_us(work: Callable[[], object]) -> float:
    """CPU microseconds of one call of `work`."""
    rounds = []
    for _ in range(N_ROUNDS):
        begun_ns = time.process_time_ns()
        for _ in range(N_FRAMES):
            work()
        rounds.append((time.process_time_ns() - begun_ns) / N_FRAMES / 1_000)
    return min(rounds)


def config(output: FormatName, *, in_binary: bool = False) -> SessionConfig:
    """A session that speaks in that format, in binary frames or in JSON."""
    extensions = Extensions(binary_audio=True) if in_binary else None
    return SessionConfig.start(
        session_id="sess_bench",
        model="m",
        voice="v",
        instructions="",
        expires_at=0,
        output_format=AudioFormat(output),
        extensions=extensions,
    )


def replying(output: FormatName, *, in_binary: bool = False) -> Wire:
    """A wire in the midst of a spoken reply."""
    wire = Wire(config(output, in_binary=in_binary))
    wire.announce(ResponseStarted("resp_bench", ReplySettings(), "turn_bench"))
    wire.announce(OutputStarted("resp_bench", Message("item_bench", "assistant", ()), None))
    return wire


@dataclass(frozen=True, slots=True)
class Way:
    """One way that a frame takes."""

    name: str
    work: Callable[[], object]
    n_bytes: int
    """Of one frame on the wire, without the WebSocket's own header."""


def ways() -> list[Way]:
    """All of them, JSON first."""
    samples = np.random.default_rng(1).integers(-8_000, 8_000, FRAME_SAMPLES, dtype=np.int16)
    audio = pybase64.b64encode_as_string(samples.tobytes())
    text = f'{{"type":"input_audio_buffer.append","audio":"{audio}"}}'.encode()
    frame = caller_frame(samples.tobytes())
    plain, opted_in = config("audio/pcm"), config("audio/pcm", in_binary=True)
    found = [
        Way("in, JSON", lambda: read(text, plain), len(text)),
        Way("in, binary", lambda: read(frame, opted_in), len(frame)),
    ]
    for form in FORMATS:
        for in_binary in (False, True):
            wire = replying(form, in_binary=in_binary)
            name = f"out, {form}, {'binary' if in_binary else 'JSON'}"
            wire.audio("resp_bench", samples)  # G.711 keeps the first few milliseconds back
            n_bytes = sum(map(len, wire.audio("resp_bench", samples)))
            found.append(Way(name, partial(wire.audio, "resp_bench", samples), n_bytes))
    words = replying("audio/pcm")
    n_bytes = sum(map(len, words.text_delta("resp_bench", "some words ")))
    return [*found, Way("out, transcript delta", lambda: words.text_delta("resp_bench", "some words "), n_bytes)]


def main() -> None:
    """Measure, and print a line for each way."""
    for way in ways():
        sys.stdout.write(f"{way.name:28} {cost_us(way.work):7.2f} us {way.n_bytes:6} bytes\n")


if __name__ == "__main__":
    main()

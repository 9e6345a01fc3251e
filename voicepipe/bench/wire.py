"""What one 20 ms frame costs on the wire, each way: `python -m voicepipe.bench.wire`.

CPU time of this process, microseconds a frame, the best of several rounds (the machine's noise only adds).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final

import numpy as np
import pybase64

from voicepipe.protocol.client_events import read
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.protocol.session_parts import AudioFormat, FormatName
from voicepipe.protocol.writer import Wire
from voicepipe.turn.announcements import OutputStarted, ResponseStarted
from voicepipe.turn.conversation import Message
from voicepipe.turn.settings import ReplySettings

FRAME_SAMPLES: Final = 480
"""20 ms at 24 kHz."""

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


def config(output: FormatName) -> SessionConfig:
    """A session that speaks in that format."""
    form = AudioFormat(output)
    return SessionConfig.start(
        session_id="sess_bench", model="m", voice="v", instructions="", expires_at=0, output_format=form
    )


def replying(output: FormatName) -> Wire:
    """A wire in the midst of a spoken reply."""
    wire = Wire(config(output))
    wire.announce(ResponseStarted("resp_bench", ReplySettings(), "turn_bench"))
    wire.announce(OutputStarted("resp_bench", Message("item_bench", "assistant", ()), None))
    return wire


def main() -> None:
    """Measure, and print a line for each way."""
    samples = np.random.default_rng(1).integers(-8_000, 8_000, FRAME_SAMPLES, dtype=np.int16)
    audio = pybase64.b64encode_as_string(samples.tobytes())
    append = f'{{"type":"input_audio_buffer.append","audio":"{audio}"}}'
    encoded = append.encode()
    session = config("audio/pcm")
    pcm, pcmu = replying("audio/pcm"), replying("audio/pcmu")
    rows: list[tuple[str, Callable[[], object]]] = [
        ("append read (str)", lambda: read(append, session)),
        ("append read (bytes)", lambda: read(encoded, session)),
        ("audio delta written (audio/pcm)", lambda: pcm.audio("resp_bench", samples)),
        ("audio delta written (audio/pcmu)", lambda: pcmu.audio("resp_bench", samples)),
        ("transcript delta written", lambda: pcm.text_delta("resp_bench", "some words ")),
    ]
    for label, work in rows:
        sys.stdout.write(f"{label:32} {cost_us(work):7.2f} us\n")


if __name__ == "__main__":
    main()

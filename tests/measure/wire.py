"""Measure the cost of one 20 ms frame on the wire, each way: `python -m tests.measure.wire`.

CPU time of this process, microseconds a frame, the best of several rounds (the machine's noise only adds). Beside each
way stands the plain one, measured in the same rounds: JSON and base64 by the standard library, a whole event a frame.
Both make and read the same bytes of audio: resampling and G.711 are in both.
"""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pybase64

from voicepipe.audio.encoding import FormatName
from voicepipe.audio.samples import Samples
from voicepipe.protocol.binary import user_frame
from voicepipe.protocol.extensions import Extensions
from voicepipe.protocol.inbound import read
from voicepipe.protocol.outbound import EventRenderer
from voicepipe.protocol.output_codec import OutputCodec
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.protocol.session_types import AudioFormat
from voicepipe.turn.conversation import Message
from voicepipe.turn.notifications import OutputStarted, ResponseStarted
from voicepipe.turn.settings import ReplySettings

FRAME_SAMPLES: Final = 480
"""20 ms at 24 kHz."""

FORMATS: Final[tuple[FormatName, ...]] = ("audio/pcm", "audio/pcmu")

WORDS: Final = "some words "

N_FRAMES: Final = 20_000
N_ROUNDS: Final = 5


def round_us(work: Callable[[], object]) -> float:
    """Return the CPU microseconds of one call of `work`, over one round."""
    begun_ns = time.process_time_ns()
    for _ in range(N_FRAMES):
        work()
    return (time.process_time_ns() - begun_ns) / N_FRAMES / 1_000


def config(output: FormatName, *, in_binary: bool = False) -> SessionConfig:
    """Return the config of a session that speaks in that format, in binary frames or in JSON."""
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


def replying(output: FormatName, *, in_binary: bool = False) -> EventRenderer:
    """Return a renderer in the middle of a spoken reply."""
    wire = EventRenderer(config(output, in_binary=in_binary))
    wire.render(ResponseStarted("resp_bench", ReplySettings(), "turn_bench"))
    wire.render(OutputStarted("resp_bench", Message("item_bench", "assistant", ()), None))
    return wire


@dataclass(frozen=True, slots=True)
class Way:
    """One way of a frame, and its plain counterpart."""

    name: str
    work: Callable[[], object]
    n_bytes: int
    """Of one frame on the wire, without the WebSocket's own header."""

    plain: Callable[[], object]
    n_plain_bytes: int

    def costs_us(self) -> tuple[float, float]:
        """Return the CPU microseconds of a frame: the plain way's, and this one's.

        Rounds alternate, so that both meet the same machine.
        """
        rounds = [(round_us(self.plain), round_us(self.work)) for _ in range(N_ROUNDS)]
        return min(plain for plain, _ in rounds), min(ours for _, ours in rounds)


def plain_read(text: bytes) -> bytes:
    """Return the audio of a client's append."""
    return base64.b64decode(json.loads(text)["audio"])


def plain_event(kind: str, delta: str) -> bytes:
    """Return a delta of the agent's message as JSON."""
    ids = {"response_id": "resp_bench", "item_id": "item_bench", "output_index": 0, "content_index": 0}
    return json.dumps({"type": kind, **ids, "event_id": "event_bench_0001", "delta": delta}).encode()


def plain_audio(codec: OutputCodec, samples: Samples) -> bytes:
    """Return an event with more of the agent's audio."""
    coded = b"".join(codec.push(samples))
    return plain_event("response.output_audio.delta", base64.b64encode(coded).decode())


def plain_words() -> bytes:
    """Return an event with more of the agent's text."""
    return plain_event("response.output_audio_transcript.delta", WORDS)


def ways_in(samples: Samples) -> Iterator[Way]:
    """Yield the ways of the user's audio."""
    audio = pybase64.b64encode_as_string(samples.tobytes())
    text = f'{{"type":"input_audio_buffer.append","audio":"{audio}"}}'.encode()
    frame = user_frame(samples.tobytes())
    plain = partial(plain_read, text)
    yield Way("in, JSON", partial(read, text, config("audio/pcm")), len(text), plain, len(text))
    opted_in = config("audio/pcm", in_binary=True)
    yield Way("in, binary", partial(read, frame, opted_in), len(frame), plain, len(text))


def ways_out(samples: Samples) -> Iterator[Way]:
    """Yield the ways of the agent's audio and text."""
    for form in FORMATS:
        codec = OutputCodec(AudioFormat(form))
        plain_audio(codec, samples)  # G.711 holds the first few milliseconds back
        plain = partial(plain_audio, codec, samples)
        for in_binary in (False, True):
            wire = replying(form, in_binary=in_binary)
            wire.audio("resp_bench", samples)
            work = partial(wire.audio, "resp_bench", samples)
            name = f"out, {form}, {'binary' if in_binary else 'JSON'}"
            yield Way(name, work, sum(map(len, work())), plain, len(plain()))
    words = partial(replying("audio/pcm").text_delta, "resp_bench", WORDS)
    yield Way("out, words", words, sum(map(len, words())), plain_words, len(plain_words()))


def main() -> None:
    """Measure, and print a table."""
    samples = np.random.default_rng(1).integers(-8_000, 8_000, FRAME_SAMPLES, dtype=np.int16)
    sys.stdout.write(
        "| 20 ms | before, us | us | ratio | before, bytes | bytes |\n| --- | --- | --- | --- | --- | --- |\n"
    )
    for way in (*ways_in(samples), *ways_out(samples)):
        plain_us, us = way.costs_us()
        figures = f"{plain_us:.2f} | {us:.2f} | {plain_us / us:.1f} | {way.n_plain_bytes} | {way.n_bytes}"
        sys.stdout.write(f"| {way.name} | {figures} |\n")


if __name__ == "__main__":
    main()

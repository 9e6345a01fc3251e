"""Measure the CPU of a telephone's audio: `python -m tests.measure.telephone_stt --sound FILE`.

Each vendor's own adapter sends to the vendor's fake, which runs in another thread: once as the telephone's audio comes,
at 8 kHz in G.711, and once resampled, as for a vendor without 8 kHz. Many sessions get frames of 20 ms in turn, twice
as fast as in a call: 2.5 s of speech, then 5.8 s of room noise. The CPU time of the sessions' thread is counted, up to
the writing to the STT's sockets.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from tests.measure.audio_input import FRAME_MS, SILENCE_MS, TURN_MS, VirtualClock, turn_frames
from voicepipe.audio.encoding import MULAW
from voicepipe.audio.files import read_sound
from voicepipe.audio.resample import Resampler
from voicepipe.audio.samples import PcmJoiner
from voicepipe.ports.transcriber import Transcriber
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.protocol.session_types import PCM_HZ, AudioFormat
from voicepipe.providers.built_in import factory
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.session.audio_input import AudioInput
from voicepipe.session.read_limit import ReadLimit
from voicepipe.session.transcription import SessionTranscription
from voicepipe.testing.fakes import deepgram_stt, elevenlabs_stt, openai_realtime_stt
from voicepipe.testing.fakes.ws_stt import FakeWsTranscriber
from voicepipe.turn import events as e
from voicepipe.values import replace

SPEED: Final = 2
VENDORS: Final[dict[str, tuple[str, type[FakeWsTranscriber], str]]] = {
    "deepgram/nova-3": ("deepgram", deepgram_stt.FakeDeepgram, deepgram_stt.KEY),
    "elevenlabs/scribe_v2_realtime": ("elevenlabs", elevenlabs_stt.FakeScribe, elevenlabs_stt.KEY),
    "openai-realtime/gpt-live-transcribe": (
        "openai_realtime",
        openai_realtime_stt.FakeRealtimeStt,
        openai_realtime_stt.KEY,
    ),
}
"""STT that gets the whole call, and two that get its utterances: at 16 and at 24 kHz without a telephone's format."""


class PhoneSession:
    """A session on the telephone, whose turns end after `SILENCE_MS`."""

    def __init__(self, clock: VirtualClock, transcriber: Transcriber) -> None:
        config = SessionConfig(session_id="s", model="m", expires_at=0, input_format=AudioFormat("audio/pcmu"))
        self.read_limit = ReadLimit()
        self.audio_input = AudioInput(config, transcriber.capabilities, clock, self._post)  # type: ignore[arg-type]
        self.options = SessionTranscription(
            transcriber, transcriber.name.partition("/")[2], config, self.audio_input, self._post, lambda event: None
        ).options
        self._utterance = 0

    def _post(self, event: e.Event) -> None:
        if isinstance(event, e.SpeechStarted) and not self.audio_input.in_utterance:
            self._utterance += 1
            self.audio_input.begin(self._utterance)
        elif isinstance(event, e.SilenceGrew) and event.silence_ms >= SILENCE_MS and self.audio_input.in_utterance:
            self.audio_input.flush(1)
            self.audio_input.end(self._utterance)


@contextmanager
def served(kind: type[FakeWsTranscriber]) -> Iterator[FakeWsTranscriber]:
    """Run a vendor's fake in a thread of its own."""
    ready, over = threading.Event(), threading.Event()
    vendors: list[FakeWsTranscriber] = []

    async def serve() -> None:
        async with kind() as vendor:
            vendors.append(vendor)
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    ready.wait()
    try:
        yield vendors[0]
    finally:
        over.set()
        thread.join()


def resampled(transcriber: Transcriber) -> Transcriber:
    """Return the transcriber as if its vendor did not take 8 kHz."""
    transcriber.capabilities = replace(transcriber.capabilities, telephone=frozenset())
    return transcriber


@asynccontextmanager
async def opened(sessions: list[PhoneSession], transcriber: Transcriber) -> AsyncIterator[None]:
    """Open the stream of each session; read and drop its texts."""

    async def read(session: PhoneSession) -> None:
        async with transcriber.open(session.options) as stream:
            session.audio_input.feed.attach(stream)
            async for _ in stream:
                pass

    async with AsyncExitStack() as stack:
        group = await stack.enter_async_context(asyncio.TaskGroup())
        tasks = [group.create_task(read(session), name="texts") for session in sessions]
        yield
        for task in tasks:
            task.cancel()


async def measure(frames: list[bytes], n_sessions: int, transcriber: Transcriber) -> float:
    """Return the CPU time of a second of a call in ms; the first turn is not counted."""
    clock = VirtualClock()
    sessions = [PhoneSession(clock, transcriber) for _ in range(n_sessions)]
    async with opened(sessions, transcriber):
        began_cpu_s = 0.0
        for _ in range(2):
            began_cpu_s, began_s = time.thread_time(), time.monotonic()
            for number, frame in enumerate(frames, 1):
                clock.ms += FRAME_MS
                for each in sessions:
                    await each.audio_input.process(frame, each.read_limit)
                await asyncio.sleep(max(0, began_s + number * FRAME_MS / SPEED / 1_000 - time.monotonic()))
        spent_s = time.thread_time() - began_cpu_s
        for each in sessions:
            each.audio_input.close()
    return spent_s * 1e6 / TURN_MS / n_sessions


def main(arguments: list[str] | None = None) -> int:
    """Print the figures of each vendor."""
    parser = argparse.ArgumentParser(prog="python -m tests.measure.telephone_stt", description=__doc__)
    parser.add_argument("--sound", type=Path, required=True, help="what users say: 2.5 s of one voice")
    parser.add_argument("--sessions", type=int, default=20, help="in turn (20)")
    parser.add_argument("--noise", type=float, default=10, help="level of the room (10)")
    parser.add_argument("--rounds", type=int, default=3, help="how often, in turn (3)")
    options = parser.parse_args(arguments)
    resampler = Resampler(PCM_HZ, MULAW.rate_hz)
    room = turn_frames(read_sound(options.sound, PCM_HZ), options.noise)
    frames = [MULAW.encode(resampler.push(PcmJoiner().push(frame))) for frame in room]
    for name, (kind, fake, key) in VENDORS.items():
        for _ in range(options.rounds):
            cells = []
            for title, changed in (("resampled", resampled), ("as it comes", lambda samples: samples)):
                with served(fake) as vendor:
                    settings = ProviderSettings(kind=kind, base_url=vendor.base_url, api_key=key)
                    made = factory(kind, "stt", key="stt")(Spec(*name.split("/")), settings)
                    spent_ms = asyncio.run(measure(frames, options.sessions, changed(made)))
                n_bytes = sum(sum(call.message_bytes) for call in vendor.calls) / options.sessions
                cells.append(f"{title} {spent_ms:.2f} ms, {n_bytes / 2 / TURN_MS:.1f} kB of audio")
            sys.stdout.write(f"{name}: a second of a call: {'; '.join(cells)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

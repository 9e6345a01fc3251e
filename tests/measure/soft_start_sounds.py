"""Measure how an answer that began softly goes on after a sound without words.

`python -m tests.measure.soft_start_sounds --data SPEECH_NATURAL --sounds SPEECH` says an order to an agent over a real
socket in real time, and a sound 300 ms into the answer: the clips of the kinds `noise` (without babble),
`nonspeech_vocal` and `backchannel`, and the agent's own audio 10 dB below what is played, at most 1.5 s of each. STT
and TTS are local, the LLM is a fake.

It prints the time from the last voiced sample of each sound that stopped the answer to the next audible sample of the
answer, at the client, and which answers were lost: not spoken to their end in the same turn, or made again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import aiohttp
import numpy as np

from tests.measure.soft_start import SPOKEN, ready, row, settings_of
from voicepipe import clock
from voicepipe.audio.files import read_sound
from voicepipe.audio.samples import Samples
from voicepipe.config import load
from voicepipe.testing.fakes.cues import LlmCue, tokens
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.user import WIRE_HZ, User, calling
from voicepipe.wiring import running

ANSWER: Final = "Of course. That will take a few minutes."
KINDS: Final = ("noise", "nonspeech_vocal", "backchannel")
OWN_AUDIO: Final = "own audio"
OWN_GAIN: Final = 0.3
LEAD_MS: Final = 300
SOUND_MS: Final = 1_500
QUIET_MS: Final = 3_500
FRAME_MS: Final = 20
N_FRAME: Final = WIRE_HZ * FRAME_MS // 1_000


class Listener:
    """Notes the events of a session, and when they came."""

    def __init__(self, user: User) -> None:
        self.user = user
        self.found: list[tuple[int, dict[str, Any]]] = []
        self.answered = False

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            event = await self.user.next()
            self.found.append((clock.monotonic_ms(), event))
            self.answered = self.answered or event["type"] == SPOKEN

    def waits_ms(self, began_ms: int) -> list[int]:
        """Return how long after each sound that stopped the answer it went on; the audio's first sample was sent at
        `began_ms`.
        """
        waits: list[int] = []
        ended_ms = response_id = None
        for at_ms, event in self.found:
            if event["type"] == "input_audio_buffer.speech_stopped":
                ended_ms = began_ms + event["audio_end_ms"]
            elif event["type"] == SPOKEN and event["response_id"] != response_id:
                if response_id is not None and ended_ms is not None:
                    waits.append(at_ms - ended_ms)
                response_id = event["response_id"]
        return waits

    def done(self) -> list[dict[str, Any]]:
        """Return the responses that are over."""
        return [event["response"] for _, event in self.found if event["type"] == "response.done"]


async def speak(listener: Listener, question: Samples, sound: Samples | None) -> int:
    """Say the question, and the sound into its answer (None: the answer itself); return when the first sample left."""
    user, rest, n_left = listener.user, question, None
    began_ms, n = clock.monotonic_ms(), 0
    while n_left != 0:
        await asyncio.sleep(max(0, began_ms + n * FRAME_MS - clock.monotonic_ms()) / 1_000)
        if n_left is None and listener.answered:
            played = (user.sound() * OWN_GAIN).astype(np.int16) if sound is None else sound
            lead = np.zeros(LEAD_MS * WIRE_HZ // 1_000, np.int16)
            rest = np.concatenate((lead, played[: SOUND_MS * WIRE_HZ // 1_000]))
            n_left = (LEAD_MS + SOUND_MS + QUIET_MS) // FRAME_MS
        await user.speak(np.pad(rest[:N_FRAME], (0, N_FRAME - len(rest[:N_FRAME]))))
        rest, n = rest[N_FRAME:], n + 1
        n_left = None if n_left is None else n_left - 1
    return began_ms


async def went_on(url: str, question: Samples, sound: Samples | None) -> tuple[list[int], bool]:
    """Return how long after each stop the answer went on, and whether it was spoken to its end."""
    async with calling(url, query="agent=soft") as user:
        listener = Listener(user)
        reading = asyncio.create_task(listener.run())
        began_ms = await speak(listener, question, sound)
        reading.cancel()
    done = listener.done()
    turn_ids = {each["metadata"]["voicepipe_turn"] for each in done}
    async with aiohttp.ClientSession() as http:
        records = [await (await http.get(f"{url}/v1/turns/{turn_id}")).json() for turn_id in turn_ids]
    said = "".join(part["transcript"] for item in done[-1]["output"] for part in item["content"])
    intact = [(each["outcome"], each["resumed"]) for each in records] == [("completed", 0)]
    return listener.waits_ms(began_ms), intact and bool(said) and ANSWER.endswith(said)


def sounds_of(folder: Path, n_clips: int) -> dict[str, Samples | None]:
    """Return the sounds of a labelled folder by name, and the agent's own audio."""
    lines = [json.loads(line) for line in (folder / "manifest.jsonl").read_text().splitlines()]
    found: dict[str, Samples | None] = {OWN_AUDIO: None}
    for kind in KINDS:
        clips = [line for line in lines if line["kind"] == kind and "babble" not in line["path"]]
        for clip in clips[:n_clips]:
            samples = read_sound(folder / clip["path"], WIRE_HZ)
            found[clip["id"]] = samples[(clip["speech_start_ms"] or 0) * WIRE_HZ // 1_000 :]
    return found


async def measured(question: Samples, sounds: dict[str, Samples | None]) -> str:
    """Play each sound into an answer; return the line of the table."""
    found: dict[str, tuple[list[int], bool]] = {}
    async with FakeVendor() as vendor:
        vendor.llm.usual = LlmCue(tokens=tokens(ANSWER), ttft_ms=150)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            overrides = settings_of(Path(folder), vendor, ("llm",))
            settings = load(overrides=overrides, environ={"HOME": folder}, folder=Path(folder))
            async with running(settings) as server:
                await ready(server.base_url)
                for name, sound in sounds.items():
                    found[name] = await went_on(server.base_url, question, sound)
                    sys.stderr.write(f"{name}: {found[name]}\n")
    waits = [wait_ms for waits_ms, _ in found.values() for wait_ms in waits_ms]
    n_stopped = sum(bool(waits_ms) for waits_ms, _ in found.values())
    lost = [name for name, (_, whole) in found.items() if not whole]
    detail = f"  {n_stopped} of {len(sounds)} sounds stopped the answer; lost: {', '.join(lost) or 'none'}"
    return row("goes on", waits, f"  longest {max(waits, default=0)}{detail}")


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="orders, with manifest.jsonl")
    parser.add_argument("--sounds", type=Path, required=True, metavar="FOLDER", help="sounds, with manifest.jsonl")
    parser.add_argument("--clips", type=int, default=30, help="at most so many of each kind")
    options = parser.parse_args()
    lines = [json.loads(line) for line in (options.data / "manifest.jsonl").read_text().splitlines()]
    order = next(line for line in lines if line["kind"] == "command")
    question = read_sound(options.data / order["path"], WIRE_HZ)[: order["speech_end_ms"] * WIRE_HZ // 1_000]
    table = asyncio.run(measured(question, sounds_of(options.sounds, options.clips)))
    sys.stdout.write(f"{'':10}{'p50':>8}{'p90':>8}{'N':>6}\n{table}\n")


if __name__ == "__main__":
    main()

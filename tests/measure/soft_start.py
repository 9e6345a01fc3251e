"""Measure turn latency at the client with `end_of_turn` adaptive and soft, in one run over real sockets.

`python -m tests.measure.soft_start --data FOLDER --kind command --clips 20` says each labelled clip of that kind in
real time to two agents that differ in `end_of_turn` alone. The providers are fakes: a text 60 ms after each pause, the
first token 150 ms after the request, the first audio 90 ms after the first clause. For each agent it prints the time
from the labelled end of speech to the first audible sample at the client: p50, p90, the number of clips, and how many
answers were stopped by a later part of the clip.

With `--local` the local models take the place of the fakes: the whole stack that a new installation has.

With `--stop` a voice begins 500 ms into each answer instead, and it prints the time from the first sample of that
voice to `input_audio_buffer.speech_started` at the client, at which clients stop playing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import aiohttp
import numpy as np

from voicepipe import clock
from voicepipe.audio.files import read_sound
from voicepipe.audio.samples import Samples
from voicepipe.config import load
from voicepipe.testing.fakes.cues import LlmCue, SttCue, TtsCue, tokens
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.user import WIRE_HZ, User, calling
from voicepipe.wiring import running

STRATEGIES: Final = ("adaptive", "soft")
SPOKEN: Final = "response.output_audio.delta"
ANSWER: Final = "Of course. That will take a few minutes, and I will tell you when it is done."
QUIET_MS: Final = 3_000
LOCAL_QUIET_MS: Final = 10_000
"""How long the user listens for the answer. The local models take seconds on a busy machine."""


def settings_of(folder: Path, vendor: FakeVendor, *, local: bool) -> dict[str, object]:
    """Return the settings of a server with one agent per strategy: of fakes, or of the local models."""
    stages = {} if local else {"stt": "fake/stt", "llm": "fake/llm", "tts": "fake/tts"}
    agents = {
        f"agents.{name}.{key}": value
        for name, strategy in (*((each, each) for each in STRATEGIES), ("default", "soft"))
        for key, value in {**stages, "end_of_turn": strategy}.items()
    }
    server = {"server.port": 0, "server.data_dir": str(folder / "data"), "server.drain_ms": 0}
    return {**server, "providers.fake.base_url": vendor.base_url, **agents}


async def ready(url: str) -> None:
    """Return when the server admits sessions: local models take seconds to load.

    Raises:
        TimeoutError: it does not within two minutes.
    """
    async with aiohttp.ClientSession() as http:
        for _ in range(240):
            if (await http.get(f"{url}/readyz")).status == HTTPStatus.OK:
                return
            await asyncio.sleep(0.5)
    raise TimeoutError(f"expected {url}/readyz to answer 200 within two minutes")


async def say(user: User, samples: Samples, silence_ms: int) -> int:
    """Say this in real time, and then silence; return when it began, in ms of this machine."""
    began_ms = clock.monotonic_ms()
    await user.say_in_real_time(np.concatenate((samples, np.zeros(silence_ms * WIRE_HZ // 1_000, np.int16))))
    return began_ms


async def events(user: User, found: dict[str, list[int]], first: asyncio.Event) -> None:
    """Note when each kind of event comes."""
    while True:
        event = await user.next()
        found.setdefault(event["type"], []).append(clock.monotonic_ms())
        if event["type"] == SPOKEN:
            first.set()


async def latency_ms(
    url: str, agent: str, clip: dict[str, Any], samples: Samples, quiet_ms: int
) -> tuple[int | None, bool]:
    """Return the turn latency of one clip, and whether its answer was stopped by the rest of it."""
    found: dict[str, list[int]] = {}
    async with calling(url, query=f"agent={agent}") as user:
        reading = asyncio.create_task(events(user, found, asyncio.Event()))
        began_ms = await say(user, samples, quiet_ms)
        reading.cancel()
    ended_ms = began_ms + clip["speech_end_ms"]
    audible_ms = [at_ms for at_ms in found.get(SPOKEN, []) if at_ms >= ended_ms]
    stopped = any(at_ms < ended_ms for at_ms in found.get(SPOKEN, []))
    return (audible_ms[0] - ended_ms if audible_ms else None), stopped


async def stop_ms(url: str, clip: dict[str, Any], samples: Samples) -> int | None:
    """Return how long after the first sample of a voice over the answer the client is notified."""
    found: dict[str, list[int]] = {}
    first = asyncio.Event()
    async with calling(url, query="agent=soft") as user:
        reading = asyncio.create_task(events(user, found, first))
        speaking = asyncio.create_task(say(user, samples, QUIET_MS))
        await first.wait()
        await asyncio.sleep(0.5)
        speaking.cancel()
        voice = samples[clip["speech_start_ms"] * WIRE_HZ // 1_000 :]
        began_ms = await say(user, voice, 200)
        reading.cancel()
    started_ms = found["input_audio_buffer.speech_started"]
    if sum(at_ms < began_ms for at_ms in started_ms) > 1:
        return None  # the clip itself has gone on over the answer
    return next((at_ms - began_ms for at_ms in started_ms if at_ms >= began_ms), None)


def row(name: str, values: list[int], more: str = "") -> str:
    """Return one line of the table; without values it has none."""
    if not values:
        return f"{name:10}{'-':>8}{'-':>8}{0:6}{more}"
    middle, tail = np.percentile(values, (50, 90))
    return f"{name:10}{middle:8.0f}{tail:8.0f}{len(values):6}{more}"


def ratio(waits: dict[str, list[int]]) -> str:
    """Return the line with the second strategy's latencies as shares of the first one's."""
    first, second = (waits[name] for name in STRATEGIES)
    if not (first and second):
        return f"{'ratio':10}{'-':>8}{'-':>8}"
    middle, tail = np.percentile(second, (50, 90)) / np.percentile(first, (50, 90))
    return f"{'ratio':10}{middle:8.2f}{tail:8.2f}"


async def measured(data: Path, clips: list[dict[str, Any]], text: str, *, stop: bool, local: bool) -> list[str]:
    """Say all clips; return the lines of the table."""
    async with FakeVendor() as vendor:
        vendor.stt.usual = SttCue(text=text, delay_ms=60)
        vendor.llm.usual = LlmCue(tokens=tokens(ANSWER), ttft_ms=150)
        vendor.tts.usual = TtsCue(ttfb_ms=90)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            overrides = settings_of(Path(folder), vendor, local=local)
            settings = load(overrides=overrides, environ={"HOME": folder}, folder=Path(folder))
            async with running(settings) as server:
                await ready(server.base_url)
                sounds = [(clip, read_sound(data / clip["path"], WIRE_HZ)) for clip in clips]
                lines = [f"{'':10}{'p50':>8}{'p90':>8}{'N':>6}"]
                if stop:
                    stops = [await stop_ms(server.base_url, *each) for each in sounds]
                    return [*lines, row("stop", [each for each in stops if each is not None])]
                found: dict[str, list[tuple[int | None, bool]]] = {name: [] for name in STRATEGIES}
                for sound in sounds:  # in turn, so that both have the same machine
                    for name in STRATEGIES:
                        found[name].append(
                            await latency_ms(server.base_url, name, *sound, LOCAL_QUIET_MS if local else QUIET_MS)
                        )
                waits = {name: [ms for ms, _ in its if ms is not None] for name, its in found.items()}
                stopped = {name: sum(each for _, each in its) for name, its in found.items()}
                lines += [row(name, its, f"  {stopped[name]} stopped") for name, its in waits.items()]
                return [*lines, ratio(waits)]


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--kind", default="command")
    parser.add_argument("--clips", type=int, default=20)
    parser.add_argument("--text", default="Please make me two large cups of coffee.", help="what the STT returns")
    parser.add_argument("--stop", action="store_true")
    parser.add_argument("--local", action="store_true", help="use the local models in place of the fakes")
    options = parser.parse_args()
    lines = [json.loads(line) for line in (options.data / "manifest.jsonl").read_text().splitlines()]
    clips = [line for line in lines if line["kind"] == options.kind and line["speech_end_ms"]][: options.clips]
    table = asyncio.run(measured(options.data, clips, options.text, stop=options.stop, local=options.local))
    sys.stdout.write("\n".join(table) + "\n")


if __name__ == "__main__":
    main()

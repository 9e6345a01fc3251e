"""Measure turn latency at the client with each `end_of_turn` in one run over real sockets.

`python -m tests.measure.soft_start --data FOLDER --kind command --clips 20` says each labelled clip of that kind in
real time to three agents that differ in `end_of_turn` alone: `silence` with 720 ms, `adaptive` and `soft`. Clips of the
kind `call` are sent as G.711, as a telephone does. The providers are fakes: a text 60 ms after each pause, the
first token 150 ms after the request, the first audio 90 ms after the first clause. For each agent it prints the time
from the labelled end of speech to the first audible sample at the client: p50, p90, the number of clips, and how many
answers were stopped by a later part of the clip; then p50 and p90 of `soft` as shares of the others'.

With `--smart-turn FILE` a fourth agent, `smart-turn`, is `soft` with that model's scores.

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
from base64 import b64encode
from collections.abc import Iterable
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import aiohttp
import numpy as np

from voicepipe import clock
from voicepipe.audio.files import read_sound
from voicepipe.audio.g711 import G711_HZ, encode_mulaw
from voicepipe.audio.resample import Resampler
from voicepipe.audio.samples import Samples
from voicepipe.config import load
from voicepipe.testing.fakes.cues import LlmCue, SttCue, TtsCue, tokens
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.user import WIRE_HZ, User, calling
from voicepipe.wiring import running

STRATEGIES: Final = ("silence", "adaptive", "soft")
SILENCE_MS: Final = {"silence": 720, "adaptive": 500, "soft": 500}
"""The setting `silence_ms`: the default, which `adaptive` and `soft` take 1.44 times where nothing is known, or exactly
that.
"""

SMART_TURN: Final = "smart-turn"
"""The agent that is `soft` with the scores of the model of that name."""

TELEPHONE: Final = "call"
"""The kind of clips that are sent as G.711."""
SPOKEN: Final = "response.output_audio.delta"
ANSWER: Final = "Of course. That will take a few minutes, and I will tell you when it is done."
QUIET_MS: Final = 3_000
LOCAL_QUIET_MS: Final = 10_000
"""How long the user listens for the answer. The local models take seconds on a busy machine."""


def settings_of(
    folder: Path, vendor: FakeVendor, fakes: Iterable[str], smart_turn: Path | None = None
) -> dict[str, object]:
    """Return the settings of a server with one agent per strategy, and one with smart-turn if its file is named. The
    stages `fakes` have fake providers, the others the local models.
    """
    stages = {stage: f"fake/{stage}" for stage in fakes}
    agents = {
        f"agents.{name}.{key}": value
        for name, strategy in (*((each, each) for each in STRATEGIES), (SMART_TURN, "soft"), ("default", "soft"))
        for key, value in {**stages, "end_of_turn": strategy, "silence_ms": SILENCE_MS[strategy]}.items()
    }
    server = {"server.port": 0, "server.data_dir": str(folder / "data"), "server.drain_ms": 0}
    if smart_turn is not None:
        agents[f"agents.{SMART_TURN}.smart_turn"] = str(smart_turn)
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


async def say(user: User, samples: Samples, silence_ms: int, *, telephone: bool) -> int:
    """Say this in real time, and then silence; return when it began, in ms of this machine."""
    whole = np.concatenate((samples, np.zeros(silence_ms * WIRE_HZ // 1_000, np.int16)))
    if not telephone:
        began_ms = clock.monotonic_ms()
        await user.speak_in_real_time(whole)
        return began_ms
    audio = encode_mulaw(Resampler(WIRE_HZ, G711_HZ).push(whole))
    n_frame, began_ms = G711_HZ // 50, clock.monotonic_ms()
    for first in range(0, len(audio), n_frame):
        await asyncio.sleep(max(0, began_ms + first * 1_000 // G711_HZ - clock.monotonic_ms()) / 1_000)
        await user.send("input_audio_buffer.append", audio=b64encode(audio[first : first + n_frame]).decode())
    return began_ms


async def becomes_telephone(user: User, clip: dict[str, Any]) -> bool:
    """Make a call's input G.711; return whether it is."""
    if clip["kind"] != TELEPHONE:
        return False
    audio = {"input": {"format": {"type": "audio/pcmu"}}}
    await user.send("session.update", session={"type": "realtime", "audio": audio})
    await user.until("session.updated")
    return True


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
        telephone = await becomes_telephone(user, clip)
        reading = asyncio.create_task(events(user, found, asyncio.Event()))
        began_ms = await say(user, samples, quiet_ms, telephone=telephone)
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
        telephone = await becomes_telephone(user, clip)
        reading = asyncio.create_task(events(user, found, first))
        speaking = asyncio.create_task(say(user, samples, QUIET_MS, telephone=telephone))
        await first.wait()
        await asyncio.sleep(0.5)
        speaking.cancel()
        voice = samples[clip["speech_start_ms"] * WIRE_HZ // 1_000 :]
        began_ms = await say(user, voice, 200, telephone=telephone)
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


def ratio(waits: dict[str, list[int]], to: str, of: str = "soft") -> str:
    """Return the line with the latencies of an agent as shares of another's."""
    if not (waits[of] and waits[to]):
        return f"{'ratio':10}{'-':>8}{'-':>8}"
    middle, tail = np.percentile(waits[of], (50, 90)) / np.percentile(waits[to], (50, 90))
    return f"{'ratio':10}{middle:8.2f}{tail:8.2f}        {of} to {to}"


async def measured(
    data: Path, clips: list[dict[str, Any]], text: str, *, stop: bool, local: bool, smart_turn: Path | None
) -> list[str]:
    """Say all clips; return the lines of the table."""
    names = STRATEGIES if smart_turn is None else (*STRATEGIES, SMART_TURN)
    async with FakeVendor() as vendor:
        vendor.stt.usual = SttCue(text=text, delay_ms=60)
        vendor.llm.usual = LlmCue(tokens=tokens(ANSWER), ttft_ms=150)
        vendor.tts.usual = TtsCue(ttfb_ms=90)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            overrides = settings_of(Path(folder), vendor, () if local else ("stt", "llm", "tts"), smart_turn)
            settings = load(overrides=overrides, environ={"HOME": folder}, folder=Path(folder))
            async with running(settings) as server:
                await ready(server.base_url)
                sounds = [(clip, read_sound(data / clip["path"], WIRE_HZ)) for clip in clips]
                lines = [f"{'':10}{'p50':>8}{'p90':>8}{'N':>6}"]
                if stop:
                    stops = [await stop_ms(server.base_url, *each) for each in sounds]
                    return [*lines, row("stop", [each for each in stops if each is not None])]
                found: dict[str, list[tuple[int | None, bool]]] = {name: [] for name in names}
                for sound in sounds:  # in turn, so that both have the same machine
                    for name in names:
                        found[name].append(
                            await latency_ms(server.base_url, name, *sound, LOCAL_QUIET_MS if local else QUIET_MS)
                        )
                waits = {name: [ms for ms, _ in samples if ms is not None] for name, samples in found.items()}
                stopped = {name: sum(each for _, each in samples) for name, samples in found.items()}
                lines += [row(name, waits_ms, f"  {stopped[name]} stopped") for name, waits_ms in waits.items()]
                lines += [ratio(waits, each) for each in STRATEGIES if each != "soft"]
                return lines if smart_turn is None else [*lines, ratio(waits, "soft", SMART_TURN)]


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--kind", default="command")
    parser.add_argument("--clips", type=int, default=20)
    parser.add_argument("--text", default="Please make me two large cups of coffee.", help="what the STT returns")
    parser.add_argument("--stop", action="store_true")
    parser.add_argument("--local", action="store_true", help="use the local models in place of the fakes")
    parser.add_argument("--smart-turn", type=Path, metavar="FILE", help="with an agent that has this model")
    options = parser.parse_args()
    lines = [json.loads(line) for line in (options.data / "manifest.jsonl").read_text().splitlines()]
    clips = [line for line in lines if line["kind"] == options.kind and line["speech_end_ms"]][: options.clips]
    more = {"stop": options.stop, "local": options.local, "smart_turn": options.smart_turn}
    table = asyncio.run(measured(options.data, clips, options.text, **more))
    sys.stdout.write("\n".join(table) + "\n")


if __name__ == "__main__":
    main()

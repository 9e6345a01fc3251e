"""Measure interruptions: backchannels and the agent's own echo must not stop the agent, and interruptions must, soon.

`python -m tests.measure.interruptions --data FOLDER` starts a server whose agent speaks a recording of FOLDER, calls
it, and speaks over it in real time: each backchannel of FOLDER/manifest.jsonl at ten places of the reply, the same with
the reply's echo at -20 dB in the microphone, that echo alone, and the first 1.5 s of each clean recording as an
interruption. It prints a table and writes a line for each call. The STT is the local one, or, with `--stt scripted`,
one that returns "Mm-hmm." for backchannels, nothing for echo and a question for interruptions.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from tests.measure.interruption_call import Seen, play
from tests.measure.interruption_scenes import KINDS, Kind, Scene, reply_of, scenes
from tests.measure.recorded_provider import RecordedProvider
from voicepipe.audio.samples import Samples
from voicepipe.bench.endpointing.speech_set import SpeechSet
from voicepipe.bench.load.processes import started
from voicepipe.client import until_ready
from voicepipe.errors import VoicepipeError

STT_SPECS: Final = {"local": "local/moonshine-tiny", "scripted": "bench/stt"}
TRANSCRIPTS: Final[dict[Kind, str]] = {
    "backchannel": "Mm-hmm.",
    "backchannel over echo": "Mm-hmm.",
    "echo alone": "",
    "interruption": "I have a question about that.",
}
"""The texts of the scripted STT."""

MUSTS: Final[dict[Kind, str]] = {
    "backchannel": "10 % stop",
    "backchannel over echo": "10 % stop",
    "echo alone": "0 stop",
    "interruption": "5 % don't",
}
_COLUMNS: Final = (
    "stt",
    "kind",
    "clip",
    "onset_ms",
    "ducked_ms",
    "n_ducked",
    "verdicts_ms",
    "stopped_ms",
    "why",
    "failure",
)


async def run(data: Path, stt: str, kinds: Iterable[Kind], at_once: int, say: Callable[[str], None]) -> list[Seen]:
    """Start the server and play all scenes of these kinds, `at_once` at a time.

    Raises:
        VoicepipeError: the connection to the server failed.
        RuntimeError: it did not start.
        OSError: the folder does not exist.
    """
    speech = await asyncio.to_thread(SpeechSet, data)
    reply = await asyncio.to_thread(reply_of, speech)
    vendor = RecordedProvider(reply)
    with tempfile.TemporaryDirectory() as folder:
        async with vendor.serving() as base_url, started(*_server(Path(folder), base_url, stt)) as server:
            await until_ready(server.url, say)
            seen: list[Seen] = []
            for kind in kinds:
                vendor.transcript = TRANSCRIPTS[kind]
                played = await asyncio.to_thread(_listed, speech, reply, kind)
                seen += await _play_all(played, server.url, at_once)
                say(f"{kind}: {len(played)} calls")
    return seen


def _listed(speech: SpeechSet, reply: Samples, kind: Kind) -> list[Scene]:
    return list(scenes(speech, reply, kind))


def _server(folder: Path, base_url: str, stt: str) -> list[str]:
    settings = {
        "server.port": 0,
        "server.workers": 1,
        "server.data_dir": folder / "data",
        "server.drain_ms": 0,
        "providers.bench.base_url": base_url,
        "agents.default.stt": STT_SPECS[stt],
        "agents.default.llm": "bench/llm",
        "agents.default.tts": "bench/tts",
    }
    return ["voicepipe", "serve", *(word for key, value in settings.items() for word in ("--set", f"{key}={value}"))]


async def _play_all(played: list[Scene], url: str, at_once: int) -> list[Seen]:
    places = asyncio.Semaphore(at_once)

    async def one(scene: Scene) -> Seen:
        async with places:
            return await play(scene, url)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(scene), name="scene") for scene in played]
    return [task.result() for task in tasks]


def report(seen: list[Seen], stt: str) -> Iterator[str]:
    """Yield the table in Markdown, line by line."""
    name = STT_SPECS[stt] if stt == "local" else stt
    heads = (f"STT: {name}", "n", "stop the agent", "must", "ducked p50/p90", "verdict p50/max", "stopped p50/p90")
    yield f"| {' | '.join(heads)} |"
    yield "| --- " * len(heads) + "|"
    for kind in KINDS:
        of_kind = [each for each in seen if each.scene.kind == kind]
        if of_kind:
            yield _row(kind, of_kind)


def _row(kind: Kind, seen: list[Seen]) -> str:
    stops = [each.stopped_ms for each in seen if each.stopped_ms is not None]
    ducked = [each.ducked_ms for each in seen if each.ducked_ms is not None and "echo" not in kind]
    verdicts = [ms for each in seen for ms in each.verdicts_ms]
    share = f"{len(stops)} ({len(stops) / len(seen):.0%})"
    cells = (kind, f"{len(seen)}", share, MUSTS[kind], _ms(ducked, 90), _ms(verdicts, 100), _ms(stops, 90))
    return f"| {' | '.join(cells)} |"


def _ms(values: list[int], high: int) -> str:
    """Format the median and a high percentile."""
    return f"{np.percentile(values, 50):.0f}/{np.percentile(values, high):.0f} ms" if values else "-"


def write_csv(path: Path, seen: list[Seen], stt: str) -> None:
    """Write one line for each call."""
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(_COLUMNS)
        for each in seen:
            verdicts = " ".join(str(ms) for ms in each.verdicts_ms)
            scene = (stt, each.scene.kind, each.scene.clip, each.scene.onset_ms)
            table.writerow((*scene, each.ducked_ms, each.n_ducked, verdicts, each.stopped_ms, each.why, each.failure))


def say(line: str) -> None:
    """Print a line now."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    """Print the table; 1 when a call failed, 2 when there is no such folder, or the server does not start."""
    parser = argparse.ArgumentParser(prog="python -m tests.measure.interruptions", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a folder with manifest.jsonl and its recordings")
    parser.add_argument("--stt", choices=tuple(STT_SPECS), default="local", help="who hears the user (local)")
    parser.add_argument("--kind", choices=KINDS, action="append", help="only scenes of this kind; may be repeated")
    parser.add_argument("--at-once", type=int, default=6, help="how many calls at a time (6)")
    parser.add_argument("--csv", type=Path, default=Path("interruptions.csv"), help="where the lines go")
    options = parser.parse_args(arguments)
    try:
        seen = asyncio.run(run(options.data, options.stt, options.kind or KINDS, options.at_once, say))
    except (VoicepipeError, RuntimeError, OSError) as why:
        sys.stderr.write(f"interruptions: {why}\n")
        return 2
    write_csv(options.csv, seen, options.stt)
    for line in report([each for each in seen if not each.failure], options.stt):
        say(line)
    failures = [each.failure for each in seen if each.failure]
    if failures:
        sys.stderr.write(f"interruptions: {len(failures)} calls failed: {failures[0]}\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

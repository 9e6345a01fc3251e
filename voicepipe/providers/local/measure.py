"""Measure the local engines on this machine: `python -m voicepipe.providers.local.measure CLIP.flac`.

CLIP is a recording at 16 kHz mono. Prints medians and maxima in ms. For each engine it also prints the cost of a
cancel: how long the client waits for it, and the CPU time that the engine still spends on cancelled work.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import soundfile

from voicepipe.clock import monotonic_ms
from voicepipe.ports.model import Content, Model, ModelRequest, Text, TextDelta
from voicepipe.ports.synthesizer import Synthesizer, Voice
from voicepipe.ports.transcriber import Samples, Transcriber, TranscriptionOptions
from voicepipe.providers.local import llm, stt, tts
from voicepipe.providers.local.engine.llama_cpp import smollm2
from voicepipe.providers.local.process import LocalEngine, start_engine
from voicepipe.providers.local.wire import STT_RATE_HZ, LoadProgress
from voicepipe.registry import ProviderSettings, Spec

AFTER_CANCEL_S: Final = 1.0
"""Wait after a cancel: long enough for any of the engines to react."""

INSTRUCTIONS: Final = "You are a friendly voice assistant on the telephone. Answer in one short sentence. " * 5
CLAUSE: Final = "The capital of France is Paris,"
LONG: Final = "It lies on the river Seine and has been an important city for more than two thousand years. " * 2


def print_line(line: str) -> None:
    """Print a line of the report."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def cpu_ms(pid: int) -> int:
    """CPU time of a process, in steps of 10 ms (proc(5), fields 14 and 15 of stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 // os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> int:
    """Memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


async def report(name: str, once: Callable[[int], Awaitable[int]], times: int) -> None:
    """Print the spread of what `once` measures."""
    values = [await once(n) for n in range(times)]
    print_line(f"{name:<46} median {statistics.median(values):6.0f} ms   max {max(values):6.0f} ms   n {times}")


async def final_ms(transcriber: Transcriber, samples: Samples) -> int:
    """Time from flush to final."""
    async with transcriber.open(TranscriptionOptions(model=stt.MODEL)) as stream:
        stream.begin(1)
        stream.push(samples)
        began_ms = monotonic_ms()
        stream.flush(1)
        await anext(aiter(stream))
        return monotonic_ms() - began_ms


async def first_text_ms(model: Model, request: ModelRequest) -> int:
    """Time from the request to the first text."""
    began_ms = monotonic_ms()
    async with model.open(request) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                break
        return monotonic_ms() - began_ms


async def first_sound_ms(synthesizer: Synthesizer, clause: str = CLAUSE) -> int:
    """Time from the clause to its first audio."""
    async with synthesizer.open(Voice(model=tts.MODEL)) as speech:
        began_ms = monotonic_ms()
        speech.push(clause)
        await anext(aiter(speech))
        return monotonic_ms() - began_ms


async def cancel(
    name: str, engine: LocalEngine, work: Callable[[], Awaitable[int]], after_s: float, times: int
) -> None:
    """Cancel `work` in the middle and print the cost."""
    waited_ms, wasted_ms = [], []
    for _ in range(times):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(_forever(work))
            await asyncio.sleep(after_s)
            cpu_before_ms, began_ms = cpu_ms(engine.pid), monotonic_ms()
            task.cancel()
            await asyncio.wait([task])
            waited_ms.append(monotonic_ms() - began_ms)
        await asyncio.sleep(AFTER_CANCEL_S)
        wasted_ms.append(cpu_ms(engine.pid) - cpu_before_ms)
    median, most = statistics.median(wasted_ms), max(wasted_ms)
    print_line(f"cancel {name:<39} user free in {max(waited_ms)} ms at most, engine works on for")
    print_line(f"{'':<46} median {median:6.0f} ms   max {most:6.0f} ms CPU")


async def _forever(work: Callable[[], Awaitable[int]]) -> None:
    while True:
        await work()


def request(question: str, *, session: str) -> ModelRequest:
    """A question after the instructions."""
    messages = (Content("system", (Text(INSTRUCTIONS),)), Content("user", (Text(question),)))
    return ModelRequest(model=llm.MODEL, messages=messages, session=session, temperature=0.0)


async def measure(clip: Path, folder: Path, *, times: int = 9) -> None:
    """Run all measurements, with a separate engine."""
    samples, rate_hz = soundfile.read(clip, dtype="int16")
    if rate_hz != STT_RATE_HZ or samples.ndim != 1:
        raise SystemExit(f"{clip}: expected mono at {STT_RATE_HZ} Hz, got {samples.shape} at {rate_hz} Hz")

    def on_progress(progress: LoadProgress) -> None:
        print_line(f"{progress.stage} {progress.state} {progress.took_ms or ''} {progress.why}")

    path = folder / "e.sock"
    began_ms = monotonic_ms()
    async with start_engine(path, on_progress) as engine:
        print_line(f"all ready after {monotonic_ms() - began_ms} ms, {resident_mb(engine.pid)} MB resident")
        settings = ProviderSettings(kind="local", options=(("socket", str(path)),))
        transcriber = stt.open_transcriber(Spec("local", stt.MODEL), settings)
        model = llm.open_model(Spec("local", llm.MODEL), settings)
        synthesizer = tts.open_synthesizer(Spec("local", tts.MODEL), settings)
        seconds = samples.size / STT_RATE_HZ

        async def cold(n: int) -> int:
            return await first_text_ms(model, request(f"Hi, {n}.", session=f"cold{n}"))

        async def cached(n: int) -> int:
            return await first_text_ms(model, request(f"What is {n}?", session="cached"))

        await report(f"stt: flush to final, {seconds:.1f} s clip", lambda n: final_ms(transcriber, samples), times)
        await report("llm: first text, instructions not read", cold, min(times, smollm2().slots))
        await cached(0)
        await report("llm: first text, instructions cached", cached, times)
        await report("tts: clause to first sound", lambda n: first_sound_ms(synthesizer), times)
        long = request("Tell me a long story.", session="long")
        await cancel("stt", engine, lambda: final_ms(transcriber, samples), 0.03, times)
        await cancel("llm, while it writes", engine, lambda: _whole_ms(model, long), 0.4, times)
        await cancel("llm, while it reads", engine, lambda: _reading_ms(model), 0.3, times)
        await cancel("tts", engine, lambda: first_sound_ms(synthesizer, LONG), 0.02, times)
        print_line(f"at the end {resident_mb(engine.pid)} MB resident")


async def _whole_ms(model: Model, request: ModelRequest) -> int:
    async with model.open(request) as events:
        return len([event async for event in events])


async def _reading_ms(model: Model) -> int:
    """A long conversation that no cache holds: it differs from its first word on."""
    words = f"{monotonic_ms()} and many words after it. " * 60
    return await first_text_ms(model, request(words, session=f"reads{monotonic_ms()}"))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="voicepipe.providers.local.measure", description=__doc__)
    parser.add_argument("clip", type=Path)
    clip: Path = parser.parse_args().clip
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(clip, Path(folder)))


if __name__ == "__main__":
    main()

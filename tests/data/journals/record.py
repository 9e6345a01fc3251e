"""Record the journals of this folder, from a server with fake providers; or renew their content.

`python tests/data/journals/record.py` records all scenes anew, or the named ones. With `--renew` it takes the events of
each journal and writes down the core's present output, after an intended change: read the diff.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from voicepipe import clock
from voicepipe.audio.files import read_sound
from voicepipe.config import load
from voicepipe.ports.transcriber import Samples
from voicepipe.telemetry.journal.format import read_journal
from voicepipe.testing.fakes.cues import CallCue, LlmCue, Status, SttCue, TtsCue, tokens
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.journal_check import journal_of
from voicepipe.testing.user import WIRE_HZ, User, calling
from voicepipe.turn.journal import Entry
from voicepipe.wiring import running

HERE = Path(__file__).parent
CLIP = HERE.parent / "clean" / "cv_22058264.flac"
"""A user's "no"; the word is over after 1045 ms."""

TOOL = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}


def word() -> Samples:
    """The one word, without much around it."""
    return read_sound(CLIP, WIRE_HZ)[: WIRE_HZ * 1_060 // 1_000]


def pause(duration_ms: int) -> Samples:
    return np.zeros(duration_ms * WIRE_HZ // 1_000, dtype=np.int16)


def usual(text: str, *, ttft_ms: int = 250) -> LlmCue:
    return LlmCue(tokens=tokens(text), ttft_ms=ttft_ms, gap_ms=12)


async def answer(user: User, vendor: FakeVendor) -> None:
    """Two questions, two answers."""
    for text in ("It is noon. Anything else?", "Goodbye, then."):
        vendor.llm.usual = usual(text)
        await say(user, word(), pause(900))
        await user.until("response.done")
        await say(user, pause(2_400))


async def interruption(user: User, vendor: FakeVendor) -> None:
    """The user speaks over a long answer, and is answered."""
    vendor.llm.usual = usual("I could tell you a long story about that, and I will. It began in spring. It was cold.")
    await say(user, word(), pause(900))
    await user.until("response.output_audio.delta")
    vendor.stt.cue(SttCue(text="stop, what about today", delay_ms=120))
    vendor.llm.usual = usual("Today it is warm.")
    await say(user, pause(600), word(), pause(1_000))
    await user.until("response.done")
    await user.until("response.done")
    await say(user, pause(1_200))


async def revision(user: User, vendor: FakeVendor) -> None:
    """The user goes on after a long pause, before any audio of the answer was played."""
    vendor.stt.cue(SttCue(text="what time is it", delay_ms=120))
    vendor.stt.cue(SttCue(text="in Paris", delay_ms=120))
    vendor.llm.usual = usual("In Paris it is noon.", ttft_ms=900)
    await say(user, word(), pause(300), word(), pause(1_800))
    await user.until("response.done", lambda event: event["response"]["status"] == "completed")
    await say(user, pause(1_200))


async def tool(user: User, vendor: FakeVendor) -> None:
    """The agent calls a function of the client, which takes its time, and reads what it gave back."""
    await user.send("session.update", session={"type": "realtime", "tools": [TOOL]})
    vendor.llm.cue(LlmCue(tokens=(), calls=(CallCue("get_weather"),), finish="tool_calls", ttft_ms=250))
    vendor.llm.usual = usual("It is sunny.")
    await say(user, word(), pause(900))
    call = await user.until("response.function_call_arguments.done")
    await user.until("response.done")
    await say(user, pause(300))
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    await user.send("conversation.item.create", item=output)
    await user.send("response.create")
    await user.until("response.done")
    await say(user, pause(1_200))


async def failure(user: User, vendor: FakeVendor) -> None:
    """The model refuses one turn, for which the agent apologises, and answers the next."""
    vendor.llm.cue(LlmCue(fault=Status(500), ttft_ms=250))
    vendor.llm.cue(LlmCue(fault=Status(500), ttft_ms=250))
    await say(user, word(), pause(900))
    await user.until("response.done")
    await say(user, pause(1_500))
    vendor.llm.usual = usual("It is noon.")
    await say(user, word(), pause(900))
    await user.until("response.done")
    await say(user, pause(1_200))


async def reported(user: User, vendor: FakeVendor) -> None:
    """Two answers, of which the client says when it played them: 80 ms after they came."""
    extensions = {"voicepipe": {"playback_reports": True}}
    await user.send("session.update", session={"type": "realtime", "providerData": extensions})
    vendor.llm.usual = usual("It is noon. Anything else?")
    started_ms = clock.monotonic_ms()
    async with asyncio.TaskGroup() as group:
        group.create_task(say(user, word(), pause(2_600), word(), pause(2_600)))
        for _ in range(2):
            delta = await user.until("response.output_audio.delta")
            await asyncio.sleep(0.18)
            played = {"item_id": delta["item_id"], "played_ms": 100, "buffered_ms": 100}
            await user.send("voicepipe.playback", **played, input_ms=clock.monotonic_ms() - started_ms)
            await user.until("response.done")


SCENES: dict[str, Callable[[User, FakeVendor], Awaitable[None]]] = {
    scene.__name__: scene for scene in (answer, interruption, revision, tool, failure, reported)
}


async def say(user: User, *sounds: Samples) -> None:
    await user.speak_in_real_time(np.concatenate(sounds))


async def recorded(
    scene: Callable[[User, FakeVendor], Awaitable[None]], settings: dict[str, object] | None = None
) -> bytes:
    """The journal of one scene."""
    async with FakeVendor() as vendor:
        vendor.stt.usual = SttCue(delay_ms=120)
        vendor.tts.usual = TtsCue(ttfb_ms=90)
        with TemporaryDirectory() as folder:
            overrides = {
                "server.port": 0,
                "server.drain_ms": 0,
                "server.data_dir": folder,
                "journals.enabled": True,
                "providers.fake.base_url": vendor.base_url,
                "agents.default.stt": "fake/stt",
                "agents.default.llm": "fake/llm",
                "agents.default.tts": "fake/tts",
                "agents.default.instructions": "Be brief.",
                **(settings or {}),
            }
            async with running(load(overrides=overrides, environ={"HOME": folder}, folder=Path(folder))) as server:
                await server.ready.wait()
                async with calling(server.base_url) as user:
                    await scene(user, vendor)
            (path,) = (Path(folder) / "journals").glob("*.jsonl")
            return await asyncio.to_thread(path.read_bytes)


def renewed(data: bytes) -> bytes:
    """The same events, and the commands that the core gives now."""
    journal = read_journal(data)
    core = journal.opening.rebuilt()
    entries = [Entry(line.now_ms, line.event, core.handle(line.event, line.now_ms)) for line in journal.lines]
    return journal_of(journal.opening, entries)


if __name__ == "__main__":
    names = set(sys.argv[1:]) - {"--renew"}
    for name, scene in SCENES.items():
        if names and name not in names:
            continue
        path = HERE / f"{name}.jsonl"
        path.write_bytes(renewed(path.read_bytes()) if "--renew" in sys.argv else asyncio.run(recorded(scene)))

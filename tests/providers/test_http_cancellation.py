"""A hundred turns over HTTP are cut at any point: no request of them stays open at the vendor, and no task here."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, Final

from voicepipe.ports.synthesizer import Synthesizer, Voice
from voicepipe.ports.transcriber import Transcriber, TranscriptionOptions
from voicepipe.providers.openai.stt import open_transcriber
from voicepipe.providers.openai.tts import open_synthesizer
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.transcriber import next_text, push
from voicepipe.testing.conformance.waits import LeavesNothing
from voicepipe.testing.fakes.cues import TtsCue
from voicepipe.testing.fakes.tone import tone
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.waiting import eventually

SEED: Final = 20_261_121
TURNS: Final = 100
SPEECH: Final = tone("x" * 10, rate_hz=16_000)

Settings = Callable[..., ProviderSettings]
Turn = Callable[[], Coroutine[Any, Any, None]]


class TestCancellation(LeavesNothing):
    async def test_voice(self, vendor: FakeVendor, settings: Settings) -> None:
        vendor.tts.usual = TtsCue(ms_per_char=4, chunk_bytes=960)
        synthesizer: Synthesizer = open_synthesizer(Spec("kokoro", "kokoro"), settings())

        async def turn() -> None:
            async with synthesizer.open(Voice(model="kokoro")) as speech:
                for clause in ("One clause,", "two clauses,", "three."):
                    speech.push(clause)
                async for _ in speech:
                    pass

        await cut_at_any_point(turn, vendor)
        assert len(vendor.tts.received) > TURNS // 4

    async def test_transcriber(self, vendor: FakeVendor, settings: Settings) -> None:
        transcriber: Transcriber = open_transcriber(Spec("groq", "whisper"), settings())

        async def turn() -> None:
            async with transcriber.open(TranscriptionOptions(model="whisper")) as stream:
                stream.begin(1)
                for flush in (1, 2):
                    push(stream, SPEECH)
                    stream.flush(flush)
                    await next_text(stream)

        await cut_at_any_point(turn, vendor)
        assert len(vendor.stt.received) > TURNS // 4


async def cut_at_any_point(turn: Turn, vendor: FakeVendor) -> None:
    """Cancel each turn after a random number of turns of the loop; at the end the vendor has no open request."""
    dice = random.Random(SEED)
    for _ in range(TURNS):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(turn())
            for _ in range(dice.randrange(200)):
                if task.done():
                    break
                await asyncio.sleep(0)
            task.cancel()

    async def at_rest() -> bool | None:
        return vendor.tts.busy() + vendor.stt.busy() == 0 or None

    await eventually(at_rest)

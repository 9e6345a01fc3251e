"""Cancel a hundred sessions at random points: none may stay open at the vendor."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from voicepipe.ports.transcriber import Samples, Transcriber, TranscriptionOptions, TranscriptStream
from voicepipe.testing.conformance.transcriber import final, push
from voicepipe.testing.conformance.waits import LeavesNothing
from voicepipe.testing.fakes.ws_connection import SttConnection

TURNS = 100
SEED = 20_261_121


class CountsCalls(Protocol):
    """A fake that lists its open connections."""

    calls: list[SttConnection]

    @property
    def open_calls(self) -> Sequence[SttConnection]: ...
    async def nth(self, n: int) -> SttConnection: ...


class TranscriberCancellation(LeavesNothing):
    """For an STT whose vendor is a fake. Fixtures: `transcriber`, `vendor`; optionally `transcription`."""

    async def test_cancellation(
        self, transcriber: Transcriber, vendor: CountsCalls, transcription: TranscriptionOptions
    ) -> None:
        """Each turn is cut at a random point, from the dialling to the answer."""
        dice = random.Random(SEED)
        speech = np.zeros(transcriber.capabilities.rate_hz // 2, dtype=np.int16)
        for _ in range(TURNS):
            came = len(vendor.calls)
            cut = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                turn = group.create_task(self._turn(transcriber, transcription, speech, cut, dice.randrange(4)))
                point = dice.randrange(60)
                if dice.random() < 0.5:
                    await vendor.nth(came)
                for _ in range(point):
                    if turn.done():
                        break
                    await asyncio.sleep(0)
                cut.set()
                turn.cancel()
        for call in vendor.calls:
            await call.until(call.closed.is_set)
        assert len(vendor.calls) >= TURNS // 4
        assert not vendor.open_calls

    async def _turn(
        self,
        transcriber: Transcriber,
        transcription: TranscriptionOptions,
        speech: Samples,
        cut: asyncio.Event,
        n_flushes: int,
    ) -> None:
        async with transcriber.open(transcription) as stream:
            stream.begin(1)
            for flush in range(1, n_flushes + 1):
                push(stream, speech)
                await asyncio.sleep(0)
                await self._flush(stream, flush)
            await cut.wait()

    async def _flush(self, stream: TranscriptStream, flush: int) -> None:
        stream.flush(flush)
        await final(stream)

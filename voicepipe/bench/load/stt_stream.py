"""An STT with Deepgram's messages that recognises no words: it measures the level, and counts utterances."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from voicepipe import clock
from voicepipe.audio.encoding import AudioEncoding

LOUD: Final = 600
"""A peak above this is speech; the users of the bench fill half the scale."""

MIN_QUIET_MS: Final = 40
"""Speech has ended when this much quiet audio was received. As an STT does, the stream counts its audio: audio that
arrives late is no pause. The sentences of the bench have shorter pauses."""


class DeepgramStream:
    """One stream: a final text comes a known time after the last loud frame, or after `Finalize`."""

    def __init__(
        self,
        send: Callable[[str], Awaitable[None]],
        encoding: AudioEncoding,
        count: Iterator[int],
        *,
        hold_ms: int,
        punctuate: bool = False,
    ) -> None:
        """`punctuate` writes a capital letter and a question mark, as Deepgram does where the client requests it."""
        self._send, self._encoding, self._count, self._hold_ms = send, encoding, count, hold_ms
        self._punctuate = punctuate
        self._rate_hz = encoding.rate_hz
        self.finalize_ms = hold_ms
        """Delay of the final text after a request."""

        self._n_received = self._n_final = self._n_begun = self._n_ended = 0
        self._text = ""
        self._loud_ms = 0
        self._due_ms: int | None = None
        self._finalize_requested = False
        self._changed = asyncio.Event()

    async def receive(self, audio: bytes) -> None:
        """Process more of the user's audio."""
        samples = self._encoding.decode(audio)
        self._n_received += len(samples)
        if len(samples) and int(samples.max()) > LOUD:
            await self._voice()
        elif self._text and self._due_ms is None and self._quiet_ms >= MIN_QUIET_MS:
            self._expect(self._loud_ms + self._hold_ms)

    @property
    def _quiet_ms(self) -> float:
        """The audio received since the last loud frame."""
        return (self._n_received - self._n_ended) * 1_000 / self._rate_hz

    def control(self, kind: str) -> None:
        """Process a control message of the client."""
        if kind == "Finalize":
            finalize_at_ms = clock.monotonic_ms() + (self.finalize_ms if self._text else 0)
            self._finalize_requested = True
            self._expect(finalize_at_ms if self._due_ms is None else min(finalize_at_ms, self._due_ms))

    async def send_finals(self) -> None:
        """Send each final text at its time, until cancelled."""
        while True:
            self._changed.clear()
            left_s = None if self._due_ms is None else max(0, self._due_ms - clock.monotonic_ms()) / 1_000
            if left_s == 0:
                await self._final()
                continue
            try:
                async with asyncio.timeout(left_s):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _voice(self) -> None:
        self._loud_ms, self._n_ended = clock.monotonic_ms(), self._n_received
        if not self._finalize_requested:
            self._due_ms = None
        if not self._text:
            self._n_begun = self._n_received
            self._text = f"where is number {next(self._count)}"
            await self._send(self._results(final=False))

    def _expect(self, due_ms: int) -> None:
        self._due_ms = due_ms
        self._changed.set()

    async def _final(self) -> None:
        message = self._results(final=True)
        self._n_final, self._text, self._due_ms, self._finalize_requested = self._n_received, "", None, False
        await self._send(message)

    def _results(self, *, final: bool) -> str:
        """Return a `Results` message. Source: Deepgram API reference, "Live Audio", Results."""
        texts = self._text.split()
        transcript = f"{self._text.capitalize()}?" if self._punctuate and texts else self._text
        step = (self._n_ended - self._n_begun) / self._rate_hz / max(1, len(texts))
        begin_s = self._n_begun / self._rate_hz
        words: list[dict[str, str | float]] = [
            {"word": text, "start": begin_s + n * step, "end": begin_s + (n + 1) * step, "confidence": 1.0}
            for n, text in enumerate(texts)
        ]
        if self._punctuate:
            for word, punctuated in zip(words, transcript.split(), strict=True):
                word["punctuated_word"] = punctuated
        alternative = {"transcript": transcript, "confidence": 1.0, "words": words}
        return json.dumps(
            {
                "type": "Results",
                "channel_index": [0, 1],
                "start": self._n_final / self._rate_hz,
                "duration": (self._n_received - self._n_final) / self._rate_hz,
                "is_final": final,
                "speech_final": final and not self._finalize_requested,
                "from_finalize": final and self._finalize_requested,
                "channel": {"alternatives": [alternative]},
                "metadata": {"request_id": "bench", "model_info": {"name": "bench"}, "model_uuid": "bench"},
            }
        )

"""One user of the load bench: speaks the same sentence turn after turn, in real time, and measures the answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
import numpy as np
import pybase64

from voicepipe import clock
from voicepipe.audio.samples import Samples, silence
from voicepipe.bench.load.wire_protocols import RATE_HZ, WireProtocol

FRAME_MS: Final = 20
FRAME_SAMPLES: Final = RATE_HZ * FRAME_MS // 1_000

LOUD: Final = 900
"""For a sentence that fills half the scale: anything quieter is silence."""

PEAK: Final = 16_000
MAX_GAP_MS: Final = 40
"""Longer silences inside the sentence are cut, so that no server can take one for its end."""

PAUSE_MS: Final = 400
"""From the end of an answer to the next sentence."""

ANSWER_TIMEOUT_MS: Final = 10_000
"""An answer without audio within this time is missing; the same silence ends an answer without an end event."""

ENDED_MS: Final = 600
"""Without events, an answer whose audio has been played for this long is complete."""

UNDERRUN_MS: Final = 5
"""Audio that arrives this long after the earlier audio has been played leaves an audible gap."""

_AUDIBLE_BYTES: Final = 4_000
"""An answer begins with the first audio that is not all zero in this number of bytes, 83 ms."""


def sentence(recording: Samples) -> list[Samples]:
    """Split a recording, int16 at 24 kHz, into frames of 20 ms without pauses; the last one ends with a voiced sample.

    Raises:
        ValueError: the recording is silent.
    """
    scaled = recording.astype(np.float64) * PEAK / max(1, int(np.abs(recording).max(initial=0)))
    n_step = RATE_HZ // 100
    steps = scaled[: len(scaled) // n_step * n_step].reshape(-1, n_step)
    loud = np.abs(steps).max(axis=1) > LOUD
    if not loud.any():
        raise ValueError("expected a voice, got a recording without one")
    last = int(np.flatnonzero(loud)[-1])
    since = np.zeros(last + 1, dtype=int)
    run = MAX_GAP_MS
    for n in range(last + 1):
        run = 0 if loud[n] else run + 10
        since[n] = run
    voiced = steps[: last + 1][since < MAX_GAP_MS].reshape(-1).astype(np.int16)
    padded = np.concatenate((silence(-len(voiced) % FRAME_SAMPLES), voiced))
    return list(padded.reshape(-1, FRAME_SAMPLES))


@dataclass(slots=True)
class MeasuredSentence:
    """The result of one sentence."""

    spoken_at_ms: int
    """When the microphone had captured the last voiced sample, on the monotonic clock.

    A frame that is sent late counts from when it was due: the silence behind it is sent in a burst, and counted from
    the sending, the answer would seem to come sooner than a user could hear it.
    """

    first_audible_at_ms: int = 0
    """When the first audible sample came; 0 before that."""

    sound_ms: float = 0.0
    gaps_ms: list[int] = field(default_factory=list)
    """The length of each underrun of the player."""

    plays_until_ms: float = 0.0
    over: bool = False
    """Whether the server reported the answer as complete."""

    error: str = ""

    @property
    def latency_ms(self) -> int | None:
        """Return the time from the last voiced sample to the first audible one, at the client; None without audio."""
        return self.first_audible_at_ms - self.spoken_at_ms if self.first_audible_at_ms else None

    def add_audio(self, sound: bytes, now_ms: int) -> None:
        """Add audio of the answer: pcm16 at 24 kHz."""
        if not self.first_audible_at_ms:
            if not any(sound[:_AUDIBLE_BYTES]):
                return
            self.first_audible_at_ms, self.plays_until_ms = now_ms, now_ms
        if now_ms > self.plays_until_ms + UNDERRUN_MS:
            self.gaps_ms.append(round(now_ms - self.plays_until_ms))
        length_ms = len(sound) / 2 / RATE_HZ * 1_000
        self.plays_until_ms = max(self.plays_until_ms, now_ms) + length_ms
        self.sound_ms += length_ms


class LoadUser:
    """One connection. The microphone streams all the time, as a browser's does."""

    def __init__(
        self,
        frames: list[str | bytes],
        silent_frame: str | bytes,
        n_turns: int,
        on_turn: Callable[[MeasuredSentence], None],
        wire: WireProtocol,
    ) -> None:
        """`frames` and `silent_frame` are complete messages, made once for all users. `on_turn` gets each turn when
        it is over."""
        self._wire = wire
        self._frames, self._silent_frame, self._left, self._on_turn = frames, silent_frame, n_turns, on_turn
        self._turn: MeasuredSentence | None = None
        self._next_at_ms = self._next_frame = 0
        self.late_ms: list[int] = []
        """The delay of each frame."""

        self.n_audio_outside_turns = 0
        """Number of pieces of audio outside a turn."""

        self.errors: list[str] = []
        """The server's errors."""

    async def run(
        self, websocket: aiohttp.ClientWebSocketResponse, begin_ms: int, done: asyncio.Event, *, after_ms: int = 0
    ) -> None:
        """Talk from `begin_ms` on until all turns are over, then stream silence until `done`. The first frame is due in
        `after_ms`."""
        self._next_at_ms = begin_ms
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(self._listen(websocket), name="listen")
            try:
                await self._stream(websocket, done, after_ms)
            except ConnectionError:
                self._end("the connection broke")
            listening.cancel()

    @property
    def finished(self) -> bool:
        """Whether all its turns are over."""
        return self._left <= 0

    # --- speaking -----------------------------------------------------------------------------

    async def _stream(self, websocket: aiohttp.ClientWebSocketResponse, done: asyncio.Event, after_ms: int) -> None:
        due_ms = clock.monotonic_ms() + after_ms
        await asyncio.sleep(after_ms / 1_000)
        while not done.is_set() and not websocket.closed:
            now_ms = clock.monotonic_ms()
            self.late_ms.append(now_ms - due_ms)
            await _send(websocket, self._frame(now_ms, due_ms))
            due_ms += FRAME_MS
            await asyncio.sleep(max(0, due_ms - clock.monotonic_ms()) / 1_000)
        if websocket.closed and not done.is_set():
            self._end(f"closed by the server: {websocket.close_code}")

    def _frame(self, now_ms: int, due_ms: int) -> str | bytes:
        """Return the microphone's frame, whose last sample was captured at `due_ms`."""
        if self._turn is not None:
            self._close_if_over(self._turn, now_ms)
            return self._silent_frame
        if self._left <= 0 or now_ms < self._next_at_ms:
            return self._silent_frame
        frame = self._frames[self._next_frame]
        self._next_frame += 1
        if self._next_frame == len(self._frames):
            self._next_frame, self._turn = 0, MeasuredSentence(due_ms)
        return frame

    def _close_if_over(self, turn: MeasuredSentence, now_ms: int) -> None:
        """Close the turn if it is over."""
        if not turn.first_audible_at_ms:
            if now_ms - turn.spoken_at_ms > ANSWER_TIMEOUT_MS:
                self._end("no answer")
        elif now_ms > turn.plays_until_ms and (turn.over or self._is_long_silent(turn, now_ms)):
            self._end()
        elif now_ms > turn.plays_until_ms + ANSWER_TIMEOUT_MS:
            self._end("the answer has no end")

    def _is_long_silent(self, turn: MeasuredSentence, now_ms: int) -> bool:
        return not self._wire.has_events and now_ms > turn.plays_until_ms + ENDED_MS

    def _end(self, error: str = "") -> None:
        turn, self._turn = self._turn or MeasuredSentence(clock.monotonic_ms()), None
        turn.error = turn.error or error
        self._left -= 1
        self._next_at_ms = clock.monotonic_ms() + PAUSE_MS
        self._on_turn(turn)

    # --- listening ----------------------------------------------------------------------------

    async def _listen(self, websocket: aiohttp.ClientWebSocketResponse) -> None:
        async for message in websocket:
            if message.type is aiohttp.WSMsgType.TEXT:
                self._take(message.data, clock.monotonic_ms())
            elif message.type is aiohttp.WSMsgType.BINARY and (sound := self._wire.sound(message.data)) is not None:
                self._add_audio(sound, clock.monotonic_ms())

    def _take(self, text: str, now_ms: int) -> None:
        """Process one of the server's events; a delta of audio is read without parsing all of it."""
        head = text[:400]
        if 'audio.delta"' in head:  # both dialects; not that of a transcript, which has `audio_transcript.delta`
            self._add_audio(sound_of(text), now_ms)
        elif '"response.done"' in head or '"error"' in head:
            self._record(json.loads(text))

    def _add_audio(self, sound: bytes, now_ms: int) -> None:
        if self._turn is None:
            self.n_audio_outside_turns += 1
        else:
            self._turn.add_audio(sound, now_ms)

    def _record(self, event: dict[str, Any]) -> None:
        if event["type"] == "error":
            self.errors.append(str(event["error"].get("code") or event["error"]["message"]))
        elif event["type"] == "response.done" and self._turn is not None and self._turn.first_audible_at_ms:
            self._turn.over = True
            status = event["response"]["status"]
            if status != "completed":
                self._turn.error = f"the answer was {status}"


async def _send(websocket: aiohttp.ClientWebSocketResponse, message: str | bytes) -> None:
    if isinstance(message, str):
        await websocket.send_str(message)
    else:
        await websocket.send_bytes(message)


def sound_of(text: str) -> bytes:
    """Return the audio of a delta event."""
    begin = text.index('"', text.index('"delta":') + len('"delta":')) + 1
    return pybase64.b64decode(text[begin : text.index('"', begin)])

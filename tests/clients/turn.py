"""One spoken turn through another project's client: it plays a recording in real time, and reports the answer's end.

For the programs of this folder, which a test runs as processes of their own. Each prints one line of JSON,
`{"ok", "error", "transcript", "said", "sound_ms", "events", ...}`, and exits with 0 when `ok`.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from voicepipe import clock
from voicepipe.audio.files import read_sound

RATE_HZ = 24_000
CHUNK_MS = 20
CHUNK_BYTES = 2 * RATE_HZ * CHUNK_MS // 1_000

QUIET_S = 0.7
"""The turn is over when nothing happens for this time after a complete answer."""

MIN_ANSWER_MS = 200

Flags = Callable[[argparse.ArgumentParser], None]


class Turn:
    """What one turn through a client has brought so far."""

    def __init__(self, client: str, recording: Path) -> None:
        self.client = client
        self.events: Counter[str] = Counter()
        self.transcripts: list[str] = []
        """What the server understood."""

        self.said: list[str] = []
        """The words of the answer, in pieces."""

        self.sound = bytearray()
        self.more: dict[str, Any] = {}
        """Further values that a driver reports."""

        self.statuses: list[str] = []
        """How each answer ended, in order."""

        self.late_ms = 0
        """Audio that came between the user's voice over an answer and the end of that answer, in ms."""

        self.audible = asyncio.Event()
        self.spoken = asyncio.Event()
        """All of the recording has been sent."""

        self._recording = read_sound(recording, RATE_HZ).tobytes()
        self._to_say = self._recording
        self._n_said = self._n_answered = 0
        """How often the recording was begun; how often when the newest answer began."""

        self._answered = False
        self._running = self._stopped = False
        self._stirred = asyncio.Event()

    # --- events of the client ---------------------------------------------------------------------

    def event(self, kind: str) -> None:
        """An event came."""
        self.events[kind] += 1
        self._stirred.set()

    def response_began(self) -> None:
        """An answer is being made."""
        self._running, self._stopped, self._answered = True, False, False
        self._n_answered = self._n_said

    def response_ended(self, status: str) -> None:
        """It is over. It is no answer to what the user has said since it began: it was interrupted."""
        self._running = False
        self._answered = status == "completed" and len(self.sound) > 0 and self._n_answered == self._n_said
        self.statuses.append(status)

    def audio_came(self, pcm: bytes) -> None:
        """Audio of the answer came."""
        self.sound += pcm
        self.late_ms += self._stopped * len(pcm) // (2 * RATE_HZ // 1_000)
        self.audible.set()

    def user_began(self) -> None:
        """The server has heard the user's voice: an application stops playing."""
        self._stopped = self._running

    # --- the user ---------------------------------------------------------------------------

    def say_again(self) -> None:
        """Speak the recording once more, over whatever plays."""
        self._to_say, self._answered = self._recording, False
        self._n_said += 1
        self.spoken.clear()

    def begin_anew(self) -> None:
        """Leave out what came so far: it was a greeting."""
        self.said.clear()
        self.sound.clear()
        self.statuses.clear()
        self.audible.clear()
        self.say_again()

    async def go_on(self, after_s: float) -> None:
        """Speak the recording once more so long after the answer's first audio."""
        await self.audible.wait()
        await asyncio.sleep(after_s)
        self.say_again()

    async def speak(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        """Send the recording in real time, then silence, until cancelled."""
        began_ms = clock.monotonic_ms()
        for n in itertools.count(1):
            chunk, self._to_say = self._to_say[:CHUNK_BYTES], self._to_say[CHUNK_BYTES:]
            await send(chunk.ljust(CHUNK_BYTES, b"\0"))
            if not self._to_say:
                self.spoken.set()
            await asyncio.sleep(max(0, began_ms + n * CHUNK_MS - clock.monotonic_ms()) / 1_000)

    async def over(self) -> None:
        """Wait until all is said and answered, and quiet."""
        while True:
            self._stirred.clear()
            try:
                async with asyncio.timeout(QUIET_S):
                    await self._stirred.wait()
            except TimeoutError:
                if self.spoken.is_set() and self._answered and not self._running:
                    return

    async def until_over(self, *parts: Awaitable[None]) -> None:
        """Run the parts of a call until the turn is over; none of them may end before."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_endless(part)) for part in parts]
            await self.over()
            for task in tasks:
                task.cancel()

    def result(self, error: str | None) -> dict[str, Any]:
        """The line to print."""
        sound_ms = len(self.sound) // 2 * 1_000 // RATE_HZ
        said = "".join(self.said).strip()
        if error is None and (not said or sound_ms < MIN_ANSWER_MS):
            error = f"expected words and sound, got {said!r} and {sound_ms} ms"
        summary = {
            "client": self.client,
            "ok": error is None,
            "error": error,
            "transcript": " ".join(self.transcripts).strip(),
        }
        sound = {"said": said, "sound_ms": sound_ms, "late_ms": self.late_ms, "statuses": self.statuses}
        return {**summary, **sound, "events": dict(self.events), **self.more}


async def _endless(part: Awaitable[None]) -> None:
    await part
    raise EOFError("the connection ended before the answer was complete")


def run(client: str, main: Callable[[Turn, argparse.Namespace], Awaitable[None]], flags: Flags | None = None) -> None:
    """Run a driver's `main`, print the result, and leave."""
    arguments = argparse.ArgumentParser(description=f"one spoken turn through {client}")
    arguments.add_argument("--url", required=True, help="the base, http://HOST:PORT/v1")
    arguments.add_argument("--key", default="any", help="an API key or a client secret")
    arguments.add_argument("--recording", required=True, type=Path)
    arguments.add_argument("--model", default="gpt-realtime")
    arguments.add_argument("--within", type=float, default=45.0, help="seconds")
    if flags is not None:
        flags(arguments)
    asyncio.run(_run(client, main, arguments.parse_args()))


async def _run(
    client: str, main: Callable[[Turn, argparse.Namespace], Awaitable[None]], given: argparse.Namespace
) -> None:
    result = await _result(client, main, given)
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()
    os._exit(0 if result["ok"] else 1)  # some clients keep threads and tasks that would be waited for


async def _result(
    client: str, main: Callable[[Turn, argparse.Namespace], Awaitable[None]], given: argparse.Namespace
) -> dict[str, Any]:
    turn = Turn(client, given.recording)
    try:
        async with asyncio.timeout(given.within):
            await main(turn, given)
    except TimeoutError:
        return turn.result(f"not over within {given.within:g} s")
    except Exception as problem:
        return turn.result(_words(problem))
    return turn.result(None)


def _words(problem: BaseException) -> str:
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    return f"{type(problem).__name__}: {problem}"

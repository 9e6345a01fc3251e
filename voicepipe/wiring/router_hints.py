"""Exchange the router's hints with other processes: those of other nodes, over the store that they share, or the other
workers of this server, over their supervisor."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

import msgspec

from voicepipe import clock
from voicepipe.cluster.port import RouterHints
from voicepipe.errors import Overload
from voicepipe.router.hints import MAX_BYTES, Learned, NodeHints, OpenBreaker
from voicepipe.telemetry.log import log_event

BREAKERS: Final = "breakers"
LATENCY: Final = "latency"

CHECK_S: Final = 2.0
"""How often open circuit breakers are exchanged."""

BREAKERS_LIFE_S: Final = 10
"""How long a hint of open circuit breakers counts: its process repeats it."""

LATENCY_EVERY: Final = 30
"""Times of answers are sent once in 30 exchanges: they change slowly."""

LATENCY_LIFE_S: Final = 600

_breakers: Final = msgspec.json.Decoder(list[OpenBreaker])
_learned: Final = msgspec.json.Decoder(Learned)


class HintExchange:
    """Gives and takes the hints of one process. A store that is away changes nothing."""

    def __init__(self, hints: NodeHints, store: RouterHints, process: str) -> None:
        self._hints, self._store, self._process = hints, store, process
        self._n_exchanges = 0

    async def run(self) -> None:
        """Begin with what other processes have learned, and then exchange hints until cancelled."""
        with suppress(Overload):
            await self.begin()
        while True:
            with suppress(Overload):
                await self.exchange()
            await asyncio.sleep(CHECK_S)

    async def begin(self) -> None:
        """Take the times of answers from the process that gave them last.

        Raises:
            Overload: the store is away.
        """
        found = [each for each in await self._store.hints(LATENCY) if each.process != self._process]
        for hint in sorted(found, key=lambda each: each.age_ms)[:1]:
            try:
                if len(hint.body) <= MAX_BYTES:
                    self._hints.take_learned(_learned.decode(hint.body))
            except ValueError:  # of another version; also msgspec's errors
                return

    async def exchange(self) -> None:
        """Give this process's hints, and take those of the others.

        Raises:
            Overload: the store is away.
        """
        now_ms = clock.monotonic_ms()
        self._hints.record_answers(now_ms)
        own = self._hints.open_breakers(now_ms)
        if own:
            await self._store.store_hint(BREAKERS, self._process, msgspec.json.encode(own), life_s=BREAKERS_LIFE_S)
        self._n_exchanges += 1
        if self._n_exchanges % LATENCY_EVERY == 0:
            body = msgspec.json.encode(self._hints.learned())
            if len(body) <= MAX_BYTES:
                await self._store.store_hint(LATENCY, self._process, body, life_s=LATENCY_LIFE_S)
        for hint in await self._store.hints(BREAKERS):
            if hint.process != self._process:
                self._take(hint.body, hint.age_ms)

    def _take(self, body: bytes, age_ms: int) -> None:
        now_ms = clock.monotonic_ms()
        try:
            found = _breakers.decode(body)
        except ValueError:  # of another version; also msgspec's errors, and bytes that are no UTF-8
            return
        for each in found:
            if self._hints.take(each, age_ms, now_ms):
                log_event("breaker_hinted", stage=each.stage, provider=each.spec)

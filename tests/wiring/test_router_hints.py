"""The exchange of the router's hints over a store that may be away, and of another version."""

from __future__ import annotations

import asyncio

from voicepipe import clock
from voicepipe.cluster.port import Hint
from voicepipe.errors import StageBroken, StoreUnavailable
from voicepipe.router.candidate import Candidate
from voicepipe.router.hints import NodeHints
from voicepipe.router.pool import SharedStats
from voicepipe.wiring.router_hints import BREAKERS, LATENCY, LATENCY_EVERY, HintExchange

A = Candidate(spec="a/m", ttft_p50_ms=250.0)


class Store:
    """Hints in memory; `away`: it fails."""

    def __init__(self) -> None:
        self.stored: dict[tuple[str, str], bytes] = {}
        self.is_away = False
        self.was_read = asyncio.Event()

    async def store_hint(self, kind: str, process: str, body: bytes, *, life_s: int) -> None:
        self.stored[kind, process] = body

    async def hints(self, kind: str) -> list[Hint]:
        self.was_read.set()
        if self.is_away:
            raise StoreUnavailable
        return [Hint(process, 0, body) for (stored_kind, process), body in self.stored.items() if stored_kind == kind]


def process(store: Store, name: str) -> tuple[SharedStats, HintExchange]:
    stats = SharedStats()
    stats.breaker(A)
    return stats, HintExchange(NodeHints({"llm": stats}), store, name)


def is_closed(stats: SharedStats) -> bool:
    return stats.breaker(A).state(clock.monotonic_ms()) == "closed"


async def test_one_process_opens_and_another_is_warned() -> None:
    store = Store()
    (failing, one), (stats, other) = process(store, "one"), process(store, "other")
    for _ in range(5):
        failing.breaker(A).failed(StageBroken("llm", provider="a/m", why="cut", retryable=True), clock.monotonic_ms())
    await other.exchange()
    assert is_closed(stats)
    await one.exchange()
    await other.exchange()
    assert not is_closed(stats)
    assert [name for _, name in store.stored] == ["one"]


async def test_times_are_given_now_and_then_and_taken_at_the_start() -> None:
    store = Store()
    taught, one = process(store, "one")
    for i in range(1_000):
        taught.latency.survival(A).spoke(1_000.0, 1_000.0 * i)
    for _ in range(LATENCY_EVERY):
        assert (LATENCY, "one") not in store.stored
        await one.exchange()
    stats, other = process(store, "other")
    await other.begin()
    assert stats.latency.quantile_ms(A, 0.5, 0.0) > 700


async def test_hints_of_another_version_change_nothing() -> None:
    store = Store()
    stats, exchange = process(store, "one")
    store.stored |= {(BREAKERS, "x"): b'{"a": 1}', (LATENCY, "x"): b"[]"}
    store.stored[BREAKERS, "y"] = b'[{"stage": "\xff"}]'
    await exchange.begin()
    await exchange.exchange()
    store.stored[LATENCY, "x"] = b'{"llm": {"a/m": {"silent": [1]}}}'
    await exchange.begin()
    assert is_closed(stats)


async def test_a_store_that_is_away_changes_nothing() -> None:
    store = Store()
    store.is_away = True
    stats, exchange = process(store, "one")
    running = asyncio.create_task(exchange.run())
    await store.was_read.wait()
    running.cancel()
    assert is_closed(stats)

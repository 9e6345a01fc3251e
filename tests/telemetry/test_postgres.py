"""The store in Postgres: the port's promises, and those of a database that many share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, suppress

import asyncpg
import pytest

from tests.telemetry.version_2 import BACK_TO_VERSION_2, record_of_version_2
from voicepipe.errors import ConfigError
from voicepipe.telemetry.record_writer import RecordWriter, RecordWriterOptions
from voicepipe.telemetry.storage_log import new_health
from voicepipe.telemetry.store.port import Cursor, StoredTurn, StoreError, TurnQuery
from voicepipe.telemetry.store.postgres import PostgresTurnStore, numbered
from voicepipe.telemetry.store.schema import VERSION
from voicepipe.testing.conformance import turn_stats
from voicepipe.testing.conformance.turn_store import CHECKS, OpenStore, stored_turn
from voicepipe.testing.postgres import postgres, stopped_postgres
from voicepipe.testing.waiting import eventually


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    """A Postgres that the tests here share; where it can't be had they fail."""
    with postgres() as url:
        yield url


async def emptied(url: str) -> str:
    """The database without our tables."""
    connection = await asyncpg.connect(url)
    await connection.execute("SET client_min_messages = error; DROP SCHEMA IF EXISTS voicepipe CASCADE")
    await connection.close()
    return url


@pytest.mark.parametrize("check", [*CHECKS, *turn_stats.CHECKS], ids=lambda check: check.__name__)
async def test_conformance(check: Callable[[OpenStore], Awaitable[None]], postgres_url: str) -> None:
    """The port's promises."""

    async def open_store() -> PostgresTurnStore:
        return await PostgresTurnStore.open(await emptied(postgres_url))

    await check(open_store)


async def test_nodes_that_start_at_once_agree(postgres_url: str) -> None:
    """Many connect to a database without tables: one makes them, all can write."""
    url = await emptied(postgres_url)
    stores = await asyncio.gather(*(PostgresTurnStore.open(url) for _ in range(4)))
    await asyncio.gather(
        *(store.store([stored_turn(f"t{i}", i), stored_turn(f"u{i}", i)]) for i, store in enumerate(stores))
    )
    assert len((await stores[0].list("p")).turns) == 8
    await asyncio.gather(*(store.close() for store in stores))


async def test_nodes_that_sum_up_at_once_count_each_turn_once(postgres_url: str) -> None:
    """Two sum up the same spans, while a third writes into them."""
    url = await emptied(postgres_url)
    stores = [await PostgresTurnStore.open(url) for _ in range(3)]
    await stores[0].store([stored_turn(f"t{number}", number * 1_000) for number in range(60)])

    async def maintain_step(store: PostgresTurnStore) -> None:
        while await store.maintain_step(10**9):
            pass

    async def write(store: PostgresTurnStore) -> None:
        for number in range(60, 90):
            await store.store([stored_turn(f"t{number}", number * 1_000)])

    await asyncio.gather(maintain_step(stores[0]), maintain_step(stores[1]), write(stores[2]))
    await maintain_step(stores[0])
    assert [(await store.stats("p")).turns for store in stores] == [90, 90, 90]
    await asyncio.gather(*(store.close() for store in stores))


async def test_a_newer_database_is_refused(postgres_url: str) -> None:
    """The refusal names both versions."""
    url = await emptied(postgres_url)
    await (await PostgresTurnStore.open(url)).close()
    connection = await asyncpg.connect(url)
    await connection.execute("UPDATE voicepipe.version SET version = 99")
    await connection.close()
    with pytest.raises(ConfigError, match=rf"version 99.*up to {VERSION}"):
        await PostgresTurnStore.open(url)


async def test_a_database_of_version_3_is_upgraded(postgres_url: str) -> None:
    """Its sessions have no summaries yet."""
    url = await emptied(postgres_url)
    store = await PostgresTurnStore.open(url)
    await store.store([stored_turn("a", session="s1")])
    await store.close()
    connection = await asyncpg.connect(url, server_settings={"search_path": "voicepipe"})
    await connection.execute("DROP TABLE feedback; ALTER TABLE sessions DROP COLUMN summary")
    await connection.execute("UPDATE version SET version = 3")
    await connection.close()
    store = await PostgresTurnStore.open(url)
    assert await store.store_summary("p", "s1", "They called.")
    assert await store.summary("p", "s1") == "They called."
    await store.close()


async def test_a_database_of_version_4_is_upgraded(postgres_url: str) -> None:
    """Its turns have no feedback yet."""
    url = await emptied(postgres_url)
    store = await PostgresTurnStore.open(url)
    await store.store([stored_turn("a")])
    await store.close()
    connection = await asyncpg.connect(url, server_settings={"search_path": "voicepipe"})
    await connection.execute("DROP TABLE feedback; UPDATE version SET version = 4")
    await connection.close()
    store = await PostgresTurnStore.open(url)
    assert await store.store_feedback("a", "p", "user", 1.0, 5)
    await store.close()


async def test_a_database_of_version_2_is_upgraded(postgres_url: str) -> None:
    """Its columns and tables, and the fields of its records; opening it twice changes nothing more."""
    url, turns = await emptied(postgres_url), {f"t{n}": stored_turn(f"t{n}", n) for n in range(3)}
    store = await PostgresTurnStore.open(url)
    await store.store(list(turns.values()))
    await store.close()
    connection = await asyncpg.connect(url, server_settings={"search_path": "voicepipe"})
    await connection.execute(BACK_TO_VERSION_2)
    for row in await connection.fetch("SELECT number, record FROM records"):
        old = record_of_version_2(row["record"])
        await connection.execute("UPDATE records SET record = $1 WHERE number = $2", old, row["number"])
    await connection.execute("UPDATE version SET version = 2")
    await connection.close()
    for _ in range(2):
        store = await PostgresTurnStore.open(url)
        assert {name: await store.get(name, "p") for name in turns} == turns
        assert (await store.stats("p")).measured == 3
        await store.close()


async def test_a_database_that_is_not_there_is_named_without_its_password() -> None:
    """The refusal says where it was looked for, and hides the secret."""
    with pytest.raises(
        ConfigError, match=r"records\.url: postgresql://\*\*\*@/db\?host=/nowhere can't be reached"
    ) as error:
        await PostgresTurnStore.open("postgresql://me:hunter2@/db?host=/nowhere")
    assert "hunter2" not in str(error.value)


async def test_a_lost_connection_is_made_again(postgres_url: str) -> None:
    """The database cuts off all its clients: calls may fail until that is noticed, then the next connects again."""
    store = await PostgresTurnStore.open(await emptied(postgres_url))
    await store.store([stored_turn("a")])
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'voicepipe'"
    )
    await connection.close()

    async def answered() -> StoredTurn | None:
        with suppress(StoreError):
            return await store.get("a", "p")
        return None

    assert await eventually(answered) == stored_turn("a")
    await store.close()


@pytest.mark.slow
async def test_a_database_that_restarts_loses_no_record() -> None:
    """What came before, in the middle and after is all there: it waits, and is tried again until it is taken."""
    health = new_health()
    options = RecordWriterOptions(flush_ms=5, retry_ms=10, max_retry_ms=100)
    with stopped_postgres() as server, ExitStack() as up:
        await asyncio.to_thread(up.enter_context, server.running())
        store = await PostgresTurnStore.open(server.url)
        async with RecordWriter(store, options, health=health) as record_writer:

            async def offer_until(state: Callable[[], bool], name: str) -> set[str]:
                queued: set[str] = set()
                while not state():
                    queued.add(f"{name}{len(queued)}")
                    record_writer.offer(stored_turn(f"{name}{len(queued) - 1}", len(queued)))
                    await asyncio.sleep(0.01)
                return queued

            record_writer.offer(stored_turn("before"))
            queued = {"before"}
            await asyncio.to_thread(up.close)
            queued |= await offer_until(
                lambda: bool(health.failing_stores()) and record_writer.n_waiting > 100, "while"
            )
            await asyncio.to_thread(up.enter_context, server.running())
            queued |= await offer_until(lambda: not health.failing_stores(), "after")

            async def all_written() -> bool | None:
                return not record_writer.n_waiting or None

            await eventually(all_written)
        found: set[str] = set()
        before: Cursor | None = None
        while True:
            page = await store.list("p", TurnQuery(limit=200, before=before))
            found |= {turn.record.id for turn in page.turns}
            before = page.next
            if before is None:
                break
        await store.close()
    assert (record_writer.lost, record_writer.dropped) == (0, 0)
    assert len(queued) > 100
    assert found == queued


def test_values_are_numbered() -> None:
    """As Postgres has them."""
    assert numbered("a = ? AND b IN (?, ?)") == "a = $1 AND b IN ($2, $3)"

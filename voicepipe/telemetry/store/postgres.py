"""Store turns' records in a Postgres database, for all processes of many machines."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

from msgspec import Struct

from voicepipe.errors import ConfigError
from voicepipe.extras import install_command
from voicepipe.telemetry.redact import redact
from voicepipe.telemetry.store.port import RecordRefused, StoreError
from voicepipe.telemetry.store.renamed import renamed
from voicepipe.telemetry.store.schema import (
    FROM_VERSION_2,
    FROM_VERSION_3,
    FROM_VERSION_4,
    VERSION,
    statements_back,
    tables,
)
from voicepipe.telemetry.store.sql import SqlTurnStore
from voicepipe.telemetry.store.statements import Execute, Fetch, Row, Work, fetch
from voicepipe.telemetry.store.write import deflated

if TYPE_CHECKING:
    import asyncpg

    Connection: TypeAlias = asyncpg.pool.PoolConnectionProxy

IsolationLevel: TypeAlias = Literal["read_committed", "repeatable_read"]

T = TypeVar("T")

CONNECTIONS: Final = 4
"""Number of connections: one writes, one sums up, and two answer the dashboard; more would only queue at the database's
processors."""

ANSWER_S: Final = 30.0
"""Timeout of a statement; the store's take a few ms. A lost connection is detected by this timeout."""

CONNECT_S: Final = 10.0

_LOCK: Final = 0x766F6963  # the process that makes the tables holds the advisory lock of this number ("voic")
_INDEX_BYTES: Final = 900
"""Size of a turn in indexes and row headers; measured with a million of the bench's turns (bench.store)."""

_SAMPLED: Final = 500


class PostgresTurnStore(SqlTurnStore):
    """A `TurnStore` in Postgres 13 or newer. Its tables are in the schema `voicepipe`, made if missing."""

    @classmethod
    async def open(cls, url: str) -> PostgresTurnStore:
        """Connect, and bring the tables to this version.

        Args:
            url: `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`, as libpq takes it.

        Raises:
            ConfigError: the package `asyncpg` is missing, the database can't be reached or refuses the connection, or
                a newer voicepipe made the tables.
        """
        return cls(PostgresDatabase(await open_pool(url, _migrate), "turns"))


async def downgrade(url: str, target: int) -> int:
    """Bring the tables back to an older version; return the version that they had.

    Servers of the newer version that still run fail to write the columns and tables that the older one lacks.

    Raises:
        ConfigError: as `PostgresTurnStore.open`, or there is no way back to that version, or no tables.
    """
    present = 0

    async def change(connection: Connection) -> None:
        nonlocal present
        present = await _bring_back(connection, target)

    (await open_pool(url, change)).terminate()
    return present


async def open_pool(
    url: str, prepare: Callable[[Connection], Awaitable[None]], *, n_connections: int = CONNECTIONS
) -> asyncpg.Pool:
    """Connect, and prepare the tables.

    Raises:
        ConfigError: as `PostgresTurnStore.open`.
    """
    try:
        import asyncpg
    except ImportError:
        raise ConfigError(
            f"records.url: Postgres needs the package asyncpg, which is not installed: {install_command('postgres')}"
        ) from None
    try:
        pool = await asyncpg.create_pool(
            url,
            min_size=1,
            max_size=n_connections,
            timeout=CONNECT_S,
            command_timeout=ANSWER_S,
            server_settings={
                "search_path": "voicepipe",
                "application_name": "voicepipe",
                # A node that stops between two statements must not hold its rows for hours.
                "idle_in_transaction_session_timeout": str(round(1_000 * ANSWER_S)),
            },
        )
    except (OSError, TimeoutError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError) as why:
        raise ConfigError(f"records.url: {redact(url)} can't be reached: {_text_of(why)}") from None
    try:
        async with pool.acquire() as connection:
            await prepare(connection)
    except BaseException as why:
        pool.terminate()
        if isinstance(why, (OSError, TimeoutError, asyncpg.PostgresError)):
            raise ConfigError(f"records.url: the tables can't be made in {redact(url)}: {_text_of(why)}") from None
        raise
    return pool


def _text_of(why: BaseException) -> str:
    return redact(str(why)) or type(why).__name__


class PostgresDatabase:
    """The `Database` on Postgres."""

    def __init__(self, pool: asyncpg.Pool, name: str) -> None:
        """`name`: the name of the stored data in errors."""
        self._pool: asyncpg.Pool | None = pool
        self._name = name

    async def read(self, work: Work[T], *, slow: bool = False) -> T:
        return await self._run(work, isolation="repeatable_read", readonly=True)

    async def write(self, work: Work[T]) -> T:
        return await self._run(work, isolation="read_committed", readonly=False)

    async def used_bytes(self) -> int:
        """Return an estimate: Postgres keeps the space of deleted rows, so the rows are counted and multiplied."""
        return await self.read(_used_bytes())

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(CONNECT_S):
                await pool.close()
        except TimeoutError:
            pool.terminate()

    async def _run(self, work: Work[T], *, isolation: IsolationLevel, readonly: bool) -> T:
        import asyncpg

        if self._pool is None:
            raise StoreError(f"{self._name}: the store is closed")
        try:
            async with self._pool.acquire() as connection:
                return await _done(connection, work, isolation, readonly)
        except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, ValueError, zlib.error) as why:
            raise RecordRefused(f"{self._name}: {_text_of(why)}") from why
        except asyncpg.InsufficientResourcesError as why:
            raise StoreError(f"{self._name}: {_text_of(why)}", "full") from why
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as why:
            raise StoreError(f"{self._name}: {_text_of(why)}", "unreachable") from why
        except asyncpg.InternalClientError as why:  # the database closed the connection, which was not read yet
            raise StoreError(f"{self._name}: {_text_of(why)}", "unreachable") from why


class _Done(Struct, frozen=True):
    """Raised when work is over, with its result."""

    result: Any


async def _done(connection: Connection, work: Work[T], isolation: IsolationLevel, readonly: bool) -> T:
    step = await asyncio.to_thread(_advance, work, None)  # encodes the rows, before anything is locked
    async with connection.transaction(isolation=isolation, readonly=readonly):
        while not isinstance(step, _Done):
            step = await asyncio.to_thread(_advance, work, await _execute(connection, step))
    result: T = step.result
    return result


def _advance(work: Work[T], rows: Sequence[Row] | None) -> Fetch | Execute | _Done:
    try:
        return next(work) if rows is None else work.send(rows)
    except StopIteration as done:
        return _Done(done.value)


async def _execute(connection: Connection, step: Fetch | Execute) -> Sequence[Row]:
    if isinstance(step, Execute):
        await connection.executemany(numbered(step.sql), step.rows)
        return ()
    rows: Sequence[Row] = await connection.fetch(numbered(step.sql), *step.values)
    return rows


@lru_cache(maxsize=512)
def numbered(sql: str) -> str:
    """Return the statement with `$1`, `$2` where it has `?`."""
    numbers = count(1)
    return re.sub(r"\?", lambda _: f"${next(numbers)}", sql)


def _used_bytes() -> Work[int]:
    ((n_turns,),) = yield from fetch("SELECT count(*) FROM turns")
    ((each,),) = yield from fetch(
        "SELECT coalesce(avg(pg_column_size(t.*) + pg_column_size(r.*)), 0)::float8 FROM "
        "(SELECT * FROM turns ORDER BY number DESC LIMIT ?) t JOIN records r ON r.number = t.number",
        _SAMPLED,
    )
    ((figures,),) = yield from fetch("SELECT pg_total_relation_size('figures') + pg_total_relation_size('buckets')")
    return int(n_turns * (each + _INDEX_BYTES) + figures) if n_turns else 0


async def _migrate(connection: Connection) -> None:
    """Make the tables; of two processes that start at once, the second finds the work done."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        await connection.execute("CREATE SCHEMA IF NOT EXISTS voicepipe")
        await connection.execute("CREATE TABLE IF NOT EXISTS version (version INTEGER NOT NULL)")
        version = await connection.fetchval("SELECT version FROM version")
        if version is None:
            for statement in tables(number="BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY", bytes="BYTEA"):
                await connection.execute(statement)
            await connection.execute("INSERT INTO version VALUES ($1)", VERSION)
        elif version == 2:
            await _from_version_2(connection)
        elif version in (3, 4):
            for statement in FROM_VERSION_3 if version == 3 else FROM_VERSION_4:
                await connection.execute(statement)
            await connection.execute("UPDATE version SET version = $1", VERSION)
        elif version > VERSION:
            raise ConfigError(
                f"records.url: the tables have version {version}, made by a newer voicepipe; "
                f"this one reads versions up to {VERSION}"
            )


async def _bring_back(connection: Connection, target: int) -> int:
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        if await connection.fetchval("SELECT to_regclass('version')") is None:
            raise ConfigError("records.url: expected a database with turn records, got one without their tables")
        present: int = await connection.fetchval("SELECT version FROM version")
        for statement in statements_back(present, target):
            await connection.execute(statement)
        await connection.execute("UPDATE version SET version = $1", target)
    return present


async def _from_version_2(connection: Connection) -> None:
    """Bring tables and records of version 2 to this version."""
    for statement in FROM_VERSION_2:
        await connection.execute(statement)
    last = -1
    while rows := await connection.fetch(
        "SELECT number, record FROM records WHERE number > $1 ORDER BY number LIMIT 500", last
    ):
        new = await asyncio.to_thread(_renamed_rows, rows)
        await connection.executemany("UPDATE records SET record = $1 WHERE number = $2", new)
        last = rows[-1][0]
    await connection.execute("UPDATE version SET version = $1", VERSION)


def _renamed_rows(rows: Sequence[Row]) -> list[tuple[bytes, int]]:
    return [(deflated(renamed(zlib.decompress(record))), number) for number, record in rows]

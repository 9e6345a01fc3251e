"""One file, several processes, and what may be wrong with the file."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from concurrent.futures import ProcessPoolExecutor
from contextlib import aclosing, closing
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.cluster.stores import open_sqlite
from voicepipe.cluster.port import CountResult
from voicepipe.cluster.revocation import RevokedToken
from voicepipe.cluster.sqlite import FILE_NAME
from voicepipe.cluster.sqlite_tables import Tables
from voicepipe.errors import ConfigError, Overload, StoreUnavailable
from voicepipe.testing.conformance.cluster import LATER_S, NOW_S, claims_of
from voicepipe.testing.waiting import WAIT_S


def sessions_opened(data_dir: Path, name: str, n_tries: int) -> int:
    """Try to open sessions with one token, in a process of its own; how many it got."""

    async def tries() -> int:
        async with open_sqlite(data_dir) as cluster:
            results = [await cluster.count(name, 1, limit=5, until_s=LATER_S, now_s=NOW_S) for _ in range(n_tries)]
            return sum(result.counted for result in results)

    return asyncio.run(tries())


@pytest.mark.slow
def test_processes_that_race_for_max_sessions_get_as_many_as_it_says(tmp_path: Path) -> None:
    """Five sessions in all, of sixteen tries in each of two processes that also race to create the file."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        both = [pool.submit(sessions_opened, tmp_path, "token/shop/t1/sessions", 16) for _ in range(2)]
        assert sum(one.result(timeout=60) for one in both) == 5


async def test_what_one_opener_did_another_sees(tmp_path: Path) -> None:
    """Revocations, counts and configs are shared, also by a watch that was waiting."""
    async with open_sqlite(tmp_path, poll_ms=10) as one, open_sqlite(tmp_path, poll_ms=10) as other:
        await one.count("n", 1, limit=1, until_s=LATER_S, now_s=NOW_S)
        await one.store_config("c", b"{}", project="shop", until_s=LATER_S, now_s=NOW_S)
        await one.revoke(RevokedToken.at(NOW_S, "shop", "t1"), now_s=NOW_S)
        assert await other.count("n", 1, limit=1, until_s=LATER_S, now_s=NOW_S) == CountResult(1, counted=False)
        assert await other.config("c", project="shop", now_s=NOW_S) == b"{}"
        assert await other.is_revoked(claims_of(token_id="t1"))
        async with asyncio.timeout(WAIT_S), aclosing(other.revocations()) as watch:
            assert (await anext(watch)).covers(claims_of(token_id="t1"))
            await one.revoke(RevokedToken.at(NOW_S, "shop", "t2"), now_s=NOW_S)
            assert (await anext(watch)).covers(claims_of(token_id="t2"))


async def test_state_survives_a_restart(tmp_path: Path) -> None:
    """A used-up token stays used up."""
    for expected in (True, False):
        async with open_sqlite(tmp_path) as cluster:
            assert (await cluster.count("n", 1, limit=1, until_s=LATER_S, now_s=NOW_S)).counted is expected


async def test_a_watch_that_is_cancelled_ends(tmp_path: Path) -> None:
    """And the file closes behind it."""
    async with open_sqlite(tmp_path) as cluster:
        started = asyncio.Event()

        async def watch() -> None:
            started.set()
            async for _ in cluster.revocations():
                pass

        async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
            task = group.create_task(watch(), name="watch")
            await started.wait()
            task.cancel()
    assert task.cancelled()


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    """Session configs hold instructions; that goes for the write-ahead log too."""
    with closing(Tables(tmp_path / FILE_NAME)) as tables:
        tables.store_config("c", b"{}", "shop", LATER_S, NOW_S)
        modes = [stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()]
    assert len(modes) >= 2
    assert set(modes) == {0o600}


async def test_a_file_from_a_newer_voicepipe_is_refused(tmp_path: Path) -> None:
    """Both versions are named."""
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as file:
        file.execute("PRAGMA user_version = 99")
    with pytest.raises(ConfigError, match="has version 99, made by a newer voicepipe; this one reads 1"):
        async with open_sqlite(tmp_path):
            pass


async def test_a_damaged_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    """It says what to do; what to lose is the operator's choice."""
    (tmp_path / FILE_NAME).write_bytes(b"not a database" * 100)
    with pytest.raises(ConfigError, match="move it away"):
        async with open_sqlite(tmp_path):
            pass
    assert (tmp_path / FILE_NAME).read_bytes().startswith(b"not a database")


async def test_a_file_that_can_not_be_written_is_overload_not_a_crash(tmp_path: Path) -> None:
    """The client gets the overload error without a file's name, which is for the log; the transaction left nothing
    open.
    """
    async with open_sqlite(tmp_path) as cluster:
        with closing(sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)) as file:
            file.execute("ALTER TABLE counts RENAME TO gone")
            with pytest.raises(Overload, match=r"^The server can't look that up at the moment") as failed:
                await cluster.count("n", 1, limit=1, until_s=LATER_S, now_s=NOW_S)
            assert isinstance(failed.value, StoreUnavailable)
            assert failed.value.detail == "cluster.sqlite3: no such table: counts"
            file.execute("ALTER TABLE gone RENAME TO counts")
        assert (await cluster.count("n", 1, limit=1, until_s=LATER_S, now_s=NOW_S)).counted

"""The tables of turns go back to an older version and forward again, in both databases, and nothing else is lost."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from voicepipe.cli import main
from voicepipe.errors import ConfigError
from voicepipe.telemetry.store import postgres as postgres_store
from voicepipe.telemetry.store.postgres import PostgresTurnStore
from voicepipe.telemetry.store.schema import BACK, FROM_VERSION_3, OLDEST, VERSION
from voicepipe.telemetry.store.sqlite import SqliteTurnStore
from voicepipe.telemetry.store.sqlite_file import downgrade
from voicepipe.testing.conformance.turn_store import stored_turn
from voicepipe.testing.postgres import postgres

TURNS = {name: stored_turn(name, number, session="s1") for number, name in enumerate(("a", "b"))}
LATER = "ALTER TABLE turns ADD COLUMN mood TEXT NOT NULL DEFAULT ''"
"""What a later version may do: it adds."""


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    """A Postgres that the tests here share."""
    with postgres() as url:
        yield url


def columns(path: Path) -> dict[str, list[str]]:
    """Table -> its columns."""
    with closing(sqlite3.connect(path)) as file:
        names = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: [row[1] for row in file.execute(f"PRAGMA table_info({name})")] for name in names}


async def filled(path: Path) -> Path:
    """A file of this version, with turns and a summary."""
    store = await SqliteTurnStore.open(path)
    await store.store(list(TURNS.values()))
    assert await store.store_summary("p", "s1", "They called.")
    await store.close()
    return path


def test_each_version_has_a_way_back() -> None:
    """A version that is added comes with one."""
    assert set(BACK) == set(range(OLDEST + 1, VERSION + 1))


def test_each_version_only_adds() -> None:
    """So servers of the version before go on while the others are replaced: their statements still fit."""
    assert all("ADD COLUMN" in each or each.lstrip().startswith("CREATE ") for each in FROM_VERSION_3)


async def test_a_file_goes_back_and_forward(tmp_path: Path) -> None:
    """Its tables are then those of the older version; the turns stay, summary and feedback are lost."""
    path = await filled(tmp_path / "turns.db")
    expected = columns(path)
    expected["sessions"].remove("summary")
    del expected["feedback"]
    assert downgrade(path, 3) == VERSION
    assert columns(path) == expected
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (3,)
    store = await SqliteTurnStore.open(path)
    assert {name: await store.get(name, "p") for name in TURNS} == TURNS
    assert await store.summary("p", "s1") == ""
    await store.close()


@pytest.mark.parametrize("target", [OLDEST - 1, VERSION + 1])
async def test_a_version_without_a_way_is_refused(tmp_path: Path, target: int) -> None:
    """Before anything is changed."""
    path = await filled(tmp_path / "turns.db")
    with pytest.raises(ConfigError, match=f"expected a version from {OLDEST} to {VERSION}, .* got {target}"):
        downgrade(path, target)
    store = await SqliteTurnStore.open(path)
    assert await store.summary("p", "s1") == "They called."
    await store.close()


async def test_the_tables_of_a_newer_voicepipe_are_left_to_it(tmp_path: Path) -> None:
    path = await filled(tmp_path / "turns.db")
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA user_version = 99")
    with pytest.raises(ConfigError, match=f"version 99, made by a newer voicepipe; this one reads .* {VERSION}"):
        downgrade(path, 3)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    """It is not made."""
    path = tmp_path / "turns.db"
    with pytest.raises(ConfigError, match="expected a file of turn records, got none"):
        downgrade(path, 3)
    assert not path.exists()
    path.write_text("no database, and longer than the smallest one" * 20)
    with pytest.raises(ConfigError, match="the tables can't be changed"):
        downgrade(path, 3)


async def test_a_server_goes_on_with_tables_that_a_newer_one_has_made(tmp_path: Path) -> None:
    """As in a rolling upgrade: a column more hinders neither its writing nor its reading."""
    path = await filled(tmp_path / "turns.db")
    store = await SqliteTurnStore.open(path)
    with closing(sqlite3.connect(path)) as file:
        file.executescript(f"{LATER}; PRAGMA user_version = {VERSION + 1}")
    turn = stored_turn("c", 5)
    await store.store([turn])
    assert await store.get("c", "p") == turn
    await store.close()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the file of the data folder; without one it fails."""
    arguments = ["records", "downgrade", "3", "--data-dir", str(tmp_path)]
    assert main(arguments) == 2
    assert "got none" in capsys.readouterr().err
    with closing(sqlite3.connect(tmp_path / "turns.sqlite3")) as file:
        file.executescript("CREATE TABLE sessions (session TEXT, summary TEXT); PRAGMA user_version = 4")
    assert main(arguments) == 0
    assert capsys.readouterr().out == "version 4 -> 3\n"


async def emptied(url: str) -> str:
    """The database without our tables."""
    connection = await asyncpg.connect(url)
    await connection.execute("SET client_min_messages = error; DROP SCHEMA IF EXISTS voicepipe CASCADE")
    await connection.close()
    return url


async def test_a_database_goes_back_and_forward(postgres_url: str) -> None:
    """Likewise, while another server has it open: that one goes on writing turns."""
    url = await emptied(postgres_url)
    with pytest.raises(ConfigError, match="got one without their tables"):
        await postgres_store.downgrade(url, 3)
    running = await PostgresTurnStore.open(url)
    await running.store([TURNS["a"]])
    assert await running.store_summary("p", "s1", "They called.")
    assert await postgres_store.downgrade(url, 3) == VERSION
    await running.store([TURNS["b"]])
    with pytest.raises(ConfigError, match=f"expected a version from {OLDEST} to 3"):
        await postgres_store.downgrade(url, VERSION)
    upgraded = await PostgresTurnStore.open(url)
    assert {name: await upgraded.get(name, "p") for name in TURNS} == TURNS
    assert await upgraded.summary("p", "s1") == ""
    connection = await asyncpg.connect(url, server_settings={"search_path": "voicepipe"})
    await connection.execute(f"{LATER}; UPDATE version SET version = {VERSION + 1}")
    await connection.close()
    turn = stored_turn("c", 5)
    await running.store([turn])  # a rolling upgrade: tables of a newer version
    assert await upgraded.get("c", "p") == turn
    await running.close()
    await upgraded.close()

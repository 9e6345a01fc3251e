"""Faults of database, disk, clock, process and descriptors: calls go on, and what was stored stays."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from websockets.exceptions import WebSocketException

from attack.bystanders import bystanders
from attack.faults import (
    clocked,
    databases,
    few_descriptors,
    full_disk,
    is_whole,
    locked,
    recorded_call,
    recorded_turn,
    spoil,
    stored,
    suspended,
)
from attack.outcome import state
from attack.server import ServerProcess, in_thread
from attack.target import Target, written_turn

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TURNS = 4
HOUR_S, DAY_S = 3_600, 86_400


async def turns(target: Target, n: int = TURNS) -> set[str]:
    """Run a call with `n` turns, all of which complete."""
    async with recorded_call(target) as line:
        found = [await recorded_turn(line) for _ in range(n)]
    assert {outcome for _, outcome in found} == {"completed"}
    return {id_ for id_, _ in found}


async def test_locked_database_stops_no_call(server: ServerProcess) -> None:
    """New calls are let in, and their turns are stored once the lock is gone."""
    target = server.target()
    async with bystanders(target) as users:
        with locked(server):
            completed = await turns(target)
            await users.turns(2)
        felt = users.begin_anew()
    assert felt.failed == []
    assert await stored(server, completed) == completed
    assert server.logged("crashed") == 0


async def test_full_disk_stops_no_call(server: ServerProcess) -> None:
    """New calls are let in, and their turns are stored once there is room."""
    target = server.target()
    async with bystanders(target) as users:
        with full_disk(server):
            completed = await turns(target)
            await users.turns(2)
        felt = users.begin_anew()
    assert felt.failed == []
    assert await stored(server, completed) == completed
    assert server.logged("crashed") == 0


async def test_suspended_process_goes_on(server: ServerProcess) -> None:
    """Users get their turns once it wakes; no session is stuck, and nothing crashed."""
    target = server.target()
    before = await state(server)
    async with bystanders(target) as users:
        with suspended(server):
            await asyncio.sleep(3)  # longer than any timer of a turn's stages
        await users.turns(3)
        assert users.begin_anew().completed >= 2
    after = await state(server)
    stuck = "voicepipe_sessions_stuck_total"
    assert after.metrics[stuck] == before.metrics[stuck]
    assert server.logged("crashed") == 0


async def test_killed_process_keeps_stored_turns(stopped_server: ServerProcess) -> None:
    """After `kill -9` in the middle of turns the databases are whole, and the next start has every stored turn."""
    stopped_server.start()
    for _ in range(2):
        target = stopped_server.target()
        completed = await turns(target)
        assert await stored(stopped_server, completed) == completed
        async with recorded_call(target) as line:
            await line.send('{"type":"response.create"}')
            stopped_server.stop(signal.SIGKILL)
        assert all(is_whole(path) for path in databases(stopped_server))
        stopped_server.start()
        assert completed <= await in_thread(stopped_server.stored_turns)
    assert await turns(stopped_server.target())


async def test_stopped_process_stores_completed_turns(stopped_server: ServerProcess) -> None:
    """The queue of records is written before the end, and the exit is in good order."""
    stopped_server.start()
    completed = await turns(stopped_server.target())
    assert await in_thread(stopped_server.stop) == 0
    stopped_server.start()
    assert await in_thread(stopped_server.stored_turns) == completed


async def test_spoilt_database_is_named_at_the_start(stopped_server: ServerProcess) -> None:
    """A server whose database of turns is damaged says so in a sentence, and leaves the file to be saved."""
    stopped_server.start()
    completed = await turns(stopped_server.target())
    assert await stored(stopped_server, completed) == completed
    stopped_server.stop()
    file = stopped_server.data / "turns.sqlite3"
    spoil(file)
    spoilt = file.read_bytes()
    with pytest.raises(AssertionError, match=r"turns\.sqlite3: expected a voicepipe database"):
        stopped_server.start()
    assert "Traceback" not in stopped_server.log()
    assert file.read_bytes() == spoilt
    file.unlink()
    stopped_server.start()
    assert len(await turns(stopped_server.target())) == TURNS


async def test_wall_clock_may_jump(settings: str, tmp_path: Path) -> None:
    """Hours ahead and weeks back, in the middle of a call: its turns go on, and their lengths are no leaps."""
    ahead = tmp_path / "ahead"
    server = ServerProcess(tmp_path, settings, program=clocked(ahead))
    server.start()
    try:
        target, completed = server.target(), set()
        async with recorded_call(target) as line:
            for jump_s in (0, 2 * HOUR_S, -30 * DAY_S, 0):
                ahead.write_text(str(jump_s))
                id_, outcome = await recorded_turn(line)
                assert outcome == "completed"
                completed.add(id_)
        assert await stored(server, completed) == completed
        for id_ in completed:
            _, record = server.get(f"/v1/turns/{id_}")
            assert all(0 <= stage["duration_ms"] < HOUR_S * 1_000 for stage in record["stages"])
        assert len(await turns(server.target())) == TURNS  # a token that is minted now is good now
        assert server.logged("crashed") == 0
    finally:
        server.stop()


async def test_server_without_descriptors_serves_those_inside(stopped_server: ServerProcess) -> None:
    """It refuses who is too many without burning CPU, and goes on once they have left."""
    stopped_server.start(few_descriptors(160))
    target = stopped_server.target()
    held, refused = [], 0
    for _ in range(200):
        try:
            held.append(await target.line(credential=target.key, open_timeout=2))
        except (OSError, WebSocketException):
            refused += 1
            if refused == 5:
                break
    assert held
    assert refused
    cpu_s = stopped_server.cpu_s()
    await asyncio.sleep(2)  # that time passes is what is tried: a loop that spins takes all of it
    assert stopped_server.cpu_s() - cpu_s < 1
    for line in held:
        line.transport.abort()
    for _ in range(50):
        try:
            async with await target.line(credential=target.key) as again:
                assert (await written_turn(again))[0] == "completed"
                break
        except (OSError, WebSocketException):
            await asyncio.sleep(0.2)
    else:
        raise AssertionError("nobody gets in any more")
    assert stopped_server.logged("crashed") == 0

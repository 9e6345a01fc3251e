"""Measure how soon the record of a session's last turn is stored, and kill nodes right behind the end of a session.

`python -m tests.measure.last_record --sessions 100 --kills 20` runs a server process with a real Redis and a real
Postgres. Each session ends in the middle of an answer; the time counts from when the client begins to close until
Postgres has the closed record. Then as many nodes are killed (SIGKILL) as soon as a client's connection is closed,
started again, and the records in Postgres counted. Times and losses, as lines.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from tests.measure.node_set import NodeSet, node_set
from tests.measure.percentiles import times
from voicepipe import clock
from voicepipe.client import connect
from voicepipe.client import events as e
from voicepipe.telemetry.store.port import TurnQuery
from voicepipe.telemetry.store.postgres import PostgresTurnStore
from voicepipe.testing.postgres import postgres
from voicepipe.testing.redis import redis_server

LOOK_S: Final = 0.001
"""Pause between two looks into Postgres."""

LOST_S: Final = 5.0
"""A record that is not stored by then is lost."""


async def _ended_session(url: str) -> tuple[str, int]:
    """Have a session whose client leaves in the middle of an answer; return its id, and when it began to leave."""
    async with connect(url) as call:
        await call.write("What is there?")
        await call.respond()
        while not isinstance(await call.next_event(), e.ReplyAudio):
            pass
        session_id, since_ms = call.session_id, clock.monotonic_ms()
    return session_id, since_ms


async def _stored(store: PostgresTurnStore, session_id: str) -> bool:
    """Return whether the closed record of the session's turn is stored within `LOST_S`."""
    until_ms = clock.monotonic_ms() + int(LOST_S * 1_000)
    while clock.monotonic_ms() < until_ms:
        turns = (await store.list(None, TurnQuery(session=session_id))).turns
        if any(each.record.outcome is not None for each in turns):
            return True
        await asyncio.sleep(LOOK_S)
    return False


async def _measured(its: NodeSet, store: PostgresTurnStore, n_sessions: int, n_kills: int) -> list[str]:
    took_ms: list[int] = []
    n_lost = 0
    for _ in range(n_sessions):
        session_id, since_ms = await _ended_session(its.url)
        if await _stored(store, session_id):
            took_ms.append(clock.monotonic_ms() - since_ms)
        else:
            n_lost += 1
    n_lost_by_kill = 0
    for _ in range(n_kills):
        session_id, _ = await _ended_session(its.url)
        await its.nodes[0].kill()
        n_lost_by_kill += not await _stored(store, session_id)
        await its.nodes[0].start()
    return [
        f"record stored after ms: {times(took_ms)}",
        f"lost without a kill: {n_lost} of {n_sessions}",
        f"lost where the node was killed when the connection was closed: {n_lost_by_kill} of {n_kills}",
    ]


async def measured(n_sessions: int, n_kills: int) -> list[str]:
    """Return the figures as lines."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="vp-record-"))
        server, url = stack.enter_context(redis_server()), stack.enter_context(postgres(options=()))
        its = await stack.enter_async_context(node_set(Path(folder), server, n_nodes=1, records_url=url))
        store = await PostgresTurnStore.open(url)
        try:
            return await _measured(its, store, n_sessions, n_kills)
        finally:
            await store.close()


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--kills", type=int, default=20)
    options = parser.parse_args()
    lines = asyncio.run(measured(options.sessions, options.kills))
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

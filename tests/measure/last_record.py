"""Measure how soon the record of a session's last turn is stored, and kill nodes right behind the end of a session.

`python -m tests.measure.last_record --sessions 100 --kills 20` runs a server process with a real Redis and a real
Postgres. Each session ends in the middle of an answer; the times count from when the client begins to close until
Postgres has the closed record, and until the client has the answer to its close. Then nodes are killed (SIGKILL): as
many as soon as a client's connection is closed, and as many at a random time in the `CLOSE_MS` after it began to
close. They are started again, and the records in Postgres counted. Times and losses, as lines; it fails if a record is
lost whose client had the answer.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.measure.node_set import NodeSet, node_set
from tests.measure.percentiles import times
from voicepipe import clock
from voicepipe.client import Call, CallEnded, connect
from voicepipe.client import events as e
from voicepipe.telemetry.store.port import TurnQuery
from voicepipe.telemetry.store.postgres import PostgresTurnStore
from voicepipe.testing.postgres import postgres
from voicepipe.testing.redis import redis_server

LOOK_S: Final = 0.001
"""Pause between two looks into Postgres."""

LOST_S: Final = 5.0
"""A record that is not stored by then is lost."""


CLOSE_MS: Final = 40
"""A close lasts about as long."""


@dataclass(slots=True)
class Figures:
    """What was measured."""

    stored_ms: list[int] = field(default_factory=list)
    answered_ms: list[int] = field(default_factory=list)
    n_lost: int = 0
    """Of the sessions whose node was not killed."""

    n_lost_by_kill: int = 0
    """Of those whose node was killed behind the answer."""

    n_unanswered: int = 0
    """Of the clients whose node was killed while they closed: those without an answer."""

    n_lost_answered: int = 0
    n_lost_unanswered: int = 0
    """Records lost of these clients, with and without an answer."""

    @property
    def is_good(self) -> bool:
        """Return whether no record was lost whose client had the answer to its close."""
        return not (self.n_lost + self.n_lost_by_kill + self.n_lost_answered)


async def _ended_session(
    url: str, kill: Callable[[], Coroutine[Any, Any, None]] | None = None
) -> tuple[str, int, bool]:
    """Have a session whose client leaves in the middle of an answer, and `kill` meanwhile; return its id, when it began
    to leave, and whether its close was answered."""
    async with AsyncExitStack() as stack:
        killing: asyncio.Task[None] | None = None
        with suppress(CallEnded):
            async with connect(url) as call:
                await _until_sound(call)
                session_id, websocket, since_ms = call.session_id, call._connection._websocket, clock.monotonic_ms()
                if kill is not None:
                    group = await stack.enter_async_context(asyncio.TaskGroup())
                    killing = group.create_task(kill(), name="kill")
        if killing is not None:
            await killing
    return session_id, since_ms, websocket.protocol.close_rcvd is not None


async def _until_sound(call: Call) -> None:
    await call.write("What is there?")
    await call.respond()
    while not isinstance(await call.next_event(), e.ReplyAudio):
        pass


async def _stored(store: PostgresTurnStore, session_id: str) -> bool:
    """Return whether the closed record of the session's turn is stored within `LOST_S`."""
    until_ms = clock.monotonic_ms() + int(LOST_S * 1_000)
    while clock.monotonic_ms() < until_ms:
        turns = (await store.list(None, TurnQuery(session=session_id))).turns
        if any(each.record.outcome is not None for each in turns):
            return True
        await asyncio.sleep(LOOK_S)
    return False


async def _measured(nodes: NodeSet, store: PostgresTurnStore, n_sessions: int, n_kills: int, seed: int) -> Figures:
    found, chance, node = Figures(), random.Random(seed), nodes.nodes[0]
    for _ in range(n_sessions):
        session_id, since_ms, _ = await _ended_session(nodes.url)
        found.answered_ms.append(clock.monotonic_ms() - since_ms)
        if await _stored(store, session_id):
            found.stored_ms.append(clock.monotonic_ms() - since_ms)
        else:
            found.n_lost += 1
    for _ in range(n_kills):
        session_id, _, _ = await _ended_session(nodes.url)
        await node.kill()
        found.n_lost_by_kill += not await _stored(store, session_id)
        await node.start()

    async def kill_soon() -> None:
        await asyncio.sleep(chance.uniform(0, CLOSE_MS / 1_000))
        await node.kill()

    for _ in range(n_kills):
        session_id, _, is_answered = await _ended_session(nodes.url, kill_soon)
        is_lost = not await _stored(store, session_id)
        found.n_unanswered += not is_answered
        found.n_lost_answered += is_lost and is_answered
        found.n_lost_unanswered += is_lost and not is_answered
        await node.start()
    return found


def report(found: Figures, n_sessions: int, n_kills: int) -> str:
    """Return the figures as lines."""
    n_answered = n_kills - found.n_unanswered
    return "\n".join(
        (
            f"record stored after ms: {times(found.stored_ms)}",
            f"close answered after ms: {times(found.answered_ms)}",
            f"lost without a kill: {found.n_lost} of {n_sessions}",
            f"lost where the node was killed when the connection was closed: {found.n_lost_by_kill} of {n_kills}",
            f"lost where the node was killed while the client closed: {found.n_lost_answered} of {n_answered} whose "
            f"close was answered, {found.n_lost_unanswered} of {found.n_unanswered} others",
        )
    )


async def measured(n_sessions: int, n_kills: int, *, seed: int = 1) -> Figures:
    """Return what was measured."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="vp-record-"))
        server, url = stack.enter_context(redis_server()), stack.enter_context(postgres(options=()))
        nodes = await stack.enter_async_context(node_set(Path(folder), server, n_nodes=1, records_url=url))
        store = await PostgresTurnStore.open(url)
        try:
            return await _measured(nodes, store, n_sessions, n_kills, seed)
        finally:
            await store.close()


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    found = asyncio.run(measured(options.sessions, options.kills, seed=options.seed))
    sys.stdout.write(report(found, options.sessions, options.kills) + "\n")
    return 0 if found.is_good else 1


if __name__ == "__main__":
    sys.exit(main())

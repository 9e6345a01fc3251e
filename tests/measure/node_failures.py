"""Kill, drain and restart nodes under load, and have the callers count what they lost.

`python -m tests.measure.node_failures --kills 20` runs three server processes behind nginx with a real Redis
(`--store valkey`: Valkey) and callers of the Python client, each with a question after the other. At random points of
their turns a node is killed (SIGKILL) and started again. `--mode drain` stops it (SIGTERM), `rolling` stops all in
turn, `frozen` kills a node while the store is stopped (SIGSTOP) for 3 s, `slow` while each of its answers comes 100 ms
later (`--delay-ms`), `cut` while the store is in a network namespace whose answers vanish for 3 s (needs root).
`--snapshot-stores 3`: that store and two others have the snapshots of sessions, and the failures are of the first.
`--postgres`: the records are in a real Postgres, and are counted at the end. `--spoken`: users speak, and the nodes
find the ends of their questions.
`--hasty`: each user asks its next question before the answer to the first one has ended.
The answers are 18 words; each word's audio has a level of its own, so that a caller counts words by the samples that it
received. It prints the answers, the words lost and doubled, the time to resume, and the turns whose first sound came
more than a second after the user's last voiced sample; it fails if anything was lost.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Final, Literal

from tests.measure.node_set import NodeSet, node_set
from tests.measure.node_users import BUDGET_MS, Counts, HastyUser, SpeakingUser, User, history_faults
from tests.measure.percentiles import times
from tests.measure.store_namespace import NoNamespacesError, StoreNamespace, store_namespace
from voicepipe import clock
from voicepipe.telemetry.store.postgres import PostgresTurnStore
from voicepipe.testing.postgres import postgres
from voicepipe.testing.redis import KINDS, Kind, RedisServer, redis_server

Mode = Literal["kill", "drain", "rolling", "frozen", "slow", "cut"]
MODES: Final[tuple[Mode, ...]] = ("kill", "drain", "rolling", "frozen", "slow", "cut")

FROZEN_S: Final = 3.0
SLOW_MS: Final = 100
"""How much later than usual each answer of a slow store comes."""

MAX_PAUSE_S: Final = 4.0
"""A turn lasts about as long: a failure comes at any point of one."""


@contextmanager
def store_away(store: RedisServer, mode: Mode, namespace: StoreNamespace | None, counts: Counts) -> Iterator[None]:
    """Have the store hang while the block runs, and note from when to when."""
    since_ms = clock.monotonic_ms()
    if mode == "frozen":
        store.freeze()
    elif namespace is not None:
        namespace.cut()
    yield
    if mode == "frozen":
        store.thaw()
    elif namespace is not None:
        namespace.heal()
    counts.store_away.append((since_ms, clock.monotonic_ms()))


async def failures(
    nodes: NodeSet,
    mode: Mode,
    n_failures: int,
    chance: random.Random,
    counts: Counts,
    namespace: StoreNamespace | None = None,
    delay_ms: int = SLOW_MS,
    within_s: float = math.inf,
) -> None:
    """Cause failures one after the other, each at a random time and none after `within_s`; `counts` gets when the store
    hung."""
    nodes.link.delay_ms = delay_ms // 2 if mode == "slow" else 0
    until_ms = clock.monotonic_ms() + 1_000 * within_s
    for number in range(n_failures):
        if clock.monotonic_ms() > until_ms:
            break
        counts.failures += 1
        await asyncio.sleep(chance.uniform(0.2, MAX_PAUSE_S))
        node = nodes.nodes[number % len(nodes.nodes)] if mode == "rolling" else chance.choice(nodes.nodes)
        match mode:
            case "drain" | "rolling":
                await node.stop()
            case "frozen" | "cut":
                with store_away(nodes.store, mode, namespace, counts):
                    await node.kill()
                    await asyncio.sleep(FROZEN_S)
            case _:
                await node.kill()
        await node.start()
    await asyncio.sleep(MAX_PAUSE_S)


async def measured(
    mode: Mode,
    n_failures: int,
    *,
    n_users: int,
    seed: int,
    store: Kind = "redis",
    drain_ms: int = 20_000,
    delay_ms: int = SLOW_MS,
    n_snapshot_stores: int = 1,
    with_postgres: bool = False,
    kind: type[User] = User,
    within_s: float = math.inf,
) -> Counts:
    """Return what the callers counted.

    Raises:
        NoNamespacesError: the mode is `cut`, and this machine or user can't make network namespaces.
    """
    counts, stopped = Counts(), asyncio.Event()
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="vp-nodes-"))
        namespace = stack.enter_context(store_namespace()) if mode == "cut" else None
        host, prefix = ("127.0.0.1", ()) if namespace is None else (namespace.address, namespace.prefix)
        server = stack.enter_context(redis_server(store, host=host, prefix=prefix))
        url = stack.enter_context(postgres(options=())) if with_postgres else ""
        more = [stack.enter_context(redis_server(store)) for _ in range(n_snapshot_stores - 1)]
        async with node_set(Path(folder), server, more_stores=more, drain_ms=drain_ms, records_url=url) as nodes:
            users = [kind(f"user{number}", nodes.url, counts, stopped) for number in range(n_users)]
            async with asyncio.TaskGroup() as group:
                for user in users:
                    group.create_task(user.run(), name=user.name)
                await failures(nodes, mode, n_failures, random.Random(seed), counts, namespace, delay_ms, within_s)
                stopped.set()
            if url:  # what a session's end has cut is written behind it
                await asyncio.gather(*(node.stop() for node in nodes.nodes))
            for request in nodes.vendor.llm.received:
                for fault in history_faults(request.question["messages"]):
                    counts.history_faults += 1
                    counts.record(f"history: {fault}")
        if url:
            counts.records = await recorded(url)
    return counts


async def recorded(url: str) -> dict[str, int]:
    """Return the number of turns that Postgres has, by outcome."""
    store = await PostgresTurnStore.open(url)
    try:
        stats = await store.stats(None)
        return {"all": stats.turns, **stats.outcomes}
    finally:
        await store.close()


def report(counts: Counts) -> str:
    """Return the figures as lines."""

    return "\n".join(
        (
            f"failures {counts.failures}, questions {counts.questions}, answers lost {counts.answers_lost}",
            f"words lost {counts.words_lost}, doubled {counts.words_doubled}, misplaced {counts.words_misplaced}, "
            f"wrong in history {counts.history_faults}",
            f"sessions lost {counts.sessions_lost}, new sessions refused {counts.sessions_refused}, "
            f"cut before they began {counts.sessions_cut_at_start}",
            f"resumed after ms: {times(counts.resumed_ms)}",
            f"without the time in which the store hung: {times(counts.resumed_beyond_store_ms)}",
            f"first sound after ms: {times(counts.first_sound_ms)}",
            f"turns over {BUDGET_MS} ms: {over(counts.first_sound_ms)} of {len(counts.first_sound_ms)}, "
            f"of which whose connection broke before the sound: {over(counts.broken_turns_ms)} of "
            f"{len(counts.broken_turns_ms)}",
            f"next sound after ms: {times(counts.voice_ms)}",
            *([f"turns in Postgres by outcome: {counts.records}"] if counts.records else []),
        )
    )


def over(first_sound_ms: list[int]) -> int:
    """Return how many turns were over budget."""
    return sum(each > BUDGET_MS for each in first_sound_ms)


def is_good(counts: Counts) -> bool:
    """Return whether nothing was lost or doubled."""
    lost = counts.answers_lost + counts.words_lost + counts.sessions_lost
    return not (lost + counts.words_doubled + counts.words_misplaced + counts.history_faults)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=MODES, default="kill")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--users", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", choices=KINDS, default="redis")
    parser.add_argument("--snapshot-stores", type=int, default=1, help="servers that have the snapshots of sessions")
    parser.add_argument("--drain-ms", type=int, default=20_000)
    parser.add_argument("--delay-ms", type=int, default=SLOW_MS)
    parser.add_argument("--within-s", type=float, default=math.inf, help="cause no failure later than that")
    parser.add_argument("--postgres", action="store_true")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--spoken", dest="kind", action="store_const", const=SpeakingUser, default=User)
    kinds.add_argument("--hasty", dest="kind", action="store_const", const=HastyUser)
    options = parser.parse_args()
    how = {
        "store": options.store,
        "drain_ms": options.drain_ms,
        "delay_ms": options.delay_ms,
        "with_postgres": options.postgres,
    }
    how["n_snapshot_stores"] = options.snapshot_stores
    how |= {"kind": options.kind, "within_s": options.within_s}
    try:
        counts = asyncio.run(measured(options.mode, options.kills, n_users=options.users, seed=options.seed, **how))
    except NoNamespacesError as why:
        sys.stderr.write(f"NOT MEASURED: {why}\n")
        return 2
    sys.stdout.write("\n".join((report(counts), *counts.notes)) + "\n")
    return 0 if is_good(counts) else 1


if __name__ == "__main__":
    sys.exit(main())

"""The list of nodes, of a server that shares nothing and of one among others."""

from __future__ import annotations

from typing import Any

import msgspec

from voicepipe.server.presence import Announcer, ProcessFacts


class Announced:
    """A store in which others have announced themselves."""

    def __init__(self, *facts: bytes) -> None:
        self.facts = list(facts)

    async def announce(self, process: str, facts: bytes, *, life_s: int) -> str:
        return "e"

    async def announced(self) -> list[bytes]:
        return self.facts


def facts(node: str, sessions: int, *, draining: bool = False, cpu_share: float | None = None) -> bytes:
    facts: dict[str, Any] = {"version": "1", "started_at": "2026-01-01T00:00:00.000Z", "max_sessions": 40}
    each = ProcessFacts(
        node=node, sessions=sessions, loop_lag_ms=sessions, cpu_share=cpu_share, draining=draining, **facts
    )
    return msgspec.json.encode(each)


async def test_a_server_alone_lists_itself(serve: Any) -> None:
    async with serve() as server:
        status, body = await server.get("/v1/nodes")
    assert status == 200
    assert (len(body["data"]), body["complete"], body["data"][0]["processes"]) == (1, True, 1)


async def test_the_processes_of_a_node_are_summed(serve: Any) -> None:
    """What another version has announced in another shape is left out."""
    store = Announced(facts("b", 1), facts("a", 2, cpu_share=0.5), facts("a", 3, draining=True), b'{"node": "c"}')
    async with serve() as server:
        nodes, is_complete = await Announcer(server.context, store, "a").nodes()
    assert is_complete
    assert [(each["node"], each["sessions"], each["processes"]) for each in nodes] == [("a", 5, 2), ("b", 1, 1)]
    a, b = nodes
    assert (a["loop_lag_ms"], a["cpu_share"], a["draining"]) == (3.0, 0.5, True)
    assert (b["cpu_share"], b["draining"]) == (None, False)

"""A reload of all workers, as one of them sees it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from voicepipe.errors import ConfigError, Overload
from voicepipe.server.api.settings import own_reload, reload_line, reloaded
from voicepipe.server.workers.messages import QueryResult
from voicepipe.server.workers.peers import Reloaded, Workers


class FakeLink:
    """A channel whose supervisor answers with these, or not at all."""

    n_workers = 2

    def __init__(self, replies: list[Reloaded] | None) -> None:
        self._replies = replies

    async def query(self, kind: str) -> QueryResult:
        assert kind == "reload"
        if self._replies is None:
            raise Overload("no answer", retry_after_ms=1)
        return QueryResult(number=1, replies=[msgspec.json.encode(each) for each in self._replies])


class FakeContext:
    def __init__(self, replies: list[Reloaded] | None = None, *, reload: Any = None, alone: bool = False) -> None:
        link: Any = FakeLink(replies)
        self.workers = None if alone else Workers(link, "http://127.0.0.1:1")
        self.reload = reload


TAKEN, REFUSED = Reloaded(("default",), n_workers=1), Reloaded(why="agents.x: wrong")


@pytest.mark.parametrize(
    ("replies", "outcome", "line"),
    [
        ([TAKEN, TAKEN], Reloaded(("default",), "", 2), "settings reloaded by 2 of 2 workers, agents: default"),
        (
            [REFUSED, TAKEN],
            Reloaded(("default",), "agents.x: wrong", 1),
            "settings reloaded by 1 of 2 workers, agents: default; refused by others: agents.x: wrong",
        ),
        (
            [REFUSED, REFUSED],
            Reloaded((), "agents.x: wrong", 0),
            "settings not reloaded, the old ones stay in force: agents.x: wrong",
        ),
        (
            [],
            Reloaded((), "no worker answers", 0),
            "settings not reloaded, the old ones stay in force: no worker answers",
        ),
        (None, Reloaded(why="no answer"), "settings not reloaded, the old ones stay in force: no answer"),
    ],
)
async def test_the_outcome_of_all_workers(replies: list[Reloaded] | None, outcome: Reloaded, line: str) -> None:
    context: Any = FakeContext(replies)
    assert await reloaded(context) == outcome
    assert reload_line(outcome, 2) == line


async def test_the_outcome_of_one_process() -> None:
    async def takes() -> tuple[str, ...]:
        return ("default",)

    async def refuses() -> tuple[str, ...]:
        raise ConfigError("agents.x: wrong")

    contexts: list[Any] = [FakeContext(reload=each, alone=True) for each in (takes, refuses, None)]
    assert await reloaded(contexts[0]) == TAKEN
    assert await own_reload(contexts[1]) == REFUSED
    assert (await own_reload(contexts[2])).why == "The settings of this server can't be read again."

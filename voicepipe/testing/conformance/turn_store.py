"""Conformance checks that every `TurnStore` must pass.

Each check gets a function that opens a new, empty store, and closes what it opened:

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    async def test_my_store(check, ...):
        await check(open_empty_store)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from voicepipe.telemetry.store.port import Cursor, StoredTurn, StoreError, TurnQuery, TurnStore
from voicepipe.testing.records import turn_record
from voicepipe.turn.record.arm import NO_ARM, Arm
from voicepipe.values import replace

OpenStore = Callable[[], Awaitable[TurnStore]]


def stored_turn(
    id: str, started_at_ms: int = 1_000, *, project: str = "p", agent: str = "default", **changes: Any
) -> StoredTurn:
    """Return a turn to be stored; `changes` are those of `turn_record`."""
    return StoredTurn(turn_record(id=id, **changes), project, agent, started_at_ms)


@asynccontextmanager
async def opened(open_store: OpenStore) -> AsyncIterator[TurnStore]:
    """Open a store while the block runs."""
    store = await open_store()
    try:
        yield store
    finally:
        await store.close()


async def _ids(store: TurnStore, project: str = "p", **query: Any) -> list[str]:
    return [turn.record.id for turn in (await store.list(project, TurnQuery(**query))).turns]


async def returns_what_was_stored(open_store: OpenStore) -> None:
    """The whole record, its agent and its time are returned; an unknown ID is None."""
    turn = stored_turn(
        "a", 1_795_000_000_123, agent="sales", outcome="failed", reason="llm_timeout", actions=("hedged",)
    )
    async with opened(open_store) as store:
        await store.store([turn])
        assert await store.get("a", "p") == turn
        assert await store.get("b", "p") is None


async def finds_words(open_store: OpenStore) -> None:
    """Words are found on either side, in either case and order, page by page, and beside other filters. Characters that
    JSON or LIKE treat specially are words like any other, and other projects stay hidden.
    """
    async with opened(open_store) as store:
        texts = ("Is the GARDEN open?", 'They call it "garden", 100%_free', "Ein Gärtner", "gard")
        turns = [
            stored_turn(f"t{i}", 1_000 + i, user_text=text, agent=f"a{i % 2}", total_ms=500 + i)
            for i, text in enumerate(texts)
        ]
        other = stored_turn("o", 5_000, project="other", user_text="garden")
        spoken = stored_turn("s", 2_000, agent_text="In the garden.", user_text="", total_ms=900)
        await store.store([*turns, spoken, other])
        assert await _ids(store, words="garden") == ["s", "t1", "t0"]
        assert await _ids(store, words="garden", order="slowest") == ["s", "t1", "t0"]
        assert await _ids(store, words="GÄRT") == ["t2"]
        assert await _ids(store, words='"garden", 100%_') == ["t1"]
        assert await _ids(store, words="garden", agent="a0") == ["t0"]
        assert await _ids(store, words="t1") == []
        first = await store.list("p", TurnQuery(words="garden", limit=1))
        assert [turn.record.id for turn in first.turns] == ["s"]
        assert await _ids(store, words="garden", limit=1, before=first.next) == ["t1"]
        last = await store.list("p", TurnQuery(words="garden", limit=3))
        assert (len(last.turns), await _ids(store, words="garden", before=last.next or Cursor(1, "x"))) == (3, [])


async def hides_other_projects(open_store: OpenStore) -> None:
    """Reading across projects finds nothing, even for the same ID, and writing replaces nothing."""
    async with opened(open_store) as store:
        mine, theirs = stored_turn("a", project="mine"), stored_turn("a", project="theirs", session="other")
        await store.store([mine, theirs])
        assert await store.get("a", "mine") == mine
        assert await store.get("a", "theirs") == theirs
        assert await store.get("a", "") is None
        assert await _ids(store, "mine", session="other") == []


async def replaces_a_turn_by_its_later_record(open_store: OpenStore) -> None:
    """A turn is stored twice, playing and closed; the later record is kept, at its first place in time."""
    async with opened(open_store) as store:
        await store.store([stored_turn("a", 5, outcome=None)])
        await store.store([stored_turn("a", 9, outcome="interrupted")])
        assert await store.get("a", "p") == stored_turn("a", 5, outcome="interrupted")
        assert await _ids(store, outcome="interrupted") == ["a"]


async def keeps_the_order_within_a_batch(open_store: OpenStore) -> None:
    """The later one of two records of a turn in one batch is stored."""
    async with opened(open_store) as store:
        await store.store([stored_turn("a", outcome=None), stored_turn("a", outcome="completed")])
        assert await store.get("a", "p") == stored_turn("a", outcome="completed")


async def pages_through_everything_once(open_store: OpenStore) -> None:
    """Pages are newest first, turns of the same instant too; new turns do not shift a reader's pages."""
    turns = [stored_turn(f"t{i:02}", started_at_ms=i // 3) for i in range(20)]
    async with opened(open_store) as store:
        await store.store(turns)
        seen: list[str] = []
        before: Cursor | None = None
        while True:
            page = await store.list("p", TurnQuery(limit=7, before=before))
            seen += [turn.record.id for turn in page.turns]
            await store.store([stored_turn(f"new{len(seen)}", started_at_ms=100)])
            if (before := page.next) is None:
                break
        assert seen == [turn.record.id for turn in reversed(turns)]


async def ends_with_a_full_last_page(open_store: OpenStore) -> None:
    """The last page has no `next`, also when it is full."""
    async with opened(open_store) as store:
        await store.store([stored_turn("a", 1), stored_turn("b", 2)])
        assert (await store.list("p", TurnQuery(limit=2))).next is None
        assert (await store.list("nobody")).turns == ()


async def filters_by_each_field(open_store: OpenStore) -> None:
    """Session, agent, outcome and verdict, alone and together."""
    async with opened(open_store) as store:
        await store.store(
            [
                stored_turn("a", 1, session="s1", agent="sales", total_verdict="over"),
                stored_turn("b", 2, session="s1", outcome="failed", total_verdict=None),
                stored_turn("c", 3, session="s2", agent="sales"),
            ]
        )
        assert await _ids(store, session="s1") == ["b", "a"]
        assert await _ids(store, agent="sales") == ["c", "a"]
        assert await _ids(store, outcome="failed") == ["b"]
        assert await _ids(store, over=True) == ["a"]
        assert await _ids(store, over=False) == ["c", "b"]
        assert await _ids(store, session="s1", agent="sales", over=True, outcome="completed") == ["a"]
        assert await _ids(store, session="s2", over=True) == []


async def takes_any_text(open_store: OpenStore) -> None:
    """Quotes, newlines, NUL, emoji and half an emoji: invalid text is replaced, the rest is returned unchanged."""
    text = 'Bob\'s "x"; DROP TABLE turns\n\x00 \U0001f3b5 é'
    async with opened(open_store) as store:
        await store.store(
            [stored_turn("a'b", user_text=text), stored_turn("c", agent_text="half \ud83c of it", played_text="")]
        )
        assert await store.get("a'b", "p") == stored_turn("a'b", user_text=text)
        assert await store.get("c", "p") == stored_turn("c", agent_text="half \ufffd of it", played_text="")


async def serves_readers_and_writers_at_once(open_store: OpenStore) -> None:
    """Many concurrent users get whole answers."""
    async with opened(open_store) as store:
        await asyncio.gather(
            *(store.store([stored_turn(f"t{i}", i), stored_turn(f"u{i}", i)]) for i in range(20)),
            *(store.list("p") for _ in range(20)),
        )
        assert len(await _ids(store)) == 40


async def keeps_feedback_with_its_turn(open_store: OpenStore) -> None:
    """A source's latest score counts. It is of one project, stays when the turn is stored again, and leaves with it."""
    async with opened(open_store) as store:
        arms = [
            replace(stored_turn("a", session="s1"), arm=Arm("e", "x")),
            stored_turn("b", 2_000, session="s2"),
        ]
        await store.store(arms)
        assert await store.store_feedback("a", "p", "user", 0.0, 1)
        assert await store.store_feedback("a", None, "user", 1.0, 2)
        assert await store.store_feedback("a", "p", "judge\0", 0.25, 2)
        assert not await store.store_feedback("a", "q", "user", 0.0, 3)
        assert not await store.store_feedback("c", "p", "user", 0.0, 3)
        await store.store(arms[:1])
        later, earlier = await store.by_arm("p", TurnQuery())
        assert (earlier.arm, dict(earlier.scores)) == (Arm("e", "x"), {"user": 1.0, "judge\ufffd": 0.25})
        assert (later.arm, dict(later.scores)) == (NO_ARM, {})
        assert [turn.arm for turn in await store.by_arm(None, TurnQuery(until_ms=1_500))] == [Arm("e", "x")]
        assert await store.by_arm("q", TurnQuery()) == ()
        await store.delete_session("p", "s1")
        await store.store(arms[:1])
        assert [dict(turn.scores) for turn in await store.by_arm("p", TurnQuery())] == [{}, {}]


async def keeps_a_summary_with_its_session(open_store: OpenStore) -> None:
    """A summary is of one project, stays when another turn is stored, and leaves with its session."""
    async with opened(open_store) as store:
        await store.store([stored_turn("a", session="s1"), stored_turn("b", session="s1", project="q")])
        assert await store.store_summary("p", "s1", "They asked for the time.\0")
        assert not await store.store_summary("p", "s2", "No such session.")
        await store.store([stored_turn("c", session="s1")])
        assert (await store.summary("p", "s1")).startswith("They asked for the time.")
        assert (await store.summary(None, "s1")).startswith("They asked for the time.")
        assert await store.summary("q", "s1") == ""
        assert await store.summary("p", "s2") == ""
        await store.delete_session("p", "s1")
        assert await store.summary("p", "s1") == ""


async def answers_no_more_once_closed(open_store: OpenStore) -> None:
    """After `close` every call raises `StoreError`; closing again does nothing."""
    store = await open_store()
    await store.close()
    await store.close()
    calls = (
        store.stats("p"),
        store.sessions("p"),
        store.delete_user("p", "u"),
        store.maintain_step(0),
        store.size_bytes(),
    )
    for call in (store.store([stored_turn("a")]), store.get("a", "p"), store.list("p"), *calls):
        try:
            await call
        except StoreError:
            continue
        raise AssertionError("a closed store answered")


CHECKS: Final[tuple[Callable[[OpenStore], Awaitable[None]], ...]] = (
    returns_what_was_stored,
    finds_words,
    hides_other_projects,
    replaces_a_turn_by_its_later_record,
    keeps_the_order_within_a_batch,
    pages_through_everything_once,
    ends_with_a_full_last_page,
    filters_by_each_field,
    takes_any_text,
    serves_readers_and_writers_at_once,
    keeps_a_summary_with_its_session,
    keeps_feedback_with_its_turn,
    answers_no_more_once_closed,
)
"""All of them."""

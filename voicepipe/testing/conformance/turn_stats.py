"""The requirements of every `TurnStore` about figures, sessions, deletion and maintenance.

`turn_store` has the others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from voicepipe.telemetry.rollups.stats import Stats
from voicepipe.telemetry.store.port import MINUTE_MS, Cursor, SessionQuery, StatsQuery, StoredTurn, TurnQuery, TurnStore
from voicepipe.testing.conformance.turn_store import OpenStore, opened, stored_turn
from voicepipe.turn.record.arm import NO_ARM, Arm
from voicepipe.turn.record.values import ModelAttempt, TurnCost
from voicepipe.values import replace

HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
T0: Final = 20_000 * DAY_MS
"""Midnight UTC."""

LATER: Final = T0 + 40 * DAY_MS
"""When all periods with these turns are over."""


def of(turn: StoredTurn, **changes: Any) -> StoredTurn:
    """Return the turn with changes to the fields stored beside its record."""
    return replace(turn, **changes)


async def maintain(store: TurnStore, now_ms: int = LATER) -> None:
    """Aggregate all periods that are over."""
    while await store.maintain_step(now_ms):
        pass


QUERIES: Final = (
    StatsQuery(),
    StatsQuery(by="provider"),
    StatsQuery(agent="sales", by="model"),
    StatsQuery(provider="groq"),
    StatsQuery(model="groq/a", outcome="completed", by="arm"),
    StatsQuery(session="s1", by="agent"),
    StatsQuery(user="ann"),
    StatsQuery(over=True, since_ms=T0 + 30_000, until_ms=T0 + 3 * HOUR_MS + 7),
    StatsQuery(since_ms=T0, until_ms=T0 + 5 * DAY_MS, step_ms=HOUR_MS, by="language"),
)


def many() -> list[StoredTurn]:
    """Turns of all kinds over three days."""
    models = ("groq/a", "groq/b", "local/c")
    turns = []
    for number in range(90):
        attempt = ModelAttempt(
            provider="groq/b", role="hedge", outcome="failed", began_ms=0, first_ms=None, cost_usd=0.5
        )
        turn = stored_turn(
            f"t{number}",
            T0 + number**2 * 31_000,
            session=f"s{number // 10}",
            agent="sales" if number % 3 else "default",
            outcome="failed" if number % 7 == 0 else "completed",
            total_verdict="over" if number % 5 == 0 else "within",
            providers=(("llm", models[number % 3]), ("stt", "local/ear"), ("tts", "groq/voice")),
            actions=("hedge",) if number % 4 == 0 else (),
            attempts=(attempt,) if number % 4 == 0 else (),
            itl_ms=10.0,
            cost=TurnCost(usd=0.25, answer_usd=0.125, tts_usd=0.125),
        )
        turns.append(
            of(turn, user="ann" if number % 2 else "", language="en" if number % 11 else "de", arm=Arm("x", "a"))
        )
    return turns


async def answers_alike_summed_up_or_not(open_store: OpenStore) -> None:
    """Aggregation changes no answer."""
    async with opened(open_store) as store:
        await store.store(many())
        before = [await store.stats("p", query) for query in QUERIES]
        await maintain(store)
        assert [await store.stats("p", query) for query in QUERIES] == before
        assert before[0].turns == 90


async def sums_all_figures_of_a_turn(open_store: OpenStore) -> None:
    """Outcome, actions, money, tokens, stages and providers, including failed attempts."""
    (turn,) = [turn for turn in many() if turn.record.id == "t4"]
    async with opened(open_store) as store:
        await store.store([turn])
        stats = await store.stats("p", StatsQuery(by="model"))
    assert (stats.turns, stats.over, stats.measured, stats.outcomes) == (1, 0, 1, {"completed": 1})
    assert (stats.actions, stats.cost_usd.usd, stats.tokens.cached) == ({"hedge": 1}, 0.25, 96)
    assert [(stage.stage, stage.p95_ms) for stage in stats.stages][:4] == [
        ("total", 983),
        ("silence", 500),
        ("endpoint", 25),
        ("llm_ttft", 235),
    ]
    changes = {(each.stage, each.provider): each for each in stats.providers}
    assert (changes["llm", "groq/b"].calls, changes["llm", "groq/b"].errors) == (
        2 if turn_llm(turn) == "groq/b" else 1,
        1,
    )
    assert (changes["tts", "groq/voice"].p50_ms, changes["stt", "local/ear"].p50_ms) == (110, 430)
    assert {group.name for group in stats.groups} == {turn_llm(turn), "local/ear", "groq/voice"}


def turn_llm(turn: StoredTurn) -> str:
    """Return the provider that answered."""
    return dict(turn.record.providers)["llm"]


async def counts_a_turn_once_it_is_closed(open_store: OpenStore) -> None:
    """A turn is not counted while its reply plays, and once however often its record is renewed, also after
    aggregation."""
    async with opened(open_store) as store:
        await store.store([stored_turn("a", T0, outcome=None)])
        assert await store.stats("p") == Stats()
        for outcome in ("completed", "failed"):
            await store.store([stored_turn("a", T0 + 5_000, outcome=outcome)])
            assert (await store.stats("p")).outcomes == {outcome: 1}
            await maintain(store)
            assert (await store.stats("p")).outcomes == {outcome: 1}


async def cuts_ranges_to_the_millisecond(open_store: OpenStore) -> None:
    """The first instant belongs to a range and the last does not, aggregated or not."""
    async with opened(open_store) as store:
        await store.store([stored_turn(f"t{at}", T0 + at) for at in (0, 1, 30_000, MINUTE_MS, HOUR_MS, DAY_MS)])
        for _ in range(2):
            for since, until, turns in (
                (0, 1, 1),
                (1, 30_000, 1),
                (0, HOUR_MS, 4),
                (30_000, DAY_MS, 3),
                (1, DAY_MS + 1, 5),
            ):
                query = StatsQuery(since_ms=T0 + since, until_ms=T0 + until)
                assert (await store.stats("p", query)).turns == turns, (since, until)
            await maintain(store)


async def keeps_projects_apart_in_figures(open_store: OpenStore) -> None:
    """One project's figures are not another's; an operator of all sees their sum, and their turns in one order."""
    async with opened(open_store) as store:
        await store.store([stored_turn(f"t{n}", T0 + n, project="pq"[n % 2], session=f"s{n}") for n in range(9)])
        for _ in range(2):
            assert [(await store.stats(project)).turns for project in ("p", "q", None, "r")] == [5, 4, 9, 0]
            await maintain(store)
        assert [turn.record.id for turn in (await store.list(None)).turns] == [f"t{n}" for n in reversed(range(9))]
        first = await store.list(None, TurnQuery(limit=4))
        rest = await store.list(None, TurnQuery(limit=5, before=first.next))
        assert [turn.record.id for turn in rest.turns] == [f"t{n}" for n in reversed(range(5))]
        assert [each.session for each in (await store.sessions(None)).sessions] == [f"s{n}" for n in reversed(range(9))]
        assert (await store.get("t1", None)) == (await store.get("t1", "q"))


async def lists_sessions(open_store: OpenStore) -> None:
    """Newest first, page by page, with their sums; by agent, user, time and a part of their id."""
    async with opened(open_store) as store:
        await store.store(many())
        everything = (await store.sessions("p")).sessions
        assert [each.session for each in everything] == [f"s{n}" for n in reversed(range(9))]
        last = everything[0]
        assert (last.turns, last.failed, last.over, last.slowest_ms, last.cost_usd) == (10, 1, 2, 983, 2.5)
        first = await store.sessions("p", SessionQuery(limit=4))
        rest = await store.sessions("p", SessionQuery(limit=5, before=first.next))
        assert (first.sessions + rest.sessions, rest.next) == (everything, None)
        assert [each.session for each in (await store.sessions("p", SessionQuery(text="S3"))).sessions] == ["s3"]
        assert (await store.sessions("p", SessionQuery(text="%"))).sessions == ()
        assert (await store.sessions("p", SessionQuery(until_ms=T0 + 1))).sessions == (everything[-1],)
        assert (await store.sessions("p", SessionQuery(user="nobody"))).sessions == ()


async def deletes_a_session_or_a_user(open_store: OpenStore) -> None:
    """The user's turns are removed from lists, sessions and figures, aggregated or not; other users' turns are not."""
    async with opened(open_store) as store:
        await store.store([*many(), of(stored_turn("theirs", T0, project="q", session="s1"), user="ann")])
        await maintain(store)
        assert await store.delete_session("p", "s1") == 10
        assert await store.delete_session("p", "s1") == 0
        assert await store.delete_user("p", "") == 0
        assert (await store.list("p", TurnQuery(session="s1"))).turns == ()
        assert (await store.stats("p")).turns == 80
        assert await store.delete_user("p", "ann") == 40
        for _ in range(2):
            assert (await store.stats("p", StatsQuery(by="language"))).turns == 40
            assert (await store.stats("p", StatsQuery(user="ann"))).turns == 0
            await maintain(store)
        assert "s1" not in {each.session for each in (await store.sessions("p")).sessions}
        assert (await store.get("theirs", "q")) is not None


async def keeps_the_figures_of_turns_that_it_trims(open_store: OpenStore) -> None:
    """Turns are removed by age, oldest first, once they are aggregated; their figures stay, and name no session."""
    async with opened(open_store) as store:
        await store.store(many())
        before = await store.stats("p", StatsQuery(by="model"))
        assert await store.trim(LATER, keep_days=39, max_bytes=None) == 0  # not aggregated yet
        await maintain(store)
        old = sum(turn.started_at_ms < T0 + DAY_MS for turn in many())
        gone = 0
        while more := await store.trim(LATER, keep_days=39, max_bytes=None):
            gone += more
        assert 0 < gone == old < 90
        assert len((await store.list("p", TurnQuery(limit=200))).turns) == 90 - gone
        assert await store.stats("p", StatsQuery(by="model")) == before
        assert "s0" not in {each.session for each in (await store.sessions("p")).sessions}
        await store.store([stored_turn("late", T0 + 1)])
        await maintain(store)
        assert await store.stats("p", StatsQuery(by="model")) == before


async def trims_to_a_size(open_store: OpenStore) -> None:
    """Turns are removed until the rest fits the limit; without a limit nothing is removed."""
    async with opened(open_store) as store:
        await store.store(many())
        await maintain(store)
        full = await store.size_bytes()
        assert await store.trim(LATER, keep_days=None, max_bytes=None) == 0
        assert await store.trim(LATER, keep_days=None, max_bytes=full) == 0
        assert await store.trim(LATER, keep_days=None, max_bytes=full - 1) > 0
        assert await store.size_bytes() < full


async def lists_the_slowest_first(open_store: OpenStore) -> None:
    """Page by page, equal values too, in a short range and in all; turns without played audio are left out."""
    turns = [stored_turn(f"t{n:02}", T0 + n * MINUTE_MS, total_ms=n // 3 * 100) for n in range(20)]
    async with opened(open_store) as store:
        await store.store([*turns, stored_turn("unheard", T0, total_ms=None, total_verdict=None)])
        for since_ms in (None, T0):
            seen: list[str] = []
            before: Cursor | None = None
            while True:
                page = await store.list("p", TurnQuery(order="slowest", limit=7, before=before, since_ms=since_ms))
                seen += [turn.record.id for turn in page.turns]
                if (before := page.next) is None:
                    break
            assert seen == [turn.record.id for turn in reversed(turns)]


async def filters_by_all_that_is_known(open_store: OpenStore) -> None:
    """Each field filters alone, in lists as in figures."""
    turns = [
        of(
            stored_turn("a", T0, session="sess_Aa", cause="tool"),
            user="ann",
            language="en",
            route="fast",
            arm=Arm("x", "fast"),
        ),
        of(
            stored_turn("b", T0 + 1, session="sess_b%", providers=(("llm", "groq/a"), ("tts", "t/v"))),
            user="bob",
            arm=Arm("x", "slow"),
        ),
        stored_turn("c", T0 + 2, session="sess_c", providers=(("llm", "groq2/a"), ("stt", "groq/ear"))),
    ]
    expected: tuple[tuple[dict[str, Any], str], ...] = (
        ({"text": "AA"}, "a"),
        ({"text": "b%"}, "b"),
        ({"text": "_"}, "cba"),
        ({"text": "a"}, "a"),
        ({"text": "none"}, ""),
        ({"user": "ann"}, "a"),
        ({"user": ""}, "c"),
        ({"language": "en"}, "a"),
        ({"route": "fast"}, "a"),
        ({"arm": Arm("x", "slow")}, "b"),
        ({"arm": NO_ARM}, "c"),
        ({"cause": "tool"}, "a"),
        ({"provider": "groq"}, "cb"),
        ({"provider": "groq2"}, "c"),
        ({"provider": "gro"}, ""),
        ({"model": "groq/a"}, "b"),
        ({"model": "groq/a", "user": "ann"}, ""),
        ({"since_ms": T0 + 1}, "cb"),
        ({"until_ms": T0 + 1}, "a"),
        ({"since_ms": T0 + 1, "until_ms": T0 + 2, "user": "bob"}, "b"),
    )
    async with opened(open_store) as store:
        await store.store(turns)
        for query, ids in expected:
            for order in ("newest", "slowest"):
                found = (await store.list("p", TurnQuery(order=order, **query))).turns
                assert {turn.record.id for turn in found} == set(ids), query
            assert (await store.stats("p", StatsQuery(**query))).turns == len(ids), query


async def finds_what_is_rare(open_store: OpenStore) -> None:
    """Find a few among many, page by page, including turns still playing, aggregated or not; and nothing where there is
    nothing."""
    rare = [stored_turn(f"r{n}", T0 + n * 9 * HOUR_MS, outcome="completed" if n else None) for n in range(7)]
    async with opened(open_store) as store:
        await store.store([*many(), *(of(turn, language="cy") for turn in rare)])
        for _ in range(2):
            seen: list[str] = []
            before: Cursor | None = None
            while True:
                page = await store.list("p", TurnQuery(language="cy", cause="vad", limit=3, before=before))
                seen += [turn.record.id for turn in page.turns]
                if (before := page.next) is None:
                    break
            assert seen == [f"r{n}" for n in reversed(range(7))]
            slowest = await store.list("p", TurnQuery(language="cy", order="slowest", limit=5))
            assert [turn.record.id for turn in slowest.turns] == [f"r{n}" for n in reversed(range(2, 7))]
            rest = await store.list("p", TurnQuery(language="cy", order="slowest", before=slowest.next))
            assert [turn.record.id for turn in rest.turns] == ["r1", "r0"]
            assert (await store.list("p", TurnQuery(model="nobody/nothing"))).turns == ()
            assert (await store.list("p", TurnQuery(model="nobody/nothing", order="slowest"))).turns == ()
            await maintain(store)


CHECKS: Final[tuple[Callable[[OpenStore], Awaitable[None]], ...]] = (
    answers_alike_summed_up_or_not,
    sums_all_figures_of_a_turn,
    counts_a_turn_once_it_is_closed,
    cuts_ranges_to_the_millisecond,
    keeps_projects_apart_in_figures,
    lists_sessions,
    deletes_a_session_or_a_user,
    keeps_the_figures_of_turns_that_it_trims,
    trims_to_a_size,
    lists_the_slowest_first,
    filters_by_all_that_is_known,
    finds_what_is_rare,
)
"""All of them."""

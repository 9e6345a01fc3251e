"""A routed answer from the session's side: which model spoke, why, at what cost, and how the other calls end."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from typing import Any, Literal

import pytest

from tests.router.requests import HI, WORDS
from voicepipe import clock
from voicepipe.errors import ConfigError, StageBroken, StageError, StageRefused
from voicepipe.ports.model import (
    Attempted,
    Content,
    Finished,
    Model,
    ModelRequest,
    Routed,
    Text,
    TextDelta,
    Usage,
)
from voicepipe.ports.provider_events import ModelConnected, ModelJoined
from voicepipe.router.candidate import Candidate
from voicepipe.router.health import healths
from voicepipe.router.llm.call import LlmCall
from voicepipe.router.llm.model import RoutedModel, latest_words
from voicepipe.router.llm.request import RoutedAnswer
from voicepipe.router.plan_table import PlanTable
from voicepipe.router.policies import RoutingQuery, Rule
from voicepipe.router.pool import REBUILD_MS, Pool
from voicepipe.testing.fakes.cues import Cut, Hang, Hold, LlmCue, Stall, Status
from voicepipe.testing.fakes.script import soon
from voicepipe.testing.waiting import WAIT_S, eventually
from voicepipe.values import replace


async def test_everything_of_an_answer_comes_in_order(pool: Any) -> None:
    """The provider, the words, the cost of each call, the token count, the end."""
    pooled = await pool(1)
    pooled.vendors[0].llm.usual = LlmCue(tokens=("One", " two"), input_tokens=1_000)
    came = await pooled.request(HI)
    kinds = [type(event) for event in came.events]
    assert kinds == [ModelConnected, Routed, TextDelta, TextDelta, Attempted, Usage, Finished]
    logged = next(event for event in came.events if isinstance(event, Attempted))
    assert (logged.provider, logged.role, logged.outcome, logged.began_ms) == ("v0/m", "primary", "spoke", 0)
    assert logged.first_ms is not None
    assert logged.cost_usd == pytest.approx((1_000 * 0.3 + 2 * 2.5) / 1e6)


async def test_a_loser_is_closed_and_its_reading_is_paid(pool: Any) -> None:
    pooled = await pool(2, policy="race")
    pooled.vendors[0].llm.usual = LlmCue(fault=Hang())
    pooled.vendors[1].llm.usual = LlmCue(input_tokens=400)
    came = await pooled.request(HI)
    lost, spoke = (event for event in came.events if isinstance(event, Attempted))
    assert (lost.provider, lost.outcome, lost.first_ms, spoke.outcome) == ("v0/m", "lost", None, "spoke")
    assert lost.cost_usd == pytest.approx(400 * 0.3 / 1e6)
    await soon((await pooled.vendors[0].llm.nth(0)).gone)


LONG = ModelRequest(model="any", messages=(Content("user", (Text("Hi. " * 1_500),)),))
"""Long enough for a provider to cache it."""


async def test_the_first_answer_of_a_session_does_not_hide_its_providers_cache(pool: Any) -> None:
    pooled = await pool(1, cached_usd=0.03)
    vendor = pooled.vendors[0]
    for session, cached_tokens in (("a", 0), ("a", 1_200), ("b", 0)):
        vendor.llm.cue(LlmCue(input_tokens=1_500, cached_tokens=cached_tokens))
        assert (await pooled.request(replace(LONG, session=session))).is_whole
    assert pooled.stats.cached_shares == {"v0/m": 0.8}


async def test_a_first_choice_without_a_request_counts_as_cached(pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another model costs above it would be too little, and hedges would spend more than the cap."""
    pooled = await pool(2, cached_usd=0.03, order="sticky", policy="single")
    voice, spent = pooled.model._routes.pools["voice"], list[float]()
    monkeypatch.setattr(voice, "spent", lambda decision, hold, usd, tokens: spent.append(usd))
    for vendor in pooled.vendors:
        vendor.llm.usual = LlmCue(input_tokens=1_500, cached_tokens=0)
    session = next(each for each in map(str, range(9)) if first_of(voice, each) == "v1/m")
    for _ in range(2):
        assert (await pooled.request(replace(LONG, session=session))).routes == ["v1/m"]
    assert spent == pytest.approx([0.0, 1_500 * 0.8 * (0.3 - 0.03) / 1e6])


def first_of(voice: Pool, session: str) -> str:
    return voice.decide(RoutingQuery(session=session), 0.0).plan.first.spec


async def test_an_additional_model_is_reported_when_it_starts(pool: Any) -> None:
    """Not at the end of the answer, as the calls and their cost are."""
    pooled = await pool(2, policy="race")
    async with pooled.model.open(HI) as events:
        assert await anext(aiter(events)) == ModelJoined("v1/m", "hedge")


async def test_a_call_from_before_does_not_undo_the_rate_limit_of_another(pool: Any) -> None:
    """Its first token says nothing of the requests that came after it, nor of the key of these."""
    pooled = await pool(2, order="given", policy="single")
    hold = Hold(after=0)
    pooled.vendors[0].llm.cue(LlmCue(tokens=("First",), hold=hold), LlmCue(fault=Status(402)))
    pooled.vendors[1].llm.usual = LlmCue(tokens=("Second",))
    before = asyncio.create_task(pooled.request(HI))
    await pooled.vendors[0].llm.nth(0)
    await asyncio.sleep(0.002)  # the instants differ, in ms
    assert (await pooled.request(HI)).text == "Second"
    hold.release.set()
    assert (await before).text == "First"
    assert (await pooled.request(HI)).attempts == [("v1/m", "primary", "spoke")]
    (first, _) = healths(pooled.stats, "llm", clock.monotonic_ms())
    assert (first.state, first.alert[:4]) == ("open", "402:")


async def test_when_all_fail_the_first_error_is_raised(pool: Any) -> None:
    pooled = await pool(2, policy="single", order="given")
    pooled.vendors[0].llm.usual = LlmCue(fault=Status(503))
    pooled.vendors[1].llm.usual = LlmCue(fault=Status(500))
    came = await pooled.request(HI)
    assert isinstance(came.failure, StageRefused)
    assert (came.failure.provider, came.failure.status) == ("v0/m", 503)
    assert [outcome for *_, outcome in came.attempts] == ["failed", "failed"]


async def test_a_fault_of_the_router_behind_an_answer_ends_it(pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its consumer gets an error, and waits for nothing."""
    pooled = await pool(1)

    def spent(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(pooled.model._routes.pools["voice"], "spent", spent)
    async with asyncio.timeout(WAIT_S):
        came = await pooled.request(HI)
    assert isinstance(came.failure, StageBroken)
    assert came.failure.why == "internal error (RuntimeError)"


async def test_who_leaves_before_the_first_word_takes_all_calls_along(pool: Any) -> None:
    pooled = await pool(2, policy="race")
    for vendor in pooled.vendors:
        vendor.llm.usual = LlmCue(fault=Hang())
    async with asyncio.TaskGroup() as group:
        answering = group.create_task(pooled.request(HI))
        received = [await vendor.llm.nth(0) for vendor in pooled.vendors]
        answering.cancel()
        for each in received:
            await soon(each.gone)
    assert answering.cancelled()
    assert set(pooled.stats.running.values()) == {0}


async def test_what_is_learned_moves_the_questions(pool: Any) -> None:
    """The first model never speaks; after a few hedged answers the second gets the request first, and alone."""
    pooled = await pool(2, order="learned", hedge_budget_usd=0.001)
    pooled.vendors[0].llm.usual = LlmCue(fault=Hang())
    reasons = []
    for n in range(12):
        came = await pooled.request(replace(HI, session=f"s{n}"))
        reasons.append(came.attempts[0][:2])
        # Tables are made anew once a second; these tests should not wait for that.
        for table in pooled.model._routes.pools["voice"]._tables.values():
            table.built_ms = -1e9
    assert reasons[-1] == ("v1/m", "primary")


async def test_models_that_a_request_names_come_after_the_routes_own(pool: Any) -> None:
    """The one named first is the first choice, though the other has answered sooner."""
    pooled = await pool(2)
    model = RoutedModel(pooled.model._first, "", pooled.model._routes, metadata={})
    named = replace(pooled, model=model)
    for candidate, ms in (("v0/m", 300.0), ("v1/m", 50.0)):
        survival = pooled.stats.latency.survival(Candidate(spec=candidate))
        for _ in range(50):
            survival.spoke(ms, clock.monotonic_ms())
    request = replace(HI, models=("v1/m",))
    assert [(await named.request(request)).attempts[0] for _ in range(6)] == [("v0/m", "primary", "spoke")] * 6
    pooled.vendors[0].llm.usual = LlmCue(fault=Status(503))
    assert (await named.request(request)).routes == ["v1/m"]


async def test_a_key_that_is_refused_is_an_error_in_the_log(pool: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The error is logged once, and then that model gets no request for a minute."""
    pooled = await pool(2, policy="single", order="given")
    pooled.vendors[0].llm.usual = LlmCue(fault=Status(401))
    with caplog.at_level(logging.WARNING, logger="voicepipe"):
        for _ in range(3):
            assert (await pooled.request(HI)).routes == ["v1/m"]
    logged = [(record.getMessage(), record.levelname, vars(record)["fields"]["provider"]) for record in caplog.records]
    assert logged == [("provider_failed", "WARNING", "v0/m"), ("breaker_opened", "ERROR", "v0/m")]
    assert len(pooled.vendors[0].llm.received) == 1
    refused, well = healths(pooled.stats, "llm", clock.monotonic_ms())
    assert (refused.spec, refused.state, refused.n_opened) == ("v0/m", "open", 1)
    assert refused.alert.startswith("401: ")
    assert 0 < refused.retry_in_ms <= 60_000
    assert refused.errors == (("refused", 1),)
    assert (well.spec, well.state, well.alert, well.retry_in_ms) == ("v1/m", "closed", "", 0)
    assert well.ttft_p50_ms is not None


async def test_a_single_model_is_retried_and_observed(pool: Any) -> None:
    """The wrong key is reported until the model answers."""
    pooled = await pool(1)
    alone = replace(HI, models=())
    model = RoutedModel(pooled.model._first, "", pooled.model._routes, metadata={})
    single = replace(pooled, model=model)
    pooled.vendors[0].llm.usual = LlmCue(fault=Status(403))
    came = await single.request(alone)
    assert isinstance(came.failure, StageRefused)
    (refused,) = healths(pooled.stats, "llm", clock.monotonic_ms())
    assert refused.alert.startswith("403: ")
    pooled.vendors[0].llm.usual = LlmCue()
    assert (await single.request(alone)).is_whole
    (well,) = healths(pooled.stats, "llm", clock.monotonic_ms())
    assert well.alert == ""


async def test_how_fast_a_model_writes_is_learned_alone_and_in_a_pool(pool: Any) -> None:
    """By its provider's count, from the first piece to the last."""
    pooled = await pool(2, policy="single", order="given")
    await read_slowly(pooled, HI)
    (of_pool, _) = healths(pooled.stats, "llm", clock.monotonic_ms())
    assert of_pool.itl_ms is not None
    assert of_pool.itl_ms >= 20
    pooled.stats.latency._speeds.clear()
    alone = RoutedModel(pooled.model._first, "", pooled.model._routes, metadata={})
    await read_slowly(replace(pooled, model=alone), replace(HI, models=()))
    (of_lone, _) = healths(pooled.stats, "llm", clock.monotonic_ms())
    assert of_lone.itl_ms is not None
    assert of_lone.itl_ms >= 20
    assert of_lone.tokens_per_s == pytest.approx(1_000 / of_lone.itl_ms)


async def read_slowly(pooled: Any, request: ModelRequest) -> None:
    """An answer of three tokens: the second is written 60 ms after the first was read, however late that was."""
    hold = Hold(after=1)
    pooled.vendors[0].llm.usual = LlmCue(tokens=("One", " two", " three"), hold=hold)
    async with pooled.model.open(request) as stream:
        async for event in stream:
            if isinstance(event, TextDelta) and not hold.release.is_set():
                await asyncio.sleep(0.06)
                hold.release.set()


async def test_a_held_answer_is_let_out_when_the_preferred_one_breaks(pool: Any) -> None:
    """The hedge was ready and whole; nothing of it is lost."""
    pooled = await pool(2, order="given", prefer_first=True, hedge_budget_usd=1.0, deadline_ms=4_000)
    hold = Hold(after=0)
    pooled.vendors[0].llm.usual = LlmCue(hold=hold, fault=Cut(0))
    pooled.vendors[1].llm.usual = LlmCue(tokens=("Held", " back", "."))
    async with asyncio.TaskGroup() as group:
        answering = group.create_task(pooled.request(HI))
        await soon(hold.reached)
        await soon((await pooled.vendors[1].llm.nth(0)).ended)
        hold.release.set()
    came = answering.result()
    assert (came.text, came.routes, came.is_whole) == ("Held back.", ["v1/m"], True)


@pytest.mark.parametrize(
    ("options", "answers"),
    [
        ({}, "v0/m"),
        ({"prefer_first": False}, "v1/m"),
        ({"order": "price"}, "v1/m"),
        ({"order": "price", "prefer_first": True}, "v0/m"),
    ],
    ids=str,
)
async def test_the_first_of_a_list_answers_within_the_deadline_though_its_hedge_is_ready(
    pool: Any, options: dict[str, Any], answers: str
) -> None:
    """In the order as written; elsewhere, or if the settings say so, the first one to speak answers."""
    pooled = await pool(2, hedge_budget_usd=1.0, deadline_ms=4_000, **options)
    hold = Hold(after=0)
    pooled.vendors[0].llm.usual = LlmCue(tokens=("First",), hold=hold)
    pooled.vendors[1].llm.usual = LlmCue(tokens=("Second",))
    async with asyncio.TaskGroup() as group:
        answering = group.create_task(pooled.request(HI))
        await soon(hold.reached)
        await soon((await pooled.vendors[1].llm.nth(0)).ended)

        async def ready() -> bool | None:
            return None if pooled.stats.running["v1/m"] else True

        await eventually(ready)
        hold.release.set()
    assert answering.result().routes == [answers]


async def test_a_slow_listener_makes_the_provider_wait_and_loses_nothing(pool: Any) -> None:
    pooled = await pool(1)
    many = tuple(f"{i} " for i in range(1_500))
    pooled.vendors[0].llm.usual = LlmCue(tokens=many)
    async with pooled.model.open(HI) as answer:
        assert isinstance(answer, RoutedAnswer)
        logged = aiter(answer)
        await anext(logged)

        async def full() -> bool | None:
            return answer._events.is_full() or None

        await eventually(full)
        n_waiting = len(answer._events)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(answer._events) == n_waiting <= 300
        text = "".join([event.text async for event in logged if isinstance(event, TextDelta)])
    assert text == "".join(many)


async def test_warming_opens_the_way_to_the_first_and_its_hedge(pool: Any) -> None:
    pooled = await pool(3, order="given")
    await pooled.model.warm(HI)
    assert [vendor.connections_made for vendor in pooled.vendors] in ([1, 1, 0], [1, 0, 1])
    came = await pooled.request(HI)
    assert came.is_whole
    assert pooled.vendors[0].connections_made == 1


@pytest.mark.parametrize(("applies_rules", "answers"), [(True, "v1/m"), (False, "v0/m")])
async def test_a_pool_that_the_client_named_obeys_no_rule(pool: Any, applies_rules: bool, answers: str) -> None:
    pooled = await pool(2, policy="single", order="given")
    routes = pooled.model._routes
    rules, other = (Rule("all", (("agent", ("*",)),), "other"),), routes.pool_for(("v1/m",), "")
    routes = replace(routes, rules=rules, pools={**routes.pools, "other": other})
    model = RoutedModel(pooled.model._first, "voice", routes, metadata={"agent": "a"}, applies_rules=applies_rules)
    assert (await replace(pooled, model=model).request(HI)).routes == [answers]


async def test_a_request_may_have_a_deadline_of_its_own(pool: Any) -> None:
    """The table for it is made once, and a few tables are stored."""
    pooled = await pool(2, deadline_ms=2_000)
    for deadline_ms in range(100, 2_000, 100):
        assert (await pooled.request(replace(HI, deadline_ms=deadline_ms))).is_whole
    voice = pooled.model._routes.pools["voice"]
    assert list(voice._tables) == list(range(1_200, 2_000, 100))


@pytest.mark.parametrize(("age_ms", "n_refreshes"), [(REBUILD_MS - 500, 0), (REBUILD_MS + 500, 1)])
async def test_a_request_renews_only_old_tables(
    pool: Any, monkeypatch: pytest.MonkeyPatch, age_ms: int, n_refreshes: int
) -> None:
    """A turn of the event loop costs each request more than to look at the time."""
    pooled, refreshed = await pool(2), list[float]()
    voice = pooled.model._routes.pools["voice"]
    built_ms = clock.monotonic_ms()
    voice.decide(RoutingQuery(), built_ms)
    monkeypatch.setattr(voice, "refresh", refreshed.append)
    monkeypatch.setattr(clock, "monotonic_ms", lambda: built_ms + age_ms)
    assert (await pooled.request(HI)).is_whole
    assert len(refreshed) == n_refreshes


async def test_after_a_refresh_a_request_like_the_latest_ones_finds_its_plan(
    pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where requests are rare each one comes after a refresh."""
    voice = (await pool(2)).model._routes.pools["voice"]
    made = list[int]()
    first_ms, make = clock.monotonic_ms(), PlanTable._make

    def counted(table: PlanTable, *kind: Any) -> Any:
        made.append(1)
        return make(table, *kind)

    before = voice.decide(RoutingQuery(), first_ms).plan
    monkeypatch.setattr(PlanTable, "_make", counted)
    voice.refresh(first_ms + REBUILD_MS + 1)
    assert len(made) == 1
    after = voice.decide(RoutingQuery(), first_ms + REBUILD_MS + 2).plan
    assert len(made) == 1
    assert after == before
    assert after is not before


@pytest.mark.parametrize(("requested_ms", "counts_ms"), [(None, 400), (150, 150), (900, 400), (0, 400)])
async def test_the_sooner_of_two_deadlines_counts(pool: Any, requested_ms: int | None, counts_ms: int) -> None:
    """What is left of a turn's second never makes a pool more patient than it was set to be."""
    pooled = await pool(2, deadline_ms=400)
    decided = pooled.model._routes.pools["voice"].decide(RoutingQuery(deadline_ms=requested_ms), 0.0)
    assert decided.plan.deadline_ms == counts_ms


async def test_an_abandoned_answer_is_paid_and_holds_no_money(pool: Any) -> None:
    """The user has interrupted: its cost counts towards the cap, and what the hedge might have cost is free again."""
    pooled = await pool(2, hedge_budget_usd=1.0)
    (routed,) = pooled.model._routes.pools.values()
    before_usd = routed.hedge_budget.available_usd
    async with pooled.model.open(HI) as events:
        await anext(aiter(events))
        assert routed.hedge_budget.available_usd < before_usd
    assert routed.hedge_budget.available_usd == routed.hedge_budget.level_usd
    assert routed.hedge_budget.level_usd != before_usd


@pytest.mark.parametrize(("fault", "held_usd"), [(Stall(after=1), 0.0), (Hang(), 1_500 * 0.3 / 1e6)])
async def test_an_answer_holds_no_money_for_calls_that_it_did_not_start(
    pool: Any, fault: Stall | Hang, held_usd: float
) -> None:
    """While the answer is written, other turns may spend it: all is free but what the started loser has read."""
    pooled = await pool(2, hedge_budget_usd=0.001)
    pooled.vendors[0].llm.usual = LlmCue(tokens=WORDS, fault=fault)
    pooled.vendors[1].llm.usual = LlmCue(tokens=WORDS, fault=Stall(after=1))
    (routed,) = pooled.model._routes.pools.values()
    budget = routed.hedge_budget
    async with pooled.model.open(LONG) as events:
        assert budget.level_usd - budget.available_usd > held_usd
        async for event in events:
            if isinstance(event, TextDelta):
                break
        await asyncio.sleep(0)  # the call of `call_soon` that learns from the race
        assert budget.level_usd - budget.available_usd == pytest.approx(held_usd, abs=1e-12)


async def test_a_model_that_can_not_be_made_leaves_nothing_behind(pool: Any) -> None:
    """Its error comes out as it is; no call is in flight, and no money is held."""
    pooled = await pool(2)
    (routed,) = pooled.model._routes.pools.values()

    def model_of(spec: str) -> Model:
        raise ConfigError(f"no {spec}")

    routes = replace(pooled.model._routes, models=model_of)
    broken = RoutedModel(pooled.model._first, "voice", routes, metadata={})
    with pytest.raises(ConfigError, match="no v0/m"):
        async with broken.open(LONG):
            pass
    assert set(pooled.stats.running.values()) == {0}
    assert routed.hedge_budget.available_usd == routed.hedge_budget.level_usd


async def test_a_bug_in_a_call_comes_out_as_it_was(pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not wrapped in a group."""
    pooled = await pool(1)
    pooled.vendors[0].llm.usual = LlmCue(fault=Status(503))

    def fail(answer: RoutedAnswer, call: LlmCall, failure: StageError) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(RoutedAnswer, "on_failure", fail)
    with pytest.raises(RuntimeError, match="ours"):
        await pooled.request(HI)


@pytest.mark.parametrize(
    ("spoken", "words"),
    [((("user", "One."), ("user", "Two?"), ("assistant", "Three.")), "Two?"), ((("system", "Be short."),), "")],
)
def test_the_words_that_are_judged_are_the_users_latest(
    spoken: tuple[tuple[Literal["system", "user", "assistant"], str], ...], words: str
) -> None:
    messages = tuple(Content(role, (Text(text),)) for role, text in spoken)
    assert latest_words(replace(HI, messages=messages)) == words


async def test_a_first_that_hangs_alone_is_replaced_at_the_deadline_though_no_hedge_is_paid_for(pool: Any) -> None:
    """Not only when the attempt times out; the hedge budget pays nothing for it."""
    pooled = await pool(2, hedge_budget_usd=0.0, deadline_ms=50)
    pooled.vendors[0].llm.usual = LlmCue(fault=Hang())
    (routed,) = pooled.model._routes.pools.values()
    came = await pooled.request()
    assert came.is_whole
    assert came.attempts == [("v0/m", "primary", "lost"), ("v1/m", "replacement", "spoke")]
    assert routed.hedge_budget.level_usd == 0.0


async def test_an_answer_that_is_over_is_freed_without_the_garbage_collector(pool: Any) -> None:
    """Each answer left a cycle of 33 objects, so that every twentieth one waited for a collection."""
    pooled = await pool(2)
    gc.disable()
    try:
        async with pooled.model.open(HI) as events:
            answer = weakref.ref(events)
            async for _ in events:
                pass
        del events
        await asyncio.sleep(0)  # its last call of `call_soon`
        assert answer() is None
    finally:
        gc.enable()

"""Stats: whatever is summed up already, they are those of the turns themselves."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from voicepipe.errors import ProtocolError
from voicepipe.quantile import RELATIVE_ERROR
from voicepipe.telemetry.record_json import record_json
from voicepipe.telemetry.rollups.aggregates import Figures, LateStage, ProviderFigures, StageProvider
from voicepipe.telemetry.rollups.buckets import DAY_MS, HOUR_MS, QUARTER_MS
from voicepipe.telemetry.rollups.record_figures import RecordFigures
from voicepipe.telemetry.rollups.stats import Stats
from voicepipe.telemetry.rollups.stored_figures import packed, unpacked, unpacked_by_name
from voicepipe.telemetry.store.port import MINUTE_MS, Cursor, SessionQuery, StatsQuery, StoredTurn, TurnQuery
from voicepipe.telemetry.store.sqlite import SqliteTurnStore
from voicepipe.testing.conformance.turn_store import stored_turn
from voicepipe.testing.records import MARKS, turn_record
from voicepipe.turn.record.arm import NO_ARM, Arm
from voicepipe.values import replace

T0 = 20_000 * DAY_MS
"""An instant that is the beginning of a span of every level."""

INSTANTS = st.one_of(st.integers(0, 3 * MINUTE_MS), st.integers(0, 3 * HOUR_MS), st.integers(0, 3 * DAY_MS)).map(
    lambda after_ms: T0 + after_ms
)


FOREIGN_CURSORS = ("", "x", "12", "12.", ".a", "-1.a", "1e3.a", "9" * 30 + ".a", "\u0663.a")


@st.composite
def turns(draw: st.DrawFn) -> list[StoredTurn]:
    """Turns of several kinds, some of them several times: the later replaces the earlier."""
    drawn = []
    for _ in range(draw(st.integers(1, 25))):
        total_ms = draw(st.one_of(st.none(), st.integers(-5, 5_000)))
        turn = stored_turn(
            f"t{draw(st.integers(0, 20))}",
            draw(INSTANTS),
            project=draw(st.sampled_from("pq")),
            agent=draw(st.sampled_from(["sales", "default"])),
            outcome=draw(st.sampled_from([None, "completed", "failed"])),
            total_ms=total_ms,
            total_verdict=None if total_ms is None else "over" if total_ms > 1_000 else "within",
            providers=(("llm", draw(st.sampled_from(["groq/a", "groq/b", "local/c"]))), ("tts", "groq/voice")),
        )
        drawn.append(
            replace(
                turn, language=draw(st.sampled_from(["", "en"])), arm=draw(st.sampled_from([NO_ARM, Arm("x", "a")]))
            )
        )
    return drawn


@st.composite
def queries(draw: st.DrawFn) -> StatsQuery:
    """Any filter, any range, with and without groups and a series."""
    since_ms, until_ms = sorted((draw(INSTANTS), draw(INSTANTS)))
    ranged = draw(st.booleans())
    return StatsQuery(
        agent=draw(st.sampled_from([None, "sales"])),
        provider=draw(st.sampled_from([None, "groq"])),
        model=draw(st.sampled_from([None, "groq/a"])),
        language=draw(st.sampled_from([None, "", "en"])),
        outcome=draw(st.sampled_from([None, "failed"])),
        over=draw(st.sampled_from([None, True, False])),
        since_ms=since_ms if ranged else None,
        until_ms=until_ms if ranged else None,
        step_ms=draw(st.sampled_from([MINUTE_MS, 5 * MINUTE_MS, QUARTER_MS, HOUR_MS]))
        if ranged and (until_ms - since_ms < 2_000 * MINUTE_MS)
        else None,
        by=draw(st.sampled_from([None, "agent", "model", "provider", "arm"])),
    )


def standing(written: Iterable[StoredTurn]) -> list[StoredTurn]:
    """What the store has of them: the latest record of each turn, at its first place in time."""
    turns: dict[tuple[str, str], StoredTurn] = {}
    for turn in written:
        key = (turn.project, turn.record.id)
        turns[key] = replace(turn, started_at_ms=turns[key].started_at_ms if key in turns else turn.started_at_ms)
    return list(turns.values())


def matches(turn: StoredTurn, query: StatsQuery) -> bool:
    """Return whether the query selects a closed turn, judged by itself."""
    record, served = turn.record, [spec for _, spec in turn.record.providers]
    return (
        record.outcome is not None
        and query.agent in (None, turn.agent)
        and query.language in (None, turn.language)
        and query.outcome in (None, record.outcome)
        and query.over in (None, record.total_verdict == "over")
        and (query.model is None or query.model in served)
        and (query.provider is None or any(spec.startswith(f"{query.provider}/") for spec in served))
        and (query.since_ms is None or turn.started_at_ms >= query.since_ms)
        and (query.until_ms is None or turn.started_at_ms < query.until_ms)
    )


def names(turn: StoredTurn, by: str) -> set[str]:
    """What a turn is called in a group."""
    served = [spec for _, spec in turn.record.providers]
    if by == "model":
        return set(served)
    return {spec.split("/")[0] for spec in served} if by == "provider" else {str(getattr(turn, by))}


def check(stats: Stats, turns: list[StoredTurn], query: StatsQuery) -> None:
    """Compare with the turns themselves."""
    totals = sorted(max(0, turn.record.total_ms) for turn in turns if turn.record.total_ms is not None)
    assert (stats.turns, stats.measured) == (len(turns), len(totals))
    assert stats.over == sum(turn.record.total_verdict == "over" for turn in turns)
    late = [turn.record.breach for turn in turns if turn.record.total_verdict == "over"]
    causes = Counter((breach.stage, breach.owner) for breach in late if breach is not None)
    assert {(each.stage, each.owner): each.turns for each in stats.late_causes} == causes
    assert sum(stats.outcomes.values()) == len(turns)
    assert stats.tokens.input == sum(turn.record.tokens.input for turn in turns)
    if totals:
        assert stats.stages[0].stage == "total"
        true_ms = totals[math.ceil(0.95 * len(totals)) - 1]
        assert abs(stats.stages[0].p95_ms - true_ms) <= true_ms * RELATIVE_ERROR + 0.5
    if query.by is not None:
        expected = {
            name: sum(name in names(turn, query.by) for turn in turns) for t in turns for name in names(t, query.by)
        }
        assert {group.name: group.turns for group in stats.groups} == expected
    if query.step_ms is not None:
        step_ms = query.step_ms
        steps = [turn.started_at_ms - turn.started_at_ms % step_ms for turn in turns]
        assert [(point.from_ms, point.turns) for point in stats.series] == [
            (s, steps.count(s)) for s in sorted(set(steps))
        ]
        assert sum(sum(point.bands) for point in stats.series) == len(totals)


EARLY = (
    *(("voiced_last", 0), ("flushed", 90), ("transcribed", 250), ("llm_requested", 255), ("first_delta", 400)),
    *(("first_clause", 450), ("first_sound", 480), ("ended", 700), ("gate_opened", 700), ("first_sent", 703)),
    ("first_audible", 720),
)
"""Of an answer that was ready long before the turn was over, and waited for that."""


@pytest.mark.parametrize("marks", [MARKS, EARLY])
def test_waiting_times_sum_to_the_turn_latency(marks: tuple[tuple[str, int], ...]) -> None:
    """Also where a stage's own span was over long before the user stopped waiting for it."""
    record = turn_record(marks)
    figures = RecordFigures.read(record_json(record, "default")).figures()
    assert sum(figures.waited_ms.values()) + record.unattributed_ms == record.total_ms
    assert marks is MARKS or figures.waited_ms["endpoint"] == 700


ROUNDS = st.lists(st.tuples(turns(), INSTANTS, st.integers(0, 40)), min_size=1, max_size=3)
"""(turns that are written, when, and how often the store is maintained a day later)."""


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rounds=ROUNDS, queries=st.lists(queries(), min_size=1, max_size=5))
async def test_stats_are_those_of_the_turns(
    rounds: list[tuple[list[StoredTurn], int, int]], queries: list[StatsQuery]
) -> None:
    """Whatever was summed up before a turn was renewed, and however ranges cut through it."""
    with TemporaryDirectory() as folder:
        store = await SqliteTurnStore.open(Path(folder) / "turns.db")
        written: list[StoredTurn] = []
        for batch, now_ms, n_pieces in rounds:
            await store.store(batch)
            written += batch
            for _ in range(n_pieces):
                await store.maintain_step(now_ms + DAY_MS)
            for query in queries:
                everybodys = [turn for turn in standing(written) if matches(turn, query)]
                check(await store.stats("p", query), [turn for turn in everybodys if turn.project == "p"], query)
                check(await store.stats(None, query), everybodys, query)
        await store.close()


@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("step", lambda: StatsQuery(since_ms=0, until_ms=DAY_MS, step_ms=1_000)),
        ("step", lambda: StatsQuery(since_ms=0, until_ms=300 * DAY_MS, step_ms=MINUTE_MS)),
        ("since", lambda: StatsQuery(until_ms=DAY_MS, step_ms=MINUTE_MS)),
        ("by", lambda: StatsQuery(by="session")),  # type: ignore[arg-type]
        ("until", lambda: TurnQuery(since_ms=2, until_ms=1)),
        ("limit", lambda: SessionQuery(limit=0)),
        *(("before", partial(Cursor.read, text)) for text in FOREIGN_CURSORS),
    ],
)
def test_invalid_queries_are_refused(field: str, make: Callable[[], object]) -> None:
    """The refusal names the field."""
    with pytest.raises(ProtocolError) as refusal:
        make()
    assert refusal.value.field == field


async def test_a_fine_series_of_old_times_is_read_from_their_turns(tmp_path: Path) -> None:
    """Minutes that retention deletes leave no hole in a series by minutes."""
    store = await SqliteTurnStore.open(tmp_path / "turns.db")
    await store.store([stored_turn(f"t{number}", T0 + number * MINUTE_MS) for number in range(20)])
    while await store.maintain_step(T0 + 10 * DAY_MS):
        pass
    query = StatsQuery(since_ms=T0, until_ms=T0 + HOUR_MS, step_ms=5 * MINUTE_MS)
    assert [point.turns for point in (await store.stats("p", query)).series] == [5, 5, 5, 5]
    await store.close()


def test_stored_figures_keep_their_form() -> None:
    """Servers of all versions read and write them: stage and name are one text. A name may have a space."""
    figures = Figures(turns=2)
    figures.providers[StageProvider("llm", "own/a b")] = ProviderFigures(calls=2)
    figures.late_causes[LateStage("llm_ttft", "own/a b")] = 1
    stored = packed({"mix": figures})
    *_, providers, late_causes = msgspec.msgpack.decode(zlib.decompress(stored))["mix"]
    assert (list(providers), late_causes) == (["llm own/a b"], {"llm_ttft own/a b": 1})
    assert dict(unpacked_by_name(stored, lambda name: True)) == {"mix": figures}
    assert unpacked(packed(figures)) == figures

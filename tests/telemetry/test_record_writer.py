"""The record writer: sessions never wait, the store gets batches, and lost records are counted."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from voicepipe.errors import ConfigError
from voicepipe.telemetry.record_json import record_plain
from voicepipe.telemetry.record_writer import RecordWriter, RecordWriterOptions, with_texts
from voicepipe.telemetry.store.port import RecordRefused, StoredTurn, StoreError
from voicepipe.testing.conformance.turn_store import stored_turn
from voicepipe.testing.records import turn_record
from voicepipe.testing.waiting import WAIT_S
from voicepipe.turn.record.arm import NO_ARM, Arm
from voicepipe.turn.record.values import ModelAttempt

SOON = RecordWriterOptions(flush_ms=1, retry_ms=1, max_retry_ms=5)


class FakeStore:
    """A store that signals every batch, and fails or stalls on cue."""

    def __init__(self) -> None:
        self.batches: asyncio.Queue[tuple[StoredTurn, ...]] = asyncio.Queue()
        self.failure: Exception | None = None
        self.free = asyncio.Event()
        self.free.set()

    async def store(self, turns: Sequence[StoredTurn]) -> None:
        self.batches.put_nowait(tuple(turns))
        await self.free.wait()
        if self.failure is not None:
            raise self.failure

    async def batch(self) -> list[str]:
        async with asyncio.timeout(WAIT_S):
            return [turn.record.id for turn in await self.batches.get()]


async def test_records_queued_together_are_written_together() -> None:
    """One batch, one transaction, in the order of the offers."""
    store = FakeStore()
    async with RecordWriter(store, SOON) as record_writer:
        for number in range(5):
            record_writer.offer(stored_turn(f"t{number}"))
        assert await store.batch() == ["t0", "t1", "t2", "t3", "t4"]
        record_writer.offer(stored_turn("later"))
        assert await store.batch() == ["later"]


async def test_observers_get_every_turn_also_dropped_ones() -> None:
    """At once, in the order of the offers, before the store sees any of it."""
    observed: list[str] = []

    def listens(turn: StoredTurn) -> None:
        observed.append(turn.record.id)

    async with RecordWriter(
        FakeStore(), RecordWriterOptions(capacity=1, flush_ms=1), observers=(listens, listens)
    ) as record_writer:
        record_writer.offer(stored_turn("a"))
        record_writer.offer(stored_turn("b"))
        assert (observed, record_writer.dropped) == (["a", "a", "b", "b"], 1)


async def test_a_turn_that_still_waits_is_replaced_by_its_newer_record() -> None:
    """The record of a turn still spoken is not written when the closed one is there already."""
    store = FakeStore()
    async with RecordWriter(store, SOON) as record_writer:
        record_writer.offer(stored_turn("a", outcome=None))
        record_writer.offer(stored_turn("a", outcome="completed"))
        record_writer.offer(stored_turn("a", project="other"))
        async with asyncio.timeout(WAIT_S):
            assert await store.batches.get() == (
                stored_turn("a", outcome="completed"),
                stored_turn("a", project="other"),
            )


async def test_leaving_writes_what_waits() -> None:
    """A shutdown does not wait for the next flush, and loses nothing."""
    store = FakeStore()
    async with RecordWriter(store, RecordWriterOptions(flush_ms=3_600_000)) as record_writer:
        record_writer.offer(stored_turn("a", outcome=None))
    assert await store.batch() == ["a"]
    assert (record_writer.dropped, record_writer.lost) == (0, 0)


async def test_a_turn_that_has_ended_is_written_at_once_with_all_that_wait() -> None:
    """The process may be killed next. The record of a turn that still runs waits for others."""
    store = FakeStore()
    async with RecordWriter(store, RecordWriterOptions(flush_ms=3_600_000)) as record_writer:
        for ended in ("a", "b"):
            record_writer.offer(stored_turn("runs", outcome=None))
            record_writer.offer(stored_turn(ended))
            assert await store.batch() == ["runs", ended]


async def test_a_turn_that_ends_while_the_store_fails_waits_for_the_next_try() -> None:
    """Not each turn that ends tries a store that is away."""
    store = FakeStore()
    store.failure = StoreError("away")
    options = RecordWriterOptions(flush_ms=1, retry_ms=3_600_000, max_retry_ms=3_600_000)
    async with RecordWriter(store, options) as record_writer:
        record_writer.offer(stored_turn("a"))
        assert await store.batch() == ["a"]
        record_writer.offer(stored_turn("b"))
        for _ in range(10):
            await asyncio.sleep(0)
        assert store.batches.empty()
        store.failure = None
    assert [await store.batch() for _ in range(2)] == [["a"], ["b"]]


async def test_the_records_of_a_session_can_be_waited_for() -> None:
    """Those that are redacted, that wait and that are being written; not those of others."""
    redact, store = SlowRedactor(), FakeStore()
    store.free.clear()
    async with RecordWriter(store, SOON) as record_writer, asyncio.TaskGroup() as group:
        record_writer.offer(stored_turn("a", session="s"))
        assert await store.batch() == ["a"]
        await record_writer.wait_until_written("other")
        recorder(record_writer, redact)(turn_record(id="b", session="s"))
        waiting = group.create_task(record_writer.wait_until_written("s"))
        store.free.set()
        redact.may_go.set()
        assert await store.batch() == ["b"]
        await waiting
        assert record_writer.n_waiting == 0


async def test_leaving_with_an_error_writes_too_and_lets_it_through() -> None:
    """What went wrong around the record writer comes out as it was, after the records were written."""
    store = FakeStore()

    async def break_in_the_middle() -> None:
        async with RecordWriter(store, RecordWriterOptions(flush_ms=3_600_000)) as record_writer:
            record_writer.offer(stored_turn("a", outcome=None))
            raise ConfigError("unrelated")

    with pytest.raises(ConfigError, match="unrelated"):
        await break_in_the_middle()
    assert await store.batch() == ["a"]


async def test_a_full_record_writer_drops_and_counts() -> None:
    """While the store is stuck, offers return at once; what finds no room is counted, the rest is written."""
    store = FakeStore()
    store.free.clear()
    async with RecordWriter(store, RecordWriterOptions(capacity=2, flush_ms=1)) as record_writer:
        record_writer.offer(stored_turn("stuck"))
        assert await store.batch() == ["stuck"]
        for id in ("a", "b", "c", "a"):
            record_writer.offer(stored_turn(id))
        assert record_writer.dropped == 1
        store.free.set()
        assert await store.batch() == ["a", "b"]


async def test_a_store_that_stays_stuck_does_not_hold_up_the_end() -> None:
    """Leaving is bounded, and says how many turns it cost: those being written and those that waited."""
    store = FakeStore()
    store.free.clear()
    async with RecordWriter(store, RecordWriterOptions(flush_ms=1, drain_ms=20)) as record_writer:
        record_writer.offer(stored_turn("a"))
        await store.batch()
        record_writer.offer(stored_turn("b"))
    assert record_writer.lost == 2


async def test_offers_after_the_end_are_counted() -> None:
    """A session that outlives the record writer breaks nothing."""
    async with RecordWriter(FakeStore(), SOON) as record_writer:
        pass
    record_writer.offer(stored_turn("late"))
    assert record_writer.dropped == 1


@pytest.mark.parametrize("failure", [StoreError("disk full", "full"), OSError("gone"), StoreError("who knows")])
async def test_a_store_that_is_away_loses_nothing(failure: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """What it does not take is tried again until it does; the log says once that it fails, and once that it is back."""
    store = FakeStore()
    store.failure = failure
    with caplog.at_level(logging.INFO, "voicepipe"):
        async with RecordWriter(store, SOON) as record_writer:
            record_writer.offer(stored_turn("a", outcome=None))
            assert await store.batch() == ["a"]
            record_writer.offer(stored_turn("a", outcome="completed"))
            record_writer.offer(stored_turn("b"))
            for _ in range(3):
                assert await store.batch() == ["a"]
            assert record_writer.n_waiting == 3
            store.failure = None
            assert await store.batch() == ["a"]
            async with asyncio.timeout(WAIT_S):
                assert await store.batches.get() == (stored_turn("a", outcome="completed"), stored_turn("b"))
    assert (record_writer.lost, record_writer.dropped, record_writer.n_waiting) == (0, 0, 0)
    assert [line.message for line in caplog.records] == ["storage_failed", "storage_recovered"]


async def test_a_store_that_is_away_is_tried_ever_more_slowly() -> None:
    """The delay has a bound. It keeps a database that comes back from getting all retries at once."""
    store = FakeStore()
    store.failure = StoreError("away", "unreachable")
    pauses: list[int] = []

    class Watched(RecordWriter):
        async def _pause(self, pause_ms: int, until: asyncio.Event) -> None:
            pauses.append(pause_ms)
            await asyncio.sleep(0)

    async with Watched(
        store, RecordWriterOptions(flush_ms=1, retry_ms=10, max_retry_ms=50, drain_ms=20)
    ) as record_writer:
        record_writer.offer(stored_turn("a"))
        for _ in range(6):
            await store.batch()
        store.failure = None
        await store.batch()
    assert pauses[:7] == [1, 10, 20, 40, 50, 50, 50]


async def test_leaving_tries_again_as_long_as_it_may() -> None:
    """A database that restarts while we stop loses nothing either."""
    store = FakeStore()
    store.failure = StoreError("away", "unreachable")
    options = RecordWriterOptions(flush_ms=1, retry_ms=1, drain_ms=60_000)

    async def come_back() -> None:
        for _ in range(3):
            await store.batch()
        store.failure = None

    async with asyncio.TaskGroup() as group, RecordWriter(store, options) as record_writer:
        record_writer.offer(stored_turn("a"))
        await store.batch()
        group.create_task(come_back())
    assert (record_writer.lost, record_writer.n_waiting) == (0, 0)


@pytest.mark.parametrize("failure", [RecordRefused("text with a zero"), RuntimeError("bug")])
async def test_a_record_at_fault_takes_no_other_with_it(failure: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """It is found by halves, lost and counted; the rest of its batch is written."""

    class Choosy(FakeStore):
        async def store(self, turns: Sequence[StoredTurn]) -> None:
            if any(turn.record.id in ("bad", "worse") for turn in turns):
                raise failure
            await super().store(turns)

    store = Choosy()
    with caplog.at_level(logging.INFO, "voicepipe"):
        async with RecordWriter(store, SOON) as record_writer:
            for id in ("a", "b", "bad", "c", "d", "worse", "e"):
                record_writer.offer(stored_turn(id))
    written: list[str] = []
    while not store.batches.empty():
        written += await store.batch()
    assert (written, record_writer.lost, record_writer.n_waiting) == (["a", "b", "c", "d", "e"], 2, 0)
    assert [line.message for line in caplog.records] == ["records_lost"]


async def test_what_finds_no_room_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """And all of it counted."""
    store = FakeStore()
    store.failure = StoreError("disk full", "full")
    with caplog.at_level(logging.ERROR, "voicepipe"):
        async with RecordWriter(store, RecordWriterOptions(capacity=1, flush_ms=1, drain_ms=20)) as record_writer:
            record_writer.offer(stored_turn("a"))
            await store.batch()
            for id in ("b", "c", "d"):
                record_writer.offer(stored_turn(id))
            assert record_writer.dropped == 2
    assert [line.message for line in caplog.records] == ["storage_failed", "records_lost", "records_lost"]
    assert record_writer.lost == 2


@pytest.mark.parametrize("failure", [RecordRefused("no number"), RuntimeError("bug")])
async def test_lost_records_are_counted_and_logged_once(failure: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever the store raises, calls go on; the log says it once until a batch was written again."""
    store = FakeStore()
    with caplog.at_level(logging.ERROR, "voicepipe"):
        async with RecordWriter(store, SOON) as record_writer:
            for id, broken in (("a", True), ("b", True), ("c", False), ("d", True)):
                store.failure = failure if broken else None
                record_writer.offer(stored_turn(id))
                assert await store.batch() == [id]
    assert record_writer.lost == 3
    assert [line.message for line in caplog.records] == ["records_lost", "records_lost"]


async def test_a_sessions_records_get_their_project_and_time() -> None:
    """A turn began when its first mark was stamped, counted from when the session's clock was 0."""
    store = FakeStore()
    async with RecordWriter(store, SOON) as record_writer:
        keep = record_writer.of_session(project="p", agent="sales", began_unix_ms=1_000_000, store_texts=True)
        keep(turn_record(marks=(("voiced_last", 5_000),)))
        keep(turn_record(id="none", marks=()))
        async with asyncio.timeout(WAIT_S):
            batch = await store.batches.get()
    assert [(turn.project, turn.agent, turn.started_at_ms) for turn in batch] == [
        ("p", "sales", 1_005_000),
        ("p", "sales", 1_000_000),
    ]
    assert batch[0].record.user_text


async def test_a_turn_gets_the_routers_pool_and_arm_or_its_agents_pool() -> None:
    """They are stored beside the record, not in it."""
    store = FakeStore()
    async with RecordWriter(store, SOON) as record_writer:
        keep = record_writer.of_session(project="p", agent="sales", began_unix_ms=0, store_texts=True, pool="home")
        keep(turn_record(id="single"))
        keep(turn_record(id="ruled", pool="fast", route="rule short; first choice"))
        keep(turn_record(id="tried", pool="new", arm=Arm("summer", "new")))
        async with asyncio.timeout(WAIT_S):
            batch = await store.batches.get()
    assert [(turn.route, turn.arm) for turn in batch] == [
        ("home", NO_ARM),
        ("fast", NO_ARM),
        ("new", Arm("summer", "new")),
    ]
    assert not {"pool", "arm"} & record_plain(batch[2].record, "default").keys()


async def test_texts_that_must_not_be_stored_never_reach_the_store() -> None:
    """Neither side's words are in what is handed on; all else is."""
    store = FakeStore()
    async with RecordWriter(store, SOON) as record_writer:
        record_writer.of_session(project="p", agent="a", began_unix_ms=0, store_texts=False)(turn_record())
        async with asyncio.timeout(WAIT_S):
            (turn,) = await store.batches.get()
    assert turn.record == turn_record(user_text="", agent_text="", played_text="")


@pytest.mark.parametrize("wrong", [{"capacity": 0}, {"flush_ms": 0}, {"drain_ms": -1}])
def test_wrong_options_are_refused(wrong: dict[str, int]) -> None:
    """A record writer without room, or without time, is a mistake in the settings."""
    with pytest.raises(ConfigError, match="above 0"):
        RecordWriterOptions(**wrong)


def test_texts_are_redacted_before_they_are_queued() -> None:
    """The words of both sides, and providers' error texts, which may quote them."""
    attempt = ModelAttempt(provider="a/b", role="primary", outcome="failed", began_ms=0, first_ms=None, why="Anna 3")
    texts: dict[str, Any] = dict.fromkeys(
        ("user_text", "agent_text", "played_text", "reason", "route"), "Anna 1, Anna 2"
    )
    redacted = with_texts(turn_record(**texts, attempts=(attempt,)), lambda text: text.replace("Anna", "[name]"))
    assert [getattr(redacted, name) for name in texts] == ["[name] 1, [name] 2"] * len(texts)
    assert redacted.attempts[0].why == "[name] 3"


class SlowRedactor:
    """Redacts in its own time: each text waits until the test lets it go."""

    def __init__(self) -> None:
        self.may_go = threading.Event()
        self.threads: set[int] = set()

    def __call__(self, text: str) -> str:
        self.threads.add(threading.get_ident())
        assert self.may_go.wait(WAIT_S)
        return text.replace("Anna", "[name]")


def recorder(record_writer: RecordWriter, redact: Any) -> Any:
    """What a session whose texts are redacted calls with each record."""
    return record_writer.of_session(project="p", agent="a", began_unix_ms=0, store_texts=True, redact=redact)


async def test_texts_are_redacted_in_a_thread_before_anything_gets_the_record() -> None:
    """The session goes on at once; observers and store get the redacted record, in the order of the offers."""
    observed: list[str] = []
    redact, store = SlowRedactor(), FakeStore()
    async with RecordWriter(
        store, SOON, observers=(lambda turn: observed.append(turn.record.user_text),)
    ) as record_writer:
        keep = recorder(record_writer, redact)
        for number in range(3):
            keep(turn_record(id=f"t{number}", user_text=f"Anna {number}"))
        assert (observed, record_writer.n_waiting) == ([], 3)
        redact.may_go.set()
        ids = list[str]()
        while len(ids) < 3:
            ids += await store.batch()
    assert (ids, observed) == (["t0", "t1", "t2"], ["[name] 0", "[name] 1", "[name] 2"])
    assert threading.get_ident() not in redact.threads


async def test_leaving_redacts_and_writes_what_waits() -> None:
    """A shutdown loses no record that is still being redacted, and writes none unredacted."""
    redact, store = SlowRedactor(), FakeStore()
    async with RecordWriter(store, SOON) as record_writer:
        keep = recorder(record_writer, redact)
        keep(turn_record(id="t0", user_text="Anna"))
        keep(turn_record(id="t1", user_text="Anna"))
        redact.may_go.set()
    written = [turn for _ in range(store.batches.qsize()) for turn in store.batches.get_nowait()]
    assert [(turn.record.id, turn.record.user_text) for turn in written] == [("t0", "[name]"), ("t1", "[name]")]
    assert (record_writer.dropped, record_writer.lost) == (0, 0)


async def test_a_full_queue_before_the_redaction_drops_and_counts() -> None:
    """As one before the store: the records in it are not touched."""
    redact = SlowRedactor()
    async with RecordWriter(FakeStore(), RecordWriterOptions(capacity=1, flush_ms=1)) as record_writer:
        keep = recorder(record_writer, redact)
        keep(turn_record(id="t0"))
        keep(turn_record(id="t1"))
        assert (record_writer.dropped, record_writer.n_waiting) == (1, 1)
        redact.may_go.set()


async def test_a_call_waits_for_the_records_before_it() -> None:
    """The end of a session is reported behind its last turn; with nothing to wait for, at once."""
    order: list[str] = []
    redact = SlowRedactor()
    async with RecordWriter(FakeStore(), SOON, observers=(lambda turn: order.append(turn.record.id),)) as record_writer:
        record_writer.when_passed_on(lambda: order.append("at once"))
        recorder(record_writer, redact)(turn_record(id="last"))
        record_writer.when_passed_on(lambda: order.append("end"))
        assert order == ["at once"]
        redact.may_go.set()
    assert order == ["at once", "last", "end"]


async def test_a_redaction_without_end_does_not_hold_up_the_shutdown() -> None:
    """What was not redacted in time is lost and counted, and calls that wait for it are made."""
    calls: list[str] = []
    redact = SlowRedactor()
    async with RecordWriter(FakeStore(), RecordWriterOptions(flush_ms=1, drain_ms=20)) as record_writer:
        recorder(record_writer, redact)(turn_record())
        record_writer.when_passed_on(lambda: calls.append("end"))
    redact.may_go.set()
    assert (record_writer.lost, calls) == (1, ["end"])


async def test_a_search_that_fails_costs_the_record_its_texts(caplog: pytest.LogCaptureFixture) -> None:
    """Never its redaction; and the next record is not affected."""

    def fails(text: str) -> str:
        if "Anna" in text:
            raise RuntimeError("a bug")
        return text

    store = FakeStore()
    async with RecordWriter(store, SOON) as record_writer:
        keep = recorder(record_writer, fails)
        keep(turn_record(id="t0", user_text="Anna", reason="Anna"))
        keep(turn_record(id="t1", user_text="Bob"))
    written = [turn.record for _ in range(store.batches.qsize()) for turn in store.batches.get_nowait()]
    assert [(each.id, each.user_text, each.reason) for each in written] == [
        ("t0", "", ""),
        ("t1", "Bob", turn_record().reason),
    ]
    assert "crashed" in caplog.text

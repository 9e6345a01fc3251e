"""The live feed: each reader gets the events it wants, no reader delays another, and lost events are counted."""

from __future__ import annotations

import json

import pytest

from voicepipe.telemetry.live_feed import Feed, FeedEvent, Reader
from voicepipe.telemetry.store.port import StoredTurn
from voicepipe.testing.records import turn_record
from voicepipe.testing.waiting import WAIT_S
from voicepipe.values import replace


def stored_turn(id: str, *, project: str = "acme", outcome: str | None = "completed") -> StoredTurn:
    return StoredTurn(replace(turn_record(), id=id, outcome=outcome), project, "default", 1)  # type: ignore[arg-type]


def everything(event: FeedEvent) -> bool:
    return True


def of_acme(event: FeedEvent) -> bool:
    return event.project == "acme"


async def ids(reader: Reader, n: int) -> list[str]:
    events = [await reader.next(WAIT_S) for _ in range(n)]
    return [json.loads(event.data)["id"] for event in events if event is not None]


async def test_a_reader_gets_what_it_wants_in_order() -> None:
    """Another project's turns do not exist for it; a turn that is still spoken is no closed one."""
    feed = Feed()
    with feed.reading(of_acme) as reader:
        for turn in (
            stored_turn("a"),
            stored_turn("x", project="other"),
            stored_turn("b", outcome=None),
            stored_turn("c"),
        ):
            feed.on_record(turn)
        assert await ids(reader, 2) == ["a", "c"]
        assert await reader.next(0) is None
        assert (reader.lost, reader.has_gap) == (0, False)


async def test_a_slow_reader_loses_the_oldest_and_gets_their_number() -> None:
    """A quick one beside it loses none, and gets the very same bytes."""
    feed = Feed(max_waiting=2)
    with feed.reading(everything) as slow, feed.reading(everything) as quick:
        seen = []
        for number in range(5):
            feed.on_record(stored_turn(f"t{number}"))
            seen += await ids(quick, 1)
        assert seen == ["t0", "t1", "t2", "t3", "t4"]
        assert (slow.lost, quick.lost) == (3, 0)
        assert (feed.n_readers, feed.dropped) == (2, 3)
        assert await ids(slow, 2) == ["t3", "t4"]
    assert (feed.n_readers, feed.dropped) == (0, 3)


async def test_who_comes_back_gets_what_they_missed() -> None:
    """After the event that they saw last, and nothing of another's."""
    feed = Feed()
    with feed.reading(of_acme) as reader:
        feed.on_record(stored_turn("a"))
        seen = await reader.next(WAIT_S)
        assert seen is not None
    feed.on_record(stored_turn("x", project="other"))
    feed.on_record(stored_turn("b"))
    with feed.reading(of_acme, after=seen.id) as reader:
        feed.on_record(stored_turn("c"))
        assert await ids(reader, 2) == ["b", "c"]
        assert not reader.has_gap


@pytest.mark.parametrize("after", ["", "gone-3", "nonsense", "12", "-", "a-b"])
async def test_an_id_of_another_life_means_a_gap(after: str) -> None:
    """The feed sends all that it holds and reports that more may be missing; a new reader has missed nothing."""
    feed = Feed()
    feed.on_record(stored_turn("a"))
    with feed.reading(everything, after=after) as reader:
        assert reader.has_gap is bool(after)
        assert await ids(reader, 1 if after else 0) == (["a"] if after else [])


async def test_a_gap_is_reported_after_a_late_reconnect() -> None:
    """The memory is bounded."""
    feed = Feed(recent=2)
    with feed.reading(everything) as reader:
        feed.on_record(stored_turn("a"))
        seen = await reader.next(WAIT_S)
        assert seen is not None
    for id in ("b", "c", "d"):
        feed.on_record(stored_turn(id))
    with feed.reading(everything, after=seen.id) as reader:
        assert reader.has_gap
        assert await ids(reader, 2) == ["c", "d"]


async def test_deleted_events_are_not_sent_after_a_reconnect() -> None:
    """Of that session of that project."""
    feed = Feed()
    for turn in (stored_turn("a"), stored_turn("b", project="other")):
        feed.on_record(turn)
    feed.delete_session("acme", "sess_1")
    with feed.reading(everything, after="gone-1") as reader:
        assert await ids(reader, 1) == ["b"]


async def test_marks_cost_nothing_without_readers() -> None:
    """Without readers the event is not even built."""
    feed, made = Feed(), []
    feed.publish_live("acme", "sess_1", lambda: made.append(1))
    assert not feed.is_watched
    with feed.reading(everything) as reader:
        assert feed.is_watched
        feed.publish_live("acme", "sess_1", lambda: {"mark": "ended"})
        event = await reader.next(WAIT_S)
        assert event is not None
        assert (event.kind, event.session, event.data) == ("live", "sess_1", b'{"mark":"ended"}')
    assert made == []

"""The order of jobs when several sessions share one model."""

from __future__ import annotations

import threading

from voicepipe.providers.local.engine.fair_queue import FairQueue
from voicepipe.providers.local.engine.slots import Slots


def test_sessions_take_turns() -> None:
    """The backlog of one does not stand before the first item of another."""
    queue: FairQueue[str] = FairQueue(limit=10, session_limit=5)
    for item in ("a1", "a2", "a3", "b1", "c1", "c2"):
        assert queue.put(item[0], item)
    assert [queue.take() for _ in range(6)] == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_full_refuses() -> None:
    """In all and for one session; what is taken makes room again."""
    queue: FairQueue[str] = FairQueue(limit=3, session_limit=2)
    assert [queue.put("a", "a1"), queue.put("a", "a2"), queue.put("a", "a3")] == [True, True, False]
    assert [queue.put("b", "b1"), queue.put("c", "c1")] == [True, False]
    queue.take()
    assert queue.put("c", "c1")


def test_discarded_items_are_never_taken() -> None:
    """They make room; discarding twice, or what was taken, does nothing."""
    queue: FairQueue[str] = FairQueue(limit=2, session_limit=2)
    queue.put("a", "a1")
    queue.put("b", "b1")
    queue.discard("a", "a1")
    queue.discard("a", "a1")
    assert queue.put("c", "c1")
    assert [queue.take(), queue.take()] == ["b1", "c1"]
    queue.discard("b", "b1")
    assert queue.put("b", "b2")


def test_a_waiting_thread_is_woken() -> None:
    """Taking waits for an item, from whichever thread that comes."""
    queue: FairQueue[str] = FairQueue(limit=2, session_limit=2)
    taken: list[str] = []
    thread = threading.Thread(target=lambda: taken.append(queue.take()))
    thread.start()
    queue.put("a", "a1")
    thread.join(10)
    assert taken == ["a1"]


def test_sessions_come_back_to_their_slot() -> None:
    """While there are enough, each has its own; then the one unused for longest goes."""
    slots = Slots(3)
    held: dict[str, list[int]] = {}
    for session in ("a", "b", "c", "a", "d", "c", "b"):
        with slots.held(session) as slot:
            held.setdefault(session, []).append(slot)
    assert held["a"][0] == held["a"][1]
    assert held["c"][0] == held["c"][1]
    assert held["d"] == [held["b"][0]]  # b was unused for longest when d came
    assert held["b"][1] == held["a"][1]  # and a when b came back


def test_a_busy_slot_is_not_shared() -> None:
    """A session's second request at once gets another slot; unowned ones are counted."""
    slots = Slots(3)
    assert slots.unowned() == 3
    with slots.held("a") as first, slots.held("a") as second:
        assert first != second
    assert slots.unowned() == 1

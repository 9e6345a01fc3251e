"""The queue of events in front of the core."""

from __future__ import annotations

from voicepipe.turn import events as e
from voicepipe.turn.core import EventQueue


def test_an_event_of_an_event_is_handled_right_after_it() -> None:
    """And those that were put first come before the ones that wait."""
    queue, handled = EventQueue(), list[e.Event]()
    first, second, third, urgent = (e.SilenceGrew(n) for n in range(4))

    def drain() -> None:
        while queue.waiting:
            handled.append(queue.waiting[0])
            if len(handled) == 1:
                queue.post(second)
                queue.post(third)
            queue.waiting.popleft()
            if len(handled) == 1:
                queue.put_first([urgent])

    queue.drain = drain
    queue.post(first)
    assert handled == [first, urgent, second, third]


def test_events_are_dropped_while_nothing_handles_them() -> None:
    """Before the session runs, and when it is over."""
    queue = EventQueue()
    queue.post(e.TimePassed())
    assert not queue.waiting
    queue.drain = queue.waiting.clear
    queue.post(e.TimePassed())
    queue.drain = None
    queue.post(e.TimePassed())
    assert not queue.waiting

"""Open connections that wait before the first word: bounded by address, and never at another address's cost."""

from __future__ import annotations

from contextlib import ExitStack

from voicepipe.server.wait_limits import RESUME_CAPS, Group, WaitLimits, of_address, of_session, waiting

PER_ADDRESS, ALL_ADDRESSES = RESUME_CAPS.per_address, RESUME_CAPS.all_addresses or 0


class Waiting:
    """Connections in a row; notes which were dropped."""

    def __init__(self, slots: WaitLimits, held: ExitStack) -> None:
        self._slots, self._held = slots, held
        self.dropped: list[str] = []

    def come(self, group: Group, name: str) -> None:
        self._held.enter_context(waiting(self._slots, group, lambda: self.dropped.append(name)))


def test_the_oldest_of_a_full_address_makes_room() -> None:
    """The newest is the one that may be about to show a right secret."""
    slots = WaitLimits(RESUME_CAPS)
    with ExitStack() as held:
        line = Waiting(slots, held)
        line.come(of_address("192.0.2.2"), "another")
        for n in range(PER_ADDRESS + 2):
            line.come(of_address("192.0.2.1"), str(n))
        assert line.dropped == ["0", "1"]
        assert len(slots) == PER_ADDRESS + 1
    assert len(slots) == 0


def test_one_subscriber_of_ipv6_is_one_address() -> None:
    with ExitStack() as held:
        line = Waiting(WaitLimits(RESUME_CAPS), held)
        for n in range(PER_ADDRESS + 1):
            line.come(of_address(f"2001:db8::{n:x}"), str(n))
        assert line.dropped == ["0"]


def test_many_addresses_are_bounded_together_at_the_cost_of_the_busiest() -> None:
    slots = WaitLimits(RESUME_CAPS)
    with ExitStack() as held:
        line = Waiting(slots, held)
        line.come(of_address("192.0.2.1"), "alone")
        for n in range(PER_ADDRESS):
            line.come(of_address("198.51.100.1"), f"busy {n}")
        for n in range(ALL_ADDRESSES - PER_ADDRESS):
            line.come(of_address(f"2001:db8:{n:x}::1"), "far")
        assert line.dropped == ["busy 0"]
        assert len(slots) == ALL_ADDRESSES


def test_connections_that_do_not_name_a_session_do_not_affect_it() -> None:
    slots = WaitLimits(RESUME_CAPS)
    with ExitStack() as held:
        line = Waiting(slots, held)
        line.come(of_session("sess_1"), "first")
        for n in range(2 * ALL_ADDRESSES):
            line.come(of_address(f"2001:db8:{n:x}::1"), "stranger")
        assert "first" not in line.dropped
        for n in range(RESUME_CAPS.per_session):
            line.come(of_session("sess_1"), str(n))
        assert line.dropped.count("first") == 1
        assert len(slots) == ALL_ADDRESSES + RESUME_CAPS.per_session
    assert len(slots) == 0

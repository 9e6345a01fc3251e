"""Open connections that wait before the first word: bounded by address, and never at another address's cost."""

from __future__ import annotations

from contextlib import ExitStack

from voicepipe.server.sessions.waiting_connections import (
    MAX_CONNECTIONS,
    MAX_PER_ADDRESS,
    MAX_PER_SESSION,
    Group,
    WaitingConnections,
    of_address,
    of_session,
)


class Waiting:
    """Connections in a row; notes which were dropped."""

    def __init__(self, slots: WaitingConnections, held: ExitStack) -> None:
        self._slots, self._held = slots, held
        self.dropped: list[str] = []

    def come(self, group: Group, name: str) -> None:
        self._held.enter_context(self._slots.waiting(group, lambda: self.dropped.append(name)))


def test_the_oldest_of_a_full_address_makes_room() -> None:
    """The newest is the one that may be about to show a right secret."""
    slots = WaitingConnections()
    with ExitStack() as held:
        waiting = Waiting(slots, held)
        waiting.come(of_address("192.0.2.2"), "another")
        for n in range(MAX_PER_ADDRESS + 2):
            waiting.come(of_address("192.0.2.1"), str(n))
        assert waiting.dropped == ["0", "1"]
        assert len(slots) == MAX_PER_ADDRESS + 1
    assert len(slots) == 0


def test_one_subscriber_of_ipv6_is_one_address() -> None:
    with ExitStack() as held:
        waiting = Waiting(WaitingConnections(), held)
        for n in range(MAX_PER_ADDRESS + 1):
            waiting.come(of_address(f"2001:db8::{n:x}"), str(n))
        assert waiting.dropped == ["0"]


def test_many_addresses_are_bounded_together_at_the_cost_of_the_busiest() -> None:
    slots = WaitingConnections()
    with ExitStack() as held:
        waiting = Waiting(slots, held)
        waiting.come(of_address("192.0.2.1"), "alone")
        for n in range(MAX_PER_ADDRESS):
            waiting.come(of_address("198.51.100.1"), f"busy {n}")
        for n in range(MAX_CONNECTIONS - MAX_PER_ADDRESS):
            waiting.come(of_address(f"2001:db8:{n:x}::1"), "far")
        assert waiting.dropped == ["busy 0"]
        assert len(slots) == MAX_CONNECTIONS


def test_connections_that_do_not_name_a_session_do_not_affect_it() -> None:
    slots = WaitingConnections()
    with ExitStack() as held:
        waiting = Waiting(slots, held)
        waiting.come(of_session("sess_1"), "first")
        for n in range(2 * MAX_CONNECTIONS):
            waiting.come(of_address(f"2001:db8:{n:x}::1"), "stranger")
        assert "first" not in waiting.dropped
        for n in range(MAX_PER_SESSION):
            waiting.come(of_session("sess_1"), str(n))
        assert waiting.dropped.count("first") == 1
        assert len(slots) == MAX_CONNECTIONS + MAX_PER_SESSION
    assert len(slots) == 0

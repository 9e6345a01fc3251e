"""How long the hints of processes stay in memory, and which ones."""

from __future__ import annotations

from voicepipe.cluster.local_hints import LocalHints
from voicepipe.cluster.port import Hint


def test_each_process_has_one_hint_of_a_kind() -> None:
    hints = LocalHints()
    for number, (kind, process) in enumerate([("a", "one"), ("a", "other"), ("b", "one"), ("a", "one")]):
        hints.store(kind, process, b"%d" % number, life_s=10, now_ms=number)
    assert hints.of("a", now_ms=5) == [Hint("other", 4, b"1"), Hint("one", 2, b"3")]
    assert hints.of("b", now_ms=5) == [Hint("one", 3, b"2")]
    assert hints.of("c", now_ms=5) == []


def test_an_old_hint_is_not_returned_and_takes_no_memory_from_the_next_one_on() -> None:
    hints = LocalHints()
    hints.store("a", "one", b"1", life_s=10, now_ms=0)
    assert hints.of("a", now_ms=9_999) == [Hint("one", 9_999, b"1")]
    assert hints.of("a", now_ms=10_000) == []
    hints.store("b", "one", b"2", life_s=10, now_ms=10_000)
    assert list(hints._hints) == [("b", "one")]


def test_the_oldest_hint_is_dropped_when_memory_is_full() -> None:
    hints = LocalHints(max_bytes=10)
    for number, process in enumerate(("one", "other", "one", "third")):
        hints.store("a", process, b"1234", life_s=10, now_ms=number)
    assert [each.process for each in hints.of("a", now_ms=4)] == ["one", "third"]

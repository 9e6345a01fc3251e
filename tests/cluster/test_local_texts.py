"""How long the texts of sessions stay in memory, and how many."""

from __future__ import annotations

from voicepipe.cluster.local_texts import LocalTexts


def keep(texts: LocalTexts, session: str, text: bytes = b"1", *, owner: str = "o", now_ms: int = 0) -> bool:
    return texts.keep(session, text, digest="d", owner=owner, life_s=60, former="", now_ms=now_ms)


def test_a_text_expires_and_each_write_gives_it_a_new_life() -> None:
    """An expired one has no owner any more, and takes no memory from the next write on."""
    texts = LocalTexts()
    for session in ("one", "other"):
        assert keep(texts, session)
    assert keep(texts, "one", now_ms=59_999)
    assert not texts.has("other", now_ms=60_000)
    assert texts.take("other", digest="d", owner="p", next_digest="e", now_ms=60_000) is None
    assert texts.has("one", now_ms=119_998)
    assert keep(texts, "new", now_ms=60_000)
    assert list(texts._texts) == ["one", "new"]
    assert keep(texts, "one", owner="p", now_ms=119_999)


def test_the_text_that_was_written_longest_ago_is_dropped_when_memory_is_full() -> None:
    texts = LocalTexts(max_bytes=10)
    for session in ("one", "other", "one"):
        assert keep(texts, session, b"1234")
    assert keep(texts, "new", b"1234")
    assert not texts.has("other", now_ms=0)
    assert texts.has("one", now_ms=0)
    assert keep(texts, "new", b"12345678901"), "too long for all memory"
    assert texts._texts == {}
    assert texts._n_bytes == 0

"""The rules of `SessionTexts`, for each implementation."""

from __future__ import annotations

from voicepipe.cluster.port import SessionTexts


async def check_one_owner(texts: SessionTexts) -> None:
    """The last that takes a text with the right secret owns it: the former ones can neither write nor delete it."""

    async def taken(digest: str, owner: str) -> bytes | None:
        return await texts.take_text("s", digest=digest, owner=owner, next_digest=f"{owner}'s next")

    assert not await texts.has_text("s")
    assert await taken("d", "new") is None
    assert await texts.keep_text("s", b"1", digest="d", owner="old", life_s=60)
    assert await texts.keep_text("s", b"2", digest="e", owner="old", life_s=60)
    assert not await texts.keep_text("s", b"3", digest="f", owner="new", life_s=60)
    assert await taken("d", "new") is None, "the latest secret counts"
    owner = "new"
    assert await taken("e", "lost") == b"2"
    assert await taken("e", owner) == b"2", "its answer may have been lost"
    assert not await texts.keep_text("s", b"3", digest="f", owner="lost", life_s=60)
    assert not await texts.keep_text("s", b"4", digest="g", owner="old", life_s=60)
    await texts.drop_text("s", owner="old")
    assert await texts.has_text("s")
    assert await texts.keep_text("s", b"5", digest="h", owner=owner, life_s=60, former="e")
    assert await taken("e", owner) == b"5", "the client may not know the next secret"
    assert await texts.keep_text("s", b"6", digest="h", owner=owner, life_s=60)
    assert await taken("e", "x") is None
    await texts.drop_text("s", owner=owner)
    assert not await texts.has_text("s")


async def check_next_secret(texts: SessionTexts) -> None:
    """A process that dies before it writes leaves its secret in the store: the next one is good from the take on, so
    that its client gets it before any write."""
    assert await texts.keep_text("t", b"1", digest="d", owner="old", life_s=60)
    assert await texts.take_text("t", digest="d", owner="new", next_digest="e") == b"1"
    assert await texts.take_text("t", digest="e", owner="third", next_digest="f") == b"1"
    assert await texts.take_text("t", digest="d", owner="x", next_digest="y") is None, "the client had the next"

"""Frames between adapters and engine."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from voicepipe.providers.local import wire


def reader_of(*data: bytes) -> asyncio.StreamReader:
    """A closed connection on which `data` came."""
    reader = asyncio.StreamReader()
    for part in data:
        reader.feed_data(part)
    reader.feed_eof()
    return reader


async def test_messages_arrive_as_they_were_sent() -> None:
    """However the bytes are cut, and without the half surrogates that the sender drops."""
    sent: list[wire.Request] = [
        wire.Transcribe("a", b"\x00\xff" * 9),
        wire.Generate("b", (("user", "Ünter 林檎"),), 5, 0.5),
        wire.Leave(),
    ]
    data = b"".join(map(wire.frame, sent))
    reader = reader_of(*(data[i : i + 7] for i in range(0, len(data), 7)))
    for message in (*sent, None):
        came = await wire.receive(reader, wire.REQUESTS)
        assert came == message


async def test_a_cut_frame_is_no_message() -> None:
    """The other side died while it wrote."""
    assert await wire.receive(reader_of(wire.frame(wire.Transcribed("hello"))[:-1]), wire.REPLIES) is None


async def test_what_is_no_message_is_refused_unread() -> None:
    """A frame of gigabytes is not waited for; other bytes are an error, not a crash."""
    with pytest.raises(ValueError, match="8388608 bytes at most, got 4294967295"):
        await wire.receive(reader_of(b"\xff" * 64), wire.REQUESTS)
    with pytest.raises(msgspec.MsgspecError):
        await wire.receive(reader_of(b"\x04\x00\x00\x00abcd"), wire.REQUESTS)
    with pytest.raises(msgspec.ValidationError):
        await wire.receive(reader_of(wire.frame(wire.Transcribed("a reply"))), wire.REQUESTS)

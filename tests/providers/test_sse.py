"""Server-sent events mean the same, wherever the network cuts them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.providers.net.sse import LINE_BYTES, EventTooLong, SseEvent, SseReader


def read(chunks: list[bytes]) -> list[SseEvent]:
    reader = SseReader()
    events = [event for chunk in chunks for event in reader.push(chunk)]
    last = reader.finish()
    return events if last is None else [*events, last]


LINES = st.sampled_from(
    [
        "data: one",
        "data:two",
        "data:  three",
        "data",
        "data: ünï 林檎 🌳",
        "event: error",
        ": keep-alive",
        ":",
        "id: 7",
        "retry: 10",
        "nonsense",
        "",
        "",
    ]
)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


@st.composite
def cut_streams(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """A stream, and the same in chunks."""
    lines = draw(st.lists(st.tuples(LINES, ENDS), max_size=30))
    whole = ("\ufeff" * draw(st.booleans()) + "".join(line + end for line, end in lines)).encode()
    places = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=30)))
    bounds = [0, *places, len(whole)]
    return whole, [whole[a:b] for a, b in pairwise(bounds)]


def plainly(whole: bytes) -> list[SseEvent]:
    """The standard's rules, for a stream that is there in one piece."""
    text = whole.decode().removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    events, name, data = list[SseEvent](), "", list[str]()
    for line in [*text.split("\n")[:-1], ""]:
        if not line:
            if data:
                events.append(SseEvent(name.encode(), "\n".join(data).encode()))
            name, data = "", []
        elif line.startswith("data"):
            data.append(line.removeprefix("data").removeprefix(":").removeprefix(" "))
        elif line.startswith("event"):
            name = line.removeprefix("event: ")
    return events


@given(cut_streams())
def test_any_cut_gives_the_same_events(stream: tuple[bytes, list[bytes]]) -> None:
    """Inside a line end, a character, a name or the byte order mark: it makes no difference."""
    whole, chunks = stream
    assert read(chunks) == plainly(whole)
    assert read([whole[i : i + 1] for i in range(len(whole))]) == plainly(whole)


def test_event_is_given_with_its_last_byte() -> None:
    """A lone carriage return ends a line: nothing waits for what may follow it."""
    reader = SseReader()
    assert reader.push(b"data: a\r\r") == [SseEvent(b"", b"a")]
    assert reader.push(b"\ndata: b\n\n") == [SseEvent(b"", b"b")]


def test_data_of_several_lines_is_one_event() -> None:
    """Lines of data are joined by a line feed; comments between them are nothing."""
    assert read([b"event: x\ndata: a\n: hush\ndata: b\n\n"]) == [SseEvent(b"x", b"a\nb")]


def test_end_without_an_empty_line() -> None:
    """What a server left without its last line end still counts."""
    assert read([b"data: [DONE]"]) == [SseEvent(b"", b"[DONE]")]


@pytest.mark.parametrize("piece", [b"x" * 4_096, b"data: " + b"x" * 4_095 + b"\n"], ids=["line", "event"])
def test_stream_without_end_is_refused(piece: bytes) -> None:
    """Neither a line nor an event may grow for ever."""
    reader = SseReader()
    for _ in range(LINE_BYTES // 4_096):
        assert reader.push(piece) == []
    with pytest.raises(EventTooLong):
        reader.push(piece)

"""Parse server-sent events from bytes, however they are cut.

Source: WHATWG HTML, 9.2.6 "Interpreting an event stream". Left out: `id` and `retry`, which serve reconnecting.
"""

from __future__ import annotations

from typing import NamedTuple

LINE_BYTES = 1 << 20
"""Maximum length of a line, and of one event's data: a whole tool call fits many times over."""

_BOM = b"\xef\xbb\xbf"


class EventTooLong(ValueError):
    """A line or an event's data exceeded `LINE_BYTES`."""


class SseEvent(NamedTuple):
    """An event: its name (empty without one) and its data, lines joined by a line feed."""

    name: bytes
    data: bytes


class SseReader:
    """Takes the chunks of one event stream and returns the events that they complete."""

    def __init__(self) -> None:
        self._held: list[bytes] = []  # the pieces of an incomplete line
        self._held_bytes = 0
        self._at_start = True
        self._after_cr = False
        self._name = b""
        self._data: list[bytes] = []
        self._data_bytes = 0

    def push(self, chunk: bytes) -> list[SseEvent]:
        """Return the events that `chunk` completes, in order.

        Raises:
            EventTooLong: the server sent a line or an event without end.
        """
        if self._after_cr and chunk:  # a line feed right after it belongs to the same line end
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        if b"\n" not in chunk and b"\r" not in chunk:
            self._hold(chunk)
            return []
        self._after_cr = chunk.endswith(b"\r")
        lines = b"".join((*self._held, chunk)).splitlines(keepends=True)
        self._held, self._held_bytes = [], 0
        if not lines[-1].endswith((b"\n", b"\r")):
            self._hold(lines.pop())
        return [event for line in lines if (event := self._line(line.rstrip(b"\r\n"))) is not None]

    def finish(self) -> SseEvent | None:
        """Return the event that the stream's end leaves without its blank line, if it has data; some servers send no
        more."""
        if self._held:
            line, self._held = b"".join(self._held), []
            self._line(line)
        return self._dispatch()

    def _hold(self, piece: bytes) -> None:
        self._held_bytes += len(piece)
        if self._held_bytes > LINE_BYTES:
            raise EventTooLong(f"expected lines of at most {LINE_BYTES} bytes, got more")
        if piece:
            self._held.append(piece)

    def _line(self, line: bytes) -> SseEvent | None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data_bytes += len(value) + 1
            if self._data_bytes > LINE_BYTES:
                raise EventTooLong(f"expected events of at most {LINE_BYTES} bytes, got more")
            self._data.append(value)
        elif name == b"event":
            self._name = value
        return None  # a comment has the empty name; other fields are ignored here

    def _dispatch(self) -> SseEvent | None:
        name, data = self._name, self._data
        self._name, self._data, self._data_bytes = b"", [], 0
        return SseEvent(name, b"\n".join(data)) if data else None

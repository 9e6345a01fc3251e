"""One line on stderr for each notable thing: JSON for machines, plain for a terminal.

A line never holds what was said, no sound, and no secret: `redact` goes over every string of it,
those of other libraries and of tracebacks too.
"""

from __future__ import annotations

import json
import logging
import queue
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Final, Literal, TextIO

import msgspec

from voicepipe.clock import utc_iso
from voicepipe.telemetry.redact import HIDDEN, names_secret, redact
from voicepipe.turn.record import TurnRecord

Style = Literal["auto", "json", "human"]
Value = str | int | float | bool | None

_LOGGER: Final = logging.getLogger("voicepipe")
_LINES_MAX: Final = 10_000
_DROPPED: Final = [0]
"""Lines that nobody took, since the process began."""


_SESSION: ContextVar[str] = ContextVar("session", default="")
"""Whose work this task does; tasks that are born in it inherit it."""


@contextmanager
def working_for(session: str) -> Iterator[None]:
    """Have lines bear this session's id that are written in the block, and in tasks that are born in it."""
    before = _SESSION.set(session)
    try:
        yield
    finally:
        _SESSION.reset(before)


@contextmanager
def logging_to(stream: TextIO | None = None, *, style: Style = "auto", level: int = logging.INFO) -> Iterator[None]:
    """Log to `stream` (None: stderr) while the context lasts; what waits is written before it is left.

    Args:
        stream: where the lines go. Written by a thread of its own: a terminal that is slow to
            take lines holds up nobody.
        style: `auto` means `human` when the stream is a terminal, else `json`.
        level: of our own lines; other libraries' appear from WARNING on.
    """
    stream = sys.stderr if stream is None else stream
    human = style == "human" or (style == "auto" and stream.isatty())
    lines = _Lines(stream, human=human)
    root = logging.getLogger()
    levels = root.level, _LOGGER.level
    root.addHandler(lines)
    root.setLevel(logging.WARNING)
    _LOGGER.setLevel(level)
    try:
        yield
    finally:
        root.removeHandler(lines)
        root.setLevel(levels[0])
        _LOGGER.setLevel(levels[1])
        lines.close()


def log_event(event: str, /, *, level: int = logging.INFO, session: str = "", turn: str = "", **fields: Value) -> None:
    """Log one notable thing: `event` in the past tense (`session_opened`), and plain values.

    In the work for a session (`working_for`) its id need not be given.

    Nothing that was said belongs into `fields`. A field whose name means a secret is hidden.
    """
    named = {"session": session or _SESSION.get(), "turn": turn} | fields
    _LOGGER.log(level, event, extra={"fields": {k: v for k, v in named.items() if v not in ("", None)}})


def lines_dropped() -> int:
    """How many lines nobody took, since the process began."""
    return _DROPPED[0]


def log_turn_closed(record: TurnRecord) -> None:
    """A turn is over: its outcome, its total, and the first limit that it broke. A failed one is a warning."""
    breach = record.breach
    log_event(
        "turn_closed",
        level=logging.WARNING if record.outcome == "failed" else logging.INFO,
        session=record.session,
        turn=record.id,
        cause=record.cause,
        outcome=record.outcome,
        reason=record.reason,
        total_ms=record.total_ms,
        verdict=record.total_verdict,
        breach=breach.stage if breach else "",
        owner=breach.owner if breach else "",
        setting=breach.setting if breach else "",
        actions=",".join(record.actions),
    )


def log_overrun(session: str, turn: str, *, stage: str, owner: str, over_ms: int) -> None:
    """A stage took longer than its limit (`NoteOverrun`)."""
    log_event(
        "stage_over_limit", level=logging.WARNING, session=session, turn=turn, stage=stage, owner=owner, over_ms=over_ms
    )


def log_stuck(session: str, *, caller: str, agent: str, so_far: int) -> None:
    """Nothing would have ended what was under way, and the last resort did (`NoteStuck`): always a bug of ours.

    `caller` and `agent` are the states it was found in, `so_far` how often since the server began.
    """
    log_event("session_stuck", level=logging.ERROR, session=session, caller=caller, agent=agent, so_far=so_far)


def log_records_lost(count: int, why: str) -> None:
    """The store of turns can't be written; said once until it can be again."""
    log_event("records_lost", level=logging.ERROR, count=count, why=why)


def log_crash(where: str, error: BaseException, *, session: str = "", turn: str = "") -> None:
    """Something broke that should not have: our bug. The traceback goes along, in one line of JSON."""
    ids = (("session", session or _SESSION.get()), ("turn", turn))
    fields = {"where": where} | {name: id_ for name, id_ in ids if id_}
    _LOGGER.error("crashed", exc_info=error, extra={"fields": fields})


def json_line(record: logging.LogRecord, at: str) -> str:
    """A log record as one line of JSON: `at`, `level`, `event`, then its fields.

    A line of another library has its message as `event`, and its name as `logger`.
    """
    return msgspec.json.encode({"at": at, "level": record.levelname.lower(), **_plain(record)}).decode()


def human_line(record: logging.LogRecord, at: str) -> str:
    """The same for a terminal: time of day, level, event, and `name=value`; a traceback on lines of its own."""
    plain = _plain(record)
    event, trace = plain.pop("event"), plain.pop("exception", None)
    shown = " ".join(f"{name}={_on_one_line(value)}" for name, value in plain.items())
    head = f"{at[11:23]} {record.levelname.lower():7} {event if str(event).isprintable() else _on_one_line(event)}"
    return "\n".join(str(part) for part in (f"{head}  {shown}".rstrip(), trace) if part)


def _on_one_line(value: Value) -> str:
    """Quoted where needed: a vendor's text must not break the line or move the terminal's cursor."""
    bare = isinstance(value, str) and value.isprintable() and " " not in value
    return str(value) if bare else json.dumps(value)  # escapes all but ASCII


def _plain(record: logging.LogRecord) -> dict[str, Value]:
    plain: dict[str, Value] = {"event": record.getMessage()}
    if record.name == _LOGGER.name:
        plain |= getattr(record, "fields", {})
    else:
        plain["logger"] = record.name
    if record.exc_info:
        plain["exception"] = logging.Formatter().formatException(record.exc_info)
    return {name: _safe(name, value) for name, value in plain.items()}


def _safe(name: str, value: Value) -> Value:
    if names_secret(name):
        return HIDDEN
    return redact(value.encode("utf-8", "replace").decode()) if isinstance(value, str) else value


class _Lines(logging.Handler):
    """Makes the line where the thing happened, and writes it in a thread."""

    def __init__(self, stream: TextIO, *, human: bool) -> None:
        super().__init__()
        self._stream, self._line_of = stream, human_line if human else json_line
        # Full means that nobody reads our stderr: lines are dropped and counted, and the count is written later.
        self._waiting: queue.Queue[str | None] = queue.Queue(maxsize=_LINES_MAX)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write_all, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._waiting.put_nowait(self._line_of(record, utc_iso()))
        except Exception:  # full, or a library's line whose arguments don't fit its format: not worth a call
            self._dropped += 1
            _DROPPED[0] += 1

    def close(self) -> None:
        """Write what waits, and end the thread; a stream that takes nothing holds this up for 2 s at most."""
        if self._thread.is_alive():
            with suppress(queue.Full):
                self._waiting.put(None, timeout=1)
                self._thread.join(timeout=1)
        super().close()

    def _write_all(self) -> None:
        while (line := self._waiting.get()) is not None:
            dropped, self._dropped = self._dropped, 0
            if dropped:
                line = f"{self._line_of(_dropped_lines(dropped), utc_iso())}\n{line}"
            with suppress(OSError, ValueError):  # a stream that was closed under us: there is nowhere left to say so
                self._stream.write(line + "\n")
                if self._waiting.empty():
                    self._stream.flush()


def _dropped_lines(count: int) -> logging.LogRecord:
    fields = {"count": count}
    return logging.makeLogRecord(
        {"name": _LOGGER.name, "levelname": "WARNING", "msg": "log_lines_dropped", "fields": fields}
    )

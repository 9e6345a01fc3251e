"""Log one line on stderr for each notable event: JSON for machines, plain for a terminal.

A line never contains transcripts, audio or secrets: `redact` goes over every string of it, including those of other
libraries and of tracebacks.
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
from voicepipe.telemetry.advice import setting_for
from voicepipe.telemetry.redact import HIDDEN, names_secret, redact
from voicepipe.turn.record.values import TurnRecord

Style = Literal["auto", "json", "human"]
Value = str | int | float | bool | None

_LOGGER: Final = logging.getLogger("voicepipe")
_MAX_LINES: Final = 10_000
_DROPPED: Final = [0]
"""Lines dropped since the process began."""


_SESSION: ContextVar[str] = ContextVar("session", default="")
"""The session that this task works for; child tasks inherit it."""


@contextmanager
def working_for(session: str) -> Iterator[None]:
    """Add this session's id to the lines logged in the block, and in tasks started in it."""
    before = _SESSION.set(session)
    try:
        yield
    finally:
        _SESSION.reset(before)


@contextmanager
def logging_to(stream: TextIO | None = None, *, style: Style = "auto", level: int = logging.INFO) -> Iterator[None]:
    """Log to `stream` (None: stderr) while the context lasts; queued lines are written before it is left.

    Args:
        stream: where the lines go. A thread of its own writes them: a slow terminal delays no session.
        style: `auto` means `human` when the stream is a terminal, else `json`.
        level: of voicepipe's own lines; other libraries' appear from WARNING on.
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
    """Log one notable event: `event` in the past tense (`session_opened`), and plain values.

    `log_catalog` declares each event with its levels, its fields and its meaning. In the work for a session
    (`working_for`) its id need not be given.

    `fields` must not contain transcripts. A field whose name means a secret is hidden.
    """
    named = {"session": session or _SESSION.get(), "turn": turn} | fields
    _LOGGER.log(level, event, extra={"fields": {k: v for k, v in named.items() if v not in ("", None)}})


def lines_dropped() -> int:
    """Return how many lines were dropped since the process began."""
    return _DROPPED[0]


def log_turn_closed(record: TurnRecord, agent: str) -> None:
    """Log a closed turn: its outcome, its total, and its breach. A failed turn is a warning. `agent` is its name."""
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
        setting=setting_for(breach.depends_on, agent) if breach else "",
        saves_ms=breach.saves_ms if breach and breach.depends_on else None,
        actions=",".join(record.actions),
    )


def log_overrun(session: str, turn: str, *, stage: str, owner: str, over_ms: int) -> None:
    """Log a stage that took longer than its limit (`ReportOverrun`)."""
    log_event(
        "stage_over_limit", level=logging.WARNING, session=session, turn=turn, stage=stage, owner=owner, over_ms=over_ms
    )


def log_stuck(session: str, *, user: str, agent: str, so_far: int) -> None:
    """Log a turn that only the watchdog could end (`ReportStuck`): always a bug in voicepipe.

    `user` and `agent` are the states it was found in, `so_far` the number since the server began.
    """
    log_event("session_stuck", level=logging.ERROR, session=session, user=user, agent=agent, so_far=so_far)


def log_strategy_failure(session: str, *, strategy: str, why: str, so_far: int) -> None:
    """Log that an end-of-turn strategy failed (`ReportStrategyFailure`); once a session, which goes on with `silence`.

    `so_far`: the number of sessions in which it failed, since the server began.
    """
    log_event("endpointing_failed", level=logging.ERROR, session=session, strategy=strategy, why=why, so_far=so_far)


def log_records_lost(count: int, why: str) -> None:
    """Log that the store of turns can't be written; logged once until it can be again."""
    log_event("records_lost", level=logging.ERROR, count=count, why=why)


def log_crash(where: str, error: BaseException, *, session: str = "", turn: str = "") -> None:
    """Log an unexpected error, a bug in voicepipe. The traceback is included, in one line of JSON."""
    ids = (("session", session or _SESSION.get()), ("turn", turn))
    fields = {"where": where} | {name: id_ for name, id_ in ids if id_}
    _LOGGER.error("crashed", exc_info=error, extra={"fields": fields})


def json_line(record: logging.LogRecord, at: str) -> str:
    """Return a log record as one line of JSON: `at`, `level`, `event`, then its fields.

    A line of another library has its message as `event`, and its name as `logger`.
    """
    return msgspec.json.encode({"at": at, "level": record.levelname.lower(), **_plain(record)}).decode()


def human_line(record: logging.LogRecord, at: str) -> str:
    """Return the same for a terminal: time of day, level, event, and `name=value`; a traceback on lines of its own."""
    plain = _plain(record)
    event, trace = plain.pop("event"), plain.pop("exception", None)
    fields = " ".join(f"{name}={_on_one_line(value)}" for name, value in plain.items())
    head = f"{at[11:23]} {record.levelname.lower():7} {event if str(event).isprintable() else _on_one_line(event)}"
    return "\n".join(str(part) for part in (f"{head}  {fields}".rstrip(), trace) if part)


def _on_one_line(value: Value) -> str:
    """Return the value, quoted where needed: a vendor's text must contain no line break and move no terminal cursor."""
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
    """Formats an event at once, and writes its line in a thread."""

    def __init__(self, stream: TextIO, *, human: bool) -> None:
        super().__init__()
        self._stream, self._line_of = stream, human_line if human else json_line
        # Full means that stderr is not read: lines are dropped and counted, and the count is written later.
        self._waiting: queue.Queue[str | None] = queue.Queue(maxsize=_MAX_LINES)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write_all, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._waiting.put_nowait(self._line_of(record, utc_iso()))
        except Exception:  # full, or a library's line whose arguments don't fit its format: not worth a session
            self._dropped += 1
            _DROPPED[0] += 1

    def close(self) -> None:
        """Write queued lines, and end the thread; a stream that takes nothing delays this by at most 2 s."""
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
            with suppress(OSError, ValueError):  # the stream was closed: there is no other place to report it
                self._stream.write(line + "\n")
                if self._waiting.empty():
                    self._stream.flush()


def _dropped_lines(count: int) -> logging.LogRecord:
    fields = {"count": count}
    return logging.makeLogRecord(
        {"name": _LOGGER.name, "levelname": "WARNING", "msg": "log_lines_dropped", "fields": fields}
    )

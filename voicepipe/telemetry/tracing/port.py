"""The port for traces and spans, and its version without a collector.

Trace contexts are those of W3C Trace Context, as the headers `traceparent` and `tracestate` carry them.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, Protocol

from msgspec import Struct

from voicepipe.telemetry.store.port import StoredTurn

_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")

STATE_CHARS: Final = 512
"""A longer `tracestate` need not be passed on (W3C Trace Context, 3.3.1.5)."""


class TraceContext(Struct, frozen=True):
    """The trace of a request, from its headers."""

    traceparent: str = ""
    """Empty: the request belongs to no trace."""

    tracestate: str = ""

    @classmethod
    def of(cls, traceparent: str, tracestate: str) -> TraceContext:
        """Read the two headers; malformed ones count as missing."""
        if not _TRACEPARENT.fullmatch(traceparent):
            return NO_TRACE
        return cls(traceparent, tracestate if len(tracestate) <= STATE_CHARS else "")


NO_TRACE: Final = TraceContext()

REQUEST_TRACE: ContextVar[TraceContext] = ContextVar("request_trace", default=NO_TRACE)
"""The trace of the request that this task works on."""

OUTGOING: ContextVar[str] = ContextVar("outgoing", default="")
"""The `traceparent` of the span that this task works in, for requests to providers and for the response header. Child
tasks inherit it."""


@dataclass(slots=True)
class Answered:
    """Facts about an answer over REST that are set while it is made."""

    outcome: str = "abandoned"
    provider: str = ""
    """The spec of the provider that made it."""


class Tracing(Protocol):
    """Takes the data of spans. Every method returns at once and never raises."""

    @property
    def dropped(self) -> int:
        """Return the number of spans dropped because the queue was full."""
        ...

    @property
    def lost(self) -> int:
        """Return the number of spans that the collector did not take."""
        ...

    def session(self, id_: str, *, project: str, agent: str, model: str) -> AbstractContextManager[None]:
        """Open the span of a session while the block runs. Sets `OUTGOING`."""
        ...

    def answer(self, kind: str, id_: str, *, project: str, model: str) -> AbstractContextManager[Answered]:
        """Open the span of an answer over REST that is made in the block. Sets `OUTGOING`."""
        ...

    def on_turn_end(self, turn: StoredTurn) -> None:
        """Take a turn that has ended."""
        ...


class NoTracing:
    """Makes no spans."""

    dropped = lost = 0

    def session(self, id_: str, *, project: str, agent: str, model: str) -> AbstractContextManager[None]:
        return nullcontext()

    def answer(self, kind: str, id_: str, *, project: str, model: str) -> AbstractContextManager[Answered]:
        return nullcontext(Answered())

    def on_turn_end(self, turn: StoredTurn) -> None:
        pass

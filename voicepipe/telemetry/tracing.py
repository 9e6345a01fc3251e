"""Whose trace a call belongs to, and where its spans go: the port, and what stands there without a collector.

Trace contexts are those of W3C Trace Context, as the headers `traceparent` and `tracestate` carry them.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, Protocol

from voicepipe.telemetry.store import KeptTurn

_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")

STATE_CHARS: Final = 512
"""A longer `tracestate` need not be passed on (W3C Trace Context, 3.3.1.5)."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The trace that a request belongs to, as its sender says."""

    traceparent: str = ""
    """Empty: it belongs to none."""

    tracestate: str = ""

    @classmethod
    def of(cls, traceparent: str, tracestate: str) -> Caller:
        """Read the two headers; what is malformed counts as not there."""
        if not _TRACEPARENT.fullmatch(traceparent):
            return NOBODYS
        return cls(traceparent, tracestate if len(tracestate) <= STATE_CHARS else "")


NOBODYS: Final = Caller()

CALLER: ContextVar[Caller] = ContextVar("caller", default=NOBODYS)
"""Of the request that this task works on."""

OUTGOING: ContextVar[str] = ContextVar("outgoing", default="")
"""The `traceparent` of the span that this task works in, for requests to providers and for the answer's header. Tasks
that are born in it inherit it."""


@dataclass(slots=True)
class Answered:
    """What becomes known of an answer over REST while it is made."""

    outcome: str = "abandoned"
    provider: str = ""
    """The spec of whoever made it."""


class Tracing(Protocol):
    """Takes what becomes spans. Every method returns at once and never raises."""

    @property
    def dropped(self) -> int:
        """Spans that found no room."""
        ...

    @property
    def lost(self) -> int:
        """Spans that the collector did not take."""
        ...

    def session(self, id_: str, *, project: str, agent: str, model: str) -> AbstractContextManager[None]:
        """A session that lasts as long as the block. Sets `OUTGOING`."""
        ...

    def answer(self, kind: str, id_: str, *, project: str, model: str) -> AbstractContextManager[Answered]:
        """An answer over REST that is made in the block. Sets `OUTGOING`."""
        ...

    def hear(self, turn: KeptTurn) -> None:
        """A turn has ended."""
        ...


class NoTracing:
    """Nobody wants spans."""

    dropped = lost = 0

    def session(self, id_: str, *, project: str, agent: str, model: str) -> AbstractContextManager[None]:
        return nullcontext()

    def answer(self, kind: str, id_: str, *, project: str, model: str) -> AbstractContextManager[Answered]:
        return nullcontext(Answered())

    def hear(self, turn: KeptTurn) -> None:
        pass

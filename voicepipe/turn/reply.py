"""A reply: one revision of the answer, and the filler that was said before it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from voicepipe.turn.conversation import ClauseSound, FunctionCall, ItemStatus, text_after
from voicepipe.turn.record.arm import NO_ARM, Arm
from voicepipe.turn.record.values import ModelAttempt, TokenCount, ToolResult
from voicepipe.turn.states import Gate
from voicepipe.values import replace

FILLER: Final = "filler"
"""The action of a filler."""


@dataclass(slots=True)
class LookUp:
    """A function that runs, or has run, before the end of the turn is certain."""

    revision: int
    """The revision of the reply that requested it."""

    began_ms: int
    output: str | None = None
    """Its result, or for the LLM why there is none; None: it runs."""

    outcome: ToolResult = "returned"
    taken: bool = False
    """Its call has left: the end of the turn is certain."""


@dataclass(slots=True)
class Reply:
    """One revision of the answer: from the request to the LLM to the end of the response."""

    revision: int = 0
    reply_question: str = ""
    """The user's words that it answers."""

    began_ms: int = 0
    """When it was started."""

    speculative: bool = False
    """The reply was started before the turn was over, and it is not known yet whether it will be played."""

    gate: Gate = Gate.HELD

    # --- the response -------------------------------------------------------------------------
    response_id: str = ""
    response_open: bool = False
    """The client was sent the start of the response, and not yet its end."""

    item_id: str = ""
    item_status: ItemStatus = "in_progress"
    """The status of its message."""

    started_items: list[str] = field(default_factory=list)
    """Ids of the output items that the client was notified of."""

    later_items: set[str] = field(default_factory=set)
    """Ids of items that were added behind what its request reads: by the client, or as a tool's late result. Its output
    stands before them.
    """

    # --- what the LLM and the TTS have sent ---------------------------------------------------
    text: str = ""
    clauses: list[ClauseSound] = field(default_factory=list)
    calls: dict[int, FunctionCall] = field(default_factory=dict)
    look_ups: dict[str, LookUp] = field(default_factory=dict)
    """Those of its calls that have started early, by the id of the call."""

    latest_delta_ms: int = 0
    """When the latest text of the LLM came, or arguments of a call."""

    finish_reason: str = ""
    tokens: TokenCount = field(default_factory=TokenCount)
    voice_done: bool = False

    # --- what was heard before a sound stopped it ---------------------------------------------
    earlier_items: list[str] = field(default_factory=list)
    """Ids of its earlier messages, each stopped by a sound without words."""

    earlier_text: str = ""
    earlier_ms: int = 0
    """The text and the audible audio of these messages, in ms."""

    earlier_clauses: int = 0
    """Number of clauses in these messages: a clause of the TTS is counted from the reply's beginning."""

    # --- how it came about --------------------------------------------------------------------
    route: list[str] = field(default_factory=list)
    """Why that LLM and that TTS answer: one entry for each decision of a router."""

    pool: str = ""
    """The pool whose LLMs might answer; empty: none has a name, or none has answered yet."""

    arm: Arm = NO_ARM
    """The arm of an A/B experiment."""

    attempts: list[ModelAttempt] = field(default_factory=list)
    tts_connect_hidden_ms: int | None = None
    """How much of connecting to the TTS was over when it began, in ms; None when the TTS has no connection of its own.
    """

    actions: list[str] = field(default_factory=list)
    projected: dict[str, int] = field(default_factory=dict)
    """Mark -> the turn latency that was expected then, in ms."""

    shortened: bool = False
    """The TTS was ordered to begin before a clause had closed."""

    def next_revision(self) -> Reply:
        """Return the reply that takes the place of this one. Only a filler that was played remains."""
        return Reply(self.revision + 1, actions=[action for action in self.actions if action == FILLER])

    def continued(self, item_id: str, played: str, rest: tuple[ClauseSound, ...], played_ms: int) -> Reply:
        """Return the reply that goes on with `rest`, in a message of its own, after `played`."""
        return replace(
            self,
            revision=self.revision + 1,
            gate=Gate.OPEN,
            response_id="",
            item_id=item_id,
            item_status="in_progress",
            started_items=[],
            text=text_after(self.text, played),
            clauses=list(rest),
            earlier_items=[*self.earlier_items, self.item_id],
            earlier_text=" ".join(filter(None, (self.earlier_text, played))),
            earlier_ms=self.earlier_ms + played_ms,
            earlier_clauses=self.earlier_clauses + len(self.clauses) - len(rest),
        )


@dataclass(slots=True)
class Filler:
    """The filler said while the answer was awaited."""

    words: str = ""
    item_id: str = ""
    sent_ms: int = 0
    """How much of its audio was sent, in ms."""

"""Restore the conversation of a session from its snapshot: its items, and the rest of a reply that was open."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct

from voicepipe.protocol.extensions import Resume
from voicepipe.session.snapshot import OpenReply, SessionSnapshot, read_items
from voicepipe.turn import events as e
from voicepipe.turn.conversation import (
    ClauseSound,
    FunctionCall,
    Item,
    ItemStatus,
    Message,
    OutputAudio,
    OutputText,
    text_after,
)
from voicepipe.turn.settings import ReplySettings
from voicepipe.values import replace

IDS_LEFT_OUT: Final = 1_000
"""Number of ids that are skipped: the process that died may have used some after its latest write."""

UNKNOWN_MS_PER_CHAR: Final = 66
"""Estimated audio of a clause whose audio had not all come: about 15 characters a second."""

UNKNOWN_OUTCOME: Final = (
    '{"error": "The server stopped while this function ran. It is not known whether it has had its effect. Do not call '
    'it again before you have checked that, or asked the user."}'
)
"""The result of a call with side effects whose node has died."""

NO_RESULT: Final = (
    '{"error": "The server stopped before this function returned. It changes nothing: call it again if its result is '
    'needed."}'
)
"""The result of another call whose node has died."""


class ReceivedOutput(Struct, frozen=True):
    """The last output that a client has received, as the client reports it. The store may have less."""

    item_id: str
    ms: int | None = None
    """How much of its audio; None: it has none."""

    text: str | None = None
    """The words that begin in this audio, or all words of an item that is done; None: the client does not report it."""

    is_done: bool = False

    @classmethod
    def of(cls, request: Resume) -> ReceivedOutput | None:
        """Return what a client reports of its last output when it resumes; None: nothing."""
        if request.received_item_id is None:
            return None
        last: dict[str, Any] = {"text": request.received_text, "is_done": request.received_done}
        return cls(request.received_item_id, request.received_ms, **last)

    @classmethod
    def all_of(cls, request: Resume) -> tuple[ReceivedOutput, ...]:
        """Return what a client reports of all items when it resumes, in order."""
        last = cls.of(request)
        whole = (cls(each.item_id, each.ms, each.text, is_done=True) for each in request.received_items)
        return (*whole, *(() if last is None else (last,)))


def is_newer(item_id: str, state: SessionSnapshot) -> bool:
    """Return whether an item was begun after this snapshot was written: the ids of a session's items are numbered."""
    kind, _, rest = item_id.partition("_")
    number, n_given = rest.rpartition("_")[2], state.counts.get("item", 0)
    return kind == "item" and number.isdecimal() and n_given < int(number) <= n_given + IDS_LEFT_OUT


def grown(item: Item, received: ReceivedOutput) -> Item:
    """Return an item with what the client has received of it beyond what the store has."""
    text = received.text or ""
    known = item.text() if isinstance(item, Message) else ""
    is_more = _bare(text).startswith(_bare(known))
    if not (is_more or _bare(known).startswith(_bare(text))):
        return item  # the TTS has timed words that it said, and not those that were written
    return received_message(received, "" if is_more else text_after(known, text))


def received_message(received: ReceivedOutput, rest: str = "") -> Message:
    """Return the message that a client has received; `rest`: its words behind these."""
    known = received.text or ""
    text = " ".join(part for part in (known, rest) if part)
    status: ItemStatus = "completed" if received.is_done else "incomplete"
    if received.ms is None:
        return Message(received.item_id, "assistant", (OutputText(text),), status)
    clauses = (ClauseSound(known, received.ms), ClauseSound(rest, UNKNOWN_MS_PER_CHAR * len(rest)))
    audio = OutputAudio(text, tuple(clause for clause in clauses if clause.text))
    return Message(received.item_id, "assistant", (audio,), status)


def _bare(text: str) -> str:
    return "".join(text.split())


def is_running(item: Item) -> bool:
    """Return whether it is a call that the other process had begun, and whose result it did not write. Its function may
    run before the item has ended."""
    if not isinstance(item, FunctionCall) or not item.server_label or item.approval:
        return False
    return item.output is None and item.status != "incomplete"


def with_result(item: Item, reply: ReplySettings) -> Item:
    """Return a call that ran, with the result that the LLM gets: the call is not repeated here."""
    if not isinstance(item, FunctionCall) or not is_running(item):
        return item
    tool = reply.server_tool(item.name)
    output = UNKNOWN_OUTCOME if tool is None or tool.side_effects else NO_RESULT
    return replace(item, output=output, failed=True, status="completed")


def restored(state: SessionSnapshot) -> e.ConversationRestored:
    """Return the event that gives a core the conversation of a state.

    Raises:
        ValueError: as `read_items`.
    """
    replies = {reply.item_id: reply for reply in (*(each.reply for each in state.earlier), state.reply) if reply}
    items = tuple(_ended(item, replies.get(item.id)) for item in read_items(state))
    counts = tuple((kind, number + IDS_LEFT_OUT) for kind, number in state.counts.items())
    return e.ConversationRestored(items, counts, IDS_LEFT_OUT, state.requests)


def _ended(item: Item, reply: OpenReply | None) -> Item:
    if reply is None or not isinstance(item, Message):
        return item
    parts = tuple(_estimated(part, reply) if isinstance(part, OutputAudio) else part for part in item.parts)
    return replace(item, status="incomplete", parts=parts)


def _estimated(part: OutputAudio, reply: OpenReply) -> OutputAudio:
    """Return the speech with an estimate of the audio of its latest clauses, if not all of it had come."""
    if reply.is_synthesized or not part.clauses:
        return part
    silent = [place for place, clause in enumerate(part.clauses) if not clause.sound_ms]
    first = max(0, (silent[0] if silent else len(part.clauses)) - 1)
    late = tuple(
        replace(clause, sound_ms=max(clause.sound_ms, UNKNOWN_MS_PER_CHAR * len(clause.text)), word_starts_ms=())
        for clause in part.clauses[first:]
    )
    return replace(part, clauses=part.clauses[:first] + late)


class Continuation(Struct, frozen=True):
    """The part of an open reply that was played, and the rest of it."""

    item_id: str
    received_ms: int
    played: str
    """The words that the user has heard."""

    rest: str
    """The words that are known and not heard."""

    is_whole: bool
    """The LLM had finished: nothing comes behind `rest`."""


def continuation(reply: OpenReply, items: Iterable[Item], received_ms: int | None) -> Continuation | None:
    """Return how an open reply goes on; None: nothing of it is left.

    `received_ms`: the end of the last sound that the client has received of it; None: it does not report it. Then a
    reply that was sent as a whole counts as heard, and another one as not heard.
    """
    item = next((each for each in items if each.id == reply.item_id), None)
    if not isinstance(item, Message):
        return None
    if received_ms is None and reply.is_synthesized and not reply.response_id:
        return None
    speech = next((part for part in item.parts if isinstance(part, OutputAudio)), None)
    if speech is None:
        return Continuation(item.id, 0, "", item.text() if reply.is_generated else "", reply.is_generated)
    played = speech.played_until(received_ms or 0)
    rest = text_after(speech.transcript, played)
    if reply.is_generated and not rest:
        return None
    return Continuation(item.id, received_ms or 0, played, rest, reply.is_generated)

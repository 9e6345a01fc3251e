"""Go on with a session from its text: the conversation, and the rest of the reply that was open."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from voicepipe.protocol.extensions import Resume
from voicepipe.session.text_state import OpenReply, OpenTurn, TextState, read_items
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
from voicepipe.turn.record.values import TurnElsewhere
from voicepipe.turn.settings import ReplySettings

IDS_LEFT_OUT: Final = 1_000
"""Numbers of IDs that are skipped: the process that died may have given some after its latest write."""

UNKNOWN_MS_PER_CHAR: Final = 66
"""Estimated audio of a clause whose audio had not all come: about 15 characters a second."""

GO_ON: Final = (
    "Your answer was cut off after these words, which the user has heard: {played!r}. Go on with the next word. Repeat "
    "nothing, and do not mention it."
)


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


@dataclass(frozen=True, slots=True)
class Received:
    """The last output that a client has received, as it says itself. It may be more than the store knows."""

    item_id: str
    ms: int | None = None
    """How much of its audio; None: it has none."""

    text: str | None = None
    """The words that begin in this audio, or all words of an item that is done; None: the client does not say."""

    is_done: bool = False

    @classmethod
    def of(cls, request: Resume) -> Received | None:
        """Return what a client says when it resumes; None: nothing."""
        if request.received_item_id is None:
            return None
        its: dict[str, Any] = {"text": request.received_text, "is_done": request.received_done}
        return cls(request.received_item_id, request.received_ms, **its)


def reconciled(
    state: TextState, items: tuple[Item, ...], received: Received | None
) -> tuple[TextState, tuple[Item, ...]]:
    """Return the state and its items with what the client has received beyond them.

    A client that has words which the store does not know keeps them: they are in the history, and are not said again.
    """
    if received is None or received.text is None:
        return state, items
    place = next((place for place, item in enumerate(items) if item.id == received.item_id), None)
    if state.reply is not None and state.reply.item_id == received.item_id and place is not None:
        return _grown(state, items, place, received)
    if place is None and (state.is_owed or _is_newer(received.item_id, state)):
        begun = OpenReply(item_id=received.item_id, response_id="", is_generated=False, is_synthesized=False)
        reply = None if received.is_done else begun
        return msgspec.structs.replace(state, reply=reply, is_owed=False), (*items, _message(received, ""))
    return state, items


def _is_newer(item_id: str, state: TextState) -> bool:
    """Return whether an item was begun after this text was written: the ids of a session's items are numbered."""
    kind, _, rest = item_id.partition("_")
    number, n_given = rest.rpartition("_")[2], state.counts.get("item", 0)
    return kind == "item" and number.isdecimal() and n_given < int(number) <= n_given + IDS_LEFT_OUT


def _grown(
    state: TextState, items: tuple[Item, ...], place: int, received: Received
) -> tuple[TextState, tuple[Item, ...]]:
    item, text = items[place], received.text or ""
    known = item.text() if isinstance(item, Message) else ""
    is_more = _bare(text).startswith(_bare(known))
    if not (is_more or _bare(known).startswith(_bare(text))):
        return state, items  # the TTS has timed words that it said, and not those that were written
    changed = _message(received, "" if is_more else text_after(known, text))
    items = (*items[:place], changed, *items[place + 1 :])
    return (msgspec.structs.replace(state, reply=None) if received.is_done else state), items


def _message(received: Received, rest: str) -> Message:
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


def going_on(state: TextState, request: Resume | None, reply: ReplySettings) -> tuple[e.Event, ...]:
    """Return the events that make a new core go on from a state, for the client that sent `request`.

    `reply`: the settings of a reply of this session.

    Raises:
        ValueError: as `read_items`.
    """
    conversation = restored(state)
    received = None if request is None else Received.of(request)
    state, items = reconciled(state, conversation.items, received)
    awaits_results = any(map(_is_running, items))
    items = tuple(_settled(item, reply) for item in items)
    conversation = replace(conversation, items=items)
    is_this = state.reply is not None and received is not None and received.item_id == state.reply.item_id
    open_reply = continuation(state, items, received.ms if received is not None and is_this else None)
    if open_reply is not None:
        if awaits_results:  # something comes behind the words that are known
            open_reply = replace(open_reply, is_whole=False)
        return (conversation, *_going_on(open_reply, reply, _elsewhere(state.turn, open_reply.played)))
    if not (state.is_owed or awaits_results):
        return (conversation,)
    return conversation, e.ReplyRequested(None, reply, _elsewhere(state.owed_turn or state.turn, ""))


def _elsewhere(its: OpenTurn | None, played: str) -> TurnElsewhere | None:
    if its is None:
        return None
    words = " ".join(filter(None, (its.played_text, played)))
    return TurnElsewhere(id=its.id, cause=its.cause, user_text=its.user_text, played_text=words)


def _is_running(item: Item) -> bool:
    """Return whether it is a call that the other process had begun, and whose result it did not write. Its function may
    run before the item has ended."""
    if not isinstance(item, FunctionCall) or not item.server_label or item.approval:
        return False
    return item.output is None and item.status != "incomplete"


def _settled(item: Item, reply: ReplySettings) -> Item:
    """Return a call that ran with what the LLM is told of it: the call is not repeated here."""
    if not isinstance(item, FunctionCall) or not _is_running(item):
        return item
    tool = reply.server_tool(item.name)
    output = UNKNOWN_OUTCOME if tool is None or tool.side_effects else NO_RESULT
    return replace(item, output=output, failed=True, status="completed")


def restored(state: TextState) -> e.ConversationRestored:
    """Return the event that gives a core the conversation of a state.

    Raises:
        ValueError: as `read_items`.
    """
    items = tuple(_ended(item, state.reply) for item in read_items(state))
    counts = tuple((kind, number + IDS_LEFT_OUT) for kind, number in state.counts.items())
    return e.ConversationRestored(items, counts)


def _ended(item: Item, reply: OpenReply | None) -> Item:
    if reply is None or item.id != reply.item_id or not isinstance(item, Message):
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


@dataclass(frozen=True, slots=True)
class Continuation:
    """The part of an open reply that was played, and the rest of it."""

    item_id: str
    received_ms: int
    played: str
    """The words that the user has heard."""

    rest: str
    """The words that are known and not heard."""

    is_whole: bool
    """The LLM had finished: nothing comes behind `rest`."""


def continuation(state: TextState, items: tuple[Item, ...], received_ms: int | None) -> Continuation | None:
    """Return how the open reply goes on; None: nothing of it is left.

    `received_ms`: the end of the last sound that the client has received of it; None: it does not say. Then a reply
    that was sent as a whole counts as heard, and another one as not heard.
    """
    reply = state.reply
    item = next((each for each in items if reply is not None and each.id == reply.item_id), None)
    if reply is None or not isinstance(item, Message):
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


def _going_on(open_reply: Continuation, reply: ReplySettings, turn: TurnElsewhere | None) -> tuple[e.Event, ...]:
    rest = e.GreetingDue(open_reply.rest, at_any_time=True, goes_on=turn)
    if not open_reply.played:
        delete = e.ItemDeleteRequested(None, open_reply.item_id)
        return delete, rest if open_reply.is_whole else e.ReplyRequested(None, reply, turn)
    cut = e.ItemTruncateRequested(None, open_reply.item_id, 0, open_reply.received_ms)
    if open_reply.is_whole:
        return cut, rest
    instructions = f"{reply.instructions}\n\n{GO_ON.format(played=open_reply.played)}".strip()
    return cut, e.ReplyRequested(None, replace(reply, instructions=instructions), turn)

"""The text of a session, from which another process goes on with it: items, the open reply, the client's settings.

A process writes it at each change, off the critical path; the latest state wins. It has no audio.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import msgspec

from voicepipe.errors import Overload
from voicepipe.protocol.extensions import Resume
from voicepipe.protocol.ga import GA
from voicepipe.protocol.outbound import EventRenderer, Frames
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.protocol.session_update import is_published
from voicepipe.telemetry.journal.plain import typed
from voicepipe.telemetry.log import log_event
from voicepipe.turn import commands as c
from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.conversation import Item, Message, OutputAudio, text_after
from voicepipe.turn.core import Core
from voicepipe.turn.settings import ReplySettings
from voicepipe.turn.states import User

MAX_BYTES: Final = 1_000_000
"""Limit of a session's text. A session with more can't be resumed at another node."""

PAUSE_S: Final = 0.2
"""Shortest time between two writes: what changes meanwhile is written once."""

RENEW_S: Final = 30.0
"""Longest time between two writes: the text of a process that died expires."""

LIFE_S: Final = 120
"""How long the text is kept after the latest write."""

RETRY_S: Final = 1.0
"""Pause before a write that the store refused is tried again."""

IDS_LEFT_OUT: Final = 1_000
"""Numbers of IDs that are skipped: the process that died may have given some after its latest write."""

UNKNOWN_MS_PER_CHAR: Final = 66
"""Estimated audio of a clause whose audio had not all come: about 15 characters a second."""

CHANGES: Final = (
    a.ItemAdded,
    a.ItemDeleted,
    a.ItemTruncated,
    a.TranscriptDone,
    a.OutputStarted,
    a.ToolEnded,
    a.ResponseStarted,
    a.ResponseEnded,
)
"""Notifications after which the text is written."""

PROGRESS: Final = (e.ClauseHandedOver, e.SoundArrived, e.SynthesisFinished)
"""Events of a reply after which the text is written."""


class OpenReply(msgspec.Struct, frozen=True, kw_only=True):
    """The reply that was generated or played."""

    item_id: str
    response_id: str
    is_generated: bool
    """The LLM had finished."""

    is_synthesized: bool
    """All of its audio had come."""


class TextState(msgspec.Struct, frozen=True, kw_only=True):
    """The text of one session."""

    items: tuple[msgspec.Raw, ...]
    counts: dict[str, int]
    updates: tuple[msgspec.Raw, ...] = ()
    """The `session` of each `session.update`, in order."""

    generation: int = 0
    """How often the session has moved to another process."""

    input_received_ms: int = 0
    """The user's audio up to there is in the items: the client sends the rest again."""

    reply: OpenReply | None = None
    is_owed: bool = False
    """A reply was due and had not begun."""


class ItemCodec:
    """Encodes items, each once as long as it does not change."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Item, msgspec.Raw]] = {}  # bounded: the items of the conversation

    def encoded(self, items: list[Item]) -> tuple[msgspec.Raw, ...]:
        """Return each item as JSON."""
        known = {}
        for item in items:
            before = self._known.get(item.id)
            known[item.id] = before if before is not None and before[0] == item else (item, _raw(item))
        self._known = known
        return tuple(raw for _, raw in known.values())


def _raw(item: Item) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(_plain(item)))


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, str | int | float):
        return value
    kind = type(value)
    return {"is": kind.__name__} | {each.name: _plain(getattr(value, each.name)) for each in fields(kind)}


def read_items(state: TextState) -> tuple[Item, ...]:
    """Return the items of a state.

    Raises:
        ValueError: one is of another shape: a newer voicepipe wrote it.
    """
    return tuple(typed(msgspec.json.decode(raw), Item) for raw in state.items)


def text_of(core: Core, codec: ItemCodec, **more: Any) -> TextState:
    """Return the text of a session as it is now; `more`: the fields that the core does not have."""
    context = core.context
    running = [turn for turn in context.replies.of_conversation if turn.settings.in_conversation]
    live: dict[str, Item] = {turn.reply.item_id: turn.message() for turn in running if turn.reply.item_id}
    items = [live.get(item.id, item) for item in context.conversation.items]
    ids = {item.id for item in items}
    begun = [turn for turn in running if turn.reply.item_id in ids]
    reply = None
    if begun:
        last = begun[-1].reply
        reply = OpenReply(
            item_id=last.item_id,
            response_id=last.response_id if last.response_open else "",
            is_generated=bool(last.finish_reason) or not last.response_open,
            is_synthesized=last.voice_done,
        )
    is_owed = len(running) > len(begun)
    return TextState(items=codec.encoded(items), counts=dict(context.counts), reply=reply, is_owed=is_owed, **more)


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


Keep = Callable[[TextState, str], Awaitable[bool]]
"""Writes a session's text, with the digest of its resume secret; False: another process has the session."""

GO_ON: Final = (
    "Your answer was cut off after these words, which the user has heard: {played!r}. Go on with the next word. Repeat "
    "nothing, and do not mention it."
)


class SessionText:
    """The text of one session: written whenever it has changed, and restored in another process."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._codec = ItemCodec()
        self._updates: list[msgspec.Raw] = []  # bounded by MAX_BYTES: beyond it the session is not written
        self._input_received_ms = 0
        self._received: tuple[str | None, int | None] = None, None
        self.renew_s = RENEW_S
        self.on_written: Callable[[], None] | None = None
        """Called when the store has the latest text."""

        self.keep: Keep | None = None
        """None: no other process could read it."""

        self.restored: TextState | None = None
        """The state that another process has written; None: the session began here."""

    # --- writing ----------------------------------------------------------------------------

    def note(self) -> None:
        """Have the text written; returns at once."""
        self._changed.set()

    def note_update(self, update: Any) -> None:
        """Keep a `session.update` that was accepted."""
        if self.keep is not None:
            self._updates.append(msgspec.Raw(msgspec.json.encode(update)))
            self.note()

    def follow(self, event: e.Event, commands: tuple[c.Command, ...]) -> None:
        """Have the text written if the event has changed it."""
        if self.keep is not None and (isinstance(event, PROGRESS) or any(map(_changes_text, commands))):
            self.note()

    def state(self, core: Core, input_received_ms: int) -> TextState:
        """Return the state as it is now. While the user speaks, those words are no item yet."""
        if core.user.state is User.QUIET and not core.user.utterances.pending:
            self._input_received_ms = input_received_ms
        generation = 0 if self.restored is None else self.restored.generation + 1
        return text_of(
            core,
            self._codec,
            updates=tuple(self._updates),
            generation=generation,
            input_received_ms=self._input_received_ms,
        )

    async def run(self, snapshot: Callable[[], tuple[TextState, str] | None], on_moved: Callable[[], None]) -> None:
        """Write the text until cancelled, or until another process has the session.

        `snapshot` returns the state and the digest of the secret; None: the session can't be resumed now. `on_moved` is
        called when another process has the session.
        """
        while self.keep is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.renew_s):
                    await self._changed.wait()
            self._changed.clear()
            found = snapshot()
            try:
                if found is not None and not await self.keep(*found):
                    log_event("session_moved", level=logging.WARNING)
                    on_moved()
                    return
                if self.on_written is not None and not self._changed.is_set():
                    self.on_written()
            except Overload:  # the store's own trouble is logged once, for all sessions
                self._changed.set()
                await asyncio.sleep(RETRY_S)
            await asyncio.sleep(PAUSE_S)

    # --- restoring --------------------------------------------------------------------------

    def restore(self, state: TextState, request: Resume, config: SessionConfig, wire: EventRenderer) -> SessionConfig:
        """Take a state over, and return the session as its client has set it.

        Raises:
            ProtocolError: a setting is not known here.
        """
        self.restored = state
        self._updates = list(state.updates)
        self._input_received_ms = state.input_received_ms
        self._received = request.received_item_id, request.received_ms
        wire.go_on(state.generation + 1)
        for raw in state.updates:
            update = msgspec.json.decode(raw)
            config = config.merged(update)
            if is_published(update):
                wire.speak(GA)
        return config

    def end_of_response(self, wire: EventRenderer, reply: ReplySettings) -> Frames:
        """Return the end of the response that the other process had begun and not ended."""
        open_reply = None if self.restored is None else self.restored.reply
        if open_reply is None or not open_reply.response_id:
            return []
        return wire.ended_elsewhere(open_reply.response_id, reply, "")

    def events(self, reply: ReplySettings) -> tuple[e.Event, ...]:
        """Return the events that make a new core go on. `reply`: the settings of a reply of this session.

        Raises:
            ValueError: as `read_items`.
        """
        state = self.restored
        assert state is not None
        conversation = restored(state)
        item_id, received_ms = self._received
        is_this = state.reply is not None and item_id == state.reply.item_id
        open_reply = continuation(state, conversation.items, received_ms if is_this else None)
        if open_reply is not None:
            return (conversation, *_going_on(open_reply, reply))
        return (conversation, e.ReplyRequested(None, reply)) if state.is_owed else (conversation,)


def _going_on(open_reply: Continuation, reply: ReplySettings) -> tuple[e.Event, ...]:
    if not open_reply.played:
        delete = e.ItemDeleteRequested(None, open_reply.item_id)
        if open_reply.is_whole:
            return delete, e.GreetingDue(open_reply.rest, at_any_time=True)
        return delete, e.ReplyRequested(None, reply)
    cut = e.ItemTruncateRequested(None, open_reply.item_id, 0, open_reply.received_ms)
    if open_reply.is_whole:
        return cut, e.GreetingDue(open_reply.rest, at_any_time=True)
    instructions = f"{reply.instructions}\n\n{GO_ON.format(played=open_reply.played)}".strip()
    return cut, e.ReplyRequested(None, replace(reply, instructions=instructions))


def _changes_text(command: c.Command) -> bool:
    match command:
        case c.Notify(what):
            return isinstance(what, CHANGES)
        case c.KeepRecord() | c.StartReply():
            return True
        case _:
            return False

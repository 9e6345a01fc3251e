"""The records of turns whose process ended before it had closed or stored them."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import msgspec

from voicepipe import clock
from voicepipe.protocol.extensions import Resume
from voicepipe.session.snapshot import LEFT, MOVED, OpenTurn, SessionSnapshot, encoded_record, read_records
from voicepipe.session.snapshot_restore import ReceivedOutput, is_newer
from voicepipe.turn import commands as c
from voicepipe.turn import events as e
from voicepipe.turn.context import TurnContext
from voicepipe.turn.record.values import TokenCount, TurnRecord
from voicepipe.values import replace

STORED_MS: Final = 5_000
"""Time after which a closed record counts as stored: a process writes it at once, and again after a store was away for
a moment."""


class ClosedRecords:
    """The records of one session that were closed lately."""

    def __init__(self) -> None:
        self._found: OrderedDict[str, tuple[int, TurnRecord]] = OrderedDict()  # bounded: by `STORED_MS`

    def add(self, commands: tuple[c.Command, ...]) -> None:
        """Add the records among the commands."""
        for command in commands:
            if isinstance(command, c.StoreRecord) and command.record.outcome is not None:
                self._found[command.record.id] = (clock.monotonic_ms(), command.record)
                self._found.move_to_end(command.record.id)
                self._drop_stored()

    def latest(self) -> tuple[msgspec.Raw, ...]:
        """Return them as JSON."""
        self._drop_stored()
        return tuple(encoded_record(record) for _, record in self._found.values())

    def _drop_stored(self) -> None:
        """Drop those that are stored."""
        until_ms = clock.monotonic_ms() - STORED_MS
        while self._found and next(iter(self._found.values()))[0] < until_ms:
            self._found.popitem(last=False)


class UnstoredRecords(msgspec.Struct, frozen=True):
    """The records that another process had not stored when it ended."""

    open: tuple[TurnRecord, ...]
    """Records of turns that no process has closed: they are over now."""

    closed: tuple[TurnRecord, ...]
    """Records of turns that it had closed, and perhaps stored."""


def unstored_records(
    state: SessionSnapshot,
    request: Resume | None,
    events: tuple[e.Event, ...],
    context: TurnContext,
    began_unix_ms: int,
) -> UnstoredRecords:
    """Return the records that a process left in its snapshot, for the process that goes on with these events.

    The turn that goes on has its record there. `began_unix_ms`: when the clock of this process's session was 0.
    """
    takeover_events = {
        each.goes_on.id for each in events if isinstance(each, e.ReplyRestored) and each.goes_on is not None
    }
    later_ms = state.began_unix_ms - began_unix_ms
    closed = tuple(_shifted(each, later_ms) for each in read_records(state.closed_records))
    found = {each.id: _moved(_shifted(each, later_ms)) for each in read_records(state.open_records)}
    known = takeover_events | {*found, *(each.id for each in closed)}
    received = () if request is None else ReceivedOutput.all_of(request)
    for turn in (state.turn, *(each.turn for each in state.queued)):
        if turn is not None and turn.id not in known:
            found[turn.id] = _received_elsewhere(turn, state, received, context)
    return UnstoredRecords(tuple(each for each in found.values() if each.id not in takeover_events), closed)


def ended_records(state: SessionSnapshot) -> UnstoredRecords:
    """Return the records of a session with which no process goes on: its client did not come back. Their marks are on
    the clock of the process that has died."""
    running = read_records((*state.open_records, *state.running_records))
    return UnstoredRecords(tuple(map(_ended, running)), tuple(read_records(state.closed_records)))


def _moved(record: TurnRecord) -> TurnRecord:
    if record.outcome is not None:
        return record
    return replace(record, outcome="completed", reason=MOVED, played_text=record.agent_text)


def _ended(record: TurnRecord) -> TurnRecord:
    if record.outcome is not None:
        return record
    is_played = bool(record.spoken_ms or record.played_text)
    return replace(record, outcome="interrupted" if is_played else "abandoned", reason=LEFT)


def _shifted(record: TurnRecord, later_ms: int) -> TurnRecord:
    """Return the record with its marks on the clock of another process."""
    return replace(record, marks=tuple((name, at_ms + later_ms) for name, at_ms in record.marks))


def _received_elsewhere(
    turn: OpenTurn, state: SessionSnapshot, received: tuple[ReceivedOutput, ...], context: TurnContext
) -> TurnRecord:
    """Return the record of an answer that its client has received as a whole, and of which no mark is known.

    The answer is the item of the open reply, or one that the store does not have: these came in the turns' order.
    """
    queued = [each.turn for each in state.queued]
    begun = "" if state.reply is None else state.reply.item_id
    newer = [each for each in received if each.item_id != begun and is_newer(each.item_id, state)]
    answers = newer[queued.index(turn) :] if turn in queued else [each for each in received if each.item_id == begun]
    text = next((each.text for each in answers if each.text is not None), "")
    spoken_ms = next((each.ms for each in answers if each.ms is not None), 0)
    words = " ".join(filter(None, (turn.played_text, text)))
    return TurnRecord(
        id=turn.id,
        session=context.session,
        turn=state.counts.get("turn", 0),
        revision=0,
        cause=turn.cause,
        outcome="completed",
        reason=MOVED,
        marks=(),
        total_ms=None,
        total_limit_ms=context.core.budget.total_ms,
        total_verdict=None,
        latency_source="none",
        stages=(),
        parts=(),
        contributions=(),
        unattributed_ms=0,
        breach=None,
        providers=(),
        tokens=TokenCount(),
        user_text=turn.user_text,
        agent_text=words,
        played_text=words,
        spoken_ms=spoken_ms,
    )

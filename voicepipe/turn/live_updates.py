"""Live updates of a running turn: the changes of its record since the event before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from voicepipe.turn import notifications as a
from voicepipe.turn import record_builder
from voicepipe.turn.commands import Notify, StoreRecord
from voicepipe.turn.context import TurnContext
from voicepipe.turn.record.values import TurnRecord
from voicepipe.turn.states import Gate
from voicepipe.turn.turn import Turn


@dataclass(slots=True)
class _TrackedTurn:
    turn: Turn
    sent: TurnRecord | None = None
    marks: tuple[tuple[str, int], ...] = ()


class TurnTracker:
    """Tracks turns for one subscriber, each until it has an outcome."""

    def __init__(self, context: TurnContext) -> None:
        self._context = context
        self.turns: dict[str, _TrackedTurn] = {}  # bounded: turns that run; each ends by a deadline

    def track(self, turn: Turn) -> None:
        """Track a turn from now on, if it is not tracked yet. Its first changes are all of it so far."""
        known = self.turns.get(turn.id)
        if known is None or known.turn is turn.before:  # the answer after tools takes the place of the reply before
            self.turns[turn.id] = _TrackedTurn(turn)

    def clear(self) -> None:
        """Track no turn any more."""
        self.turns.clear()

    def changes(self, now_ms: int) -> list[a.Notification]:
        """Return what the latest event has changed in the tracked turns."""
        found = [what for each in self.turns.values() for what in self._changes_of(each, now_ms)]
        for each in tuple(self.turns.values()):
            if each.turn.outcome is not None:
                del self.turns[each.turn.id]
        return found

    def _changes_of(self, each: _TrackedTurn, now_ms: int) -> list[a.Notification]:
        marks = tuple(each.turn.marks.items())
        waits = each.turn.reply.gate is Gate.SUSPENDED  # its marks are of two pauses, until the voice is judged
        if (marks == each.marks or waits) and each.turn.outcome is None:
            return []
        now = record_builder.record_of(self._context, each.turn, now_ms)
        found = changes(each.sent, now)
        each.marks, each.sent = marks, now
        return found


class LiveUpdates:
    """Sends the changes of the turns that begin while the session's client watches its turns."""

    def __init__(self, context: TurnContext) -> None:
        self._context = context
        self.tracker = TurnTracker(context)

    def update(self, now_ms: int) -> None:
        """Send what the latest event has changed. A session whose client does not watch its turns tracks none."""
        for turn in self._context.turns.begun:
            self.tracker.track(turn)
        self._context.turns.begun.clear()
        commands = self._context.commands
        # Before the record that ends a turn: the client has seen all of the turn by then.
        place = next((i for i, command in enumerate(commands) if isinstance(command, StoreRecord)), len(commands))
        commands[place:place] = [Notify(what) for what in self.tracker.changes(now_ms)]


def changes(before: TurnRecord | None, now: TurnRecord) -> list[a.Notification]:
    """Return the marks that are new or have moved, stages judged anew, and actions taken; in this order, each in time
    order.
    """
    same = before is not None and before.revision == now.revision  # otherwise what a client has counts no longer
    known_marks = set(before.marks) if before and same else set()
    known_stages = set(before.stages) if before and same else set()
    known_actions = list(before.actions) if before else []
    name = (now.id, now.revision)
    return [
        *(a.TurnMarked(*name, mark, at_ms) for mark, at_ms in now.marks if (mark, at_ms) not in known_marks),
        *(a.StageJudged(*name, span) for span in now.stages if span not in known_stages),
        *(a.ActionTaken(*name, action) for action in _added(known_actions, now.actions)),
    ]


def _added(known: list[str], actions: Iterable[str]) -> Iterator[str]:
    """Yield the actions that are new; the same action may be taken twice."""
    for action in actions:
        if action in known:
            known.remove(action)
        else:
            yield action

"""Live updates of a running turn: what is new in its record since the event before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from voicepipe.turn import announcements as a
from voicepipe.turn import ledger
from voicepipe.turn.commands import Announce, KeepRecord
from voicepipe.turn.floor import Floor
from voicepipe.turn.record import TurnRecord
from voicepipe.turn.turns import Turn


@dataclass(slots=True)
class _Watched:
    turn: Turn
    told: TurnRecord | None = None
    marks: tuple[tuple[str, int], ...] = ()


class Spotlight:
    """Follow the turns that begin while the session watches its turns, each until it has an outcome."""

    def __init__(self, floor: Floor) -> None:
        self._floor = floor
        self.watched: list[_Watched] = []  # bounded: turns that run; each ends by a deadline

    def follow(self, now_ms: int) -> None:
        """Send what the latest event has changed. A session that does not watch its turns costs nothing."""
        if self._floor.settings.watched:
            self.watched += [_Watched(turn) for turn in self._floor.turns.begun]
        self._floor.turns.begun.clear()
        told = [Announce(what) for each in self.watched for what in self._news_of(each, now_ms)]
        orders = self._floor.orders
        # Before the record that ends a turn: the client has seen all of the turn by then.
        place = next((i for i, order in enumerate(orders) if isinstance(order, KeepRecord)), len(orders))
        orders[place:place] = told
        self.watched = [each for each in self.watched if each.turn.outcome is None]

    def _news_of(self, each: _Watched, now_ms: int) -> list[a.Announcement]:
        marks = tuple(each.turn.marks.items())
        if marks == each.marks and each.turn.outcome is None:
            return []
        now = ledger.record_of(self._floor, each.turn, now_ms)
        found = news(each.told, now)
        each.marks, each.told = marks, now
        return found


def news(before: TurnRecord | None, now: TurnRecord) -> list[a.Announcement]:
    """Return the marks that are new or have moved, stages judged anew, and actions taken; in this order, each in time
    order.
    """
    known_marks = set(before.marks) if before else set()
    known_stages = set(before.stages) if before else set()
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

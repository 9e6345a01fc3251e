"""The latest stretches of the caller's speech, for as long as words of them may come."""

from __future__ import annotations

from typing import Final

from voicepipe.turn import events as e
from voicepipe.turn.commands import BeginUtterance, ForgetUtterance
from voicepipe.turn.floor import Floor
from voicepipe.turn.turns import Utterance

REMEMBERED_UTTERANCES: Final = 8
"""So many of the latest utterances still take a late text; one that is waited for is never among the forgotten."""


class Utterances:
    """Numbers them, and finds one again by its number."""

    def __init__(self, floor: Floor) -> None:
        self._floor = floor
        self._recent: list[Utterance] = []
        self._ear_took_ms: int | None = None
        """How long connecting to the ear took; None: it has no connection that is kept, or not yet."""

    def begin(self, audio_start_ms: int, *, aside: bool = False) -> Utterance:
        """A new one; the caller's audio counts as it from here on. `aside`: nobody is told of it yet."""
        item_id = self._floor.new_id("item")
        number = self._floor.counts["utterance"] = self._floor.counts.get("utterance", 0) + 1
        utterance = Utterance(number, item_id, audio_start_ms, aside=aside, ear_hidden_ms=self._ear_took_ms)
        awaited = [u for u in self._recent[: 1 - REMEMBERED_UTTERANCES] if u.committed and u.open]
        self._recent = [*awaited, *self._recent[1 - REMEMBERED_UTTERANCES :], utterance]
        self._floor.order(BeginUtterance(number))
        return utterance

    def forget(self, utterance: Utterance) -> None:
        """It counts for nothing, and neither does a text of it that comes late."""
        self._recent = [u for u in self._recent if u is not utterance]
        self._floor.order(ForgetUtterance(utterance.number))

    def find(self, number: int) -> Utterance | None:
        """The one of that number, if it is remembered."""
        return next((u for u in self._recent if u.number == number), None)

    def item_deleted(self, item_id: str) -> None:
        """Write no more into an item that the client has deleted."""
        for utterance in self._recent:
            if utterance.item_id == item_id:
                utterance.deleted = utterance.committed

    def ear_reached(self, fact: e.EarReached, now_ms: int) -> None:
        """The ear is connected: later ones wait for none of it."""
        self._ear_took_ms = fact.took_ms
        if self._recent and self._recent[-1].heard_now:
            self._recent[-1].ear_hidden_ms = fact.hidden_ms

    def ear_changed(self, fact: e.EarChanged, now_ms: int) -> None:
        """Another ear hears one; between two of them nobody has to know."""
        utterance = self.find(fact.utterance)
        if utterance is not None and utterance.heard_now:
            utterance.ears.append(fact)

    @property
    def pending(self) -> bool:
        """Whether the words of a committed one are still to come."""
        return any(u.committed and not u.known for u in self._recent)


def common_words(older: str, newer: str) -> str:
    """The words that both texts begin with; the last one, which may still grow, is left out."""
    pairs = enumerate(zip(older, newer, strict=False))
    same = newer[: next((i for i, (x, y) in pairs if x != y), min(len(older), len(newer)))]
    return same[: same.rfind(" ")] if " " in same else ""

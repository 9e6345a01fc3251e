"""The latest stretches of the user's speech, for as long as their transcripts may come."""

from __future__ import annotations

from typing import Final

from voicepipe.turn import events as e
from voicepipe.turn.commands import BeginUtterance, ForgetUtterance
from voicepipe.turn.floor import Floor
from voicepipe.turn.turns import Utterance

REMEMBERED_UTTERANCES: Final = 8
"""Number of the latest utterances that still take a late text; an utterance whose text is awaited is always among them.
"""


class Utterances:
    """Numbers the utterances, and finds one by its number."""

    def __init__(self, floor: Floor) -> None:
        self._floor = floor
        self._recent: list[Utterance] = []
        self._ear_took_ms: int | None = None
        """How long connecting to the STT took, in ms; None: it keeps no connection, or has none yet."""

    def begin(self, audio_start_ms: int, *, aside: bool = False) -> Utterance:
        """Begin a new utterance; the user's audio counts as it from here on. `aside`: the client is not notified of it
        yet.
        """
        item_id = self._floor.new_id("item")
        number = self._floor.counts["utterance"] = self._floor.counts.get("utterance", 0) + 1
        utterance = Utterance(number, item_id, audio_start_ms, aside=aside, ear_hidden_ms=self._ear_took_ms)
        awaited = [u for u in self._recent[: 1 - REMEMBERED_UTTERANCES] if u.committed and u.open]
        self._recent = [*awaited, *self._recent[1 - REMEMBERED_UTTERANCES :], utterance]
        self._floor.order(BeginUtterance(number))
        return utterance

    def forget(self, utterance: Utterance) -> None:
        """Drop an utterance; a late text of it is ignored too."""
        self._recent = [u for u in self._recent if u is not utterance]
        self._floor.order(ForgetUtterance(utterance.number))

    def find(self, number: int) -> Utterance | None:
        """Return the utterance of that number, if it is remembered."""
        return next((u for u in self._recent if u.number == number), None)

    def item_deleted(self, item_id: str) -> None:
        """Stop writing into an item that the client has deleted."""
        for utterance in self._recent:
            if utterance.item_id == item_id:
                utterance.deleted = utterance.committed

    def ear_reached(self, fact: e.EarReached, now_ms: int) -> None:
        """Record that the STT is connected: later utterances wait for none of it."""
        self._ear_took_ms = fact.took_ms
        if self._recent and self._recent[-1].heard_now:
            self._recent[-1].ear_hidden_ms = fact.hidden_ms

    def ear_changed(self, fact: e.EarChanged, now_ms: int) -> None:
        """Record that another STT transcribes an utterance; a change between two utterances needs no record."""
        utterance = self.find(fact.utterance)
        if utterance is not None and utterance.heard_now:
            utterance.ears.append(fact)

    @property
    def pending(self) -> bool:
        """Return whether the transcript of a committed utterance is still to come."""
        return any(u.committed and not u.known for u in self._recent)


def common_words(older: str, newer: str) -> str:
    """Return the words that both texts begin with; the last word, which may still grow, is left out."""
    pairs = enumerate(zip(older, newer, strict=False))
    same = newer[: next((i for i, (x, y) in pairs if x != y), min(len(older), len(newer)))]
    return same[: same.rfind(" ")] if " " in same else ""

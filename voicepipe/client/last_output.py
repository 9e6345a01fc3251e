"""Track the agent's latest output: another node continues behind it if the first node dies."""

from __future__ import annotations

from typing import Any, Final

from voicepipe.client import events as e
from voicepipe.client.microphone import RATE_HZ

MAX_EARLIER: Final = 4
"""Maximum number of earlier items that are sent to another node: a node stores each within some ms."""


class LastOutput:
    """The received part of the agent's latest item."""

    def __init__(self) -> None:
        self.item_id = ""
        self._n_bytes = 0
        self._words: list[tuple[str, int]] = []  # bounded: the words of one item
        self._complete_text: str | None = None
        self._earlier: list[dict[str, Any]] = []  # bounded: the oldest is dropped
        """The preceding items that were received completely."""

    def handle(self, event: e.ServerEvent) -> None:
        """Record the output of an event, if it has any."""
        match event:
            case e.ReplyAudio(_, pcm, item_id):
                self._begin(item_id)
                self._n_bytes += len(pcm)
            case e.AudioWords(item_id, words):
                self._begin(item_id)
                self._words += words
            case e.ItemDone(item_id, text):
                self._begin(item_id)
                self._complete_text = text

    def _begin(self, item_id: str) -> None:
        if item_id != self.item_id:
            if self.is_done:
                self._earlier = [*self._earlier[1 - MAX_EARLIER :], self._complete_item()]
            self.item_id, self._n_bytes, self._words, self._complete_text = item_id, 0, [], None

    def to_wire(self) -> dict[str, Any]:
        """Return the fields of `voicepipe.resume`; none before the first output."""
        if not self.item_id:
            return {}
        fields: dict[str, Any] = {"received_item_id": self.item_id}
        if self._n_bytes:
            fields["received_ms"] = self._received_ms
        if self.is_done:
            fields |= {"received_text": self.received, "received_done": True}
        elif self._words:
            fields["received_text"] = self.received
        return fields | {"received_items": self._earlier}

    def _complete_item(self) -> dict[str, Any]:
        """Return the complete item, as in `voicepipe.resume`."""
        fields = {"item_id": self.item_id, "text": self.received}
        return {**fields, "ms": self._received_ms} if self._n_bytes else fields

    @property
    def is_done(self) -> bool:
        """Return whether the item is complete."""
        return self._complete_text is not None

    @property
    def received(self) -> str:
        """Return the words that begin in the received audio; of a complete item, all words."""
        if self._complete_text is not None:
            return self._complete_text
        return " ".join(word for word, start_ms in self._words if start_ms < self._received_ms)

    @property
    def _received_ms(self) -> int:
        return self._n_bytes * 1_000 // (2 * RATE_HZ)

"""The last of the agent's output that came: it decides where the agent goes on if its node dies."""

from __future__ import annotations

from typing import Any, Final

from voicepipe.client import events as e
from voicepipe.client.microphone import RATE_HZ

MAX_EARLIER: Final = 4
"""Earlier items that are named to another node: their node has written each within some ms."""


class LastOutput:
    """The latest item of the agent's, as far as the client has received it."""

    def __init__(self) -> None:
        self.item_id = ""
        self._n_bytes = 0
        self._words: list[tuple[str, int]] = []  # bounded: the words of one item
        self._whole_text: str | None = None
        self._earlier: list[dict[str, Any]] = []  # bounded: the oldest is dropped
        """The items before it that came as a whole."""

    def follow(self, event: e.ServerEvent) -> None:
        """Note the output of an event, if it has any."""
        match event:
            case e.ReplyAudio(_, pcm, item_id):
                self._begin(item_id)
                self._n_bytes += len(pcm)
            case e.AudioWords(item_id, words):
                self._begin(item_id)
                self._words += words
            case e.ItemDone(item_id, text):
                self._begin(item_id)
                self._whole_text = text

    def _begin(self, item_id: str) -> None:
        if item_id != self.item_id:
            if self.is_done:
                self._earlier = [*self._earlier[1 - MAX_EARLIER :], self._whole()]
            self.item_id, self._n_bytes, self._words, self._whole_text = item_id, 0, [], None

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

    def _whole(self) -> dict[str, Any]:
        """Return an item that is done, as another node gets it."""
        its = {"item_id": self.item_id, "text": self.received}
        return {**its, "ms": self._received_ms} if self._n_bytes else its

    @property
    def is_done(self) -> bool:
        """Return whether all of the item came."""
        return self._whole_text is not None

    @property
    def received(self) -> str:
        """Return the words that begin in the audio that came; of an item that is done, all words."""
        if self._whole_text is not None:
            return self._whole_text
        return " ".join(word for word, start_ms in self._words if start_ms < self._received_ms)

    @property
    def _received_ms(self) -> int:
        return self._n_bytes * 1_000 // (2 * RATE_HZ)

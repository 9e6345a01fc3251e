"""The history that a speech-to-speech model has at its vendor, and what must change in it before an answer. Pure.

The session's own conversation decides. What the vendor has of its beginning stays as it is, as audio; what follows
there is deleted, and the rest is added as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from voicepipe.ports.model import Called, Content, Message, ModelRequest, Returned, Text
from voicepipe.turn.endpointing.completeness import same_words


@dataclass(slots=True, eq=False)
class HistoryEntry:
    """A message that the model has."""

    message: Message
    items: list[str] = field(default_factory=list)
    """The ids of its items at the vendor; some may still be on their way."""

    spoken: bool = False
    """The user said it, and the model has the audio."""

    audio_ms: int = 0
    """How much audio the model has sent for it."""

    deleted: bool = False
    """It was deleted; an item that is reported for it later is to be deleted too."""


class Truncation(Struct, frozen=True):
    """An answer of which only the beginning was played."""

    entry: HistoryEntry
    audio_end_ms: int
    """How much of its audio was played, in ms."""


class HistoryChanges(Struct, frozen=True):
    """The changes that the vendor needs before an answer."""

    deleted: tuple[HistoryEntry, ...]
    truncated: tuple[Truncation, ...]
    added: tuple[HistoryEntry, ...]
    """Behind all others, in order; without the message that the model gets as audio."""

    voiced: HistoryEntry | None
    """The message of which the model gets (more) audio; None: the audio does not count."""


def instructions_of(request: ModelRequest) -> str:
    """Return all system messages, in one text: the model reads it anew for each answer."""
    system = (each for each in request.messages if isinstance(each, Content) and each.role == "system")
    return "\n\n".join(text for each in system if (text := text_of(each)))


def text_of(message: Content) -> str:
    """Return the text of a message."""
    return " ".join(part.text for part in message.parts if isinstance(part, Text))


class VendorHistory:
    """The messages that a model has, in order."""

    def __init__(self) -> None:
        self.entries: list[HistoryEntry] = []

    def sync(self, request: ModelRequest, *, spoken: bool) -> HistoryChanges:
        """Make this history the conversation of `request`, and return what that changes. With `spoken`, its last
        message is audio."""
        messages = tuple(m for m in request.messages if not (isinstance(m, Content) and m.role == "system"))
        last = messages[-1] if spoken and messages else None
        known, truncated = self._known(messages, continues=last is not None)
        retained, gone = self.entries[:known], self.entries[known:]
        voiced = retained[-1] if last is not None and known == len(messages) else None
        if voiced is not None:
            voiced.message = messages[-1]
        if last is not None and voiced is None and any(each.spoken for each in gone):
            last = None  # the first part of what the user said is lost there, so that only the text is whole
        added = tuple(map(HistoryEntry, messages[known : len(messages) - (last is not None)]))
        new = () if last is None or voiced is not None else (HistoryEntry(last, spoken=True),)
        for each in gone:
            each.deleted = True
        self.entries = [*retained, *added, *new]
        return HistoryChanges(tuple(gone), truncated, added, new[0] if new else voiced)

    def append(self, entry: HistoryEntry) -> None:
        """Add what the model has just said, or called."""
        self.entries.append(entry)

    def _known(self, messages: Sequence[Message], *, continues: bool) -> tuple[int, tuple[Truncation, ...]]:
        """Return how many messages the model has, from the first, and the answers that were not played to
        their end. `continues`: the user may go on with the last message."""
        truncations: list[Truncation] = []
        for n, (entry, message) in enumerate(zip(self.entries, messages, strict=False)):
            if (played_ms := _played_ms(entry, message)) is not None:
                entry.message, entry.audio_ms = message, played_ms
                truncations.append(Truncation(entry, played_ms))
            elif not _same(entry, message, continues=continues and n == len(messages) - 1):
                return n, tuple(truncations)
        return min(len(self.entries), len(messages)), tuple(truncations)


def _same(entry: HistoryEntry, message: Message, *, continues: bool) -> bool:
    known = entry.message
    match known, message:
        case Content(role="assistant"), Content(role="assistant"):
            return _words(known) == _words(message)
        case Content(role="user"), Content(role="user") if entry.spoken:
            begun = _words(message)[: len(_words(known))]
            return same_words(" ".join(begun) if continues else text_of(message), text_of(known))
        case Called(call_id), Called(other_id):
            return call_id == other_id
        case Content() | Returned() | Called(), _:
            return known == message and not continues
    return False


def _played_ms(entry: HistoryEntry, message: Message) -> int | None:
    """Return how much of an answer's audio was played, by its words; None: all of it, or it is another message."""
    known = entry.message
    if not (isinstance(known, Content) and isinstance(message, Content) and known.role == message.role == "assistant"):
        return None
    all_words, voiced = _words(known), _words(message)
    if not entry.audio_ms or len(voiced) >= len(all_words) or voiced != all_words[: len(voiced)]:
        return None
    return entry.audio_ms * len(" ".join(voiced)) // max(1, len(" ".join(all_words)))


def _words(message: Message) -> list[str]:
    return text_of(message).split() if isinstance(message, Content) else []

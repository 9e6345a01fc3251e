"""The memory of a speech-to-speech model: the messages it has, and what must change before its next answer. Pure.

The session's own conversation is the truth. Its beginning that the model remembers stays as it is, with the sound of
the voices; what follows is deleted there, and the rest is added as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from voicepipe.ports.model import Called, Message, ModelRequest, Returned, Said, Text
from voicepipe.turn.endpointing.completeness import same_words


@dataclass(slots=True, eq=False)
class Remembered:
    """A message that the model has."""

    message: Message
    items: list[str] = field(default_factory=list)
    """The ids of its items at the vendor; some may still be on their way."""

    spoken: bool = False
    """The model has heard it from the user."""

    audio_ms: int = 0
    """How much audio the model has sent for it."""

    deleted: bool = False
    """It was deleted; an item that is reported for it later is to be deleted too."""


@dataclass(frozen=True, slots=True)
class Cut:
    """An answer of which the user has heard only the beginning."""

    entry: Remembered
    end_ms: int
    """How much of its audio was heard."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes that the vendor needs before an answer."""

    deleted: tuple[Remembered, ...]
    cut: tuple[Cut, ...]
    added: tuple[Remembered, ...]
    """Behind all others, in order; without the message that the model hears."""

    voiced: Remembered | None
    """The message of which the model hears (more) audio; None: the audio does not count."""


def instructions_of(request: ModelRequest) -> str:
    """Return all that the system says, in one text: the model reads it anew for each answer."""
    system = (each for each in request.messages if isinstance(each, Said) and each.role == "system")
    return "\n\n".join(text for each in system if (text := text_of(each)))


def text_of(message: Said) -> str:
    """Return the text of a message."""
    return " ".join(part.text for part in message.parts if isinstance(part, Text))


class Memory:
    """The messages that a model remembers, in order."""

    def __init__(self) -> None:
        self.entries: list[Remembered] = []

    def change(self, request: ModelRequest, *, spoken: bool) -> Changes:
        """Remember exactly the conversation of `request`, and return what that changes. With `spoken`, its last message
        is heard."""
        messages = tuple(m for m in request.messages if not (isinstance(m, Said) and m.role == "system"))
        last = messages[-1] if spoken and messages else None
        known, cut = self._known(messages, continues=last is not None)
        retained, gone = self.entries[:known], self.entries[known:]
        voiced = retained[-1] if last is not None and known == len(messages) else None
        if voiced is not None:
            voiced.message = messages[-1]
        if last is not None and voiced is None and any(each.spoken for each in gone):
            last = None  # the first part of what the user said is lost there, so that only the text is whole
        added = tuple(map(Remembered, messages[known : len(messages) - (last is not None)]))
        new = () if last is None or voiced is not None else (Remembered(last, spoken=True),)
        for each in gone:
            each.deleted = True
        self.entries = [*retained, *added, *new]
        return Changes(tuple(gone), cut, added, new[0] if new else voiced)

    def remember(self, entry: Remembered) -> None:
        """Add what the model has just said, or called."""
        self.entries.append(entry)

    def _known(self, messages: Sequence[Message], *, continues: bool) -> tuple[int, tuple[Cut, ...]]:
        """Return how many messages the model remembers, from the first, and the answers that the user has not heard to
        their end. `continues`: the user may go on with the last message."""
        cuts: list[Cut] = []
        for n, (entry, message) in enumerate(zip(self.entries, messages, strict=False)):
            if (played_ms := _played_ms(entry, message)) is not None:
                entry.message, entry.audio_ms = message, played_ms
                cuts.append(Cut(entry, played_ms))
            elif not _same(entry, message, continues=continues and n == len(messages) - 1):
                return n, tuple(cuts)
        return min(len(self.entries), len(messages)), tuple(cuts)


def _same(entry: Remembered, message: Message, *, continues: bool) -> bool:
    known = entry.message
    match known, message:
        case Said(role="assistant"), Said(role="assistant"):
            return _words(known) == _words(message)
        case Said(role="user"), Said(role="user") if entry.spoken:
            begun = _words(message)[: len(_words(known))]
            return same_words(" ".join(begun) if continues else text_of(message), text_of(known))
        case Called(call_id), Called(other_id):
            return call_id == other_id
        case Said() | Returned() | Called(), _:
            return known == message and not continues
    return False


def _played_ms(entry: Remembered, message: Message) -> int | None:
    """Return how much of an answer's audio was heard, by its words; None: all of it, or it is another message."""
    known = entry.message
    if not (isinstance(known, Said) and isinstance(message, Said) and known.role == message.role == "assistant"):
        return None
    all_words, voiced = _words(known), _words(message)
    if not entry.audio_ms or len(voiced) >= len(all_words) or voiced != all_words[: len(voiced)]:
        return None
    return entry.audio_ms * len(" ".join(voiced)) // max(1, len(" ".join(all_words)))


def _words(message: Message) -> list[str]:
    return text_of(message).split() if isinstance(message, Said) else []

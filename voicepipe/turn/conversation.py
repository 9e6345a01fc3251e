"""What was said: the items of a conversation, their order, and where a reply was cut."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from voicepipe.errors import ProtocolError

Role = Literal["system", "user", "assistant"]
ItemStatus = Literal["in_progress", "completed", "incomplete"]


@dataclass(frozen=True, slots=True)
class InputText:
    """Text that a client or the caller's application put in."""

    text: str


@dataclass(frozen=True, slots=True)
class InputAudio:
    """The caller's speech. `transcript` is None until the transcriber has answered."""

    transcript: str | None = None


@dataclass(frozen=True, slots=True)
class InputImage:
    """A picture, as a `data:` or `https:` URL."""

    url: str
    detail: Literal["auto", "low", "high"] = "auto"
    n_chars: int = field(default=0, compare=False)
    """How long the URL is. No decision looks at the URL itself, since journals leave it out."""


@dataclass(frozen=True, slots=True)
class OutputText:
    """The agent's answer as text."""

    text: str


@dataclass(frozen=True, slots=True)
class ClauseSound:
    """A clause that was handed to the voice, and how much sound of it there is so far."""

    text: str
    sound_ms: int = 0
    word_starts_ms: tuple[int, ...] = ()
    """Where its words begin in its sound, as far as that has come; empty if the voice doesn't tell."""


@dataclass(frozen=True, slots=True)
class OutputAudio:
    """The agent's answer as speech.

    `transcript` is what the conversation holds: all that was generated, or, once cut, what was heard.
    `clauses` keep the sound's timing, so that a cut in milliseconds finds its word.
    """

    transcript: str
    clauses: tuple[ClauseSound, ...] = ()

    def heard_until(self, heard_ms: int) -> str:
        """The words of this speech that have begun by `heard_ms` of its sound.

        Within a clause words are placed where the voice says, or else by proportion of characters. The word that is
        being spoken counts as heard: history holds at most one word beyond the exact position.
        """
        words: list[str] = []
        left_ms = heard_ms
        for clause in self.clauses:
            if left_ms <= 0:
                break
            words.append(_begun_words(clause, left_ms))
            left_ms -= clause.sound_ms
        return " ".join(part for part in words if part)


def _begun_words(clause: ClauseSound, heard_ms: int) -> str:
    text = clause.text.strip()
    if heard_ms >= clause.sound_ms or not text:
        return text
    words = list(re.finditer(r"\S+", text))
    if 0 < len(clause.word_starts_ms) <= len(words):
        n_begun = sum(start_ms < heard_ms for start_ms in clause.word_starts_ms)
    else:
        n_begun = sum(word.start() < len(text) * heard_ms / clause.sound_ms for word in words)
    return text[: words[n_begun - 1].end()] if n_begun else ""


Part = InputText | InputAudio | InputImage | OutputText | OutputAudio


PART_CHARS = 16
"""What a part or an item without any text counts for: it takes room, too."""


@dataclass(frozen=True, slots=True)
class Message:
    """Something said by the system, the caller or the agent."""

    id: str
    role: Role
    parts: tuple[Part, ...]
    status: ItemStatus = "completed"
    aside: bool = False
    """Said to fill a wait, or in place of an answer: no model reads it."""

    def text(self) -> str:
        """All words of this message, in order."""
        words = (_words(part) for part in self.parts)
        return " ".join(word for word in words if word)

    @property
    def n_text_chars(self) -> int:
        """How much text it has, each part counted as a few characters besides."""
        return sum(PART_CHARS + len(_words(part)) for part in self.parts)

    @property
    def n_chars(self) -> int:
        """The same, with its pictures."""
        return self.n_text_chars + sum(part.n_chars for part in self.parts if isinstance(part, InputImage))


def _words(part: Part) -> str:
    match part:
        case InputText(text) | OutputText(text):
            return text
        case InputAudio(transcript):
            return transcript or ""
        case OutputAudio(transcript):
            return transcript
        case InputImage():
            return ""


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """The agent calls a function of the client. `arguments` is JSON as text."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus = "completed"

    @property
    def n_text_chars(self) -> int:
        """How much text it has."""
        return PART_CHARS + len(self.name) + len(self.arguments)

    n_chars = n_text_chars


@dataclass(frozen=True, slots=True)
class FunctionOutput:
    """What a called function gave back."""

    id: str
    call_id: str
    output: str
    status: ItemStatus = "completed"

    @property
    def n_text_chars(self) -> int:
        """How much text it has."""
        return PART_CHARS + len(self.output)

    n_chars = n_text_chars


Item = Message | FunctionCall | FunctionOutput

ROOT = "root"
"""As `after`: put the item first."""


class Conversation:
    """The items in order. Pure: every refusal is a ProtocolError that names the wire's code and field.

    Items are found by id through an index, and each knows its neighbours: no operation on one item takes longer when
    there are more of them. Only listing `items` does.
    """

    __slots__ = ("_by_id", "_listed", "_next", "_previous", "n_chars")

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self._by_id: dict[str, Item] = {}
        self._next: dict[str | None, str | None] = {None: None}
        """Id -> the id behind it. None stands before the first and behind the last."""

        self._previous: dict[str | None, str | None] = {None: None}
        self._listed: list[Item] | None = []
        """The items in order, until one changes."""

        self.n_chars = 0
        """The size of all items: their text and pictures."""

        for item in items:
            self.add(item)

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def items(self) -> list[Item]:
        """The items in order; not to be changed."""
        if self._listed is None:
            self._listed = list(reversed([*self._backwards()]))
        return self._listed

    def find(self, item_id: str) -> Item | None:
        return self._by_id.get(item_id)

    @property
    def newest(self) -> Item | None:
        """The last item."""
        return next(self._backwards(), None)

    @property
    def asked(self) -> bool:
        """Whether the agent's latest words are a question."""
        said = (item.text() for item in self._backwards() if isinstance(item, Message) and item.role == "assistant")
        return next(said, "").rstrip().endswith("?")

    def before(self, item_id: str) -> str | None:
        """The id of the item really before this one; None for the first."""
        return self._previous[item_id]

    def add(self, item: Item, *, after: str | None = None) -> str | None:
        """Put `item` after the item `after` (None: last, ROOT: first); returns the id before it.

        Raises:
            ProtocolError: `item.id` is taken, or `after` is unknown.
        """
        if item.id in self._by_id:
            raise ProtocolError(
                f"the conversation already has an item with id {item.id!r}",
                field="item.id",
                code="item_create_duplicate_item_id",
            )
        if after is None:
            previous = self._previous[None]
        elif after == ROOT:
            previous = None
        else:
            if after not in self._by_id:
                raise ProtocolError(
                    f"the conversation has no item with id {after!r}",
                    field="previous_item_id",
                    code="item_create_invalid_previous_item_id",
                )
            previous = after
        self._link(item, previous)
        return previous

    def claim(self, item: Item) -> str | None:
        """Put an item of our own last; one that a client put under its id before us gives way."""
        if item.id in self._by_id:
            self._unlink(item.id)
        return self.add(item)

    def put(self, item: Item) -> None:
        """Replace the item of the same id, if it is still there."""
        if (old := self._by_id.get(item.id)) is not None:
            self._by_id[item.id] = item
            self.n_chars += item.n_chars - old.n_chars
            self._listed = None

    def take(self, item_id: str) -> Item:
        """The item with this id.

        Raises:
            ProtocolError: there is none.
        """
        item = self.find(item_id)
        if item is None:
            raise ProtocolError(
                f"the conversation has no item with id {item_id!r}",
                field="item_id",
                code="item_retrieve_invalid_item_id",
            )
        return item

    def delete(self, item_id: str) -> None:
        """Forget an item.

        Raises:
            ProtocolError: there is none with this id.
        """
        if item_id not in self._by_id:
            raise ProtocolError(
                f"the conversation has no item with id {item_id!r}",
                field="item_id",
                code="item_delete_invalid_item_id",
            )
        self._unlink(item_id)

    def truncate(self, item_id: str, *, content_index: int, audio_end_ms: int) -> int:
        """Cut a spoken reply to the words heard by `audio_end_ms`; returns the position it was cut at.

        A position beyond the sound that was sent is clamped to it, since clients round up.

        Raises:
            ProtocolError: no such item, not speech of the agent, or no such part.
        """
        item = self.find(item_id)
        if item is None:
            raise _untruncatable("item_id", f"the conversation has no item with id {item_id!r}")
        if not isinstance(item, Message) or item.role != "assistant":
            raise _untruncatable("item_id", f"expected an assistant message, got item {item_id!r} of another kind")
        if not 0 <= content_index < max(1, len(item.parts)):
            raise _untruncatable("content_index", f"expected 0 to {len(item.parts) - 1}, got {content_index}")
        part = item.parts[content_index] if item.parts else OutputAudio("")
        if not isinstance(part, OutputAudio):
            raise _untruncatable("content_index", "expected a part with audio, got text")
        cut_ms = min(max(0, audio_end_ms), sum(clause.sound_ms for clause in part.clauses))
        heard = replace(part, transcript=part.heard_until(cut_ms))
        parts = tuple(heard if i == content_index else old for i, old in enumerate(item.parts))
        self.put(replace(item, parts=parts))
        return cut_ms

    def _link(self, item: Item, previous: str | None) -> None:
        behind = self._next[previous]
        self._by_id[item.id] = item
        self.n_chars += item.n_chars
        self._next[previous] = self._previous[behind] = item.id
        self._next[item.id], self._previous[item.id] = behind, previous
        self._listed = None

    def _unlink(self, item_id: str) -> None:
        self.n_chars -= self._by_id.pop(item_id).n_chars
        behind, previous = self._next.pop(item_id), self._previous.pop(item_id)
        self._next[previous], self._previous[behind] = behind, previous
        self._listed = None

    def _backwards(self) -> Iterator[Item]:
        item_id = self._previous[None]
        while item_id is not None:
            yield self._by_id[item_id]
            item_id = self._previous[item_id]


def _untruncatable(field_name: str, why: str) -> ProtocolError:
    return ProtocolError(why, field=field_name, code="item_truncate_invalid_item_id")

"""The items of a conversation, their order, and where a reply was cut."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from voicepipe.errors import ProtocolError
from voicepipe.values import replace

Role = Literal["system", "user", "assistant"]
ItemStatus = Literal["in_progress", "completed", "incomplete"]
ApprovalState = Literal["", "awaited", "given", "refused"]
"""Empty: no approval is needed."""


class InputText(Struct, frozen=True):
    """Text from a client or from its application."""

    text: str


class InputAudio(Struct, frozen=True):
    """The user's speech. `transcript` is None until the transcriber has answered."""

    transcript: str | None = None


@dataclass(frozen=True, slots=True)
class InputImage:
    """An image, as a `data:` or `https:` URL."""

    url: str
    detail: Literal["auto", "low", "high"] = "auto"
    n_chars: int = field(default=0, compare=False)
    """The length of the URL. No decision depends on the URL itself, since journals leave it out."""


class OutputText(Struct, frozen=True):
    """The agent's answer as text."""

    text: str


class ClauseSound(Struct, frozen=True):
    """A clause that was given to the TTS, and the duration of its audio so far."""

    text: str
    sound_ms: int = 0
    word_starts_ms: tuple[int, ...] = ()
    """Where its words begin in its audio, as far as that has come; empty if the TTS does not report it."""

    earlier_ms: int = 0
    """How much of the clause's audio belongs to an earlier message: this is the rest of a clause that was cut."""

    def with_sound(self, duration_ms: int, word_starts_ms: tuple[int, ...] = ()) -> ClauseSound:
        """Return the clause with more audio. `word_starts_ms` counts from the beginning of all its audio."""
        starts_ms = tuple(ms - self.earlier_ms for ms in word_starts_ms if ms >= self.earlier_ms)
        return replace(self, sound_ms=self.sound_ms + duration_ms, word_starts_ms=self.word_starts_ms + starts_ms)

    def after(self, n_chars: int, n_words: int, word_ms: int) -> ClauseSound:
        """Return the rest of the clause after its first words; the next one begins at `word_ms`.

        A TTS may report more words than the text has. Their starts are kept, since their number shows that they can't
        be used; those that lie before `word_ms` become 0.
        """
        starts_ms = tuple(max(0, ms - word_ms) for ms in self.word_starts_ms[n_words:])
        return ClauseSound(self.text[n_chars:], self.sound_ms - word_ms, starts_ms, self.earlier_ms + word_ms)


class OutputAudio(Struct, frozen=True):
    """The agent's answer as speech.

    `transcript` is what the conversation holds: all that was generated or, once cut, what the user heard. `clauses`
    keep the audio's timing, so that a cut in milliseconds finds its word.
    """

    transcript: str
    clauses: tuple[ClauseSound, ...] = ()

    def played_until(self, played_ms: int) -> str:
        """Return the words of this speech that have begun by `played_ms` of its audio.

        Within a clause words are placed where the TTS reports them, or else by proportion of characters. The word that
        is being spoken counts as played: the history holds at most one word beyond the exact position.
        """
        words: list[str] = []
        left_ms = played_ms
        for clause in self.clauses:
            if left_ms <= 0:
                break
            words.append(_begun_words(clause, left_ms))
            left_ms -= clause.sound_ms
        return " ".join(part for part in words if part)

    def rest(self, played_ms: int) -> tuple[int, tuple[ClauseSound, ...]]:
        """Return where the word begins that is being spoken at `played_ms`, in ms, and the clauses from it on."""
        from_ms = 0
        for place, clause in enumerate(self.clauses):
            if played_ms < from_ms + clause.sound_ms:
                word, word_ms = _word_at(clause, played_ms - from_ms)
                first = clause.after(word, len(clause.text[:word].split()), word_ms)
                return from_ms + word_ms, (first, *self.clauses[place + 1 :])
            from_ms += clause.sound_ms
        return played_ms, ()


def text_after(text: str, spoken: str) -> str:
    """Return the rest of `text` after the words of `spoken`, which it begins with, however they are spaced."""
    n_chars = sum(not char.isspace() for char in spoken)
    for place, char in enumerate(text):
        if not n_chars:
            return text[place:].lstrip()
        n_chars -= not char.isspace()
    return ""


def _word_at(clause: ClauseSound, played_ms: int) -> tuple[int, int]:
    """Return where the word that is being spoken begins: in the clause's text, and in its audio in ms."""
    words = list(re.finditer(r"\S+", clause.text))
    if 0 < len(clause.word_starts_ms) <= len(words):
        starts_ms = clause.word_starts_ms
    else:
        starts_ms = tuple(word.start() * clause.sound_ms // len(clause.text) for word in words)
    begun = [place for place, start_ms in enumerate(starts_ms) if start_ms < played_ms]
    return (words[begun[-1]].start(), starts_ms[begun[-1]]) if begun else (0, 0)


def _begun_words(clause: ClauseSound, played_ms: int) -> str:
    text = clause.text.strip()
    if played_ms >= clause.sound_ms or not text:
        return text
    words = list(re.finditer(r"\S+", text))
    if 0 < len(clause.word_starts_ms) <= len(words):
        n_begun = sum(start_ms < played_ms for start_ms in clause.word_starts_ms)
    else:
        n_begun = sum(word.start() < len(text) * played_ms / clause.sound_ms for word in words)
    return text[: words[n_begun - 1].end()] if n_begun else ""


Part = InputText | InputAudio | InputImage | OutputText | OutputAudio


PART_CHARS = 16
"""The size of a part or an item without any text, in characters: it uses memory, too."""


class Message(Struct, frozen=True):
    """A message of the system, the user or the agent."""

    id: str
    role: Role
    parts: tuple[Part, ...]
    status: ItemStatus = "completed"
    hidden_from_llm: bool = False
    """Said to fill a wait, or in place of an answer: no LLM reads it."""

    def text(self) -> str:
        """Return all words of this message, in order."""
        words = (_words(part) for part in self.parts)
        return " ".join(word for word in words if word)

    @property
    def n_text_chars(self) -> int:
        """Return how much text it has, in characters, plus a few characters for each part."""
        return sum(PART_CHARS + len(_words(part)) for part in self.parts)

    @property
    def n_chars(self) -> int:
        """Return the same, plus its images."""
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


class FunctionCall(Struct, frozen=True):
    """A call by the agent of a function. `arguments` is JSON as text."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus = "completed"
    server_label: str = ""
    """Where the function comes from, if the server runs it; empty: the client runs it."""

    output: str | None = None
    """The result of a call that the server runs; None: there is none yet."""

    failed: bool = False
    """`output` is the reason why there is no result."""

    late: bool = False
    """The result came when the conversation had gone on: a second item behind that has it for the LLM."""

    approval: ApprovalState = ""
    """This item requests the client's approval of the call. If it is `given`, another item is the call."""

    approval_request_id: str = ""
    """The id of the item that requested approval of this call; empty: none was needed."""

    @property
    def n_text_chars(self) -> int:
        """Return how much text it has, in characters."""
        return PART_CHARS + len(self.name) + len(self.arguments) + len(self.output or "")

    n_chars = n_text_chars


class FunctionOutput(Struct, frozen=True):
    """The result of a called function."""

    id: str
    call_id: str
    output: str
    status: ItemStatus = "completed"

    @property
    def n_text_chars(self) -> int:
        """Return how much text it has, in characters."""
        return PART_CHARS + len(self.output)

    n_chars = n_text_chars


class ToolList(Struct, frozen=True):
    """The tools of an MCP server that the client requested. No LLM reads this item: tools are a part of its request."""

    id: str
    server_label: str
    output: str
    """The tools as the wire lists them: JSON."""

    status: ItemStatus = "completed"

    @property
    def n_text_chars(self) -> int:
        """Return how much text an LLM reads of it, in characters."""
        return PART_CHARS

    @property
    def n_chars(self) -> int:
        """Return how much text it has, in characters."""
        return PART_CHARS + len(self.output)


class ApprovalAnswer(Struct, frozen=True):
    """The client's answer to a call that needs its approval. No LLM reads this item, but the call's result."""

    id: str
    request_id: str
    """The id of the item that requested approval."""

    approve: bool
    reason: str = ""
    status: ItemStatus = "completed"

    @property
    def n_text_chars(self) -> int:
        """Return how much text an LLM reads of it, in characters."""
        return PART_CHARS

    @property
    def n_chars(self) -> int:
        """Return how much text it has, in characters."""
        return PART_CHARS + len(self.reason)


Item = Message | FunctionCall | FunctionOutput | ToolList | ApprovalAnswer

UNREAD = (ToolList, ApprovalAnswer)
"""The kinds of items that no LLM reads."""

ROOT = "root"
"""As `after`: put the item first."""


class Conversation:
    """The items in order. Pure: every refusal is a ProtocolError that names the wire's code and field.

    Items are found by id through an index, and each has links to its neighbours. No operation on one item takes longer
    when there are more of them, except listing `items`.
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
        """The size of all items in characters: their text and images."""

        for item in items:
            self.add(item)

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def items(self) -> list[Item]:
        """Return the items in order; the list must not be changed."""
        if self._listed is None:
            self._listed = list(reversed([*self._backwards()]))
        return self._listed

    def find(self, item_id: str) -> Item | None:
        return self._by_id.get(item_id)

    @property
    def newest(self) -> Item | None:
        """Return the last item that is said or called."""
        return next((item for item in self._backwards() if not isinstance(item, UNREAD)), None)

    @property
    def typed_last(self) -> str:
        """Return what the user has typed behind all that was said or answered."""
        typed: list[str] = []
        for item in self._backwards():
            if isinstance(item, UNREAD):
                continue
            if not (isinstance(item, Message) and item.role == "user"):
                break
            typed += [part.text for part in reversed(item.parts) if isinstance(part, InputText) and part.text]
        return " ".join(reversed(typed))

    @property
    def ends_with_question(self) -> bool:
        """Return whether the agent's latest words are a question."""
        spoken = (item.text() for item in self._backwards() if isinstance(item, Message) and item.role == "assistant")
        return next(spoken, "").rstrip().endswith("?")

    def before(self, item_id: str) -> str | None:
        """Return the id of the item before this one; None for the first."""
        return self._previous[item_id]

    def add(self, item: Item, *, after: str | None = None) -> str | None:
        """Put `item` after the item `after` (None: last, ROOT: first); return the id before it.

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

    def claim(self, item: Item, *, before: Collection[str] = ()) -> str | None:
        """Put an item of the server last; return the id before it. An item that a client put under its id before is
        replaced. Items of `before` that are last stay behind it.
        """
        if item.id in self._by_id:
            self._unlink(item.id)
        previous = self._previous[None]
        while previous is not None and previous in before:
            previous = self._previous[previous]
        self._link(item, previous)
        return previous

    def put(self, item: Item) -> None:
        """Replace the item of the same id, if it is still there."""
        if (old := self._by_id.get(item.id)) is not None:
            self._by_id[item.id] = item
            self.n_chars += item.n_chars - old.n_chars
            self._listed = None

    def take(self, item_id: str) -> Item:
        """Return the item with this id.

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
        """Delete an item.

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
        """Cut an audio reply to the words played by `audio_end_ms`; return the position of the cut, in ms.

        A position beyond the audio that was sent is clamped to it, since clients round up.

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
        played = replace(part, transcript=part.played_until(cut_ms))
        parts = tuple(played if i == content_index else old for i, old in enumerate(item.parts))
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

"""Limits on the size of a conversation and on what the LLM reads, and the rule by which the oldest items leave."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from voicepipe.errors import ConfigError, ProtocolError
from voicepipe.turn.conversation import Conversation, FunctionCall, FunctionOutput, InputText, Item, Message
from voicepipe.turn.truncation import HistoryLimits
from voicepipe.values import replace

SUMMARY_HEAD: Final = "Summary of the conversation before this point:"

NEWEST_ITEMS: Final = 16
"""Number of the newest items that never leave the conversation by the rule: running replies are among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationLimits:
    """Limits of one session's conversation. Characters are those of text, function arguments and results, and of
    images' URLs.
    """

    max_items: int = 2_048
    """Items of a conversation. A client that adds one more gets an `error` event. For items of spoken turns the oldest
    items leave instead, each with `conversation.item.deleted`.
    """

    max_chars: int = 33_554_432
    """Characters of all items of a conversation, likewise. Also the limit for the `input` of one response, and for what
    all out-of-band responses read at a time.
    """

    history_items: int = 1_024
    """Items that an LLM reads. Beyond it the oldest items leave the LLM's history, and stay in the conversation."""

    history_chars: int = 400_000
    """Characters of text that an LLM reads, without images, likewise: about 100,000 tokens of English."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name}: expected 1 or more, got {getattr(self, name)}")

    def refuse_item(self, conversation: Conversation, item: Item) -> None:
        """Check that a client's item fits. The result of a function call that the agent made always fits.

        Raises:
            ProtocolError: it does not fit.
        """
        n_chars = conversation.n_chars + item.n_chars
        if len(conversation) < self.max_items and n_chars <= self.max_chars:
            return
        if isinstance(item, FunctionOutput) and item.n_chars < self.max_chars and _is_awaited(conversation, item):
            return
        if len(conversation) >= self.max_items:
            why = f"expected at most {self.max_items} items in the conversation, got one more"
        else:
            why = f"expected at most {self.max_chars} characters in all items of the conversation, got {n_chars}"
        raise _full("item", f"{why}; delete some first")

    def refuse_input(self, items: Sequence[Item] | None) -> None:
        """Check that the `input` of a response is no larger than a conversation may be. Raises: ProtocolError: it is
        larger.
        """
        if items is None:
            return
        if len(items) > self.max_items:
            raise _full("response.input", f"expected at most {self.max_items} items, got {len(items)}")
        n_chars = sum(item.n_chars for item in items)
        if n_chars > self.max_chars:
            raise _full("response.input", f"expected at most {self.max_chars} characters in all items, got {n_chars}")


def orphan(conversation: Conversation, item: Item) -> ProtocolError | None:
    """Return the refusal of a function's result for which the conversation has no call; None: it is no such result."""
    if not isinstance(item, FunctionOutput) or any(
        isinstance(each, FunctionCall) and each.call_id == item.call_id for each in conversation.items
    ):
        return None
    why = f"item.call_id: expected the call_id of a function call of the conversation, got {item.call_id[:64]!r}"
    return ProtocolError(why, field="item.call_id", code="invalid_tool_call_id")


def _full(field: str, why: str) -> ProtocolError:
    return ProtocolError(f"{field}: {why}", field=field, code="conversation_full")


def _is_awaited(conversation: Conversation, output: FunctionOutput) -> bool:
    same = [item for item in conversation.items if _call_of(item) == output.call_id]
    return any(isinstance(item, FunctionCall) for item in same) and not any(
        isinstance(item, FunctionOutput) for item in same
    )


def leaving(conversation: Conversation, limits: ConversationLimits, joining: Item) -> list[str]:
    """Return the ids of the oldest items that must leave the conversation before `joining` can join.

    A function call leaves with its results. System messages and the newest items stay.
    """
    n_items, n_chars = len(conversation) + 1, conversation.n_chars + joining.n_chars
    if n_items <= limits.max_items and n_chars <= limits.max_chars:
        return []
    items = conversation.items
    units, gone = _units(items), set[str]()
    for item in items[:-NEWEST_ITEMS]:
        if n_items <= limits.max_items and n_chars <= limits.max_chars:
            break
        if _is_system(item) or item.id in gone:
            continue
        unit = units[_call_of(item) or item.id]
        gone |= {each.id for each in unit}
        n_items -= len(unit)
        n_chars -= sum(each.n_chars for each in unit)
    return [item.id for item in items if item.id in gone]


def _units(items: Iterable[Item]) -> dict[str, list[Item]]:
    """Group the items that leave together: a message alone, under its id; a function call and its results under the
    call's.
    """
    units: dict[str, list[Item]] = {}
    for item in items:
        units.setdefault(_call_of(item) or item.id, []).append(item)
    return units


class ModelHistory:
    """The part of a conversation that the LLM reads. It stores what has left, so its beginning changes rarely."""

    def __init__(self) -> None:
        self._left: set[str] = set()
        self._summary: tuple[Item, ...] = ()
        """The summary of items that have left, in their place; empty: there is none."""

        self._n_summaries = 0
        self._being_summarized: tuple[str, ...] = ()

    def of(
        self, conversation: Conversation, limits: HistoryLimits, uncommitted: Sequence[Item] = ()
    ) -> tuple[Item, ...]:
        """Return the items that the LLM reads, in order: all system messages, and the newest of the others that fit.

        A function call is never without its results there, nor a result without its call. `uncommitted`: what the user
        says now and is no item yet; it comes last.
        """
        items = [*conversation.items, *uncommitted]
        limits = replace(limits, n_chars=max(0, limits.n_chars - _n_chars(self._summary)))
        n_chars = conversation.n_chars + _n_chars(uncommitted)
        if not self._left and len(items) <= limits.n_items and n_chars <= limits.n_chars:
            return tuple(items)
        self._left = self._with_results(items)
        retained = [item for item in items if item.id not in self._left]
        if len(retained) > limits.n_items or _n_chars(retained) > limits.n_chars:
            share = limits.retained_share
            stays = _newest(retained, round(limits.n_items * share), round(limits.n_chars * share))
            self._left |= {item.id for item in retained if item.id not in stays}
            retained = [item for item in retained if item.id in stays]
        return (*self._summary, *retained)

    def to_summarize(self, retained: Sequence[Item], limits: HistoryLimits) -> tuple[int, tuple[Item, ...]] | None:
        """Return what the next truncation will leave out, if it is near: the number of the summary, and the items, with
        the summary before it as the first. None: it is not near, or a summary is being written.

        `retained`: what `of` has returned for these limits.
        """
        near = (1 + limits.retained_share) / 2
        if self._being_summarized or (
            len(retained) <= near * limits.n_items and _n_chars(retained) <= near * limits.n_chars
        ):
            return None
        share = limits.retained_share
        stays = _newest(retained, round(limits.n_items * share), round(limits.n_chars * share))
        summary_ids = {item.id for item in self._summary}
        leaving = [item for item in retained if item.id not in stays and item.id not in summary_ids]
        if not leaving:
            return None
        self._being_summarized = tuple(item.id for item in leaving)
        self._n_summaries += 1
        return self._n_summaries, (*self._summary, *leaving)

    def summarized(self, number: int, text: str) -> None:
        """Put a summary in the place of its items. Empty: there is none, and they stay until the next truncation."""
        if number != self._n_summaries or not self._being_summarized:
            return
        if text:
            self._left |= set(self._being_summarized)
            self._summary = (Message(f"summary_{number}", "system", (InputText(f"{SUMMARY_HEAD}\n{text}"),)),)
        self._being_summarized = ()

    def _with_results(self, items: Iterable[Item]) -> set[str]:
        """Return the items that have left and are still in the conversation, plus later results of their calls."""
        left = [item for item in items if item.id in self._left]
        calls = {item.call_id for item in left if isinstance(item, FunctionCall)}
        late = (item.id for item in items if isinstance(item, FunctionOutput) and item.call_id in calls)
        return {*(item.id for item in left), *late}


def _newest(items: Sequence[Item], max_items: int, max_chars: int) -> set[str]:
    """Return the ids of all system messages and of the newest others that fit; the newest item always fits."""
    units = _units(items)
    stays = [item for item in items if _is_system(item)]
    ids, n_chars = {item.id for item in stays}, _n_chars(stays)
    for item in reversed(items):
        if item.id in ids:
            continue
        unit = units[_call_of(item) or item.id]
        n_chars += _n_chars(unit)
        is_first = len(ids) == len(stays)
        if not is_first and (len(ids) + len(unit) > max_items or n_chars > max_chars):
            break
        ids |= {each.id for each in unit}
    return ids


def _n_chars(items: Iterable[Item]) -> int:
    return sum(item.n_text_chars for item in items)


def _is_system(item: Item) -> bool:
    return isinstance(item, Message) and item.role == "system"


def _call_of(item: Item) -> str:
    """Return the id of the call that an item is, or is the result of; empty for a message."""
    return item.call_id if isinstance(item, FunctionCall | FunctionOutput) else ""

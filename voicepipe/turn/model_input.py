"""The LLM's input for a reply: the items of the conversation, their tokens, and whether they fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from voicepipe.turn.commands import SummarizeHistory
from voicepipe.turn.context import TurnContext
from voicepipe.turn.conversation import ApprovalAnswer, FunctionCall, FunctionOutput, Item, ToolList
from voicepipe.turn.cost import estimated_tokens, text_tokens
from voicepipe.turn.record.values import ContextUse
from voicepipe.turn.settings import ReplySettings
from voicepipe.turn.truncation import HistoryLimits, chars_of


def read_by_model(context: TurnContext, reply: ReplySettings, uncommitted: Sequence[Item] = ()) -> tuple[Item, ...]:
    """Return the items of the conversation that the LLM reads for this reply, and `uncommitted` as the last of them.

    All of them if the client has disabled truncation: they may not fit (`overflow`).
    """
    if context.settings.truncation.kind == "disabled":
        return (*context.conversation.items, *uncommitted)
    limits = _history_limits(context, reply)
    items = context.history.of(context.conversation, limits, uncommitted)
    if context.core.summarizes and (found := context.history.to_summarize(items, limits)) is not None:
        context.issue(SummarizeHistory(*found))
    return items


def overflow(context: TurnContext, reply: ReplySettings, items: Sequence[Item]) -> str:
    """Return why these items cannot be sent to the LLM, if the client has disabled truncation; empty: they can."""
    limits, n_chars = _history_limits(context, reply), sum(item.n_text_chars for item in items)
    is_within = len(items) <= limits.n_items and n_chars <= limits.n_chars
    if context.settings.truncation.kind != "disabled" or is_within:
        return ""
    most, got = int(estimated_tokens(limits.n_chars)), int(estimated_tokens(n_chars))
    return (
        f"expected a conversation of at most {limits.n_items} items and about {most} tokens, "
        f"got {len(items)} items and about {got} tokens; truncation is disabled"
    )


def context_use(
    context: TurnContext, reply: ReplySettings, items: Sequence[Item], uncommitted: Sequence[Item] = ()
) -> ContextUse:
    """Return how much of the conversation these items are, in tokens, and how much it may be."""
    limit, before = _items_tokens(context, reply), (*context.conversation.items, *uncommitted)
    return ContextUse(
        tokens_before=input_tokens_of(reply, before),
        tokens_after=input_tokens_of(reply, items),
        items_dropped=len({item.id for item in before} - {item.id for item in items}),
        limit_tokens=None if limit is None else limit + input_tokens_of(reply, ()),
    )


def _history_limits(context: TurnContext, reply: ReplySettings) -> HistoryLimits:
    limits, tokens = context.core.conversation, _items_tokens(context, reply)
    return HistoryLimits(
        n_items=limits.history_items,
        n_chars=limits.history_chars if tokens is None else min(limits.history_chars, chars_of(tokens)),
        retained_share=context.settings.truncation.retention_ratio,
    )


def _items_tokens(context: TurnContext, reply: ReplySettings) -> int | None:
    """Return how many tokens the items of this reply's request may have; None: there is no limit in tokens."""
    window = context.core.context_tokens
    limits = (
        context.settings.truncation.post_instructions,
        None if window is None else max(0, window - input_tokens_of(reply, ())),
    )
    return min((limit for limit in limits if limit is not None), default=None)


# --- tokens -----------------------------------------------------------------------------------


def input_tokens_of(reply: ReplySettings, items: Iterable[Item]) -> int:
    """Return about how many tokens an LLM reads for this reply; images do not count."""
    functions = (*reply.tools, *(each.tool for each in reply.server_tools))
    tools = (text for tool in functions for text in (tool.name, tool.description, tool.parameters_json))
    return text_tokens(reply.instructions, *tools, *(_text_of(item) for item in items))


def _text_of(item: Item) -> str:
    match item:
        case FunctionCall():
            return item.name + item.arguments
        case FunctionOutput():
            return item.output
        case ToolList() | ApprovalAnswer():
            return ""
    return item.text()

"""Summarize a conversation with an LLM of its own, beside the turns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from voicepipe.errors import Overload, StageError
from voicepipe.ports.model import Content, Model, ModelRequest, Text, TextDelta, Usage, text_chars
from voicepipe.session.grant import SessionGrant
from voicepipe.telemetry.log import log_crash, log_event
from voicepipe.turn import conversation as c
from voicepipe.turn import events as e
from voicepipe.turn.commands import SummarizeHistory
from voicepipe.turn.cost import Price, estimated_tokens

SUMMARY_TIMEOUT_S: Final = 30.0
SUMMARY_CHARS: Final = 2_000
"""Characters of a summary, about 500 tokens; the rest is cut off."""

INSTRUCTIONS: Final = (
    "Summarize this part of a telephone conversation for the agent, who will go on with it and will not see it again. "
    "Keep names, numbers, dates, what the user wants, what was agreed and what is open. Write at most 150 words, as "
    "plain sentences in the language of the conversation. Write nothing but the summary."
)

CALL_INSTRUCTIONS: Final = (
    "Summarize this telephone conversation for a colleague who was not there: who called, what they wanted, what was "
    "agreed, and what is to be done. Write at most 120 words, as plain sentences in the language of the conversation. "
    "Write nothing but the summary."
)


class SummaryModel(Struct, frozen=True, kw_only=True):
    """An LLM that summarizes."""

    model: Model
    name: str
    """Its name at the provider."""

    price: Price | None = None


class Summary(Struct, frozen=True):
    """A summary and its cost."""

    text: str
    usd: float


class Summaries:
    """Summarizes parts of one session's conversation."""

    def __init__(
        self,
        summary_model: SummaryModel | None,
        grant: SessionGrant,
        post: Callable[[e.Event], None],
        charge: Callable[[float], None],
        redact: Callable[[str], str],
    ) -> None:
        """`redact` is applied to what the LLM reads. `charge` gets the cost of each summary, in USD."""
        self._summary_model, self._grant, self._post, self._charge = summary_model, grant, post, charge
        self._redact = redact

    async def summarize(self, command: SummarizeHistory) -> None:
        """Summarize these items, and post the result. An error is logged: the items then leave by rule."""
        text, usd = "", 0.0
        if self._summary_model is not None:
            lines = [line for item in command.items if (line := _line(item))]
            text = "\n".join(await asyncio.to_thread(lambda: [self._redact(line) for line in lines]))
            summary = await summary_of(text, self._summary_model, session=self._grant.session_id)
            text, usd = summary.text, summary.usd
            self._charge(usd)
        self._post(e.HistorySummarized(command.number, text, usd))


async def summary_of(text: str, by: SummaryModel, *, session: str, instructions: str = INSTRUCTIONS) -> Summary:
    """Return a summary of a conversation's lines, of at most `SUMMARY_CHARS`. Empty: the LLM has failed, which is
    logged.
    """
    request = ModelRequest(
        model=by.name,
        messages=(Content("system", (Text(instructions),)), Content("user", (Text(text),))),
        session=f"{session}-summary",
    )
    text, usage = "", None
    try:
        async with asyncio.timeout(SUMMARY_TIMEOUT_S), by.model.open(request) as answer:
            async for event in answer:
                match event:
                    case TextDelta():
                        text += event.text
                    case Usage() if event.is_possible:
                        usage = event
                if len(text) > SUMMARY_CHARS:
                    break
        if not text.strip():
            log_event("summary_failed", level=logging.WARNING, session=session, why="the answer has no words")
    except (StageError, Overload, TimeoutError) as why:
        log_event("summary_failed", level=logging.WARNING, session=session, why=str(why) or "it took too long")
        text = ""
    except Exception as bug:
        log_crash("summary", bug, session=session)
        text = ""
    return Summary(text[:SUMMARY_CHARS].strip(), _cost_usd(by, request, text, usage))


def _cost_usd(by: SummaryModel, request: ModelRequest, text: str, usage: Usage | None) -> float:
    if by.price is None:
        return 0.0
    if usage is not None and usage.input_tokens:
        return by.price.cost_usd(usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.cache_write_tokens)
    return by.price.cost_usd(estimated_tokens(text_chars(request)), estimated_tokens(len(text)))


def _line(item: c.Item) -> str:
    """Return an item as a line of the text to summarize; empty: it has no words, or no LLM reads it."""
    match item:
        case c.FunctionCall(approval="given") | c.ApprovalAnswer():
            return ""  # another item is the call
        case c.FunctionCall():
            return f"Function call: {item.name} {item.arguments}"
        case c.FunctionOutput():
            return f"Its result: {item.output}"
        case c.ToolList() | c.Message(hidden_from_llm=True):
            return ""
        case c.Message():
            who = {"user": "User", "assistant": "Agent", "system": "Note"}[item.role]
            return f"{who}: {words}" if (words := item.text()) else ""

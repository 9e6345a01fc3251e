"""The functions that the server runs: which calls start, and what becomes of their results.

A result that comes while its turn waits is answered when the turn's other results are there. One that comes later joins
the conversation behind what was said meanwhile, and is answered when both sides are silent.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn import record_builder, responses
from voicepipe.turn.agent import AgentSide
from voicepipe.turn.commands import CancelTool, RunTool
from voicepipe.turn.context import Due, Timer, TurnContext
from voicepipe.turn.conversation import FunctionCall
from voicepipe.turn.record.values import ToolResult
from voicepipe.turn.reply_queue import Answers
from voicepipe.turn.settings import ReplySettings
from voicepipe.turn.states import Agent, User
from voicepipe.turn.turn import Turn
from voicepipe.turn.user import UserSide

MOST_ROUNDS: Final = 8
"""How often a turn may call functions of the server one after another; then the LLM must answer without."""

REPEATED: Final = "This call repeats an earlier one of the same turn, which runs only once."
CANCELLED: Final = "Cancelled, since the user went on."


class ServerTools:
    """Start the calls of a reply, and answer their results."""

    def __init__(self, context: TurnContext, user: UserSide, agent: AgentSide, answers: Answers) -> None:
        self._context, self._user, self._agent, self._answers = context, user, agent, answers
        self.unread_ms: int | None = None
        """When a late result joined the conversation that no reply has read yet."""

    def follow(self, now_ms: int) -> bool:
        """Start what may start after an event; return whether a reply was requested."""
        waiting = self._context.turns.awaits_tools
        if waiting is not None and not waiting.tools_started:
            self._start(waiting, now_ms)
        if waiting is not None and self._has_results(waiting):
            if waiting.ends_session and waiting.reply.text.strip():
                self._agent.give_up_tools(now_ms)  # it has said goodbye
            elif self._answers.may_reply:
                self._answer(waiting, now_ms)
                return True
        return self.unread_ms is not None and self._answer_late(self.unread_ms, now_ms)

    # --- calls --------------------------------------------------------------------------------

    def _start(self, turn: Turn, now_ms: int) -> None:
        turn.tools_started = True
        for call in _server_calls(turn):
            if (earlier := _earlier(turn, call)) is not None:
                self._end(turn, call, earlier.output or REPEATED, "returned", now_ms)
            else:
                self._context.turns.calls[turn.number, call.call_id] = turn
                self._context.issue(RunTool(turn.number, call.call_id, call.name, call.arguments))

    def overtaken(self, now_ms: int) -> None:
        """Cancel what may be cancelled of the turn that waits: the user, or the client, has begun another."""
        turn = self._context.turns.awaits_tools
        assert turn is not None, "only a turn that waits is overtaken"
        for call in _server_calls(turn):
            tool, key = turn.settings.server_tool(call.name), (turn.number, call.call_id)
            if tool is not None and tool.cancellable and self._context.turns.calls.pop(key, None) is not None:
                self._context.issue(CancelTool(*key))
                self._end(turn, call, CANCELLED, "cancelled", now_ms)

    # --- results ------------------------------------------------------------------------------

    def finished(self, event: e.ToolFinished, now_ms: int) -> None:
        """Write down the result of a call."""
        turn = self._context.turns.calls.pop((event.turn, event.call_id), None)
        call = None if turn is None else next((c for c in _server_calls(turn) if c.call_id == event.call_id), None)
        if turn is None or call is None:
            return
        turn.ends_session = turn.ends_session or event.final
        late = self._context.turns.awaits_tools is not turn
        ended = self._end(turn, call, event.output, event.outcome, now_ms, late=late)
        if not late:
            return
        if self._context.conversation.find(call.id) is not None:
            item = replace(ended, id=self._context.new_id("item"), call_id=f"{call.call_id}_late", late=False)
            previous = self._context.join(item)
            self._context.notify(a.ItemAdded(item, previous))
            self.unread_ms = now_ms
        if turn.outcome is not None:
            record_builder.keep(self._context, turn, now_ms)

    def _end(
        self, turn: Turn, call: FunctionCall, output: str, outcome: ToolResult, now_ms: int, *, late: bool = False
    ) -> FunctionCall:
        turn.note_result(call.call_id, now_ms, outcome)
        ended = replace(call, output=output, failed=outcome != "returned", late=late)
        turn.reply.calls = {i: ended if old is call else old for i, old in turn.reply.calls.items()}
        responses.put(self._context, turn, ended)
        self._context.notify(a.ToolEnded(ended))
        return ended

    def _has_results(self, turn: Turn) -> bool:
        """Return whether the server has all results of a turn whose functions it runs alone: a client requests the
        answer to its own.
        """
        calls = turn.reply.calls.values()
        return all(call.server_label and (call.output is not None or call.status != "completed") for call in calls)

    def _answer(self, after: Turn, now_ms: int) -> None:
        turns = self._context.turns
        turns.awaits_tools = None
        turn = self._context.new_turn("tool", after)
        turn.continue_after_tools(after, now_ms)
        self._context.timers.clear(Timer(Due.TOOL))
        self._answers.reply_to(turn, self._settings(after), now_ms)

    def _settings(self, after: Turn) -> ReplySettings:
        """Return the settings of the next reply: an LLM that had to call a function need not call one again."""
        choice = "none" if after.ends_session or len(after.replies) >= MOST_ROUNDS else "auto"
        own = after.settings
        return replace(self._context.settings.reply, tool_choice=choice, audible=own.audible, metadata=own.metadata)

    def _answer_late(self, since_ms: int, now_ms: int) -> bool:
        """Answer a late result once both sides are silent, unless a reply has read it meanwhile."""
        reading = self._agent.turn
        if reading is not None and reading.reply.released and reading.reply.began_ms >= since_ms:
            self.unread_ms = None
            return False
        silent = self._user.state is User.QUIET and self._agent.state is Agent.IDLE
        if not (silent and self._answers.may_reply and self._context.settings.create_response):
            return False
        self.unread_ms = None
        reply = replace(self._context.settings.reply, tool_choice="auto")
        self._answers.reply_to(self._context.new_turn("tool"), reply, now_ms)
        return True


def _server_calls(turn: Turn) -> list[FunctionCall]:
    """Return the complete calls of a reply that the server runs."""
    return [call for call in turn.reply.calls.values() if call.server_label and call.status == "completed"]


def _earlier(turn: Turn, call: FunctionCall) -> FunctionCall | None:
    """Return the same call earlier in the turn, if it may run only once."""
    tool = turn.settings.server_tool(call.name)
    if tool is None or not tool.side_effects:
        return None
    calls = (other for each in turn.replies for other in _server_calls(each))
    same = (other for other in calls if other.name == call.name and _same(other.arguments, call.arguments))
    first = next(same)  # the call itself at the latest
    return None if first.id == call.id else first


def _same(one: str, other: str) -> bool:
    """Return whether two texts of JSON differ at most in white space."""
    return "".join(one.split()) == "".join(other.split())

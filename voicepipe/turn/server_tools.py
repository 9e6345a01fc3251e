"""The functions that the server runs: which calls start, and what becomes of their results.

A result that comes while its turn waits is answered when the turn's other results are there. One that comes later joins
the conversation behind what was said meanwhile, and is answered when both sides are silent.
"""

from __future__ import annotations

import json
from typing import Final

from voicepipe.errors import ProtocolError
from voicepipe.turn import events as e
from voicepipe.turn import look_ups, record_builder, responses
from voicepipe.turn import notifications as a
from voicepipe.turn.agent import AgentSide
from voicepipe.turn.commands import RunTool
from voicepipe.turn.context import MAX_APPROVALS, Due, Timer, TurnContext
from voicepipe.turn.conversation import ApprovalAnswer, FunctionCall
from voicepipe.turn.record.values import ToolResult
from voicepipe.turn.reply import LookUp
from voicepipe.turn.reply_queue import Answers
from voicepipe.turn.settings import ReplySettings
from voicepipe.turn.states import AgentState, Gate, UserState
from voicepipe.turn.turn import Turn
from voicepipe.turn.user import UserSide
from voicepipe.values import replace

MAX_ROUNDS: Final = 8
"""How often a turn may call functions of the server one after another; then the LLM must answer without."""

REPEATED: Final = "This call repeats an earlier one of the same turn, which runs only once."
CANCELLED: Final = "Cancelled, since the user went on."
REFUSED: Final = "Not run: the user has refused it."


class ServerTools:
    """Start the calls of a reply, and answer their results."""

    def __init__(self, context: TurnContext, user: UserSide, agent: AgentSide, answers: Answers) -> None:
        self._context, self._user, self._agent, self._answers = context, user, agent, answers
        self.unread_ms: int | None = None
        """When a late result joined the conversation that no reply has read yet."""

    def update(self, now_ms: int) -> bool:
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
            if call.approval:
                self._await_approval(turn, call)
            else:
                self._run(turn, call, now_ms)

    def _run(self, turn: Turn, call: FunctionCall, now_ms: int) -> None:
        if (earlier := self._earlier(turn, call)) is not None:
            self._add_result(turn, call, earlier.output or REPEATED, "returned", now_ms)
        elif (look_up := look_ups.take(turn, call)) is not None:
            self._take(turn, call, look_up, now_ms)
        else:
            self._context.turns.calls[turn.number, call.call_id] = turn
            self._context.issue(RunTool(turn.number, call.call_id, call.name, call.arguments))

    def _take(self, turn: Turn, call: FunctionCall, look_up: LookUp, now_ms: int) -> None:
        """Use the result of a look-up, or wait for it."""
        if look_up.output is None:
            self._context.turns.calls[turn.number, call.call_id] = turn
        else:
            self._add_result(turn, call, look_up.output, look_up.outcome, now_ms)

    def _earlier(self, turn: Turn, call: FunctionCall) -> FunctionCall | None:
        """Return the same call that was started before in the turn, if it may run only once."""
        tool = turn.settings.server_tool(call.name)
        if tool is None or not tool.side_effects:
            return None
        calls = ((each.number, other) for each in turn.replies for other in _server_calls(each) if not other.approval)
        same = (each for each in calls if each[1].name == call.name and _same(each[1].arguments, call.arguments))
        running = self._context.turns.calls
        started = (other for n, other in same if other.output is not None or (n, other.call_id) in running)
        return next(started, None)

    def _await_approval(self, turn: Turn, call: FunctionCall) -> None:
        approvals = self._context.turns.approvals
        approvals[call.id] = turn
        if len(approvals) > MAX_APPROVALS:
            del approvals[next(iter(approvals))]

    def check_approval(self, answer: ApprovalAnswer) -> None:
        """Raises ProtocolError: no call waits for this answer."""
        if self._waiting(answer) is None:
            raise ProtocolError(
                f"item.approval_request_id: no call {answer.request_id!r} waits for approval",
                field="item.approval_request_id",
                code="invalid_value",
            )

    def _waiting(self, answer: ApprovalAnswer) -> FunctionCall | None:
        """Return the call that waits for this answer, or None."""
        turn = self._context.turns.approvals.get(answer.request_id)
        calls = () if turn is None else turn.reply.calls.values()
        return next((call for call in calls if call.id == answer.request_id), None)

    def approval_answered(self, answer: ApprovalAnswer, now_ms: int) -> None:
        """Run a call that the client approves, as an item of its own; one that it refuses has that as its result."""
        waiting, turn = self._waiting(answer), self._context.turns.approvals.pop(answer.request_id)
        assert waiting is not None, "it was checked"
        self._context.transitions.changed = True
        if not answer.approve:
            why = f"{REFUSED} {answer.reason}".strip()
            self._add_result(turn, replace(waiting, approval="refused"), why, "cancelled", now_ms)
            return
        responses.put(self._context, turn, replace(waiting, approval="given"))
        call = replace(waiting, id=self._context.new_id("item"), approval="", approval_request_id=waiting.id)
        turn.reply.calls = {i: call if old is waiting else old for i, old in turn.reply.calls.items()}
        self._context.notify(a.ToolApproved(call, self._context.join_later(call)))
        self._run(turn, call, now_ms)

    def overtaken(self, now_ms: int) -> None:
        """Cancel what may be cancelled of the turn that waits: the user, or the client, has begun another."""
        turn = self._context.turns.awaits_tools
        assert turn is not None, "only a turn that waits is overtaken"
        for call in _server_calls(turn):
            tool, key = turn.settings.server_tool(call.name), (turn.number, call.call_id)
            if tool is not None and tool.cancellable and self._context.turns.calls.pop(key, None) is not None:
                look_ups.cancel(self._context, turn, call.call_id)
                self._end(turn, call, CANCELLED, "cancelled", now_ms)

    # --- results ------------------------------------------------------------------------------

    def finished(self, event: e.ToolFinished, now_ms: int) -> None:
        """Write down the result of a call. That of a look-up waits until its call leaves."""
        if event.revision is not None and not self._is_awaited(event, event.revision):
            return
        turn = self._context.turns.calls.pop((event.turn, event.call_id), None)
        call = None if turn is None else next((c for c in _server_calls(turn) if c.call_id == event.call_id), None)
        if turn is None or call is None:
            return
        turn.ends_session = turn.ends_session or event.final
        self._add_result(turn, call, event.output, event.outcome, now_ms)

    def _is_awaited(self, event: e.ToolFinished, revision: int) -> bool:
        """Note the result of a look-up; return whether its call has left and waits for it."""
        look_up = self._context.turns.look_ups.pop((event.turn, revision, event.call_id), None)
        if look_up is None:
            return False  # it was dropped with its reply
        look_up.output, look_up.outcome = event.output, event.outcome
        return look_up.taken

    def _add_result(self, turn: Turn, call: FunctionCall, output: str, outcome: ToolResult, now_ms: int) -> None:
        """Write down the result of a call, and again at the conversation's end if the turn does not wait for it."""
        late = self._context.turns.awaits_tools is not turn
        ended = self._end(turn, call, output, outcome, now_ms, late=late)
        if not late:
            return
        if self._context.conversation.find(call.id) is not None:
            new_id = self._context.new_id("item")
            item = replace(ended, id=new_id, call_id=f"{call.call_id}_late", late=False, approval="")
            self._context.notify(a.ItemAdded(item, self._context.join_later(item)))
            self.unread_ms = now_ms
        if turn.outcome is not None:
            record_builder.keep(self._context, turn, now_ms)

    def _end(
        self, turn: Turn, call: FunctionCall, output: str, outcome: ToolResult, now_ms: int, *, late: bool = False
    ) -> FunctionCall:
        turn.record_result(call.call_id, now_ms, outcome)
        ended = replace(call, output=output, failed=outcome != "returned", late=late)
        turn.reply.calls = {i: ended if old.id == call.id else old for i, old in turn.reply.calls.items()}
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
        choice = "none" if after.ends_session or after.tool_round >= MAX_ROUNDS else "auto"
        own = after.settings
        reply = replace(self._context.settings.reply, tool_choice=choice, tool_server="")
        return replace(reply, audible=own.audible, metadata=own.metadata)

    def _answer_late(self, since_ms: int, now_ms: int) -> bool:
        """Answer a late result once both sides are silent, unless a reply has read it meanwhile."""
        reading = self._agent.turn
        if reading is not None and reading.reply.gate is Gate.OPEN and reading.reply.began_ms >= since_ms:
            self.unread_ms = None
            return False
        silent = self._user.state is UserState.QUIET and self._agent.state is AgentState.IDLE
        if not (silent and self._answers.may_reply and self._context.settings.create_response):
            return False
        self.unread_ms = None
        reply = replace(self._context.settings.reply, tool_choice="auto", tool_server="")
        self._answers.reply_to(self._context.new_turn("tool"), reply, now_ms)
        return True


def _server_calls(turn: Turn) -> list[FunctionCall]:
    """Return the complete calls of a reply that the server runs."""
    return [call for call in turn.reply.calls.values() if call.server_label and call.status == "completed"]


def _same(one: str, other: str) -> bool:
    """Return whether two texts of JSON differ at most in white space between values and in the order of members."""
    return one == other or _canonical(one) == _canonical(other)


def _canonical(text: str) -> str:
    """Return JSON without white space between its values, and with the members of each object in order; a text that is
    no JSON as it is.
    """
    try:
        return json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        return text

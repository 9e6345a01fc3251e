"""Run the functions of one session's agent: within their time, bounded, and never at the session's cost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from types import MappingProxyType
from typing import Final

from voicepipe.cancellation import cancelled_by_itself, closed_after
from voicepipe.ports.server_tool import MAX_RESULT_CHARS, ServerTool, ToolError, ToolSession
from voicepipe.protocol.outbound import well_formed
from voicepipe.session.context import StartTask
from voicepipe.session.grant import SessionGrant
from voicepipe.session.hand_over import HandOver
from voicepipe.telemetry.log import log_crash, log_event
from voicepipe.turn import commands as c
from voicepipe.turn import events as e
from voicepipe.turn.record.values import ToolResult
from voicepipe.values import replace

MAX_CALLS: Final = 16
"""How many calls of a session run at once; more are refused."""

_CUT: Final = " [cut]"


class SessionTools:
    """The functions that the server runs in one session."""

    def __init__(
        self,
        tools: Iterable[ServerTool],
        session: ToolSession,
        post: Callable[[e.Event], None],
        end_call: Callable[[], None],
        hand_over: Callable[[str], None],
        start_detached: StartTask | None = None,
        pending_write: Callable[[], Awaitable[None] | None] = lambda: None,
    ) -> None:
        """`end_call` ends the session when the running reply has been heard. `hand_over` has the agent of that name go
        on. `start_detached` starts calls with side effects, which a user who hangs up does not stop halfway.
        `pending_write` is called before such a call, and returns what to wait for first.
        """
        self._end_call, self._hand_over, self._start_detached = end_call, hand_over, start_detached
        self._pending_write = pending_write
        self._tools = {tool.facts.tool.name: tool for tool in tools}
        self._session, self._post = session, post
        self._running: dict[tuple[int, str, int | None], asyncio.Task[None]] = {}

    def use(self, tools: Iterable[ServerTool], agent: str) -> None:
        """Call the tools of another agent from now on. Calls that run go on."""
        self._tools = {tool.facts.tool.name: tool for tool in tools}
        self._session = replace(self._session, agent=agent)

    def run(self, command: c.RunTool, group: asyncio.TaskGroup) -> None:
        """Call a function in a task of `group`, and post its result."""
        key, tool = (command.turn, command.call_id, command.revision), self._tools.get(command.name)
        if tool is None:
            self._post(_failed(command, "There is no such function."))
        elif len(self._running) >= MAX_CALLS:
            self._post(_failed(command, f"Too many calls run at once (limit {MAX_CALLS})."))
        else:
            work, name = self._call(tool, command), f"tool-{command.name}"
            is_detached = tool.facts.side_effects and not tool.facts.cancellable
            if is_detached and self._start_detached is not None:
                task = self._start_detached(work, name)
            else:
                task = group.create_task(work, name=name)
            self._running[key] = task
            task.add_done_callback(lambda _: self._running.pop(key, None))

    def cancel(self, command: c.CancelTool) -> None:
        """Cancel a call that runs."""
        if (task := self._running.get((command.turn, command.call_id, command.revision))) is not None:
            task.cancel()

    async def _call(self, tool: ServerTool, command: c.RunTool) -> None:
        if tool.facts.side_effects and (held := self._pending_write()) is not None:
            await held
        try:
            async with asyncio.timeout(limit_s := tool.timeout_ms / 1_000) as limit:
                output = await closed_after(limit_s, tool.call(command.arguments, self._session))
            if isinstance(tool, HandOver):
                self._hand_over(tool.agent_of(command.arguments))
            finished = e.ToolFinished(command.turn, command.call_id, _bounded(output), revision=command.revision)
        except ToolError as why:
            finished = _failed(command, str(why))
        except TimeoutError as why:
            if limit.expired():
                finished = _failed(command, f"No result within {tool.timeout_ms} ms.", "timed_out")
            else:
                finished = self._broke(command, why)
        except asyncio.CancelledError as why:
            if not cancelled_by_itself():
                raise
            finished = self._broke(command, why)
        except (Exception, SystemExit, KeyboardInterrupt) as bug:  # no function may end the server
            finished = self._broke(command, bug)
        if finished.outcome != "returned":
            log_event("tool_failed", tool=command.name, outcome=finished.outcome, session=self._session.session_id)
        if tool.facts.ends_session and finished.outcome == "returned":
            self._post(replace(finished, final=True))
            self._end_call()
        else:
            self._post(finished)

    def _broke(self, command: c.RunTool, bug: BaseException) -> e.ToolFinished:
        """Log a bug of the function. The LLM learns only that it failed: an exception may hold a secret."""
        log_crash(f"tool {command.name}", bug, session=self._session.session_id)
        return _failed(command, "The function failed.")


def _failed(command: c.RunTool, why: str, outcome: ToolResult = "failed") -> e.ToolFinished:
    output = json.dumps({"error": why}, ensure_ascii=False)
    return e.ToolFinished(command.turn, command.call_id, _bounded(output), outcome, revision=command.revision)


def _bounded(output: str) -> str:
    output = well_formed(output)
    return output if len(output) <= MAX_RESULT_CHARS else output[: MAX_RESULT_CHARS - len(_CUT)] + _CUT


def session_of(grant: SessionGrant) -> ToolSession:
    """Return what functions and hooks learn of a session."""
    return ToolSession(
        session_id=grant.session_id,
        project=grant.project,
        agent=grant.agent,
        identity=grant.identity or "",
        metadata=MappingProxyType(dict(grant.metadata)),
    )

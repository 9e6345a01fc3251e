"""Run the hooks of one session's agent: within their time, and never at the session's cost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, Final

from voicepipe.agents import Agent
from voicepipe.agents.agent import Hook
from voicepipe.cancellation import cancelled_by_itself, closed_after
from voicepipe.errors import StageBroken
from voicepipe.ports.model import Content, ModelRequest, Text
from voicepipe.ports.server_tool import ToolSession
from voicepipe.protocol.outbound import well_formed
from voicepipe.protocol.prompt import listed
from voicepipe.session.context import StartTask
from voicepipe.telemetry.log import log_crash, log_event
from voicepipe.turn.record.values import TurnRecord
from voicepipe.values import replace

START_MS: Final = 2_000
"""The time limit of the hook at the beginning: the greeting waits for it."""

REPLY_MS: Final = 1_000
"""The time limit of the hook before a reply: the user waits for it."""

Function = Callable[..., Coroutine[Any, Any, Any]]

FAILED: Final = object()
"""The result of a hook that has none, since it has failed."""

BACKGROUND_MS: Final = 10_000
"""The time limit of the hooks for which nothing waits."""


class AgentHooks:
    """The hooks of one session."""

    def __init__(self, agent: Agent, session: ToolSession, start: StartTask, variables: Collection[str] = ()) -> None:
        """`start` starts the hooks that run when their session may be over. `variables`: the names of the agent's."""
        self._agent, self._session, self._start_task, self._variables = agent, session, start, variables
        self._ended_turns: set[str] = set()

    async def session_started(self) -> Mapping[str, str]:
        """Return the variables that the hook sets; none without a hook, or if it failed."""
        hook = self._agent.hooks.get("session_started")
        found = None if hook is None else await self._result("session_started", hook, START_MS)
        if not found or found is FAILED:
            return {}
        if not isinstance(found, dict) or not all(isinstance(each, str) for pair in found.items() for each in pair):
            self._record_failure("session_started", "expected a dict of texts")
            return {}
        if unknown := [name for name in found if name not in self._variables]:
            expected = f"expected variables of this agent ({listed(self._variables)})"
            self._record_failure("session_started", f"{expected}, got {listed(unknown)}")
        return {name: well_formed(value) for name, value in found.items() if name in self._variables}

    async def before_reply(self, request: ModelRequest) -> ModelRequest:
        """Return the request with the text that the hook adds behind the conversation.

        Raises:
            StageBroken: the hook has failed. An answer without its text might have what it should prevent.
        """
        hook = self._agent.hooks.get("before_reply")
        if hook is None:
            return request
        added = await self._result("before_reply", hook, REPLY_MS, request)
        if added is FAILED:
            raise StageBroken("llm", provider="before_reply", why="the hook failed", retryable=False)
        if not isinstance(added, str) or not added.strip():
            return request
        return replace(request, messages=(*request.messages, Content("system", (Text(well_formed(added)),))))

    def turn_ended(self, record: TurnRecord) -> None:
        """Start the hook after a turn, once for each turn."""
        hook = self._agent.hooks.get("turn_ended")
        if hook is not None and record.outcome is not None and record.id not in self._ended_turns:
            self._ended_turns.add(record.id)
            self._start("turn_ended", hook, record)

    def session_ended(self) -> None:
        """Start the hook at the end of the session."""
        hook = self._agent.hooks.get("session_ended")
        if hook is not None:
            self._start("session_ended", hook)

    def _start(self, name: Hook, hook: Function, *given: object) -> None:
        self._start_task(self._run(name, hook, *given), f"hook-{name}")

    async def _run(self, name: Hook, hook: Function, *given: object) -> None:
        await self._result(name, hook, BACKGROUND_MS, *given)

    async def _result(self, name: Hook, hook: Function, limit_ms: int, *given: object) -> Any:
        """Return the hook's result; `FAILED` if it raises or takes too long, which is logged."""
        try:
            async with asyncio.timeout(limit_s := limit_ms / 1_000) as limit:
                return await closed_after(limit_s, hook(self._session, *given))
        except asyncio.CancelledError as bug:
            if not cancelled_by_itself():
                raise
            self._record_bug(name, bug)
        except TimeoutError as bug:
            if limit.expired():
                self._record_failure(name, f"not done within {limit_ms} ms")
            else:
                self._record_bug(name, bug)
        except (Exception, SystemExit, KeyboardInterrupt) as bug:  # no hook may end the server
            self._record_bug(name, bug)
        return FAILED

    def _record_bug(self, name: Hook, bug: BaseException) -> None:
        self._record_failure(name, type(bug).__name__)
        log_crash(f"hook {name}", bug)

    def _record_failure(self, name: Hook, why: str) -> None:
        log_event("hook_failed", session=self._session.session_id, hook=name, why=why)

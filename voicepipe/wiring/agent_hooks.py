"""Run the hooks of one session's agent: within their time, and never at the session's cost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from typing import Any, Final

from voicepipe.agents import Agent
from voicepipe.errors import StageBroken
from voicepipe.ports.model import ModelRequest, Said, Text
from voicepipe.ports.server_tool import ToolSession
from voicepipe.session.context import StartTask
from voicepipe.telemetry.log import log_crash, log_event
from voicepipe.turn.record.values import TurnRecord

START_MS: Final = 2_000
"""The time limit of the hook at the beginning: the greeting waits for it."""

REPLY_MS: Final = 1_000
"""The time limit of the hook before a reply: the user waits for it."""

FAILED: Final = object()
"""The result of a hook that has none, since it has failed."""

BACKGROUND_MS: Final = 10_000
"""The time limit of the hooks for which nothing waits."""


class AgentHooks:
    """The hooks of one session."""

    def __init__(self, agent: Agent, session: ToolSession, start: StartTask) -> None:
        """`start` starts the hooks that run when their session may be over."""
        self._agent, self._session, self._start_task = agent, session, start
        self._ended_turns: set[str] = set()

    async def session_started(self) -> Mapping[str, str]:
        """Return the variables that the hook sets; none without a hook, or if it failed."""
        hook = self._agent.hooks.get("session_started")
        found = (
            None if hook is None else await _guarded("session_started", hook(self._session), START_MS, self._session)
        )
        if not found or found is FAILED:
            return {}
        if not isinstance(found, dict) or not all(isinstance(each, str) for pair in found.items() for each in pair):
            log_event(
                "hook_failed", session=self._session.session_id, hook="session_started", why="expected a dict of texts"
            )
            return {}
        return found

    async def before_reply(self, request: ModelRequest) -> ModelRequest:
        """Return the request with the text that the hook adds behind the conversation.

        Raises:
            StageBroken: the hook has failed. An answer without its text might say what it should prevent.
        """
        hook = self._agent.hooks.get("before_reply")
        if hook is None:
            return request
        added = await _guarded("before_reply", hook(self._session, request), REPLY_MS, self._session)
        if added is FAILED:
            raise StageBroken("llm", provider="before_reply", why="the hook failed", retryable=False)
        if not isinstance(added, str) or not added.strip():
            return request
        return replace(request, messages=(*request.messages, Said("system", (Text(added),))))

    def turn_ended(self, record: TurnRecord) -> None:
        """Start the hook after a turn, once for each turn."""
        hook = self._agent.hooks.get("turn_ended")
        if hook is not None and record.outcome is not None and record.id not in self._ended_turns:
            self._ended_turns.add(record.id)
            self._start("turn_ended", hook(self._session, record))

    def session_ended(self) -> None:
        """Start the hook at the end of the session."""
        hook = self._agent.hooks.get("session_ended")
        if hook is not None:
            self._start("session_ended", hook(self._session))

    def _start(self, name: str, work: Awaitable[Any]) -> None:
        self._start_task(_run(name, work, self._session), f"hook-{name}")


async def _run(name: str, work: Awaitable[Any], session: ToolSession) -> None:
    await _guarded(name, work, BACKGROUND_MS, session)


async def _guarded(name: str, work: Awaitable[Any], limit_ms: int, session: ToolSession) -> Any:
    """Return the hook's result; `FAILED` if it raises or takes too long, which is logged."""
    try:
        async with asyncio.timeout(limit_ms / 1_000):
            return await work
    except TimeoutError:
        log_event("hook_failed", session=session.session_id, hook=name, why=f"not done within {limit_ms} ms")
    except (Exception, SystemExit) as bug:  # no hook may end the server
        log_event("hook_failed", session=session.session_id, hook=name, why=type(bug).__name__)
        log_crash(f"hook {name}", bug)
    return FAILED

"""The webhooks of a session as a whole: its start, its function calls, and its end with the transcript."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from voicepipe.tasks import BackgroundTasks
from voicepipe.telemetry.log import log_crash
from voicepipe.telemetry.store.port import StoredTurn
from voicepipe.telemetry.transcript import MAX_TURNS, spoken_text, transcript_turn
from voicepipe.telemetry.webhooks.sender import Webhooks

MAX_SESSIONS: Final = 10_000
"""Maximum of sessions whose turns are stored until their end: more than one process serves."""

SUMMARIES_AT_ONCE: Final = 8

Summarize = Callable[[str, str, str], Awaitable[tuple[str, float]]]
"""(agent, session, transcript) -> (its summary, empty if none is written; its cost in USD). It raises nothing but
bugs."""

AfterRecords = Callable[[Callable[[], None]], None]
"""Calls a function once all records offered until now have been passed on."""

StoreSummary = Callable[[str, str, str], Awaitable[None]]
"""(project, session, summary): stores the summary of a session that has ended. It raises nothing but bugs."""

AddCost = Callable[[float], Awaitable[None]]
"""Counts a cost in USD that comes after the session's end."""

Key = tuple[str, str]
"""(project, session)"""


@dataclass(slots=True)
class _Turns:
    """The turns of one running session."""

    by_id: OrderedDict[str, StoredTurn] = field(default_factory=OrderedDict)
    n_left_out: int = 0
    n_tools: dict[str, int] = field(default_factory=dict)
    """Turn -> how many of its function calls were sent."""


def _at_once(call: Callable[[], None]) -> None:
    call()


async def _store_none(project: str, session: str, summary: str) -> None:
    """Store nothing."""


async def _no_summary(agent: str, session: str, transcript: str) -> tuple[str, float]:
    return "", 0.0


class SessionEvents:
    """Sends `session.started`, `tool.called` and `session.ended`, if a webhook subscribes to them. Never waits."""

    def __init__(self, webhooks: Webhooks, tasks: BackgroundTasks | None = None) -> None:
        """`tasks` runs the summaries; without it there are none. If it is cancelled, events are sent without their
        summaries."""
        self._webhooks, self._tasks = webhooks, tasks
        self._summarize: Summarize = _no_summary
        self._after_records: AfterRecords = _at_once
        self._store_summary: StoreSummary = _store_none
        self._is_summarized: Callable[[str], bool] = lambda agent: False
        self._sessions: OrderedDict[Key, _Turns] = OrderedDict()  # full: the oldest is dropped
        self._places = asyncio.Semaphore(SUMMARIES_AT_ONCE)
        self._deleted: set[Key] = set()  # bounded by the summaries in progress
        self._summarizing: set[Key] = set()

    def summarize_with(self, summarize: Summarize) -> None:
        """Have transcripts summarized, from now on."""
        self._summarize = summarize

    def store_summaries(self, is_summarized: Callable[[str], bool], keep: StoreSummary) -> None:
        """Store summaries, from now on: of agents for which `is_summarized`, also where no webhook subscribes to
        them."""
        self._is_summarized, self._store_summary = is_summarized, keep

    def wait_for_records(self, after_records: AfterRecords) -> None:
        """Have a session's end wait for its last records, from now on."""
        self._after_records = after_records

    def on_record(self, turn: StoredTurn) -> None:
        """Take a turn's record, new or renewed."""
        subscribed, project = self._webhooks.is_subscribed, turn.project
        requested = subscribed("tool.called", project) or subscribed("session.ended", project)
        if not (requested or self._is_summarized(turn.agent)):
            return
        key = (turn.project, turn.record.session)
        turns = self._sessions.setdefault(key, _Turns())
        turns.by_id[turn.record.id] = turn
        if len(turns.by_id) > MAX_TURNS:
            oldest, _ = turns.by_id.popitem(last=False)
            turns.n_tools.pop(oldest, None)
            turns.n_left_out += 1
        if len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        self._send_calls(turns, turn)

    def started(self, project: str, session: str, plain: Callable[[], dict[str, Any]]) -> None:
        """Send that a session has begun; `plain` returns the session as the API shows it."""
        self._webhooks.notify("session.started", project, session, plain)

    def ended(
        self, project: str, session: str, agent: str, plain: Callable[[], dict[str, Any]], add_cost: AddCost
    ) -> None:
        """Send that a session has ended, with its transcript; with its summary once that is written, if one is."""
        data = plain()
        self._after_records(lambda: self._end((project, session), agent, data, add_cost))

    def _end(self, key: Key, agent: str, session: dict[str, Any], add_cost: AddCost) -> None:
        ended = self._sessions.pop(key, _Turns())
        turns = [transcript_turn(turn) for turn in ended.by_id.values()]
        data = session | {"transcript": turns, "turns_left_out": ended.n_left_out, "summary": ""}
        text = spoken_text(turns)
        requested = self._webhooks.is_subscribed("session.ended", key[0]) or self._is_summarized(agent)
        if text and self._tasks is not None and requested:
            self._summarizing.add(key)
            task = self._tasks.start(self._add_summary(key, agent, text, data, add_cost), name="call-summary")
            # Also of a task that the end of the server cancels before it has begun.
            task.add_done_callback(lambda task: self._send_end(key, data))
        else:
            self._send_end(key, data)

    async def delete_session(self, project: str, session: str) -> None:
        """Delete the waiting deliveries of a session, sent or not."""
        key = (project, session)
        self._sessions.pop(key, None)
        if key in self._summarizing:
            self._deleted.add(key)
        await self._webhooks.delete_session(project, session)

    async def _add_summary(self, key: Key, agent: str, text: str, data: dict[str, Any], add_cost: AddCost) -> None:
        try:
            async with self._places:
                data["summary"], usd = await self._summarize(agent, key[1], text)
            await add_cost(usd)
            if data["summary"] and key not in self._deleted:
                await self._store_summary(*key, data["summary"])
        except Exception as bug:
            log_crash("summary", bug, session=key[1])

    def _send_end(self, key: Key, data: dict[str, Any]) -> None:
        self._summarizing.discard(key)
        if key in self._deleted:
            self._deleted.discard(key)
        else:
            self._webhooks.notify("session.ended", *key, lambda: data)

    def _send_calls(self, turns: _Turns, turn: StoredTurn) -> None:
        """Send the turn's function calls that are over and were not sent before."""
        n_sent, calls = turns.n_tools.get(turn.record.id, 0), turn.record.tools
        while n_sent < len(calls) and calls[n_sent].outcome != "running":
            data = {
                "object": "voicepipe.tool_call",
                "project": turn.project,
                "agent": turn.agent,
                "session": turn.record.session,
                "turn": turn.record.id,
                **msgspec.to_builtins(calls[n_sent]),
            }
            self._webhooks.notify("tool.called", turn.project, turn.record.session, data.copy)
            n_sent += 1
        turns.n_tools[turn.record.id] = n_sent

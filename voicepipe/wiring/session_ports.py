"""The ports of one session: what the server stores, counts, logs and allows of it."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec

from voicepipe.config.settings import Settings
from voicepipe.protocol.extension_events import ExtensionNotification, event_of
from voicepipe.protocol.field_locks import check_reply, check_update, visible
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.server.context import Charge, OnRecord
from voicepipe.session.context import NextAgent
from voicepipe.session.endpoint_scoring import Outcome
from voicepipe.session.grant import SessionGrant
from voicepipe.session.ports import (
    ClientRules,
    LiveTurns,
    OtherAgents,
    SessionCosts,
    SessionObserver,
    SessionRecords,
)
from voicepipe.telemetry.live_feed import Feed
from voicepipe.telemetry.log import log_event, log_overrun, log_strategy_failure, log_stuck
from voicepipe.turn.commands import ReportOverrun, ReportStrategyFailure, ReportStuck
from voicepipe.turn.notifications import ActionTaken, Notification, StageJudged, TurnMarked
from voicepipe.turn.record.values import TurnRecord
from voicepipe.turn.settings import ReplySettings
from voicepipe.wiring.mcp import check_requested

MAX_RENEWED: Final = 64
"""Turns of a session whose records may be renewed: a client reports what it has played soon after."""


@dataclass(slots=True)
class SessionCounts:
    """The counts over all sessions."""

    phrases_usd: dict[str, float]
    """Agent -> the cost of the phrases synthesized ahead for its sessions."""

    n_strategy_failures: Counter[str]
    """End-of-turn strategy -> the number of sessions in which it failed."""

    n_stuck: int = 0
    """How often a session had to be ended by the last-resort timeout: not 0 means a bug."""

    n_scores: Counter[tuple[str, Outcome]] = field(default_factory=Counter)
    """(score, outcome) -> the number of pauses that its model had to score."""

    @classmethod
    def of(cls, settings: Settings) -> SessionCounts:
        """Return counts of 0 for the agents and their strategies."""
        strategies = (agent.end_of_turn for agent in settings.agents.values())
        return cls(dict.fromkeys(settings.agents, 0.0), Counter(dict.fromkeys(strategies, 0)))


class RecordsOfAgents:
    """Gives each turn's records to the agent that had the call when the turn came first."""

    def __init__(self, handlers: Mapping[str, Callable[[TurnRecord], None]], agent: str) -> None:
        self._handlers = handlers
        self.agent = agent
        """The agent that has the call now."""

        self._agents: OrderedDict[str, str] = OrderedDict()  # full: the oldest turn is dropped

    def on_record(self, record: TurnRecord) -> None:
        """Take a turn's record, new or renewed."""
        agent = self._agents.setdefault(record.id, self.agent)
        if len(self._agents) > MAX_RENEWED:
            self._agents.popitem(last=False)
        self._handlers[agent](record)


class StoredRecords(SessionRecords):
    """Stores the records of a session, and gives them to the session's usage."""

    def __init__(
        self,
        of_agents: RecordsOfAgents,
        on_record: OnRecord,
        *,
        restore: Callable[[TurnRecord], None],
        written: Callable[[], Awaitable[None]],
    ) -> None:
        """`restore` stores a record of another process; `written` waits until all are stored."""
        self._of_agents, self._on_record, self._restore, self._written = of_agents, on_record, restore, written

    def store(self, record: TurnRecord) -> None:
        """Store a record under its agent, and count it."""
        self._of_agents.on_record(record)
        self._on_record(record)

    def restore(self, record: TurnRecord) -> None:
        """Store a record that another process has closed."""
        self._restore(record)

    async def wait_until_written(self) -> None:
        """Wait until all records of the session so far are stored."""
        await self._written()


class CountedCosts(SessionCosts):
    """Counts the costs of phrases for the agent, and charges the client."""

    def __init__(self, counts: SessionCounts, agent: str, charge: Charge) -> None:
        self._counts, self._agent, self._charge = counts, agent, charge

    def charge_phrases(self, usd: float, by_client: bool) -> None:
        """Count the cost of phrases; the client pays for those that its change of voice caused."""
        self._counts.phrases_usd[self._agent] += usd
        if by_client:
            self._charge(usd)

    def charge(self, usd: float) -> None:
        """Charge the client."""
        self._charge(usd)


class CountingObserver(SessionObserver):
    """Logs and counts what is observed of a session."""

    def __init__(self, counts: SessionCounts, session_id: str) -> None:
        self._counts, self._session_id = counts, session_id

    def overran(self, command: ReportOverrun) -> None:
        """Log a stage over its limit."""
        log_overrun(
            self._session_id, command.turn_id, stage=command.stage, owner=command.owner, over_ms=command.over_ms
        )

    def was_stuck(self, command: ReportStuck) -> None:
        """Log and count work that the last-resort timeout ended."""
        self._counts.n_stuck += 1
        log_stuck(self._session_id, user=command.user, agent=command.agent, so_far=self._counts.n_stuck)

    def strategy_failed(self, command: ReportStrategyFailure) -> None:
        """Log and count a strategy that failed."""
        self._counts.n_strategy_failures[command.strategy] += 1
        so_far = self._counts.n_strategy_failures[command.strategy]
        log_strategy_failure(self._session_id, strategy=command.strategy, why=command.why, so_far=so_far)

    def scored(self, name: str, outcome: Outcome) -> None:
        """Count a judged pause."""
        self._counts.n_scores[name, outcome] += 1


class LockedClient(ClientRules):
    """A client that may change and see what its token leaves open."""

    def __init__(self, grant: SessionGrant, in_force: Callable[[], Settings], *, logs_unserved: bool) -> None:
        """`in_force` returns the settings of now, which have where a client may request MCP servers. `logs_unserved`:
        fields without effect are logged, and the client gets no error.
        """
        self._locks, self._in_force = grant.locks, in_force
        # No method of this object: the session would leave a cycle.
        self.report_unserved = partial(_log_unserved, grant.session_id) if logs_unserved else None

    def check_update(self, before: SessionConfig, after: SessionConfig) -> None:
        """Refuse what is locked, and MCP servers that no client may request."""
        check_update(before, after, self._locks)
        check_requested(after.mcp, self._in_force().server.mcp_origins)

    def check_reply(self, session: SessionConfig, reply: ReplySettings) -> None:
        """Refuse what is locked."""
        check_reply(session, reply, self._locks)

    def visible(self, session: SessionConfig) -> SessionConfig:
        """Return the session without what is locked."""
        return visible(session, self._locks)


def _log_unserved(session_id: str, field: str) -> None:
    log_event("field_not_served", session=session_id, field=field)


class AgentsOfCall(OtherAgents):
    """The agents that may go on with a session."""

    def __init__(
        self,
        agents: Mapping[str, NextAgent],
        of_agents: RecordsOfAgents,
        grant: SessionGrant,
        in_force: Callable[[], Settings],
    ) -> None:
        """`of_agents` records which agent has the call. `in_force` returns the settings of now, with all agents."""
        self._agents, self._of_agents, self._grant, self._in_force = agents, of_agents, grant, in_force

    def is_another(self, model: str) -> bool:
        """Return whether a model's name is that of another agent."""
        return self._in_force().agent_named(model) not in (None, self._grant.agent)

    def hand_over(self, name: str) -> NextAgent | None:
        """Return the agent of that name; records are that agent's from now on."""
        if (agent := self._agents.get(name)) is not None:
            self._of_agents.agent = name
            log_event("call_handed_over", session=self._grant.session_id, agent=name)
        return agent


class FeedOfSession(LiveTurns):
    """Sends to subscribers what a client with `turn_events` would get, with its session, agent and project."""

    def __init__(self, feed: Feed, grant: SessionGrant) -> None:
        super().__init__(feed)
        self._feed, self._grant = feed, grant

    def publish(self, what: Notification) -> None:
        """Send a mark, a verdict or an action."""
        if isinstance(what, TurnMarked | StageJudged | ActionTaken):
            grant = self._grant
            whose = {"session": grant.session_id, "agent": grant.agent, "project": grant.project}
            self._feed.publish_live(grant.project, grant.session_id, lambda: {**whose, **_plain(what)})


def _plain(what: ExtensionNotification) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(event_of(what, ""))
    del plain["event_id"]
    return plain

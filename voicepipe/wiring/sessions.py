"""Build a session, with all components that it needs, from an admitted client's grant."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, get_type_hints

import msgspec

from voicepipe import clock
from voicepipe.agents.interpreter import instructions_between, languages_between
from voicepipe.config.agents import AgentSettings
from voicepipe.config.convert import Found, convert
from voicepipe.config.settings import LOCAL, Settings
from voicepipe.errors import ConfigError, ProtocolError
from voicepipe.pii.redact import Redactor, kinds_of
from voicepipe.ports.model import Content, Model, ModelRequest, Text
from voicepipe.protocol.extension_events import ExtensionNotification, event_of
from voicepipe.protocol.field_locks import Locks, check_reply, check_update, visible
from voicepipe.protocol.session_config import DEFAULT_VOICE, SessionConfig
from voicepipe.protocol.session_types import ServerVad
from voicepipe.router.health import Health
from voicepipe.server.context import AgentChoice, Charge, OnRecord
from voicepipe.session.context import CallRecording, NextAgent
from voicepipe.session.endpoint_scoring import Outcome
from voicepipe.session.grant import SessionGrant
from voicepipe.session.item_audio import ItemAudio
from voicepipe.session.knowledge import Knowledge
from voicepipe.session.server_tools import session_of
from voicepipe.session.session import Greeting, Session, SessionHooks, SessionStages
from voicepipe.session.summaries import CALL_INSTRUCTIONS, summary_of
from voicepipe.telemetry.event_loop import EventLoopMonitor
from voicepipe.telemetry.isolation import isolated
from voicepipe.telemetry.journal.writer import JournalWriter
from voicepipe.telemetry.live_feed import Feed
from voicepipe.telemetry.log import log_event, log_overrun, log_strategy_failure, log_stuck
from voicepipe.telemetry.record_writer import RecordWriter
from voicepipe.telemetry.recording.writer import RecordingWriter
from voicepipe.turn.commands import ReportOverrun, ReportStrategyFailure, ReportStuck
from voicepipe.turn.notifications import ActionTaken, Notification, StageJudged, TurnMarked
from voicepipe.turn.record.values import TurnRecord
from voicepipe.turn.settings import BudgetActionSettings, CoreSettings, LanguageSettings, SpeculationLimits
from voicepipe.wiring.agent_hooks import AgentHooks
from voicepipe.wiring.detached_tasks import DetachedTasks
from voicepipe.wiring.mcp import check_requested, open_requested
from voicepipe.wiring.model_routing import Router
from voicepipe.wiring.prices import Prices
from voicepipe.wiring.stages import Stages

CALLS_WAIT_MS: Final = 50
"""How long calls of the client's functions wait after `speech_stopped`. pipecat 1.14.0 runs a call that comes within a
few ms of it, and never requests the answer (16 of 21 turns); with 50 ms it always does.
"""

MAX_RENEWED: Final = 64
"""Turns of a session whose records may be renewed: a client reports what it has played soon after."""


class Sessions:
    """Opens sessions."""

    def __init__(
        self,
        settings: Settings,
        stages: Stages,
        sink: RecordWriter,
        journals: JournalWriter,
        recordings: RecordingWriter,
        loop: EventLoopMonitor,
        feed: Feed,
        knowledge: Mapping[str, Knowledge],
        detached_tasks: DetachedTasks,
    ) -> None:
        """`knowledge`: the documents of each agent that has any."""
        self._detached_tasks = detached_tasks
        self._settings, self._sink, self._all_stages = settings, sink, stages
        self._journals, self._recordings, self._loop, self._feed = journals, recordings, loop, feed
        self._knowledge = knowledge
        # Build all agents now: a wrong spec is found at the start, not by the first client.
        self._stages = self._stages_of(settings, stages)
        self._prices = Prices(settings)
        self.phrases_usd = dict.fromkeys(settings.agents, 0.0)
        """Agent -> the cost of the phrases synthesized ahead for its sessions."""

        self.n_stuck = 0
        """How often a session had to be ended by the last-resort timeout: not 0 means a bug."""

        self.n_strategy_failures = Counter(dict.fromkeys((a.end_of_turn for a in settings.agents.values()), 0))
        """End-of-turn strategy -> the number of sessions in which it failed."""

        self.n_scores = Counter[tuple[str, Outcome]]()
        """(score, outcome) -> the number of pauses that its model was asked to judge."""

    def use(self, settings: Settings, stages: Stages) -> None:
        """Open sessions with these from now on. Those that run keep theirs.

        Raises:
            ConfigError: an agent's stages cannot be built; then nothing changes.
        """
        built = self._stages_of(settings, stages)
        self._settings, self._all_stages, self._stages = settings, stages, built
        self._prices = Prices(settings)
        for name in settings.agents:
            self.phrases_usd.setdefault(name, 0.0)

    def _stages_of(self, settings: Settings, stages: Stages) -> dict[str, SessionStages]:
        return {
            name: replace(
                stages.of_agent(name),
                knowledge=self._knowledge.get(name),
                redact_for_llm=kinds_of(agent.redact_for_llm, key=f"agents.{name}.redact_for_llm"),
            )
            for name, agent in settings.agents.items()
        }

    def open(self, grant: SessionGrant, on_record: OnRecord, charge: Charge) -> Session:
        """Return a session that waits for its socket. `on_record` gets each record of its turns, and `charge` the
        client's other costs."""
        stages, config = self._begun_with(grant, grant.agent)
        if grant.config is not None:
            config = config.merged(grant.config)
        check_requested(config.mcp, self._settings.server.mcp_origins)
        return Session(
            grant=grant,
            config=config,
            stages=stages,
            settings=self._core_settings(grant.agent),
            hooks=self._hooks(grant, on_record, charge),
            greeting=None if grant.continues else _greeting(self._settings.agents[grant.agent]),
        )

    def _begun_with(self, grant: SessionGrant, agent: str) -> tuple[SessionStages, SessionConfig]:
        """Return an agent's stages, with the tools that its MCP servers list now, and the session that it begins."""
        stages = self._stages[agent]
        taken = {tool.facts.tool.name for tool in stages.tools}
        stages = replace(stages, tools=(*stages.tools, *self._all_stages.mcp_tools_of(agent, taken)))
        config = replace(
            config_of(self._settings.agents[agent], grant),
            context_tokens=self._settings.context_tokens(agent),
            server_tools=tuple(tool.facts for tool in stages.tools),
        )
        return stages, config

    def _agents_of_call(self, grant: SessionGrant) -> dict[str, NextAgent]:
        """Return the agents that may go on with a session. They are those of now, also after a reload."""
        found: dict[str, NextAgent] = {}
        for name in self._settings.reachable(grant.agent)[1:]:
            stages, config = self._begun_with(grant, name)
            hooks = self._hooks_in_python(grant, name)
            before_reply = None if hooks is None else hooks.before_reply
            found[name] = NextAgent(name=name, config=config, stages=stages, before_reply=before_reply)
        return found

    def _hooks_in_python(self, grant: SessionGrant, agent: str) -> AgentHooks | None:
        python = self._settings.python_agents.get(agent)
        session = replace(session_of(grant), agent=agent)
        if python is None:
            return None
        variables = [name for name, _ in self._settings.agents[agent].variables]
        return AgentHooks(python, session, self._detached_tasks.start, variables)

    def _record_handler(self, grant: SessionGrant, agent: str) -> Callable[[TurnRecord], None]:
        """Return what takes the records of an agent's turns."""
        store, hooks = self.records_of(grant, agent, clock.unix_ms()), self._hooks_in_python(grant, agent)

        def store_record(record: TurnRecord) -> None:
            store(record)
            if hooks is not None:
                hooks.turn_ended(record)

        return store_record

    def records_of(self, grant: SessionGrant, agent: str, began_unix_ms: int) -> Callable[[TurnRecord], None]:
        """Return what stores the records of an agent's turns. `began_unix_ms`: when the clock of the session was 0."""
        kinds = kinds_of(self._settings.records.redact, key="records.redact")
        store = self._sink.of_session(
            project=grant.project,
            agent=agent,
            began_unix_ms=began_unix_ms,
            store_texts=self._settings.keeps_text,
            user=grant.identity or "",
            pool=self._settings.pooled.get((agent, "llm"), ""),
            redact=Redactor(kinds) if kinds else None,
        )

        def store_record(record: TurnRecord) -> None:
            with isolated("records"):
                store(record)

        return store_record

    def _core_settings(self, agent: str) -> CoreSettings:
        settings = self._settings
        options = settings.agents[agent]
        limits = SpeculationLimits(
            max_starts=options.speculate_max_starts,
            max_wasted_tokens=options.speculate_max_wasted_tokens,
            max_wasted_share=options.speculate_max_wasted_share,
            ms_per_1000_tokens=options.speculate_ms_per_1000_tokens,
        )
        return CoreSettings(
            budget=options.budget,
            deadlines=options.deadlines,
            speculate=options.speculate,
            speculation=limits,
            calls_wait_ms=CALLS_WAIT_MS,
            truncation_ends_reply=True,
            client_tool_rounds=options.client_tool_rounds,
            conversation=settings.conversation,
            context_tokens=min(
                (limit for each in settings.reachable(agent) if (limit := settings.context_tokens(each)) is not None),
                default=None,
            ),
            summarizes=bool(options.summary_llm),
            budget_actions=BudgetActionSettings(
                filler=options.filler, apology=options.apology or "", apologises=options.apology is None
            ),
            prices=self._prices.of_agent(agent),
        )

    def _hooks(self, grant: SessionGrant, on_record: OnRecord, charge: Charge) -> SessionHooks:
        hooks = self._hooks_in_python(grant, grant.agent)
        agents = self._agents_of_call(grant)
        stores = {name: self._record_handler(grant, name) for name in (grant.agent, *agents)}
        of_agents = RecordsOfAgents(stores, grant.agent)

        def store_record(record: TurnRecord) -> None:
            of_agents.on_record(record)
            on_record(record)

        def hand_over(name: str) -> NextAgent:
            of_agents.agent = name
            log_event("call_handed_over", session=grant.session_id, agent=name)
            return agents[name]

        def charge_phrases(usd: float, by_client: bool) -> None:
            self.phrases_usd[grant.agent] += usd
            if by_client:
                charge(usd)

        def report_overrun(command: ReportOverrun) -> None:
            log_overrun(
                grant.session_id, command.turn_id, stage=command.stage, owner=command.owner, over_ms=command.over_ms
            )

        def report_stuck(command: ReportStuck) -> None:
            self.n_stuck += 1
            log_stuck(grant.session_id, user=command.user, agent=command.agent, so_far=self.n_stuck)

        def report_strategy_failure(command: ReportStrategyFailure) -> None:
            self.n_strategy_failures[command.strategy] += 1
            so_far = self.n_strategy_failures[command.strategy]
            log_strategy_failure(grant.session_id, strategy=command.strategy, why=command.why, so_far=so_far)

        def count_score(name: str, outcome: Outcome) -> None:
            self.n_scores[name, outcome] += 1

        return SessionHooks(
            store_record=store_record,
            records_written=partial(self._sink.wait_until_written, grant.session_id),
            restore_record=self.records_of(grant, grant.agent, clock.unix_ms()),
            start_detached=self._detached_tasks.start,
            hand_over=hand_over,
            **({} if hooks is None else _hooks_of(hooks)),
            charge=charge_phrases,
            charge_summary=charge,
            report_overrun=report_overrun,
            report_stuck=report_stuck,
            report_strategy_failure=report_strategy_failure,
            count_score=count_score,
            check_update=partial(self._check_update, locks=grant.locks),
            is_another_agent=lambda model: self._settings.agent_named(model) not in (None, grant.agent),
            open_mcp=open_requested,
            check_reply=partial(check_reply, locks=grant.locks),
            report_unserved=self._report_unserved(grant),
            show=partial(visible, locks=grant.locks),
            recording=self._recording(grant),
            open_journal=partial(self._journals.open, agent=grant.agent, project=grant.project),
            items=ItemAudio(seconds) if (seconds := self._settings.server.item_audio_s) else None,
            stalls=self._loop.stalls,
            live=self._feed,
            publish_live=partial(_publish_live, self._feed, grant),
        )

    def _report_unserved(self, grant: SessionGrant) -> Callable[[str], None] | None:
        if self._settings.agents[grant.agent].unserved_fields == "error":
            return None
        return lambda field: log_event("field_not_served", session=grant.session_id, field=field)

    def _recording(self, grant: SessionGrant) -> CallRecording | None:
        agent = self._settings.agents[grant.agent]
        if not agent.record_calls:
            return None
        whose = (grant.project, grant.session_id, grant.identity or "")
        return CallRecording(
            open_recorder=partial(self._recordings.open, *whose), announcement=agent.record_announcement
        )

    def is_summarized(self, agent: str) -> bool:
        """Return whether each call of the agent is summarized."""
        options = self._settings.agents.get(agent)
        return options is not None and options.summarize_calls and bool(options.summary_llm)

    async def summary_of_call(self, agent: str, session: str, transcript: str) -> tuple[str, float]:
        """Return the summary of a call that is over, and its cost in USD; empty: the agent has no LLM for it."""
        by = self._stages[agent].summary_model
        if by is None:
            return "", 0.0
        summary = await summary_of(transcript, by, session=session, instructions=CALL_INSTRUCTIONS)
        return summary.text, summary.usd

    def _check_update(self, before: SessionConfig, after: SessionConfig, *, locks: Locks) -> None:
        check_update(before, after, locks)
        check_requested(after.mcp, self._settings.server.mcp_origins)

    @property
    def router(self) -> Router:
        """Return the router of sessions that begin now."""
        return self._all_stages.router

    def healths(self) -> tuple[Health, ...]:
        """Return the health of each provider."""
        return self._all_stages.healths()

    def agent_choices(self) -> tuple[AgentChoice, ...]:
        """Return the agents that a client may choose, with their voices."""
        voices = {name: stages.synthesizer.voices for name, stages in self._stages.items()}
        return tuple(
            AgentChoice(name, None if known is None else tuple(sorted(known))) for name, known in voices.items()
        )

    async def warm(self) -> None:
        """Let local models process their agents' instructions before the first session; other models warm up with a
        session.
        """
        for name, agent in self._settings.agents.items():
            for spec in agent.specs("llm"):
                if self._settings.providers[spec.provider].kind in LOCAL:
                    model: Model = self._all_stages.get("llm", spec, key=f"agents.{name}.llm")
                    instructions = Content("system", (Text(agent.instructions),))
                    await model.warm(ModelRequest(model=spec.model, messages=(instructions,)))


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


def _hooks_of(hooks: AgentHooks) -> dict[str, Any]:
    return {
        "session_started": hooks.session_started,
        "before_reply": hooks.before_reply,
        "session_ended": hooks.session_ended,
    }


def _publish_live(feed: Feed, grant: SessionGrant, what: Notification) -> None:
    """Send to subscribers what a client with `turn_events` would get, with its session, agent and project."""
    if isinstance(what, TurnMarked | StageJudged | ActionTaken):
        whose = {"session": grant.session_id, "agent": grant.agent, "project": grant.project}
        feed.publish_live(grant.project, grant.session_id, lambda: {**whose, **_plain(what)})


def _plain(what: ExtensionNotification) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(event_of(what, ""))
    del plain["event_id"]
    return plain


def config_of(agent: AgentSettings, grant: SessionGrant) -> SessionConfig:
    """Return the session config from an agent's settings, and from what the token's metadata sets of them.

    Raises:
        ProtocolError: the metadata sets an option to a value that it cannot have.
    """
    metadata = dict(grant.metadata)
    agent = _with_metadata(agent, {name: metadata[name] for name in agent.from_metadata if name in metadata})
    return SessionConfig.start(
        session_id=grant.session_id,
        model=grant.model,
        voice=agent.voice or DEFAULT_VOICE,
        speed=agent.speed,
        variables=tuple((name, metadata.get(name, value)) for name, value in agent.variables),
        instructions=_instructions(agent),
        expires_at=grant.expires_at,
        kind=grant.kind,
        turn_detection=ServerVad(
            silence_duration_ms=agent.silence_ms,
            end_of_turn=agent.end_of_turn,
            silence_set_by="agent_silence",
            idle_timeout_ms=agent.idle_timeout_ms,
        ),
        idle_ends=agent.idle_ends,
        max_output_tokens=agent.max_output_tokens,
        temperature=agent.temperature,
        language=agent.language,
        languages=_languages(agent),
        end_of_turn=agent.end_of_turn,
        vad=agent.vad,
        interruption=agent.interruption,
    )


def _instructions(agent: AgentSettings) -> str:
    if not agent.interpret:
        return agent.instructions
    own = "" if agent.instructions == AgentSettings().instructions else agent.instructions
    return instructions_between(agent.interpret, own)


def _languages(agent: AgentSettings) -> tuple[LanguageSettings, ...]:
    tables = {
        tag: LanguageSettings(tag=tag, voice=table.voice, instructions=table.instructions, filler=table.filler)
        for tag, table in agent.languages
    }
    return tuple(languages_between(agent.interpret, tables)) if agent.interpret else tuple(tables.values())


def _greeting(agent: AgentSettings) -> Greeting | None:
    if agent.first_speaker == "user":
        return None
    return Greeting(text=agent.greeting, interruptible=agent.greeting_interruptible)


def _with_metadata(agent: AgentSettings, chosen: dict[str, str]) -> AgentSettings:
    hints = get_type_hints(AgentSettings, include_extras=True)
    try:
        options: dict[str, Any] = {
            name: convert(Found(text, "the token's metadata", text=True), hints[name], f"metadata.{name}")
            for name, text in chosen.items()
        }
    except ConfigError as wrong:
        raise ProtocolError(str(wrong), field="providerData.voicepipe.metadata") from None
    return replace(agent, **options)

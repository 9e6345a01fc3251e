"""Build a session, with all components that it needs, from an admitted client's grant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, get_type_hints

from voicepipe import clock
from voicepipe.agents.interpreter import instructions_between, languages_between
from voicepipe.config.agents import AgentSettings
from voicepipe.config.convert import Found, convert
from voicepipe.config.settings import LOCAL, Settings
from voicepipe.errors import ConfigError, ProtocolError
from voicepipe.pii.redact import Redactor, kinds_of
from voicepipe.ports.model import Content, Model, ModelRequest, Text
from voicepipe.protocol.session_config import DEFAULT_VOICE, SessionConfig
from voicepipe.protocol.session_types import ServerVad
from voicepipe.router.health import Health
from voicepipe.server.context import AgentChoice, Charge, OnRecord
from voicepipe.session.context import CallRecording, NextAgent
from voicepipe.session.grant import SessionGrant
from voicepipe.session.item_audio import ItemAudio
from voicepipe.session.knowledge import Knowledge
from voicepipe.session.ports import SessionPorts
from voicepipe.session.server_tools import session_of
from voicepipe.session.session import Greeting, Session, SessionStages
from voicepipe.session.summaries import CALL_INSTRUCTIONS, summary_of
from voicepipe.telemetry.event_loop import EventLoopMonitor
from voicepipe.telemetry.isolation import isolated
from voicepipe.telemetry.journal.writer import JournalWriter
from voicepipe.telemetry.live_feed import Feed
from voicepipe.telemetry.record_writer import RecordWriter
from voicepipe.telemetry.recording.writer import RecordingWriter
from voicepipe.turn.record.values import TurnRecord
from voicepipe.turn.settings import BudgetActionSettings, CoreSettings, LanguageSettings, SpeculationLimits
from voicepipe.values import replace
from voicepipe.wiring.agent_hooks import AgentHooks
from voicepipe.wiring.detached_tasks import DetachedTasks
from voicepipe.wiring.mcp import check_requested, open_requested
from voicepipe.wiring.model_routing import Router
from voicepipe.wiring.prices import Prices
from voicepipe.wiring.session_ports import (
    AgentsOfCall,
    CountedCosts,
    CountingObserver,
    FeedOfSession,
    LockedClient,
    RecordsOfAgents,
    SessionCounts,
    StoredRecords,
)
from voicepipe.wiring.stages import Stages

CALLS_WAIT_MS: Final = 50
"""How long calls of the client's functions wait after `speech_stopped`. pipecat 1.14.0 runs a call that comes within a
few ms of it, and never requests the answer (16 of 21 turns); with 50 ms it always does.
"""


class Sessions:
    """Opens sessions."""

    def __init__(
        self,
        settings: Settings,
        stages: Stages,
        record_writer: RecordWriter,
        journals: JournalWriter,
        recordings: RecordingWriter,
        loop: EventLoopMonitor,
        feed: Feed,
        knowledge: Mapping[str, Knowledge],
        detached_tasks: DetachedTasks,
    ) -> None:
        """`knowledge`: the documents of each agent that has any."""
        self._detached_tasks = detached_tasks
        self._settings, self._record_writer, self._all_stages = settings, record_writer, stages
        self._journals, self._recordings, self._loop, self._feed = journals, recordings, loop, feed
        self._knowledge = knowledge
        # Build all agents now: a wrong spec is found at the start, not by the first client.
        self._stages = self._stages_of(settings, stages)
        self._prices = Prices(settings)
        self.counts = SessionCounts.of(settings)

    def use(self, settings: Settings, stages: Stages) -> None:
        """Open sessions with these from now on. Those that run keep theirs.

        Raises:
            ConfigError: an agent's stages cannot be built; then nothing changes.
        """
        built = self._stages_of(settings, stages)
        self._settings, self._all_stages, self._stages = settings, stages, built
        self._prices = Prices(settings)
        for name in settings.agents:
            self.counts.phrases_usd.setdefault(name, 0.0)

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
        check_requested(config.mcp, self._settings.server.mcp_origins)
        return Session(
            grant=grant,
            config=config,
            stages=stages,
            settings=self._core_settings(grant.agent),
            ports=self._ports(grant, on_record, charge),
            greeting=None if grant.continues else _greeting(self._settings.agents[grant.agent]),
        )

    def _begun_with(self, grant: SessionGrant, agent: str) -> tuple[SessionStages, SessionConfig]:
        """Return an agent's stages, with the tools that its MCP servers list now, and the session that it begins: the
        grant's first agent with the grant's settings."""
        stages = self._stages[agent]
        taken = {tool.facts.tool.name for tool in stages.tools}
        stages = replace(stages, tools=(*stages.tools, *self._all_stages.mcp_tools_of(agent, taken)))
        config = replace(
            config_of(self._settings.agents[agent], grant),
            context_tokens=self._settings.context_tokens(agent),
            server_tools=tuple(tool.facts for tool in stages.tools),
        )
        if agent == grant.agent and grant.config is not None:
            config = config.merged(grant.config)
        return stages, config

    def _agents_of_call(self, grant: SessionGrant) -> dict[str, NextAgent]:
        """Return the agents that may go on with a session, the first one included: another may hand it back. They are
        those of now, also after a reload. Empty: no agent may but the first."""
        found: dict[str, NextAgent] = {}
        names = self._settings.reachable(grant.agent)
        for name in names if len(names) > 1 else ():
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
        store = self._record_writer.of_session(
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

    def _ports(self, grant: SessionGrant, on_record: OnRecord, charge: Charge) -> SessionPorts:
        agents = self._agents_of_call(grant)
        handlers = {name: self._record_handler(grant, name) for name in agents or (grant.agent,)}
        of_agents = RecordsOfAgents(handlers, grant.agent)
        restore = self.records_of(grant, grant.agent, clock.unix_ms())
        written = partial(self._record_writer.wait_until_written, grant.session_id)
        return SessionPorts(
            records=StoredRecords(of_agents, on_record, restore=restore, written=written),
            costs=CountedCosts(self.counts, grant.agent, charge),
            observer=CountingObserver(self.counts, grant.session_id),
            client=self._client_rules(grant),
            agents=AgentsOfCall(agents, of_agents, grant, self._in_force),
            live=FeedOfSession(self._feed, grant),
            hooks=self._hooks_in_python(grant, grant.agent),
            start_detached=self._detached_tasks.start,
            open_mcp=open_requested,
            recording=self._recording(grant),
            open_journal=partial(self._journals.open, agent=grant.agent, project=grant.project),
            items=ItemAudio(seconds) if (seconds := self._settings.server.item_audio_s) else None,
            stalls=self._loop.stalls,
        )

    def _in_force(self) -> Settings:
        return self._settings

    def _client_rules(self, grant: SessionGrant) -> LockedClient:
        is_error = self._settings.agents[grant.agent].unserved_fields == "error"
        return LockedClient(grant, self._in_force, logs_unserved=not is_error)

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

"""Build one provider for each spec that the agents name, shared by all sessions."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from voicepipe.agents.mcp_server import McpConnection
from voicepipe.config.settings import GGUF, LOCAL, STAGES, Settings
from voicepipe.config.speech_vendors import for_stage
from voicepipe.errors import ConfigError
from voicepipe.ports.endpoint_scorer import AudioScorer, EndpointScorer
from voicepipe.ports.endpointing import strategies_named
from voicepipe.ports.server_tool import ServerTool
from voicepipe.ports.synthesizer import Synthesizer
from voicepipe.ports.transcriber import Transcriber
from voicepipe.providers.built_in import factory
from voicepipe.providers.local.smart_turn import open_smart_turn
from voicepipe.registry import ProviderSettings, Spec, Stage
from voicepipe.router.health import Health
from voicepipe.router.hedge_budget import HedgeBudget
from voicepipe.router.hints import NodeHints
from voicepipe.router.limited import limited
from voicepipe.router.llm.probe import Probes
from voicepipe.router.pool import SharedStats
from voicepipe.router.tts.audio_cache import AudioCache
from voicepipe.router.tts.cached import CachedSynthesizer
from voicepipe.session.hand_over import HAND_OVER, HandOver
from voicepipe.session.phrases import PhraseCache
from voicepipe.session.session import SessionStages
from voicepipe.session.summaries import SummaryModel
from voicepipe.values import replace
from voicepipe.wiring.engine import EngineUse
from voicepipe.wiring.model_routing import Router
from voicepipe.wiring.prices import price_of
from voicepipe.wiring.speech_routing import SpeechRouting

SCORING: Final = "local"
"""The kind of the provider whose LLM scores the ends of sentences."""

ONNX: Final = "onnx"
"""How the sockets of engines begin that run smart-turn, as short as for GGUF files: a socket's path has a limit."""


class Stages:
    """Builds each provider once, on first use; its code is imported then, and not before."""

    def __init__(
        self,
        settings: Settings,
        *,
        sounds: AudioCache | None = None,
        tools: Mapping[str, ServerTool] | None = None,
        mcp: Mapping[str, McpConnection] | None = None,
        n_processes: int = 1,
    ) -> None:
        """`sounds`: the cache of synthesized speech. `tools`, `mcp`: the functions and MCP servers that agents may
        name. `n_processes`: the processes that serve the port, and share its limits.
        """
        self._tools, self._mcp = tools or {}, mcp or {}
        self._settings, self._sounds, self._n_processes = settings, sounds, n_processes
        self._made: dict[tuple[Stage, Spec], Any] = {}
        self._router: Router | None = None
        self._speech_routing = SpeechRouting()
        self._llm_stats = SharedStats()
        self._probes = Probes(self._llm_stats)
        self._hedge_budgets: dict[str, HedgeBudget] = {}

    def with_settings(
        self, settings: Settings, tools: Mapping[str, ServerTool], mcp: Mapping[str, McpConnection]
    ) -> Stages:
        """Return the stages of other agents over the same providers, whose settings must be the same."""
        stages = Stages(settings, sounds=self._sounds, tools=tools, mcp=mcp, n_processes=self._n_processes)
        stages._made, stages._speech_routing = self._made, self._speech_routing
        stages._llm_stats, stages._probes = self._llm_stats, self._probes
        stages._hedge_budgets = self._hedge_budgets
        return stages

    @property
    def router(self) -> Router:
        """Return the router, which builds an LLM from one model or several.

        Raises:
            ConfigError: as `get`, for a model that a rule or an experiment uses.
        """
        if self._router is None:
            self._router = Router(
                self._settings,
                lambda spec, key: self.get("llm", spec, key=key),
                stats=self._llm_stats,
                probes=self._probes,
                hedge_budgets=self._hedge_budgets,
                n_processes=self._n_processes,
            )
        return self._router

    def hints(self) -> NodeHints:
        """Return what this process shares with others about its providers, and learns from them."""
        speech = self._speech_routing
        return NodeHints({"stt": speech.stt_stats, "llm": self._llm_stats, "tts": speech.tts_stats})

    def get(self, stage: Stage, spec: Spec, *, key: str) -> Any:
        """Return the Transcriber, Model or Synthesizer that `spec` names.

        Raises:
            ConfigError: naming `key` or the provider's setting, when there is no such adapter, its key is missing, or
                it has no such model.
        """
        if (stage, spec) not in self._made:
            connection = self._connection(stage, spec, key=key)
            made = factory(connection.kind, stage, key=key)(spec, connection)
            made = limited(stage, made, self._settings.provider_limits)
            if stage == "stt" and not connection.telephone_audio:
                made.capabilities = replace(made.capabilities, telephone=frozenset())
            if stage == "tts" and self._sounds is not None:
                made = CachedSynthesizer(made, self._sounds, settings=_sounds_like(connection))
            self._made[stage, spec] = made
        return self._made[stage, spec]

    def _connection(self, stage: Stage, spec: Spec, *, key: str) -> ProviderSettings:
        connection = for_stage(spec.provider, stage, self._settings.connection(spec, key=key))
        if connection.kind in LOCAL:
            socket = ("socket", str(self._socket_of(spec)))
            connection = replace(connection, options=(*connection.options, socket))
        return connection

    def of_agent(self, name: str) -> SessionStages:
        """Return the three stages of an agent, and its end-of-turn strategy.

        Raises:
            ConfigError: as `get` does.
        """
        agent = self._settings.agents[name]
        specs = {stage: agent.spec(stage) for stage in STAGES}
        transcriber = self.transcriber_of(name)
        model = self.router.of_agent(name)
        synthesizer = self.synthesizer_of(name)
        return SessionStages(
            transcriber=transcriber,
            model=model,
            synthesizer=synthesizer,
            endpoint_scorer=self._scorer_of(name),
            audio_scorer=self.audio_scorer_of(name),
            strategies=strategies_named((agent.end_of_turn,), key=f"agents.{name}.end_of_turn"),
            summary_model=self.summary_model_of(name),
            pronunciations=agent.pronunciations,
            speech=self._speech_routing.speech_stage(self._settings, name),
            tools=self._tools_of(name),
            phrases=PhraseCache(
                synthesizer,
                prepared=tuple(words for words in (agent.filler, agent.apology) if words),
                repeated=(agent.greeting,) if agent.greeting else (),
            ),
            stt_model=specs["stt"].model,
            llm_model=specs["llm"].model,
            tts_model=specs["tts"].model,
        )

    def summary_model_of(self, name: str) -> SummaryModel | None:
        """Return the LLM that summarizes an agent's conversations, or None; raises as `get`."""
        spec = self._settings.agents[name].summary_llm
        if not spec:
            return None
        key = f"agents.{name}.summary_llm"
        parsed = Spec.parse(spec, key=key)
        model = self.get("llm", parsed, key=key)
        return SummaryModel(model=model, name=parsed.model, price=price_of(self._settings, parsed))

    def _tools_of(self, name: str) -> tuple[ServerTool, ...]:
        """Return the functions of an agent: its own in Python, and those of the settings that it names."""
        python = self._settings.python_agents.get(name)
        own = {} if python is None else python.tools
        agent = self._settings.agents[name]
        named: dict[str, ServerTool] = {tool: self._tools[tool] for tool in agent.tools}
        if agent.hand_over:
            named[HAND_OVER] = HandOver(agent.hand_over)
        if both := own.keys() & named.keys():
            raise ConfigError(f"agents.{name}.tools: expected names other than those in Python, got {min(both)!r}")
        return (*own.values(), *named.values())

    def mcp_tools_of(self, name: str, taken: Collection[str]) -> tuple[ServerTool, ...]:
        """Return the tools of an agent's MCP servers, as they are listed now. Of several of one name the first counts;
        none has a name that is `taken`.
        """
        found: dict[str, ServerTool] = {}
        for server in self._settings.agents[name].mcp:
            for tool in self._mcp[server].tools:
                if (tool_name := tool.facts.tool.name) not in taken:
                    found.setdefault(tool_name, tool)
        return tuple(found.values())

    def _scorer_of(self, name: str) -> EndpointScorer | None:
        """Return the local LLM of an agent that has one. It costs nothing, and the weights are fitted to its scores."""
        key = f"agents.{name}.llm"
        for spec in self._settings.agents[name].specs("llm", key=key):
            if self._settings.providers[spec.provider].kind == SCORING:
                made: EndpointScorer = factory(SCORING, "llm", key=key)(spec, self._connection("llm", spec, key=key))
                return made
        return None

    def audio_scorer_of(self, name: str) -> AudioScorer | None:
        """Return the model that judges an agent's pauses by their audio, or None.

        Raises:
            ConfigError: its file can't be read, or what runs it is not installed.
        """
        file = self._smart_turn_of(name)
        if file is None:
            return None
        return open_smart_turn(file, self._socket(ONNX, file), key=f"agents.{name}.smart_turn")

    def transcriber_of(self, name: str) -> Transcriber:
        """Return the STT of an agent; raises as `get`."""
        specs, options = self._settings.agents[name].specs("stt"), self._settings.routing_of(name, "stt")
        return self._speech_routing.transcriber(specs, self._all(name, "stt"), options)

    def synthesizer_of(self, name: str) -> Synthesizer:
        """Return the TTS of an agent; raises as `get`."""
        specs, options = self._settings.agents[name].specs("tts"), self._settings.routing_of(name, "tts")
        return self._speech_routing.synthesizer(specs, self._all(name, "tts"), options)

    def healths(self) -> tuple[Health, ...]:
        """Return the health of every STT, LLM and TTS of the agents, as far as they were called."""
        return (*self.router.healths(), *self._speech_routing.healths())

    def _all(self, name: str, stage: Stage) -> list[Any]:
        key = f"agents.{name}.{stage}"
        return [self.get(stage, spec, key=key) for spec in self._settings.agents[name].specs(stage, key=key)]

    def engines(self) -> tuple[EngineUse, ...]:
        """Return the local engines that the agents need."""
        of_specs = self.engines_for((stage, spec) for stage in STAGES for spec in self._specs(stage))
        return (*of_specs, *self.smart_turns(self._settings.agents))

    def smart_turns(self, agents: Iterable[str]) -> tuple[EngineUse, ...]:
        """Return the engines that run smart-turn for these agents: one for each file."""
        files = dict.fromkeys(file for name in agents if (file := self._smart_turn_of(name)) is not None)
        return tuple(EngineUse(self._socket(ONNX, file), ("endpoint",), file) for file in files)

    def engines_for(self, specs: Iterable[tuple[Stage, Spec]]) -> tuple[EngineUse, ...]:
        """Return the local engines that these need: one for the models that come along, and one for each GGUF file."""
        stages: dict[Path | None, set[Stage]] = {}
        for stage, spec in specs:
            if self._settings.providers[spec.provider].kind in LOCAL:
                stages.setdefault(self._gguf_of(spec), set()).add(stage)
        return tuple(
            EngineUse(self._socket(GGUF, gguf), tuple(each for each in STAGES if each in needed), gguf)
            for gguf, needed in stages.items()
        )

    def is_served_by(self, use: EngineUse, spec: Spec) -> bool:
        """Return whether that engine has the spec's model."""
        return self._settings.providers[spec.provider].kind in LOCAL and self._socket_of(spec) == use.socket_path

    def _gguf_of(self, spec: Spec) -> Path | None:
        return Path(spec.model).absolute() if self._settings.providers[spec.provider].kind == GGUF else None

    def _socket_of(self, spec: Spec) -> Path:
        return self._socket(GGUF, self._gguf_of(spec))

    def _smart_turn_of(self, name: str) -> Path | None:
        file = self._settings.agents[name].smart_turn
        return Path(file).absolute() if file else None

    def _socket(self, kind: str, model_file: Path | None) -> Path:
        """Return the socket of an engine. All processes of a user that load the same file share its engine."""
        digest = "" if model_file is None else hashlib.sha256(os.fsencode(model_file)).hexdigest()[:12]
        return self._settings.data_path / (f"{kind}-{digest}.sock" if digest else "engine.sock")

    def _specs(self, stage: Stage) -> Iterator[Spec]:
        for agent in self._settings.agents.values():
            yield from agent.specs(stage)
            if stage == "llm" and agent.summary_llm:
                yield Spec.parse(agent.summary_llm)
        server = self._settings.server
        configured = {"stt": server.transcription_models, "tts": server.speech_models, "llm": ()}
        yield from map(Spec.parse, configured[stage])
        for bench in self._settings.benches.values():
            if bench.stage == stage:
                yield from map(Spec.parse, bench.models)
        if stage == "llm":
            for name in self._settings.routing.reached:
                yield from map(Spec.parse, self._settings.routing.pools[name].specs)


def _sounds_like(connection: ProviderSettings) -> str:
    """Return the part of a provider's settings that affects how its voices sound."""
    options = sorted(pair for pair in connection.options if pair[0] != "socket")
    return f"{connection.kind} {connection.base_url} {options}"

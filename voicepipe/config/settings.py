"""The options, each with its meaning in a docstring, and the frozen whole that the server runs on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final, Literal

from voicepipe.agents import Agent
from voicepipe.auth.origin import is_loopback
from voicepipe.config.convert import (
    LANGUAGE_TAG,
    MAY_BE_EMPTY,
    METADATA_OPTIONS,
    ONE_OR_MORE,
    SECRET,
    SECRET_TABLE,
    STRATEGY_NAME,
    TABLE,
    WEB_ADDRESS,
    between,
)
from voicepipe.config.mcp import McpEntry
from voicepipe.config.routing import Routing, specs_of
from voicepipe.config.tools import ToolSettings
from voicepipe.config.webhooks import WebhookEntry
from voicepipe.errors import ConfigError
from voicepipe.pii.redact import kinds_of
from voicepipe.ports.limits import ProviderLimits
from voicepipe.protocol.prompt import check_placeholders
from voicepipe.protocol.session_update import MAX_SPEED, MIN_SPEED
from voicepipe.providers.catalog import Catalog, ModelFacts, ProviderFacts
from voicepipe.registry import ProviderSettings, Spec, Stage
from voicepipe.router.options import RouterOptions
from voicepipe.server.options import ServerSettings
from voicepipe.server.quotas import Quotas
from voicepipe.telemetry.journal.settings import JournalSettings
from voicepipe.telemetry.recording.settings import RecordingSettings
from voicepipe.turn.conversation_limits import ConversationLimits
from voicepipe.turn.settings import BudgetLimits, Deadlines

STAGES: tuple[Stage, ...] = ("stt", "llm", "tts")

DEFAULT_AGENT = "default"

GGUF: Final = "gguf"
"""The kind whose models are GGUF files of this machine: the spec's model is the file's path."""

ANSWER_TOKENS: Final = 4_096
"""Part of an LLM's window that is left to the answer where its length has no limit: the hosted service's example."""

LOCAL: Final = frozenset({"local", GGUF})
"""The kinds whose engines run on this machine, in processes of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsSettings:
    """The store of turn records."""

    url: Annotated[str, SECRET] = field(default="", repr=False)
    """Address of a Postgres database for the records of many machines, `postgresql://USER:PASSWORD@HOST/DATABASE`.
    Better set in the environment; needs the extra `postgres`. Empty: a file below `server.data_dir`."""

    keep_days: Annotated[int, between(0, 36_500)] = 30
    """Days for which turns are stored. Their statistics, without sessions and users, stay. 0: without limit."""

    max_mb: Annotated[int, between(0, 100_000_000)] = 2_000
    """Size limit in MB; the oldest turns are deleted first. 0: no limit."""

    text: Literal["loopback", "always", "never"] = "loopback"
    """Whether the words of both sides are stored: only while the server listens on a loopback address, always or
    never."""

    redact: tuple[str, ...] = ()
    """Kinds of personal data that are replaced by their names in stored texts, webhooks and live feeds: `email`,
    `phone`, `card`, `iban`, `ip`, `national_id`, or `all`. Journals then never hold words as they were said."""

    def __post_init__(self) -> None:
        kinds_of(self.redact, key="records.redact")
        if self.url and not self.url.startswith(("postgres://", "postgresql://")):
            raise ConfigError("records.url: expected an address that begins with postgresql://, got another one")


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """The export to other systems."""

    otel: bool = False
    """Send spans and metrics to an OpenTelemetry collector; the `OTEL_*` environment variables hold its address. Needs
    the extra `otel`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardSettings:
    """The targets of the dashboard."""

    over_allowed: Annotated[float, between(0.0001, 1)] = 0.05
    """The share of turns that may be over `budget.total_ms`. At exactly this share the error budget burns at rate 1:
    0.05 promises that 95 of 100 turns are in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogSettings:
    """The catalog of vendors by name."""

    file: str = ""
    """A TOML file in the format of the built-in catalog, merged over it: other prices, more vendors, more models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderEntry:
    """A `[providers.NAME]`: how to reach a provider."""

    kind: str = "openai"
    """The API that the provider speaks: `openai` for every OpenAI-compatible server, another built-in one
    ([list](models.md#apis)), or an installed one."""

    base_url: Annotated[str, WEB_ADDRESS] = ""
    """The provider's address, up to and with `/v1`."""

    api_key: Annotated[str, SECRET] = field(default="", repr=False)
    """The provider's key. Set it in the environment instead, with `api_key_env`."""

    api_key_env: str = ""
    """The environment variable that holds the provider's key; if it is named but empty or unset, the server does not
    start. The same name with `_FILE` behind it names a file that holds the key instead."""

    region: str = ""
    """The provider's region, for `router.order = "region"`: words separated by `-`, such as `eu-west-1`."""

    connect_timeout_ms: Annotated[int, between(1, 60_000)] = 3_000
    """Timeout for connecting to the provider."""

    idle_timeout_ms: Annotated[int, between(1, 600_000)] = 15_000
    """Time without data after which the provider counts as stalled."""

    input_usd_per_million: Annotated[float | None, between(0, 100_000)] = None
    """Price of 1 million LLM input tokens. Unset: the catalog's price, if there is one."""

    output_usd_per_million: Annotated[float | None, between(0, 100_000)] = None
    """Price of 1 million LLM output tokens."""

    cached_usd_per_million: Annotated[float | None, between(0, 100_000)] = None
    """Price of 1 million LLM input tokens read from the provider's cache. Unset: as `input_usd_per_million`."""

    cache_write_usd_per_million: Annotated[float | None, between(0, 100_000)] = None
    """Price of 1 million LLM input tokens written to the provider's cache. Unset: as `input_usd_per_million`. A
    vendor charges more for what it keeps longer: with the option `cache_ttl = "1h"`, set this."""

    tts_usd_per_million_chars: Annotated[float | None, between(0, 100_000)] = None
    """Price of 1 million characters of TTS. Unset: the vendor's published price, if there is one."""

    stt_usd_per_minute: Annotated[float | None, between(0, 1_000)] = None
    """Price of 1 minute of STT. Unset: the vendor's published price, if there is one. Sessions are charged for all
    audio sent to the STT: an STT that receives the whole session receives the silence too."""

    options: Annotated[tuple[tuple[str, str], ...], SECRET_TABLE] = field(default=(), repr=False)
    """Options that only this kind understands, as a table of names and values."""

    def connection(self) -> ProviderSettings:
        """Return what an adapter needs of the provider."""
        return ProviderSettings(
            kind=self.kind,
            base_url=self.base_url,
            api_key=self.api_key,
            connect_timeout_ms=self.connect_timeout_ms,
            idle_timeout_ms=self.idle_timeout_ms,
            options=self.options,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """An `[agents.NAME]`: an agent. Options that a section leaves out are taken from `[agents.default]`.

    Four options are not inherited: `aliases`, `chosen_by`, `hand_over`, and the voice by an agent that names another
    `tts`.
    """

    instructions: str = (
        "You are a friendly voice assistant. Your words are spoken aloud: answer in one or two short, plain "
        "sentences, without lists or markup."
    )
    """The system prompt. `{{name}}` is replaced by the variable of that name."""

    variables: Annotated[tuple[tuple[str, str], ...], TABLE] = ()
    """The variables of the instructions, and the value that each has unless the metadata of the client's token or
    `prompt.variables` sets another."""

    first_speaker: Literal["user", "agent"] = "user"
    """The side that speaks first. The agent does so after the client's first settings or audio, or after 1 s, unless
    the client has requested a response."""

    greeting: str = ""
    """The first words of an agent that speaks first; `{{name}}` as in the instructions. Empty: the LLM decides."""

    greeting_interruptible: bool = True
    """Whether the user may interrupt the greeting."""

    stt: Annotated[tuple[str, ...], ONE_OR_MORE] = ("local/moonshine-tiny",)
    """The STT, as `provider/model`; or several, best first: where one breaks, or returns its text later than
    `router.fallback_after_ms`, the next transcribes the utterance again."""

    llm: Annotated[tuple[str, ...], ONE_OR_MORE] = ("local/smollm2-135m",)
    """The LLM, as `provider/model`; or several as fallbacks of one another, best first; or `pool/NAME`."""

    tts: Annotated[tuple[str, ...], ONE_OR_MORE] = ("local/hibari",)
    """The TTS, as `provider/model`; or several, best first, for which `router.policy`, `fallback_after_ms` and
    `attempt_timeout_ms` apply too: where one breaks, another goes on with the next word."""

    voice: str | None = None
    """The voice's name at the TTS provider. Unset: the provider's own choice."""

    speed: Annotated[float, between(MIN_SPEED, MAX_SPEED)] = 1.0
    """The speed of speech, unless the client sets it; 1 is the voice's own."""

    pronunciations: Annotated[tuple[tuple[str, str], ...], TABLE] = ()
    """Words as the LLM writes them, and the spelling that the TTS gets (`Nguyen = "Win"`): whole words, with their
    case. Transcript and history keep the word."""

    language: Annotated[str | None, LANGUAGE_TAG] = None
    """BCP-47, such as `en` or `pt-BR`. Unset: the transcriber detects it."""

    end_of_turn: Annotated[str, STRATEGY_NAME] = "soft"
    """The endpoint strategy, unless the client sets `turn_detection`. `soft` lets the answer begin when the end is
    likely, after 0.7 to 1.44 times `silence_ms` (350 to 720 ms), and takes it back if the user goes on within its first
    second; function calls wait for `adaptive`. `adaptive` waits at least `silence_ms`, and longer the less finished the
    user sounds by pitch, words and pace: 1.44 times as long without evidence, at most 3.3 times. `silence` waits for
    exactly `silence_ms`. Any other name is a strategy of an installed package."""

    silence_ms: Annotated[int, between(20, 10_000)] = 500
    """The least silence of the user before the end of turn, unless the client sets it."""

    idle_timeout_ms: Annotated[int | None, between(1_000, 600_000)] = None
    """How long both sides may be silent after the agent has spoken until the agent speaks up, unless the client sets
    it. Unset: forever."""

    idle_ends: bool = False
    """End the session when the user stays silent after that for as long again."""

    speculate: bool = True
    """Start the reply during the user's silence and hold it until the turn is over. The answer comes sooner; a user who
    goes on speaking costs the tokens of an unused reply. Once the session has measured its answers, the reply starts
    just early enough to be ready in time. It does not start where it does not pay."""

    speculate_max_starts: Annotated[int, between(0, 10)] = 3
    """Limit of speculative replies per turn."""

    speculate_max_wasted_tokens: Annotated[int | None, between(0, 1_000_000_000)] = None
    """Limit of tokens that a session may spend on unused speculative replies. Unset: no limit."""

    speculate_max_wasted_share: Annotated[float | None, between(0, 1)] = None
    """Limit of the share of unused speculative replies in all reply tokens of a session, from 2000 tokens on. Unset: no
    limit.
    """

    speculate_ms_per_1000_tokens: Annotated[float, between(0, 10_000)] = 50.0
    """The ms by which an answer must be sooner per 1000 wasted tokens, both as expected from the session so far.
    Otherwise no speculative reply starts. 0: tokens are ignored."""

    interruption: Literal["confirmed", "immediate"] = "confirmed"
    """The event by which a client learns that the user speaks over the agent. `confirmed`: once it is an interruption,
    so that "mhm" stops nothing. `immediate`: at once, so that the agent stops at every voice, as with hosted
    services."""

    filler: str = ""
    """A filler ("One moment.") to speak while an answer is expected more than 1.2 s after the user's last word,
    never in two consecutive turns. It is synthesized when a session begins, once for each voice. Empty: none."""

    apology: Annotated[str | None, MAY_BE_EMPTY] = None
    """The apology after a failed turn. Unset: a sentence in the session's language (English, German, French, Spanish,
    Italian, Portuguese, Dutch; English if unknown). Empty: none."""

    max_output_tokens: Annotated[int | None, between(1, 1_000_000)] = None
    """Limit of an answer, in tokens. Unset: the provider's own limit."""

    temperature: Annotated[float | None, between(0, 2)] = None
    """Unset: the provider's own choice."""

    tools: tuple[str, ...] = ()
    """The tools that the server runs for this agent: names of `[tools.NAME]`, and `end_call`, with which the agent ends
    the session."""

    mcp: tuple[str, ...] = ()
    """The MCP servers whose tools this agent has: names of `[mcp.NAME]`."""

    hand_over: tuple[str, ...] = ()
    """The agents that this one may hand a call over to, with the tool `hand_over`."""

    max_session_s: Annotated[int | None, between(1, 86_400)] = None
    """Limit of a session, in seconds. Unset, or above `server.max_session_s`: as that."""

    budget: BudgetLimits = field(default_factory=BudgetLimits)
    """Limits of this agent's stages that differ from `[budget]`."""

    deadlines: Deadlines = field(default_factory=Deadlines)
    """Deadlines of this agent's turns that differ from `[deadlines]`."""

    from_metadata: Annotated[tuple[str, ...], METADATA_OPTIONS] = ()
    """The options of this agent that the metadata of the client's token may set, by its own names: `language`, `speed`,
    `voice`."""

    chosen_by: Annotated[tuple[tuple[str, str], ...], TABLE] = ()
    """A client that names no agent gets this one if the metadata of its token has all of these names and values."""

    context_tokens: Annotated[int | None, between(500, 10_000_000)] = None
    """Limit of what the LLM reads for an answer: instructions, tools and conversation, in tokens estimated from the
    text. Beyond it the oldest items leave the LLM's history in blocks. Unset: the smallest window that the catalog
    knows of the agent's LLMs, less `max_output_tokens` or 4096 for the answer, at most half of it."""

    summary_llm: str = ""
    """An LLM, as `provider/model`, that summarizes the oldest items before they leave the history of the answering LLM.
    It works beside the turns, and its cost is the session's. It also summarizes a call that is over, for the webhook
    `session.ended`. Empty: there are no summaries."""

    summarize_calls: bool = False
    """Have `summary_llm` summarize each call that is over, for its transcript. Without this it does so only where a
    webhook gets `session.ended`."""

    redact_for_llm: tuple[str, ...] = ()
    """Kinds of personal data that are replaced by their names in what the LLM reads, as in `records.redact`. The agent
    can then not repeat them, nor pass them to a function."""

    record_calls: bool = False
    """Record the audio of calls: both sides on one time line, in one file with the user on the left and the agent on
    the right. Kept for `records.keep_days`, within the limits of `[recordings]`."""

    record_announcement: str = ""
    """What the agent says before a call is recorded, such as "This call is recorded."; `{{name}}` as in the
    instructions. Nothing is recorded until it has been played to its end, and the user can't interrupt it. Empty: the
    recording begins with the call, and nobody is told."""

    knowledge: str = ""
    """A folder of documents (`.md`, `.txt`, `.html`) that are searched for what the user says; the passages that match
    best are given to the LLM. They are read when the server starts. Empty: none."""

    knowledge_tokens: Annotated[int, between(50, 100_000)] = 600
    """Limit of the passages for one answer, in tokens estimated from the text."""

    knowledge_embedding: str = ""
    """An embedding model, as `provider/model`, at a provider with OpenAI's API (`/v1/embeddings`): the documents are
    then searched by meaning too. Empty: by their words only."""

    knowledge_embedding_ms: Annotated[int, between(10, 5_000)] = 150
    """How long an answer waits for the vector of the user's words; after that it is searched for by its words only."""

    aliases: tuple[str, ...] = ()
    """Other names by which a client's `model` may select this agent."""

    def __post_init__(self) -> None:
        check_placeholders(self.instructions, dict(self.variables), "instructions")
        kinds_of(self.redact_for_llm, key="redact_for_llm")
        check_placeholders(self.greeting, dict(self.variables), "greeting")
        check_placeholders(self.record_announcement, dict(self.variables), "record_announcement")

    def spec(self, stage: Stage, *, key: str = "spec") -> Spec:
        """Return the parsed spec of `stage`; of several models the first.

        Raises:
            ConfigError: naming `key`, when it is not `provider/model`.
        """
        return self.specs(stage, key=key)[0]

    def specs(self, stage: Stage, *, key: str = "spec") -> tuple[Spec, ...]:
        """Return all specs that may serve `stage`, best first.

        Raises:
            ConfigError: as `spec`.
        """
        return specs_of({"stt": self.stt, "llm": self.llm, "tts": self.tts}[stage], key=key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The operator's settings, checked."""

    server: ServerSettings = field(default_factory=ServerSettings)
    budget: BudgetLimits = field(default_factory=BudgetLimits)
    deadlines: Deadlines = field(default_factory=Deadlines)
    conversation: ConversationLimits = field(default_factory=ConversationLimits)
    records: RecordsSettings = field(default_factory=RecordsSettings)
    journals: JournalSettings = field(default_factory=JournalSettings)
    recordings: RecordingSettings = field(default_factory=RecordingSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    dashboard: DashboardSettings = field(default_factory=DashboardSettings)
    catalog: CatalogSettings = field(default_factory=CatalogSettings)
    router: RouterOptions = field(default_factory=RouterOptions)
    provider_limits: ProviderLimits = field(default_factory=ProviderLimits)
    quotas: Quotas = field(default_factory=Quotas)
    routing: Routing = field(default_factory=Routing)
    """Pools, rules and experiments."""

    pooled: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Agent -> the pool that its `llm` names; `llm` itself then holds the pool's models."""

    vendors: Catalog = field(default_factory=Catalog, repr=False)
    """The catalog as read."""

    providers: Mapping[str, ProviderEntry] = field(default_factory=lambda: MappingProxyType({}))
    agents: Mapping[str, AgentSettings] = field(default_factory=lambda: MappingProxyType({}))
    python_agents: Mapping[str, Agent] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    """The agents that are Python objects: their functions and hooks."""

    tools: Mapping[str, ToolSettings] = field(default_factory=lambda: MappingProxyType({}))
    mcp: Mapping[str, McpEntry] = field(default_factory=lambda: MappingProxyType({}))
    webhooks: Mapping[str, WebhookEntry] = field(default_factory=lambda: MappingProxyType({}))
    origins: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    """Dotted key -> the source of its value; a key that is missing here has its default."""

    @property
    def data_path(self) -> Path:
        """Return the folder for all files written at run time."""
        return Path(self.server.data_dir)

    @property
    def on_loopback(self) -> bool:
        """Return whether only this machine can reach the server."""
        return self.server.host == "localhost" or is_loopback(self.server.host)

    @property
    def keeps_text(self) -> bool:
        """Return whether the words of a turn are stored with its record."""
        return self.records.text == "always" or (self.records.text == "loopback" and self.on_loopback)

    @property
    def journals_keep_text(self) -> bool:
        """Return whether the words of a session are written to its journal."""
        allowed = self.journals.text == "always" or (self.journals.text == "loopback" and self.on_loopback)
        return allowed and not self.records.redact

    def agent_for(self, metadata: tuple[tuple[str, str], ...]) -> str | None:
        """Return the first agent, by name, that this metadata chooses, or None."""
        chosen = (name for name, its in self.agents.items() if its.chosen_by and set(its.chosen_by) <= set(metadata))
        return next(chosen, None)

    def functions_of(self, agent: str) -> tuple[str, ...]:
        """Return the names of the functions that the server runs for an agent, and of its MCP servers."""
        python = self.python_agents.get(agent)
        its = self.agents[agent]
        return (*(() if python is None else python.tools), *its.tools, *(f"MCP {name}" for name in its.mcp))

    def session_limit_s(self, agent: str) -> int:
        """Return how long a session of an agent may last, in seconds."""
        own_s = self.agents[agent].max_session_s
        return self.server.max_session_s if own_s is None else min(own_s, self.server.max_session_s)

    def agent_named(self, name: str) -> str | None:
        """Return the agent of that name or alias, or None."""
        if name in self.agents:
            return name
        return next((agent for agent, its in self.agents.items() if name in its.aliases), None)

    def llm_specs(self, agent: str) -> tuple[Spec, ...]:
        """Return every LLM that may answer for an agent, its own first, each once."""
        pools = (Spec.parse(spec) for name in sorted(self.routing.reached) for spec in self.routing.pools[name].specs)
        return tuple(dict.fromkeys((*self.agents[agent].specs("llm"), *pools)))

    def reachable(self, agent: str) -> tuple[str, ...]:
        """Return an agent, and behind it all that a call may be handed over to, by itself or by another of them."""
        found = [agent]
        for each in found:
            found += [name for name in self.agents[each].hand_over if name not in found]
        return tuple(found)

    def context_tokens(self, agent: str) -> int | None:
        """Return how many tokens an agent's LLM may read for an answer; None: no window is known."""
        its = self.agents[agent]
        if its.context_tokens is not None:
            return its.context_tokens
        known = [window for spec in self.llm_specs(agent) if (window := self.facts(spec).context_tokens) is not None]
        if not known:
            return None
        window = min(known)
        return window - min(its.max_output_tokens or ANSWER_TOKENS, window // 2)

    def vendor(self, provider: str) -> ProviderFacts | None:
        """Return the catalog's entry of a provider; None without one, or at another address."""
        vendor, entry = self.vendors.provider(provider), self.providers[provider]
        return vendor if vendor is not None and vendor.kind == entry.kind and vendor.owns(entry.base_url) else None

    def facts(self, spec: Spec) -> ModelFacts:
        """Return the facts about a model: the catalog's, with the prices of the settings."""
        vendor, entry = self.vendor(spec.provider), self.providers[spec.provider]
        facts = vendor.model(spec.model) if vendor is not None else ModelFacts(name=spec.model)
        if entry.input_usd_per_million is not None or entry.output_usd_per_million is not None:
            # A price in the settings replaces all of the catalog's prices: the others belong to another contract.
            return replace(
                facts,
                input_usd_per_million=entry.input_usd_per_million,
                output_usd_per_million=entry.output_usd_per_million,
                cached_usd_per_million=entry.cached_usd_per_million,
                cache_write_usd_per_million=entry.cache_write_usd_per_million,
                source=f"providers.{spec.provider}",
            )
        names = ("cached_usd_per_million", "cache_write_usd_per_million")
        own = {name: usd for name in names if (usd := getattr(entry, name)) is not None}
        return replace(facts, **own) if own else facts

    def connection(self, spec: Spec, *, key: str) -> ProviderSettings:
        """Return the provider settings for `spec`, with the options of its model.

        Raises:
            ConfigError: the environment variable named for the provider's key is not set, or the provider
                has no address.
        """
        entry, vendor = self.providers[spec.provider], self.vendor(spec.provider)
        if entry.api_key_env and not entry.api_key:
            raise ConfigError(
                f"providers.{spec.provider}.api_key: {key} is {str(spec)!r}, which needs a key; expected one in the "
                f"environment variable {entry.api_key_env}, which is not set"
            )
        if vendor is not None and not entry.base_url:
            raise ConfigError(
                f"providers.{spec.provider}.base_url: {key} is {str(spec)!r}, which has no default address; expected "
                "one such as https://HOST/v1, got none"
            )
        connection = entry.connection()
        own = vendor.options_for(spec.model) if vendor is not None else ()
        return replace(connection, options=(*connection.options, *own)) if own else connection

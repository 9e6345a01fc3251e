"""The options, each with its meaning in a docstring, and the frozen whole that the server runs on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final, Literal

from voicepipe.agents import Agent
from voicepipe.auth.origin import is_loopback
from voicepipe.config.agents import AgentSettings
from voicepipe.config.benches import BenchEntry, BenchScheduleSettings
from voicepipe.config.convert import (
    SECRET,
    SECRET_TABLE,
    WEB_ADDRESS,
    between,
)
from voicepipe.config.mcp import McpEntry
from voicepipe.config.phone import PhoneEntry
from voicepipe.config.regions import RegionEntry
from voicepipe.config.routing import Routing
from voicepipe.config.tools import ToolSettings
from voicepipe.config.webhooks import WebhookEntry
from voicepipe.errors import ConfigError
from voicepipe.pii.redact import kinds_of
from voicepipe.ports.limits import ProviderLimits
from voicepipe.providers.catalog import Catalog, ModelFacts, ProviderFacts
from voicepipe.registry import ProviderSettings, Spec, Stage
from voicepipe.router.options import RouterOptions
from voicepipe.server.gateway.response_cache_settings import ResponseCacheSettings
from voicepipe.server.options import ServerSettings
from voicepipe.server.quotas import Quotas
from voicepipe.server.webrtc.settings import WebRtcSettings
from voicepipe.telemetry.journal.settings import JournalSettings
from voicepipe.telemetry.recording.settings import RecordingSettings
from voicepipe.turn.conversation_limits import ConversationLimits
from voicepipe.turn.settings import BudgetLimits, Deadlines
from voicepipe.values import replace

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


STORE_SCHEMES: Final = ("redis://", "rediss://", "valkey://", "valkeys://")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """The state that several machines share while they serve the same clients."""

    store: Annotated[str, SECRET] = field(default="", repr=False)
    """Address of a Redis or Valkey server for the [state that machines share](nodes.md),
    `redis://USER:PASSWORD@HOST:6379/0`; `rediss://` with TLS; `valkey://` and `valkeys://` mean the same. Better set in
    the environment; needs the extra `redis`. Empty: a file below `server.data_dir`, for this machine alone."""

    snapshot_stores: Annotated[tuple[str, ...], SECRET] = field(default=(), repr=False)
    """Addresses of three Redis or Valkey servers, or another odd number, that have the snapshots of sessions: most of
    them are enough, so a session goes on though [one hangs](nodes.md#several-servers-for-snapshots). In the environment
    they are separated by commas. Empty: `cluster.store` has the snapshots."""

    name: str = "voicepipe"
    """The cluster's name. Servers of one name share; others may use the same store."""

    node: str = ""
    """This machine's name in the cluster; `server.max_sessions` holds for each name. Empty: the name of the host."""

    region: str = ""
    """The [region](regions.md) of this machine: one of `[regions.NAME]`, if there are any. Its client secrets are valid
    in this region alone."""

    def __post_init__(self) -> None:
        if self.store and not self.store.startswith(STORE_SCHEMES):
            raise ConfigError("cluster.store: expected an address that begins with redis://, got another one")
        if not all(each.startswith(STORE_SCHEMES) for each in self.snapshot_stores):
            raise ConfigError("cluster.snapshot_stores: expected addresses that begin with redis://, got another one")
        n_stores = len(self.snapshot_stores)
        if n_stores and (n_stores % 2 == 0 or len(set(self.snapshot_stores)) < n_stores or not self.store):
            raise ConfigError(
                "cluster.snapshot_stores: expected an odd number of addresses, each once, beside cluster.store, got "
                f"{n_stores} ({len(set(self.snapshot_stores))} different ones)" + ("" if self.store else " without it")
            )
        if not self.name or set(self.name) & set("{}: \t\r\n"):
            raise ConfigError(f"cluster.name: expected a name without spaces, colons and braces, got {self.name!r}")


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
    0.05 means that 95 of 100 turns are in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualitySettings:
    """The model that scores answers, to [compare the arms of experiments](routing.md#experiments)."""

    judge_model: str = ""
    """An LLM, as `provider/model`, that scores the answers of turns in an arm of an experiment, after they have ended.
    Its price must be known: in the catalog or `providers.NAME`. Empty: only users do."""

    judged_share: Annotated[float, between(0, 1)] = 0.2
    """The share of these turns that the judge scores."""

    usd_per_day: Annotated[float, between(0, 100_000)] = 1.0
    """The most that the judge may cost in a day (UTC); each worker has its share. Tokens that its provider does not
    count are estimated."""


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

    telephone_audio: bool = True
    """Whether its STT gets a telephone's audio as it comes, G.711 at 8 kHz, where the vendor [takes that](phone.md).
    Off: resampled, for another server that speaks the vendor's API."""

    input_usd_per_million: Annotated[float | None, between(0, 100_000)] = None
    """Price of 1 million LLM input tokens. Unset: the catalog's price, if there is one."""

    output_usd_per_million: Annotated[float | None, between(0, 100_000)] = None
    """Price of 1 million LLM output tokens."""

    cached_usd_per_million: Annotated[float | None, between(0, 100_000)] = None
    """Price of 1 million LLM input tokens read from the provider's cache. Unset: as `input_usd_per_million`."""

    cache_write_usd_per_million: Annotated[float | None, between(0, 100_000)] = None
    """Price of 1 million LLM input tokens written to the provider's cache. Unset: as `input_usd_per_million`. A
    vendor charges more for what it keeps longer: with the option `cache_ttl = "1h"`, set this."""

    audio_input_usd_per_million: Annotated[float | None, between(0, 100_000)] = None
    """Price of 1 million tokens of audio that a [speech-to-speech model](speech-models.md) takes. Unset: the vendor's
    published price, if there is one; set: all other prices of its tokens are those of the settings."""

    audio_output_usd_per_million: Annotated[float | None, between(0, 100_000)] = None
    """Price of 1 million tokens of audio that it speaks. Unset: as `audio_input_usd_per_million`."""

    tts_usd_per_million_chars: Annotated[float | None, between(0, 100_000)] = None
    """Price of 1 million characters of TTS. Unset: the vendor's published price, if there is one."""

    embedding_usd_per_million: Annotated[float | None, between(0, 100_000)] = None
    """Price of 1 million tokens of an embedding model (`knowledge_embedding`). Unset: unknown."""

    stt_usd_per_minute: Annotated[float | None, between(0, 1_000)] = None
    """Price of 1 minute of STT. Unset: the vendor's published price, if there is one. Sessions are charged for all
    audio sent to the STT: an STT that receives the whole session receives the silence too."""

    options: Annotated[tuple[tuple[str, str], ...], SECRET_TABLE] = field(default=(), repr=False)
    """Options that only this kind has, as a table of names and values."""

    def connection(self) -> ProviderSettings:
        """Return what an adapter needs of the provider."""
        return ProviderSettings(
            kind=self.kind,
            base_url=self.base_url,
            api_key=self.api_key,
            connect_timeout_ms=self.connect_timeout_ms,
            idle_timeout_ms=self.idle_timeout_ms,
            telephone_audio=self.telephone_audio,
            options=self.options,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The operator's settings, checked."""

    server: ServerSettings = field(default_factory=ServerSettings)
    webrtc: WebRtcSettings = field(default_factory=WebRtcSettings)
    budget: BudgetLimits = field(default_factory=BudgetLimits)
    deadlines: Deadlines = field(default_factory=Deadlines)
    conversation: ConversationLimits = field(default_factory=ConversationLimits)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    records: RecordsSettings = field(default_factory=RecordsSettings)
    journals: JournalSettings = field(default_factory=JournalSettings)
    recordings: RecordingSettings = field(default_factory=RecordingSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    dashboard: DashboardSettings = field(default_factory=DashboardSettings)
    quality: QualitySettings = field(default_factory=QualitySettings)
    bench_schedule: BenchScheduleSettings = field(default_factory=BenchScheduleSettings)
    catalog: CatalogSettings = field(default_factory=CatalogSettings)
    router: RouterOptions = field(default_factory=RouterOptions)
    provider_limits: ProviderLimits = field(default_factory=ProviderLimits)
    quotas: Quotas = field(default_factory=Quotas)
    response_cache: ResponseCacheSettings = field(default_factory=ResponseCacheSettings)
    routing: Routing = field(default_factory=Routing)
    """Pools, rules and experiments."""

    pooled: Mapping[tuple[str, Stage], str] = field(default_factory=lambda: MappingProxyType({}))
    """(agent, stage) -> the pool that the agent names for it; the agent's own option then holds the pool's models."""

    vendors: Catalog = field(default_factory=Catalog, repr=False)
    """The catalog as read."""

    providers: Mapping[str, ProviderEntry] = field(default_factory=lambda: MappingProxyType({}))
    agents: Mapping[str, AgentSettings] = field(default_factory=lambda: MappingProxyType({}))
    python_agents: Mapping[str, Agent] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    """The agents that are Python objects: their functions and hooks."""

    tools: Mapping[str, ToolSettings] = field(default_factory=lambda: MappingProxyType({}))
    mcp: Mapping[str, McpEntry] = field(default_factory=lambda: MappingProxyType({}))
    webhooks: Mapping[str, WebhookEntry] = field(default_factory=lambda: MappingProxyType({}))
    phone: Mapping[str, PhoneEntry] = field(default_factory=lambda: MappingProxyType({}))
    benches: Mapping[str, BenchEntry] = field(default_factory=lambda: MappingProxyType({}))
    regions: Mapping[str, RegionEntry] = field(default_factory=lambda: MappingProxyType({}))
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

    @property
    def model_pools(self) -> tuple[str, ...]:
        """Return the names of the pools of LLMs: all that no agent names for its STT or TTS."""
        of_speech = {pool for (_, stage), pool in self.pooled.items() if stage != "llm"}
        return tuple(name for name in self.routing.pools if name not in of_speech)

    def routing_of(self, agent: str, stage: Stage) -> RouterOptions:
        """Return the options by which the models of an agent's stage are chosen: its pool's, or the router's."""
        pool = self.pooled.get((agent, stage))
        return self.router if pool is None else self.routing.pools[pool]

    def agent_for(self, metadata: tuple[tuple[str, str], ...]) -> str | None:
        """Return the first agent, by name, that this metadata chooses, or None."""
        chosen = (
            name
            for name, options in self.agents.items()
            if options.chosen_by and set(options.chosen_by) <= set(metadata)
        )
        return next(chosen, None)

    def functions_of(self, agent: str) -> tuple[str, ...]:
        """Return the names of the functions that the server runs for an agent, and of its MCP servers."""
        python = self.python_agents.get(agent)
        options = self.agents[agent]
        return (*(() if python is None else python.tools), *options.tools, *(f"MCP {name}" for name in options.mcp))

    def session_limit_s(self, agent: str) -> int:
        """Return how long a session of an agent may last, in seconds."""
        own_s = self.agents[agent].max_session_s
        return self.server.max_session_s if own_s is None else min(own_s, self.server.max_session_s)

    def agent_named(self, name: str) -> str | None:
        """Return the agent of that name or alias, or None."""
        if name in self.agents:
            return name
        return next((agent for agent, options in self.agents.items() if name in options.aliases), None)

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
        options = self.agents[agent]
        if options.context_tokens is not None:
            return options.context_tokens
        known = [window for spec in self.llm_specs(agent) if (window := self.facts(spec).context_tokens) is not None]
        if not known:
            return None
        window = min(known)
        return window - min(options.max_output_tokens or ANSWER_TOKENS, window // 2)

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

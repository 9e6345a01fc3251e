"""The options, each with what it means beside it, and the frozen whole that the server runs on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

from voicepipe.auth.origin import is_loopback
from voicepipe.config.convert import Between, LanguageTag, MayBeEmpty, OneOrMore, Secret, WebAddress
from voicepipe.config.pools import Routing, specs_of
from voicepipe.config.webhooks import WebhookEntry
from voicepipe.errors import ConfigError
from voicepipe.providers.catalog import Catalog, ModelFacts, ProviderFacts
from voicepipe.registry import ProviderSettings, Spec, Stage
from voicepipe.router.options import RouterOptions
from voicepipe.server.options import ServerSettings
from voicepipe.stages.limits import ProviderLimits
from voicepipe.telemetry.journal_settings import JournalSettings
from voicepipe.turn.conversation_limits import ConversationLimits
from voicepipe.turn.settings import BudgetLimits, Deadlines

STAGES: tuple[Stage, ...] = ("stt", "llm", "tts")

DEFAULT_AGENT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsSettings:
    """What is kept of a turn, where and how long."""

    url: Annotated[str, Secret()] = field(default="", repr=False)
    """A Postgres for the records of many machines, `postgresql://USER:PASSWORD@HOST/DATABASE`, better left to the
    environment; needs the extra `postgres`. Empty: a file below `server.data_dir`."""

    keep_days: Annotated[int, Between(0, 36_500)] = 30
    """How long turns are kept. Their figures, which name no session and no user, stay. 0: for ever."""

    most_mb: Annotated[int, Between(0, 100_000_000)] = 2_000
    """How much they may take up; the oldest go first. 0: anything."""

    text: Literal["loopback", "always", "never"] = "loopback"
    """Whether the words of both sides are stored: only while the server listens on a loopback address, always or
    never."""

    def __post_init__(self) -> None:
        if self.url and not self.url.startswith(("postgres://", "postgresql://")):
            raise ConfigError("records.url: expected an address that begins with postgresql://, got something else")


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """What is told to other systems."""

    otel: bool = False
    """Send spans and figures to an OpenTelemetry collector; the `OTEL_*` environment variables say where it is. Needs
    the extra `otel`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardSettings:
    """What the dashboard holds figures against."""

    over_allowed: Annotated[float, Between(0.0001, 1)] = 0.05
    """The share of turns that may be over `budget.total_ms`. The error budget burns at 1 when exactly so many are: 0.05
    promises that 95 of 100 answers are heard in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogSettings:
    """What is known of language model vendors by name."""

    file: str = ""
    """A TOML file of the built-in catalog's shape, laid over it: other prices, more vendors, more models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderEntry:
    """One `[providers.NAME]`: how to reach it."""

    kind: str = "openai"
    """The adapter that speaks to it: `openai` for every OpenAI-compatible server, `openai_realtime` for ears of that
    wire, `wyoming` for Home Assistant's, a vendor's own (`anthropic`, `gemini`, `assemblyai`, `cartesia`, `deepgram`,
    `elevenlabs`, `flux`, `inworld`, `rime`), `local`, or an installed one."""

    base_url: Annotated[str, WebAddress()] = ""
    """Where it is, up to and with `/v1`."""

    api_key: Annotated[str, Secret()] = field(default="", repr=False)
    """Its key. Better left to the environment: see `api_key_env`."""

    api_key_env: str = ""
    """The environment variable that holds its key; named but empty or unset refuses to start. The same name with
    `_FILE` behind it names a file that holds the key instead."""

    region: str = ""
    """Where it is, for `router.order = "region"`: words parted by `-`, such as `eu-west-1`."""

    connect_timeout_ms: Annotated[int, Between(1, 60_000)] = 3_000
    """How long connecting may take."""

    idle_timeout_ms: Annotated[int, Between(1, 600_000)] = 15_000
    """How long it may send nothing before it counts as stalled."""

    input_usd_per_million: Annotated[float | None, Between(0, 100_000)] = None
    """What a million tokens that its model reads cost. Unset: what the catalog says, if it knows."""

    output_usd_per_million: Annotated[float | None, Between(0, 100_000)] = None
    """What a million tokens that its model writes cost."""

    cached_usd_per_million: Annotated[float | None, Between(0, 100_000)] = None
    """What a million tokens that its model reads from its cache cost. Unset: as `input_usd_per_million`."""

    cache_write_usd_per_million: Annotated[float | None, Between(0, 100_000)] = None
    """What a million tokens that its model puts into its cache cost, likewise. Anthropic takes a quarter more than for
    reading them, and with `cache_ttl = "1h"`, for which this is to be set, twice as much."""

    speech_usd_per_million: Annotated[float | None, Between(0, 100_000)] = None
    """What a million characters that its voice speaks cost. Unset: what its vendor publishes, if that is known."""

    hearing_usd_per_minute: Annotated[float | None, Between(0, 1_000)] = None
    """What a minute that its ear hears costs, likewise. In calls it is counted for all sound that the ear is given: an
    ear that hears the whole call is given the silence too."""

    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """What only this kind understands, as a table of names and values."""

    def connection(self) -> ProviderSettings:
        """Return what an adapter needs of it."""
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
    """One `[agents.NAME]`: who answers. What a section leaves out, it takes from `[agents.default]`.

    Two things are not taken over: the aliases, and the voice by an agent that names another `tts`.
    """

    instructions: str = (
        "You are a friendly voice assistant. Your words are spoken aloud: answer in one or two short, plain "
        "sentences, without lists or markup."
    )
    """The system prompt."""

    stt: Annotated[str, OneOrMore()] = "local/moonshine-tiny"
    """Who hears, as `provider/model`; or several, best first: where one breaks, or is later with its text than
    `router.fallback_after_ms`, the next hears the utterance again."""

    llm: Annotated[str, OneOrMore()] = "local/smollm2-135m"
    """Who thinks, as `provider/model`; or several that answer for one another, best first; or `pool/NAME`."""

    tts: Annotated[str, OneOrMore()] = "local/hibari"
    """Who speaks, as `provider/model`; or several, best first, for which `router.policy`, `fallback_after_ms` and
    `patience_ms` count too: where one breaks, another goes on with the next word."""

    voice: str | None = None
    """The voice's name at its provider. Unset: the provider's own choice."""

    language: Annotated[str | None, LanguageTag()] = None
    """BCP-47, such as `en` or `pt-BR`. Unset: the transcriber finds out."""

    end_of_turn: Literal["adaptive", "silence"] = "adaptive"
    """How the end of a turn is found, unless the client sets `turn_detection`: `silence` waits for exactly
    `silence_ms`; `adaptive` for at least that, and longer the less finished the caller sounds by voice, words and pace:
    1.44 times as long when nothing tells, at most 3.3 times."""

    silence_ms: Annotated[int, Between(20, 10_000)] = 500
    """How long the caller must be silent before the turn is over, at least, unless the client sets it."""

    speculate: bool = True
    """Start the reply while the caller's silence lasts and hold it until the turn is over. Answers sooner; a caller who
    goes on costs the tokens of a reply that nobody hears. It starts no sooner than it must to be ready in time, as
    soon as the session knows how long answers take, and not where it does not pay."""

    speculate_max_starts: Annotated[int, Between(0, 10)] = 3
    """How many such replies a turn may have."""

    speculate_max_wasted_tokens: Annotated[int | None, Between(0, 1_000_000_000)] = None
    """How many tokens of replies that nobody heard a session may spend. Unset: no limit."""

    speculate_max_wasted_share: Annotated[float | None, Between(0, 1)] = None
    """Of all tokens of a session's replies, the share that may be such, from the first 2000 on. Unset: no limit."""

    speculate_ms_per_1000_tokens: Annotated[float, Between(0, 10_000)] = 50.0
    """How much sooner an answer must be for a thousand wasted tokens, both as expected from the session so far, or no
    reply is started early. 0: tokens don't count."""

    announce: Literal["verdict", "immediate"] = "verdict"
    """When a client hears that somebody speaks over the agent: once they have the floor, so that "mhm" stops nothing;
    or at once, so that it falls silent at every voice, as with hosted services."""

    filler: str = ""
    """A short phrase ("One moment.") to say while an answer is expected to come more than 1.2 s after the caller's last
    word, never in two turns running. It is spoken when a session begins, once for each voice. Empty: none."""

    apology: Annotated[str | None, MayBeEmpty()] = None
    """What to say when a turn has failed. Unset: a sentence in the session's language, if that is English, German,
    French, Spanish, Italian, Portuguese or Dutch, or not known. Empty: nothing."""

    max_output_tokens: Annotated[int | None, Between(1, 1_000_000)] = None
    """The longest answer, in tokens. Unset: the provider's own limit."""

    temperature: Annotated[float | None, Between(0, 2)] = None
    """Unset: the provider's own choice."""

    aliases: tuple[str, ...] = ()
    """Other names by which a client's `model` may ask for this agent."""

    def spec(self, stage: Stage, *, key: str = "spec") -> Spec:
        """Return the parsed spec of `stage`; of several models the first.

        Raises:
            ConfigError: naming `key`, when it is not `provider/model`.
        """
        return self.specs(stage, key=key)[0]

    def specs(self, stage: Stage, *, key: str = "spec") -> tuple[Spec, ...]:
        """Return everybody who may serve `stage`, best first.

        Raises:
            ConfigError: as `spec`.
        """
        return specs_of({"stt": self.stt, "llm": self.llm, "tts": self.tts}[stage], key=key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that the operator chose, checked."""

    server: ServerSettings = field(default_factory=ServerSettings)
    budget: BudgetLimits = field(default_factory=BudgetLimits)
    deadlines: Deadlines = field(default_factory=Deadlines)
    conversation: ConversationLimits = field(default_factory=ConversationLimits)
    records: RecordsSettings = field(default_factory=RecordsSettings)
    journals: JournalSettings = field(default_factory=JournalSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    dashboard: DashboardSettings = field(default_factory=DashboardSettings)
    catalog: CatalogSettings = field(default_factory=CatalogSettings)
    router: RouterOptions = field(default_factory=RouterOptions)
    provider_limits: ProviderLimits = field(default_factory=ProviderLimits)
    routing: Routing = field(default_factory=Routing)
    """Pools, rules and experiments."""

    pooled: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Agent -> the pool that its `llm` names; `llm` itself then has the pool's models."""

    vendors: Catalog = field(default_factory=Catalog, repr=False)
    """The catalog as it was read."""

    providers: Mapping[str, ProviderEntry] = field(default_factory=lambda: MappingProxyType({}))
    agents: Mapping[str, AgentSettings] = field(default_factory=lambda: MappingProxyType({}))
    webhooks: Mapping[str, WebhookEntry] = field(default_factory=lambda: MappingProxyType({}))
    origins: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    """Dotted key -> where its value came from; a key that is not here has its default."""

    @property
    def data_path(self) -> Path:
        """The folder for all that is written at run time."""
        return Path(self.server.data_dir)

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.server.host == "localhost" or is_loopback(self.server.host)

    @property
    def keeps_text(self) -> bool:
        """Whether the words of a turn are stored with its record."""
        return self.records.text == "always" or (self.records.text == "loopback" and self.on_loopback)

    @property
    def journals_keep_text(self) -> bool:
        """Whether the words of a session stand in its journal."""
        return self.journals.text == "always" or (self.journals.text == "loopback" and self.on_loopback)

    def agent_named(self, name: str) -> str | None:
        """Return the agent of that name or alias, or None."""
        if name in self.agents:
            return name
        return next((agent for agent, its in self.agents.items() if name in its.aliases), None)

    def thinkers(self, agent: str) -> tuple[Spec, ...]:
        """Return every language model that may answer an agent's caller, its own first, each once."""
        pools = (Spec.parse(spec) for name in sorted(self.routing.reached) for spec in self.routing.pools[name].specs)
        return tuple(dict.fromkeys((*self.agents[agent].specs("llm"), *pools)))

    def vendor(self, provider: str) -> ProviderFacts | None:
        """Return what the catalog knows of a provider; None if it is not known, or is reached at another address."""
        vendor, entry = self.vendors.provider(provider), self.providers[provider]
        return vendor if vendor is not None and vendor.kind == entry.kind and vendor.owns(entry.base_url) else None

    def facts(self, spec: Spec) -> ModelFacts:
        """Return what is known of a model: what the catalog says, under the prices of the settings."""
        vendor, entry = self.vendor(spec.provider), self.providers[spec.provider]
        facts = vendor.model(spec.model) if vendor is not None else ModelFacts(name=spec.model)
        if entry.input_usd_per_million is not None or entry.output_usd_per_million is not None:
            # A price of one's own replaces all of the catalog's: the rest of them belongs to another contract.
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
        """Return how to reach the provider of `spec`, and what is particular to its model.

        Raises:
            ConfigError: the provider's key was promised by an environment variable that is not set, or nobody said
                where it is.
        """
        entry, vendor = self.providers[spec.provider], self.vendor(spec.provider)
        if entry.api_key_env and not entry.api_key:
            raise ConfigError(
                f"providers.{spec.provider}.api_key: {key} is {str(spec)!r}, which needs a key; expected one in the "
                f"environment variable {entry.api_key_env}, which is not set"
            )
        if vendor is not None and not entry.base_url:
            raise ConfigError(
                f"providers.{spec.provider}.base_url: {key} is {str(spec)!r}, whose address only you know; expected "
                f"one such as https://HOST/v1, got none"
            )
        connection = entry.connection()
        own = vendor.options_for(spec.model) if vendor is not None else ()
        return replace(connection, options=(*connection.options, *own)) if own else connection

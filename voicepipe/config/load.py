"""Build the frozen settings from the values as written, or raise an error that names the key."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar, get_type_hints

from voicepipe.agents import Agent
from voicepipe.config.agents import AgentSettings
from voicepipe.config.benches import BenchScheduleSettings, read_benches
from voicepipe.config.convert import Found, convert, displayed, is_table, section_kind
from voicepipe.config.mcp import McpEntry, check_mcp, read_mcp
from voicepipe.config.phone import PhoneEntry, check_phone, read_phone
from voicepipe.config.regions import read_regions
from voicepipe.config.routing import POOL, check_specs, pools_of, read_routing, resolved
from voicepipe.config.settings import (
    DEFAULT_AGENT,
    STAGES,
    CatalogSettings,
    ClusterSettings,
    DashboardSettings,
    ProviderEntry,
    QualitySettings,
    RecordsSettings,
    Settings,
    TelemetrySettings,
)
from voicepipe.config.sources import SECTIONS, KeyPath, Leaves, from_agents, gather, key_in
from voicepipe.config.tools import ToolSettings, check_tools, read_tools
from voicepipe.config.webhooks import WebhookEntry, with_secret
from voicepipe.errors import ConfigError
from voicepipe.ports.limits import ProviderLimits
from voicepipe.providers import catalog
from voicepipe.providers.built_in import VENDORS
from voicepipe.providers.catalog import Catalog, ProviderFacts
from voicepipe.registry import Spec
from voicepipe.router.options import PoolOptions, RouterOptions
from voicepipe.server.gateway.response_cache_settings import ResponseCacheSettings
from voicepipe.server.options import ServerSettings
from voicepipe.server.quotas import Quotas
from voicepipe.server.webrtc.settings import WebRtcSettings
from voicepipe.telemetry.journal.settings import JournalSettings
from voicepipe.telemetry.recording.settings import RecordingSettings
from voicepipe.turn.conversation_limits import ConversationLimits
from voicepipe.turn.settings import BudgetLimits, Deadlines
from voicepipe.values import replace

BUILT_IN_PROVIDERS: Mapping[str, ProviderEntry] = MappingProxyType(
    {
        facts.name: ProviderEntry(kind=facts.kind, base_url=facts.base_url, api_key_env=vendor.key_env)
        for vendor in VENDORS.values()
        for facts in vendor.providers
        if not facts.speech_only
    }
)
"""Providers beside the catalog's that need no section; a section of the same name overrides the options that it
sets.
"""

SINGLE = {
    "server": ServerSettings,
    "webrtc": WebRtcSettings,
    "budget": BudgetLimits,
    "deadlines": Deadlines,
    "conversation": ConversationLimits,
    "cluster": ClusterSettings,
    "records": RecordsSettings,
    "journals": JournalSettings,
    "recordings": RecordingSettings,
    "telemetry": TelemetrySettings,
    "dashboard": DashboardSettings,
    "quality": QualitySettings,
    "bench_schedule": BenchScheduleSettings,
    "catalog": CatalogSettings,
    "router": RouterOptions,
    "provider_limits": ProviderLimits,
    "quotas": Quotas,
    "response_cache": ResponseCacheSettings,
}
"""The sections that exist once."""

MIN_LIKENESS: Final = 0.4
"""The least likeness of two options' names, of 1, at which one is suggested in place of the other."""

Options = TypeVar("Options")


def load(
    config: str | None = None,
    *,
    overrides: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
    agents: Iterable[Agent] = (),
) -> Settings:
    """Read the settings' file, the environment and the command line's `overrides`, and check everything.

    Args:
        config: the file that `--config` names, or None to search: `$VOICEPIPE_CONFIG`, `voicepipe.toml` in
            `folder`, `voicepipe/voicepipe.toml` in `$XDG_CONFIG_HOME`.
        overrides: dotted keys to values, such as {"agents.default.llm": "ollama/llama3.2"}.
        environ: the environment; None means the process's own.
        folder: the working folder; None means the process's own.
        agents: agents in Python; the file, the environment and the command line override their settings.

    Raises:
        ConfigError: an option is unknown or wrong; the text names its key, the expected and the actual value.
    """
    env = os.environ if environ is None else environ
    in_python = {agent.name: agent for agent in agents}
    leaves = from_agents(in_python.values()) | gather(config, overrides or {}, env, folder or Path.cwd())
    _refuse_unknown_sections(leaves)
    written = _Written(leaves, env, {".".join(path): found.source for path, found in leaves.items()})
    return _settings(written, in_python)


@dataclass(frozen=True, slots=True)
class _Written:
    """The values as written in all sources."""

    leaves: Leaves
    env: Mapping[str, str]
    origins: dict[str, str]
    """Dotted key -> the source of its value. A section that takes a value from elsewhere adds that value's source."""


def _settings(written: _Written, in_python: Mapping[str, Agent]) -> Settings:
    """Return the settings, read section by section. A section that names another one is checked behind it."""
    leaves, env, origins = written.leaves, written.env, written.origins
    single = {name: _read(kind(), (name,), leaves) for name, kind in SINGLE.items()}
    chosen: CatalogSettings = single["catalog"]
    vendors = catalog.load(Path(chosen.file) if chosen.file else None)
    providers = _providers(vendors, written)
    webhooks = _webhooks(written)
    routing = read_routing(leaves, single["router"], _read)
    named = _agents(written, AgentSettings(budget=single["budget"], deadlines=single["deadlines"]))
    pooled = pools_of({name: agent.written for name, agent in named.items()}, routing)
    agents = _with_models(named, routing.pools)
    tools, phone, mcp = _functions(agents, written)
    check = partial(_check_spec, providers=providers, origins=origins)
    _check_specs(agents, check)
    check_specs(routing.pools, check)
    benches = read_benches(leaves, _read, check)
    if judge_model := single["quality"].judge_model:
        check(judge_model, "quality.judge_model")
    _check_names(agents)
    regions = read_regions(leaves, _read, single["cluster"].region)
    server: ServerSettings = single.pop("server")
    return Settings(
        server=replace(server, data_dir=str(_data_dir(server.data_dir, env))),
        routing=routing,
        pooled=MappingProxyType(pooled),
        vendors=vendors,
        providers=MappingProxyType(providers),
        agents=MappingProxyType(agents),
        python_agents=MappingProxyType(dict(in_python)),
        tools=MappingProxyType(tools),
        mcp=MappingProxyType(mcp),
        webhooks=MappingProxyType(webhooks),
        phone=MappingProxyType(phone),
        benches=MappingProxyType(benches),
        regions=MappingProxyType(dict(regions)),
        origins=MappingProxyType(origins),
        **single,
    )


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    """Return the types of a dataclass's fields. Stored: each evaluation compiles every annotation anew."""
    return get_type_hints(kind, include_extras=True)


def _read(start: Options, at: KeyPath, leaves: Leaves) -> Options:
    """Return `start` with the values below `at` applied."""
    kind: type = type(start)
    hints = _hints(kind)
    changes: dict[str, Any] = {}
    for path, found in leaves.items():
        if path == at and found.value != {}:
            raise ConfigError(f"{'.'.join(at)}: expected a table, got {displayed(found.value)} ({found.source})")
        if path[: len(at)] != at or path == at:
            continue
        name, key = path[len(at)], ".".join(path[: len(at) + 1])
        if name not in hints:
            raise _unknown(key, found, (".".join((*at, known)) for known in hints))
        if is_dataclass(hints[name]):
            if name not in changes:
                changes[name] = _read(getattr(start, name), (*at, name), leaves)
        elif is_table(hints[name]):
            changes[name] = _with_option(changes.get(name, getattr(start, name)), path, len(at) + 1, found)
        elif (entry := section_kind(hints[name])) is not None:
            if name not in changes:
                changes[name] = _sections(getattr(start, name), entry, (*at, name), leaves)
        else:
            whole = found if len(path) == len(at) + 1 else replace(found, value={}, text=False)
            changes[name] = convert(whole, hints[name], key)
    try:
        return replace(start, **changes) if changes else start  # type: ignore[type-var]
    except ConfigError as why:  # an option's own check has its name, but not always its section
        text = str(why)
        if not text.startswith(f"{at[0]}."):
            text = f"{'.'.join(at)}.{text.removeprefix(f'{at[-1]}.')}"
        raise ConfigError(text) from None


def _sections(
    so_far: tuple[tuple[str, Any], ...], kind: type, at: KeyPath, leaves: Leaves
) -> tuple[tuple[str, Any], ...]:
    """Read tables with free names; those of the same name go on from what they inherit."""
    below = [path for path in leaves if path[: len(at)] == at and len(path) > len(at)]
    if not below:  # `languages = ...`
        _read(kind(), at, leaves)
    entries = dict(so_far)
    for name in sorted({path[len(at)] for path in below}):
        entries[name] = _read(entries.get(name, kind()), (*at, name), leaves)
    return tuple(entries.items())


def _with_option(so_far: Any, path: KeyPath, depth: int, found: Found) -> Any:
    """Add one entry of a free table; numbers and booleans become text."""
    key = ".".join(path)
    if len(path) == depth and found.value == {}:
        return so_far
    if len(path) != depth + 1 or not isinstance(found.value, str | int | float):
        raise ConfigError(
            f"{key}: expected a table of names and plain values, got {displayed(found.value)} ({found.source})"
        )
    text = str(found.value).lower() if isinstance(found.value, bool) else str(found.value)
    return (*(pair for pair in so_far if pair[0] != path[-1]), (path[-1], text))


def _providers(vendors: Catalog, written: _Written) -> dict[str, ProviderEntry]:
    leaves, env = written.leaves, written.env
    entries: dict[str, ProviderEntry] = {}
    if POOL in _names("providers", leaves):
        raise ConfigError(f"providers.{POOL}: expected another name, since {POOL}/NAME means a pool of models")
    for name in sorted({*BUILT_IN_PROVIDERS, *vendors.providers, *_names("providers", leaves)}):
        entry = _read(_start(name, vendors.provider(name), leaves, env), ("providers", name), leaves)
        if entry.kind == "openai" and not entry.base_url and vendors.provider(name) is None:
            raise ConfigError(
                f"providers.{name}.base_url: expected an address such as http://127.0.0.1:8000/v1, got none"
            )
        if entry.api_key_env and not entry.api_key and (secret := key_in(env, entry.api_key_env)):
            entry = replace(entry, api_key=secret)
            written.origins[f"providers.{name}.api_key"] = f"${entry.api_key_env}"
        entries[name] = replace(entry, base_url=entry.base_url.rstrip("/"))
    return entries


def _start(name: str, vendor: ProviderFacts | None, leaves: Leaves, env: Mapping[str, str]) -> ProviderEntry:
    """Return the defaults of a provider before its section is read."""
    start = _usual(vendor, env) if vendor is not None else BUILT_IN_PROVIDERS.get(name, ProviderEntry())
    written = leaves.get(("providers", name, "base_url"))
    if written is None or (vendor is not None and vendor.owns(str(written.value))):
        return start
    # The usual key belongs to the usual address: another address gets it only by an explicit setting.
    return ProviderEntry(kind=start.kind)


def _usual(vendor: ProviderFacts, env: Mapping[str, str]) -> ProviderEntry:
    key_env = next((each for each in vendor.key_env if key_in(env, each)), "")
    scheme = vendor.auth.partition(" ")[0]
    auth = (("auth_scheme", scheme),) if vendor.kind == "openai" and scheme == "Basic" else ()
    return ProviderEntry(
        kind=vendor.kind,
        base_url=vendor.base_url,
        api_key_env=key_env or (vendor.key_env[0] if vendor.key_env and vendor.key_needed else ""),
        options=(*auth, *vendor.options),
    )


def _webhooks(written: _Written) -> dict[str, WebhookEntry]:
    return {
        name: with_secret(_read(WebhookEntry(), ("webhooks", name), written.leaves), name, written.env, written.origins)
        for name in sorted(_names("webhooks", written.leaves))
    }


def _functions(
    agents: Mapping[str, AgentSettings], written: _Written
) -> tuple[dict[str, ToolSettings], dict[str, PhoneEntry], dict[str, McpEntry]]:
    """Return the functions that agents may name, the phone lines and the MCP servers. What an agent names is there."""
    leaves, env = written.leaves, written.env
    tools = read_tools(leaves, _read, env)
    check_tools(agents, tools)
    phone = read_phone(leaves, _read, env, written.origins)
    check_phone(agents, phone)
    mcp = read_mcp(leaves, _read, env)
    check_mcp(agents, mcp)
    return tools, phone, mcp


def _with_models(agents: Mapping[str, AgentSettings], pools: Mapping[str, PoolOptions]) -> dict[str, AgentSettings]:
    """Return the agents with the models of the pools that they name."""
    return {
        name: replace(
            agent, stt=resolved(agent.stt, pools), llm=resolved(agent.llm, pools), tts=resolved(agent.tts, pools)
        )
        for name, agent in agents.items()
    }


def _agents(written: _Written, usual: AgentSettings) -> dict[str, AgentSettings]:
    leaves, origins = written.leaves, written.origins
    default = _read(usual, ("agents", DEFAULT_AGENT), leaves)
    agents = {DEFAULT_AGENT: default}
    for name in sorted(_names("agents", leaves) - {DEFAULT_AGENT}):
        own = {"aliases", "chosen_by", "hand_over", "interpret"}
        if ("agents", name, "tts") in leaves:
            own |= {"voice", "languages"}
        if ("agents", name, "interpret") in leaves:
            own |= {"instructions", "language", "tools", "mcp", "knowledge"}
        start = replace(default, **{option: getattr(AgentSettings(), option) for option in own})
        agents[name] = _read(start, ("agents", name), leaves)
        for option in {field.name for field in fields(AgentSettings)} - own:
            if f"agents.{DEFAULT_AGENT}.{option}" in origins:
                origins.setdefault(f"agents.{name}.{option}", f"agents.{DEFAULT_AGENT}")
    return agents


def _names(section: str, leaves: Leaves) -> set[str]:
    """Return the names of `[section.NAME]`; an option directly below the section is refused."""
    for path, found in leaves.items():
        if path[0] == section and len(path) == 2 and found.value != {}:
            raise ConfigError(f"{section}.{path[1]}: expected a table, got {displayed(found.value)} ({found.source})")
    return {path[1] for path in leaves if path[0] == section and len(path) > 1}


def _check_specs(agents: Mapping[str, AgentSettings], check: Callable[[str, str], None]) -> None:
    """Check every model of every agent with `check(spec, key)`, which raises."""
    for name, agent in agents.items():
        for stage in STAGES:
            key = f"agents.{name}.{stage}"
            for spec in agent.specs(stage, key=key):
                check(str(spec), key)
        if agent.model:
            check(agent.model, f"agents.{name}.model")
        if agent.knowledge_embedding:
            key = f"agents.{name}.knowledge_embedding"
            check(str(Spec.parse(agent.knowledge_embedding, key=key)), key)


def _check_spec(text: str, key: str, *, providers: Mapping[str, ProviderEntry], origins: Mapping[str, str]) -> None:
    spec = Spec.parse(text, key=key)
    if spec.provider not in providers:
        raise ConfigError(
            f"{key}: no provider is called {spec.provider!r}{_hint(spec.provider, providers)}; "
            f"add [providers.{spec.provider}] with its base_url ({origins.get(key, 'default')})"
        )


def _check_names(agents: Mapping[str, AgentSettings]) -> None:
    """Check that a name or alias belongs to only 1 agent."""
    taken = {name: f"the name of agents.{name}" for name in agents}
    for name, agent in agents.items():
        for alias in agent.aliases:
            if alias in taken:
                raise ConfigError(f"agents.{name}.aliases: expected names of its own, got {alias!r}, {taken[alias]}")
            taken[alias] = f"an alias of agents.{name}"


def _refuse_unknown_sections(leaves: Leaves) -> None:
    for path, found in leaves.items():
        if path[0] not in SECTIONS:
            raise _unknown(path[0], found, SECTIONS)
        if len(path) == 1 and found.value != {}:
            raise ConfigError(f"{path[0]}: expected a table, got {displayed(found.value)} ({found.source})")


def _unknown(key: str, found: Found, known: Iterable[str]) -> ConfigError:
    choices = list(known)
    near = _hint(key, choices) or f"; known here are {', '.join(choices)}"
    return ConfigError(f"{key}: unknown setting ({found.source}){near}")


def _hint(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]}?" if near and _alike(name, near[0]) else ""


def _alike(name: str, other: str) -> bool:
    """Return whether two keys are alike in more than the sections that they share."""
    ends = (name.rpartition(".")[2], other.rpartition(".")[2])
    return difflib.SequenceMatcher(None, *ends).ratio() >= MIN_LIKENESS


def _data_dir(written: str, env: Mapping[str, str]) -> Path:
    if written:
        return Path(written).expanduser().absolute()
    home = env.get("XDG_DATA_HOME") or Path(env.get("HOME") or Path.home()) / ".local" / "share"
    return (Path(home) / "voicepipe").absolute()


def default_of(option: Any) -> object:
    """Return a dataclass field's default."""
    return option.default if option.default is not MISSING else option.default_factory()

"""Put other settings in force while the server runs: for sessions that begin from then on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Final

from voicepipe.agents.mcp_server import McpConnection
from voicepipe.config.settings import Settings
from voicepipe.errors import ConfigError
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.session.grant import SessionGrant
from voicepipe.telemetry.log import log_crash, log_event
from voicepipe.wiring.mcp import McpServers
from voicepipe.wiring.prices import Prices, check_quota_prices
from voicepipe.wiring.sessions import Sessions, config_of
from voicepipe.wiring.stages import Stages
from voicepipe.wiring.tools import Tools

RELOADED: Final = frozenset(
    ("agents", "python_agents", "tools", "mcp", "budget", "deadlines", "conversation", "pooled", "origins")
)
"""What a reload changes of the settings. Everything else belongs to the process: sockets, stores, providers."""


class SettingsInForce:
    """The settings of sessions that begin now."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def agent_named(self, name: str) -> str | None:
        """Return the agent of that name or alias, or None."""
        return self.settings.agent_named(name)

    def agent_for(self, metadata: tuple[tuple[str, str], ...]) -> str | None:
        """Return the agent that this metadata chooses, or None."""
        return self.settings.agent_for(metadata)

    def session_limit_s(self, agent: str) -> int:
        """Return how long a session of an agent may last, in seconds."""
        return self.settings.session_limit_s(agent)

    def start_config(self, grant: SessionGrant) -> SessionConfig:
        """Return the session that a grant starts with."""
        return config_of(self.settings.agents[grant.agent], grant)

    def unpriced(self, agent: str) -> str | None:
        """Return the setting that is missing to price an agent; None: all prices are set."""
        return Prices(self.settings).unpriced(agent)


class Reload:
    """Reads the settings again. Running sessions keep theirs."""

    def __init__(
        self,
        in_force: SettingsInForce,
        read: Callable[[], Settings] | None,
        *,
        stages: Stages,
        sessions: Sessions,
        tools: Tools,
        mcp: McpServers,
    ) -> None:
        """`read` reads the settings from where they came; it may wait for a disk. None: they came from nowhere."""
        self._in_force, self._read = in_force, read
        self._stages, self._sessions, self._tools = stages, sessions, tools
        self._mcp = mcp
        self._one_at_a_time = asyncio.Lock()

    async def __call__(self) -> tuple[str, ...]:
        """Put the settings as they are written now in force; return the names of the agents.

        Raises:
            ConfigError: they are wrong, or change what only a restart can change. The old ones stay in force.
        """
        async with self._one_at_a_time:
            try:
                settings = await self._renewed()
            except ConfigError as why:
                log_event("settings_refused", level=logging.WARNING, why=str(why))
                raise
            except Exception as bug:  # SIGHUP ends no server, whatever has become of the files
                log_crash("reload", bug)
                raise ConfigError(f"the settings can't be put in force: {type(bug).__name__}") from bug
        log_event("settings_reloaded", agents=", ".join(settings.agents))
        return tuple(settings.agents)

    async def _renewed(self) -> Settings:
        if self._read is None:
            raise ConfigError("the settings of this server came from no file that could be read again")
        settings = await asyncio.to_thread(self._read)
        self._check(settings)
        servers = await self._mcp.connected(settings)
        try:
            self._put_in_force(settings, servers)
        except BaseException:
            self._mcp.drop(servers)
            raise
        return settings

    def _check(self, settings: Settings) -> None:
        """Raises ConfigError: the settings change what only a restart can change."""
        old = self._in_force.settings
        names = (field.name for field in fields(Settings) if field.name not in RELOADED)
        if changed := [name for name in names if getattr(settings, name) != getattr(old, name)]:
            raise ConfigError(f"{', '.join(changed)}: expected the values of the start, since a change needs a restart")
        for name, agent in settings.agents.items():
            for option in ("knowledge", "knowledge_embedding"):
                if getattr(agent, option) != (getattr(old.agents[name], option) if name in old.agents else ""):
                    why = "since the documents are indexed there"
                    raise ConfigError(f"agents.{name}.{option}: expected the value of the start, {why}")
        check_quota_prices(settings)

    def _put_in_force(self, settings: Settings, servers: Mapping[str, McpConnection]) -> None:
        stages = self._stages.with_settings(settings, self._tools.of(settings), servers)
        if set(stages.engines()) - set(self._stages.engines()):
            raise ConfigError("agents: expected the local models of the start, since another needs a restart")
        self._sessions.use(settings, stages)
        old = self._in_force.settings
        retained_s = max(old.session_limit_s(name) for name in old.agents)
        self._mcp.put_in_force(settings, servers, retained_s=retained_s)
        self._in_force.settings = settings

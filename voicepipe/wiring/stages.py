"""One provider for each spec that the agents name, shared by all sessions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from voicepipe.config.settings import STAGES, Settings
from voicepipe.registry import Spec, Stage, factory
from voicepipe.session.session import SessionStages

LOCAL = "local"
"""The kind whose engines run beside us, in a process of their own."""


class Stages:
    """Makes each provider once, when it is first asked for; its code is imported then, and not before."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._made: dict[tuple[Stage, Spec], Any] = {}

    def get(self, stage: Stage, spec: Spec, *, key: str) -> Any:
        """Return the Transcriber, Model or Synthesizer that `spec` names.

        Raises:
            ConfigError: naming `key` or the provider's setting, when there is no such adapter, its key is missing, or
                it knows no such model.
        """
        if (stage, spec) not in self._made:
            connection = self._settings.connection(spec, key=key)
            if connection.kind == LOCAL:
                socket = ("socket", str(self.engine_socket))
                connection = replace(connection, options=(*connection.options, socket))
            make = factory(connection.kind, stage, key=key)
            self._made[stage, spec] = make(spec, connection)
        return self._made[stage, spec]

    def of_agent(self, name: str) -> SessionStages:
        """Return the three stages of an agent.

        Raises:
            ConfigError: as `get` does.
        """
        specs = {stage: self._settings.agents[name].spec(stage) for stage in STAGES}
        made = {stage: self.get(stage, spec, key=f"agents.{name}.{stage}") for stage, spec in specs.items()}
        return SessionStages(
            transcriber=made["stt"],
            model=made["llm"],
            synthesizer=made["tts"],
            stt_model=specs["stt"].model,
            llm_model=specs["llm"].model,
            tts_model=specs["tts"].model,
        )

    @property
    def engine_socket(self) -> Path:
        """Where the local engines listen."""
        return self._settings.data_path / "engine.sock"

    def local(self) -> tuple[Stage, ...]:
        """The stages for which some agent needs a local engine."""
        return tuple(
            stage
            for stage in STAGES
            if any(
                self._settings.providers[agent.spec(stage).provider].kind == LOCAL
                for agent in self._settings.agents.values()
            )
        )

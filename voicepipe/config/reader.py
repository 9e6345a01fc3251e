"""Read the settings of a command line, and read them again later, also in another process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from voicepipe.agents import load_file
from voicepipe.config.load import load
from voicepipe.config.settings import Settings


@dataclass(frozen=True, slots=True)
class SettingsReader:
    """Reads the settings of a command line: its file, the environment, its options and its Python file."""

    config: str | None = None
    overrides: Mapping[str, object] = field(default_factory=dict)
    python_file: Path | None = None

    def __call__(self) -> Settings:
        """Return the settings as they are written now.

        Raises:
            ConfigError: they are wrong, or the Python file fails.
        """
        agents = () if self.python_file is None else load_file(self.python_file)
        return load(self.config, overrides=self.overrides, agents=agents)

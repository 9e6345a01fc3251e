"""Settings that are read again, also by another process."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from voicepipe.config.reader import SettingsReader
from voicepipe.errors import ConfigError


def test_a_reader_reads_what_stands_there_now(tmp_path: Path) -> None:
    """It has the options of the command line and the Python file, and can be passed to another process."""
    config, python = tmp_path / "voicepipe.toml", tmp_path / "agents.py"
    config.write_text('[agents.clinic]\ninstructions = "Old."\n')
    python.write_text("from voicepipe.agents import Agent\nagent = Agent('By Python.', name='python')\n")
    reader = SettingsReader(str(config), {"server.max_sessions": 7}, python)
    read = pickle.loads(pickle.dumps(reader))
    settings = read()
    assert settings.server.max_sessions == 7
    assert settings.agents["clinic"].instructions == "Old."
    assert settings.agents["python"].instructions == "By Python."
    config.write_text('[agents.clinic]\ninstructions = "New."\n')
    assert read().agents["clinic"].instructions == "New."
    python.write_text("agent = nothing\n")
    with pytest.raises(ConfigError):
        read()
    assert SettingsReader(str(config))().python_agents == {}

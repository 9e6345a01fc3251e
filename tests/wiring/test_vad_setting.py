"""The VAD of an agent: its sessions use it, and a wrong name is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.wiring.test_agents_turns import GRANT
from voicepipe.audio import silero
from voicepipe.audio.files import read_sound
from voicepipe.config import load
from voicepipe.config.agents import AgentSettings
from voicepipe.errors import ConfigError
from voicepipe.testing.user import calling
from voicepipe.wiring.sessions import config_of

G711 = {"type": "realtime", "audio": {"input": {"format": {"type": "audio/pcmu"}}}}


def test_each_agent_has_its_own_vad() -> None:
    """By default that of `agents.default`, which has the model. A client's settings leave it as it is."""
    overrides = {"agents.default.vad": "webrtc", "agents.bank.vad": "silero", "agents.shop.voice": "v"}
    agents = load(overrides=overrides).agents
    assert {name: agent.vad for name, agent in agents.items()} == {
        "default": "webrtc",
        "bank": "silero",
        "shop": "webrtc",
    }
    assert config_of(AgentSettings(), GRANT).vad == "silero"
    assert config_of(AgentSettings(vad="webrtc"), GRANT).merged(G711).vad == "webrtc"


def test_an_unknown_vad_is_refused() -> None:
    """The text names the setting, its values, and what came."""
    with pytest.raises(ConfigError, match=r'^agents\.default\.vad: expected "silero" or "webrtc", got "energy"'):
        load(overrides={"agents.default.vad": "energy"})


async def test_a_session_without_the_model_answers(
    fake_server: Any, question: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two spoken turns, and nothing loads the model."""
    monkeypatch.setattr(silero, "shared", lambda: pytest.fail("loaded"))
    async with fake_server({"agents.default.vad": "webrtc"}) as server, calling(server.url) as user:
        for _ in range(2):
            await user.speak(read_sound(question, 24_000), then_silence_ms=1_500)
            done = await user.until("response.done")
            assert done["response"]["status"] == "completed"

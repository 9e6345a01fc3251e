"""`voicepipe eval --time virtual`: refuse what can't run in virtual time, before anything runs."""

from __future__ import annotations

from typing import Final

from voicepipe.cli.options import EvalOptions
from voicepipe.config import Settings
from voicepipe.config.settings import LOCAL
from voicepipe.errors import ConfigError
from voicepipe.registry import Stage

ANSWERS: Final = frozenset({"openai", *LOCAL})
"""Kinds of STT and TTS whose adapters request each answer, so that a wait for one is known. Others send sound over a
connection that stays open.
"""

SPEECH: Final[tuple[Stage, ...]] = ("stt", "tts")

SERVER: Final = {"server.head_room": "false"}
"""Settings of the server. It measures its load as CPU time per second; a virtual second is shorter than a real one, so
it would refuse sessions.
"""


def refuse_running_server(options: EvalOptions) -> None:
    """Refuse a server that runs.

    Raises:
        ConfigError: one was named.
    """
    if options.url is not None:
        raise ConfigError("--time virtual: expected no --url, since a server that runs reads its machine's clock")


def refuse_outside_server(settings: Settings) -> None:
    """Refuse settings whose server receives data of another process at times that the eval can't determine.

    Raises:
        ConfigError: the text has the setting and the reason.
    """
    for name, agent in settings.agents.items():
        if agent.mcp:
            raise ConfigError(
                f"agents.{name}.mcp: expected no MCP server with --time virtual, since its connection stays open, and "
                f"no event shows that an answer is due; got {', '.join(agent.mcp)}"
            )
        for stage in SPEECH:
            for spec in agent.specs(stage):
                if settings.providers[spec.provider].kind not in ANSWERS:
                    raise ConfigError(
                        f"agents.{name}.{stage}: expected a local model, an HTTP API or a scripted one with --time "
                        f"virtual, since another sends sound over a connection that stays open, and no event shows "
                        f"that an answer is due; got {spec}"
                    )

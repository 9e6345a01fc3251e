"""`voicepipe eval --time virtual`: refuse what can't run in virtual time, before anything runs."""

from __future__ import annotations

from typing import Final

from voicepipe.cli.options import EvalOptions
from voicepipe.config import Settings
from voicepipe.errors import ConfigError
from voicepipe.evals.scenario import Scenario, texts
from voicepipe.wiring.stages import Stages

STAGES: Final = ("llm", "stt", "tts")

SERVER: Final = {"server.head_room": "false"}
"""Settings of the server. It measures its load as CPU time per second; a virtual second is shorter than a real one, so
it would refuse sessions.
"""


def refuse_outside_scenario(scenario: Scenario, options: EvalOptions) -> None:
    """Refuse a scenario that needs anything which answers in real time.

    Raises:
        ConfigError: the text has the field and the reason.
    """
    if options.url is not None:
        raise ConfigError("--time virtual: expected no --url, since a server that runs reads its machine's clock")
    if real := _real_stages(scenario):
        raise ConfigError(
            f"{scenario.path}: scripted: expected all three stages with --time virtual, since a model of the settings "
            f"answers in real time; got none for {', '.join(real)}"
        )
    judges = any(texts(each.judge) for each in scenario.expectations)
    for name, used in (("persona", any(step.persona for step in scenario.steps)), ("judge", judges)):
        if used:
            raise ConfigError(
                f"{scenario.path}: {name}: expected none with --time virtual, since its model answers in real time"
            )


def refuse_outside_server(settings: Settings) -> None:
    """Refuse settings whose server needs a local model or an MCP server.

    Raises:
        ConfigError: the text has the setting and the reason.
    """
    for name, agent in settings.agents.items():
        if agent.mcp:
            raise ConfigError(
                f"agents.{name}.mcp: expected no MCP server with --time virtual, since it answers in real time; got "
                f"{', '.join(agent.mcp)}"
            )
    stages = sorted({stage for use in Stages(settings).engines() for stage in use.stages})
    if stages:
        raise ConfigError(
            f"--time virtual: expected settings without a local model, since it answers in real time; got one for "
            f"{', '.join(stages)}"
        )


def _real_stages(scenario: Scenario) -> list[str]:
    its = scenario.scripted
    scripted = (False, False, False) if its is None else (bool(its.answers), its.stt, its.tts)
    return [stage for stage, is_scripted in zip(STAGES, scripted, strict=True) if not is_scripted]

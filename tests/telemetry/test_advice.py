"""What a delay depends on, and the setting that changes it."""

from __future__ import annotations

from dataclasses import fields
from typing import get_args

import pytest

from voicepipe.config.agents import AgentSettings
from voicepipe.telemetry.advice import depends_on_for, setting_for
from voicepipe.turn.record.attribution import DEPENDS_ON
from voicepipe.turn.settings import SilenceSetBy

NAMED = sorted({*DEPENDS_ON.values(), *get_args(SilenceSetBy), "client_playback"})


@pytest.mark.parametrize("depends_on", NAMED)
def test_a_setting_is_named_for_each_thing_that_the_core_names(depends_on: str) -> None:
    """One that exists, of the agent that answered; and records of older versions, without its name, are read again."""
    setting = setting_for(depends_on, "sales")
    assert setting != depends_on
    assert "NAME" not in setting
    assert depends_on_for(setting.replace("agents.sales.", "agents.NAME.")) == depends_on
    section, _, name = setting.rpartition(".")
    if section == "agents.sales":
        assert name in {each.name for each in fields(AgentSettings)}
    else:
        assert section == "turn_detection" or depends_on == "client_playback"


def test_what_another_version_names_stays() -> None:
    """Neither invented nor lost."""
    assert setting_for("moon", "sales") == depends_on_for("moon") == "moon"

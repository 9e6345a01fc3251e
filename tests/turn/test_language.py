"""Which language a turn's record says that the user spoke."""

from __future__ import annotations

import pytest

from voicepipe.testing.scenario import Scenario


@pytest.mark.parametrize(
    ("as_set", "detected", "recorded"), [(None, None, ""), ("de", None, "de"), (None, "fr", "fr"), ("de", "fr", "fr")]
)
def test_detected_language_overrides_the_setting(as_set: str | None, detected: str | None, recorded: str) -> None:
    """No setting is required; without a setting and a detection the record has no language either."""
    scenario = Scenario(language=as_set)
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes(language=detected)
    scenario.stops()
    scenario.leaves()
    assert scenario.driver.records["turn_s_0001"].language == recorded

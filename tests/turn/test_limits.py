"""Limits of the core: what can't be meant is refused by its name."""

from __future__ import annotations

from typing import Any

import pytest

from voicepipe.errors import ConfigError
from voicepipe.testing.scenario import Scenario
from voicepipe.turn.apology import WORDS, phrases_of, words_for
from voicepipe.turn.conversation_limits import ConversationLimits
from voicepipe.turn.settings import BudgetActionSettings, SpeculationLimits


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_starts": -1},
        {"max_wasted_tokens": -1},
        {"max_wasted_share": 1.1},
        {"max_wasted_share": -0.1},
        {"ms_per_1000_tokens": -1.0},
    ],
)
def test_limits_of_speculation_are_refused_by_name(wrong: dict[str, Any]) -> None:
    name, value = next(iter(wrong.items()))
    with pytest.raises(ConfigError, match=rf"{name}: expected 0 .*got {value}"):
        SpeculationLimits(**wrong)


@pytest.mark.parametrize("name", ConversationLimits.__slots__)
def test_limits_of_a_conversation_are_refused_by_name(name: str) -> None:
    wrong: dict[str, Any] = {name: 0}
    with pytest.raises(ConfigError, match=f"{name}: expected 1 or more, got 0"):
        ConversationLimits(**wrong)


@pytest.mark.parametrize(
    ("budget_actions", "language", "words"),
    [
        (BudgetActionSettings(apology="Oh."), "de", "Oh."),
        (BudgetActionSettings(), "de", ""),
        (BudgetActionSettings(apologises=True), "de-AT", WORDS["de"]),
        (BudgetActionSettings(apologises=True), None, WORDS["en"]),
        (BudgetActionSettings(apologises=True), "xx", ""),
    ],
)
def test_an_apology_is_in_the_sessions_language(
    budget_actions: BudgetActionSettings, language: str | None, words: str
) -> None:
    """The operator's own words, or those of the language when there are any."""
    context = Scenario(budget_actions=budget_actions, language=language).driver.core.context
    assert words_for(context) == words
    assert phrases_of(context) == ((words,) if words else ())

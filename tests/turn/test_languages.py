"""An agent without a language of its own follows the user's: voice, instructions, the TTS's language, the apology."""

from __future__ import annotations

from typing import Any

import pytest

from voicepipe.testing.scenario import Scenario
from voicepipe.turn.commands import SayFiller
from voicepipe.turn.settings import BudgetActionSettings, LanguageSettings, ReplySettings
from voicepipe.values import replace

GERMAN = LanguageSettings(tag="de", voice="Anna", instructions="Answer in German.")
SWISS = LanguageSettings(tag="de-CH", instructions="Write ss.")
LANGUAGES = (GERMAN, SWISS, LanguageSettings(tag="pt-BR", voice="Bia"))
USUAL = ReplySettings(instructions="Be brief.", voice="Heart")


def new_scenario(**more: Any) -> Scenario:
    return Scenario(reply=USUAL, languages=more.pop("languages", LANGUAGES), **more)


def says(scenario: Scenario, words: str, language: str | None) -> ReplySettings:
    """The user says something and is answered; return how."""
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes(words, language=language)
    scenario.stops()
    scenario.answers("Yes.")
    scenario.passes(5_000)
    return scenario.started()[-1].reply


def spoken(reply: ReplySettings) -> tuple[str | None, str | None, str]:
    return reply.language, reply.voice, reply.instructions


@pytest.mark.parametrize(
    ("detected", "expected"),
    [
        ("de", ("de", "Anna", "Be brief.\n\nAnswer in German.")),
        ("DE-at", ("de", "Anna", "Be brief.\n\nAnswer in German.")),
        ("de-CH", ("de-CH", "Heart", "Be brief.\n\nWrite ss.")),
        ("pt", ("pt-BR", "Bia", "Be brief.")),
        ("en", (None, "Heart", "Be brief.")),
        (None, (None, "Heart", "Be brief.")),
    ],
)
def test_a_reply_follows_the_language(detected: str | None, expected: tuple[str | None, str, str]) -> None:
    """By the tag, or by its first part; a language that is not listed changes nothing."""
    assert spoken(says(new_scenario(), "Wie spät ist es?", detected)) == expected


def test_the_language_lasts_until_another_is_detected() -> None:
    """A short word does not change it, nor does a reply without words of the user."""
    scenario = new_scenario()
    assert says(scenario, "Wie spät ist es?", "de").voice == "Anna"
    assert says(scenario, "Okay.", "en").voice == "Anna"
    scenario.creates(instructions="Be brief.", voice="Heart")
    assert scenario.started()[-1].reply.voice == "Anna"
    scenario.answers("Gern.")
    scenario.passes(5_000)
    assert spoken(says(scenario, "What time is it?", "en")) == (None, "Heart", "Be brief.")


def test_the_first_word_counts_however_short() -> None:
    assert says(new_scenario(), "Hallo.", "de").voice == "Anna"


def test_an_agent_with_a_language_speaks_it() -> None:
    assert spoken(says(new_scenario(language="en"), "Wie spät ist es?", "de")) == (None, "Heart", "Be brief.")


def test_what_a_client_sets_for_a_reply_stays() -> None:
    """The rest follows the language."""
    scenario = new_scenario()
    says(scenario, "Wie spät ist es?", "de")
    scenario.creates(instructions="Say goodbye.", voice="Heart")
    assert spoken(scenario.started()[-1].reply) == ("de", "Anna", "Say goodbye.")
    scenario.answers("Bye.")
    scenario.passes(5_000)
    scenario.creates(instructions="Be brief.", voice="Low")
    assert spoken(scenario.started()[-1].reply) == ("de", "Low", "Be brief.\n\nAnswer in German.")


def test_a_revision_has_the_language_of_the_whole_turn() -> None:
    """The user goes on in another language before the answer is audible."""
    scenario = new_scenario()
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes("Wie spät ist es?", language="de")
    scenario.stops()
    assert scenario.started()[-1].reply.voice == "Anna"
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes("I mean, what time is it in Paris?", language="en")
    scenario.stops()
    assert spoken(scenario.started()[-1].reply) == (None, "Heart", "Be brief.")


def test_the_apology_is_in_the_users_language() -> None:
    scenario = new_scenario(budget_actions=BudgetActionSettings(apologises=True))
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes("Wie spät ist es?", language="de-AT")
    scenario.stops()
    scenario.breaks("llm")
    apology = scenario.started()[-1]
    assert apology.words.startswith("Entschuldigung")
    assert apology.reply.voice == "Anna"


# --- fillers --------------------------------------------------------------------------------------

MOMENT = "One moment."
FILLERS = (replace(GERMAN, filler="Einen Moment."), LanguageSettings(tag="fr"))


def waits(scenario: Scenario, words: str, language: str | None) -> str | None:
    """The user says something, and the answer is late; return the filler."""
    scenario.has_ready(MOMENT, "Einen Moment.")
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes(words, language=language)
    scenario.stops()
    got = scenario.model_requested() + scenario.passes(900)
    return next((each.words for each in got if isinstance(each, SayFiller)), None)


@pytest.mark.parametrize(
    ("language", "expected"),
    [("de-AT", "Einen Moment."), ("fr", MOMENT), ("en", MOMENT), (None, MOMENT)],
)
def test_a_filler_is_in_the_users_language(language: str | None, expected: str) -> None:
    """Where the language has none of its own, the agent's is said."""
    scenario = new_scenario(languages=FILLERS, budget_actions=BudgetActionSettings(filler=MOMENT))
    assert waits(scenario, "Wie spät ist es?", language) == expected


def test_a_language_may_have_a_filler_where_the_agent_has_none() -> None:
    assert waits(new_scenario(languages=FILLERS), "Wie spät ist es?", "de") == "Einen Moment."
    assert waits(new_scenario(languages=FILLERS), "What time is it?", "en") is None


# --- an interpreter -------------------------------------------------------------------------------

TO_GERMAN = LanguageSettings(tag="de", user_tag="en", voice="Anna", instructions="Into German.")
TO_ENGLISH = LanguageSettings(tag="en-GB", user_tag="de", voice="Emma", instructions="Into English.")


def test_an_interpreter_speaks_the_other_language() -> None:
    """Each word counts, however short: it may be the other person's."""
    scenario = new_scenario(languages=(TO_GERMAN, TO_ENGLISH))
    assert spoken(says(scenario, "What time is it?", "en")) == ("de", "Anna", "Be brief.\n\nInto German.")
    assert spoken(says(scenario, "Ja.", "de-AT")) == ("en-GB", "Emma", "Be brief.\n\nInto English.")
    assert spoken(says(scenario, "Yes.", "en-US")) == ("de", "Anna", "Be brief.\n\nInto German.")


@pytest.mark.parametrize("language", [None, "fr"])
def test_an_interpreter_leaves_an_unknown_language_to_the_llm(language: str | None) -> None:
    scenario = new_scenario(languages=(TO_GERMAN, TO_ENGLISH))
    says(scenario, "What time is it?", "en")
    assert spoken(says(scenario, "Ja.", language)) == (None, "Heart", "Be brief.")

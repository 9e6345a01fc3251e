"""What a voice over the agent's says: the lists, and what is made of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.turn.backchannels import LISTENERS, meaning

WEATHER = "Today the weather in Rome is sunny and warm, and tomorrow it will rain."


@pytest.mark.parametrize("language", LISTENERS)
def test_every_list_means_what_it_is_for(language: str) -> None:
    """Each phrase alone, in any case and punctuation, is understood as the list that it is in says."""
    lists = LISTENERS[language]
    for phrase in lists.acknowledges:
        assert meaning(f"{phrase.capitalize()}.", language) == "acknowledgement", phrase
    for phrase in lists.stops:
        assert meaning(f"{phrase.upper()}!", language) == "stop_word", phrase
    assert not lists.acknowledges & lists.stops


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "nothing"),
        ("...", "nothing"),
        ("Mm-hmm.", "acknowledgement"),
        ("Yeah, okay, I see.", "acknowledgement"),
        ("Um", "acknowledgement"),
        ("Okay, stop!", "stop_word"),
        ("No, wait a minute.", "stop_word"),
        ("Can you please stop?", "stop_word"),
        ("Hold on", "stop_word"),
        ("I can't wait", "words"),
        ("No.", "words"),
        ("Yeah, but what about Paris?", "words"),
        ("Right now?", "words"),
    ],
)
def test_what_words_mean(text: str, expected: str) -> None:
    assert meaning(text) == expected


def test_the_language_picks_the_list() -> None:
    """By its primary subtag; where there is no list, only sounds are acknowledgements."""
    assert meaning("Genau.", "de-AT") == "acknowledgement"
    assert meaning("Genau.", "en") == "words"
    assert meaning("mhm", "sw") == "acknowledgement"
    assert meaning("ndiyo", "sw") == "words"


def test_the_agent_s_words_are_its_echo() -> None:
    """In its order, most of them; not the same words in another order, nor a word or two among others."""
    assert meaning("the weather in Rome", agent=WEATHER) == "echo"
    assert meaning("the whether in Rome", agent=WEATHER) == "echo"
    assert meaning("rain tomorrow", agent=WEATHER) == "words"
    assert meaning("what is the capital of Rome", agent=WEATHER) == "words"
    assert meaning("the weather in Rome") == "words"


@given(st.text(max_size=60), st.sampled_from([None, "en", "de-DE", "xx", ""]), st.text(max_size=60))
def test_any_text_has_a_meaning(text: str, language: str | None, agent: str) -> None:
    """Whatever a transcriber writes."""
    found = meaning(text, language, agent=agent)
    assert (found == "nothing") == (not any(letter.isalnum() for letter in text))

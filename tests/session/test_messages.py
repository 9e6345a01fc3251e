"""What the model reads of the conversation."""

from __future__ import annotations

from voicepipe.ports.model import Called, Content, Returned, Text
from voicepipe.session.messages import messages_of
from voicepipe.turn import conversation as c


def spoken(name: str, words: str | None) -> c.Message:
    """One committed utterance."""
    return c.Message(name, "user", (c.InputAudio(words),))


def answered(name: str, words: str, *, hidden_from_llm: bool = False) -> c.Message:
    """One answer of the agent."""
    return c.Message(name, "assistant", (c.OutputAudio(words),), hidden_from_llm=hidden_from_llm)


def user(words: str) -> Content:
    return Content("user", (Text(words),))


def agent(words: str) -> Content:
    return Content("assistant", (Text(words),))


def test_speech_in_several_commits_is_one_message() -> None:
    items = (spoken("a", "Tell me"), spoken("b", "the time,"), spoken("c", "please."))
    assert messages_of(items) == (user("Tell me the time, please."),)


def test_an_answer_between_keeps_them_apart() -> None:
    items = (spoken("a", "Hello."), answered("b", "Hi."), spoken("c", "Bye."))
    assert messages_of(items) == (user("Hello."), agent("Hi."), user("Bye."))


def test_fillers_are_left_out_of_messages() -> None:
    items = (spoken("a", "Tell me"), answered("b", "One moment.", hidden_from_llm=True), spoken("c", "the time."))
    assert messages_of(items) == (user("Tell me the time."),)


def test_speech_without_words_is_left_out() -> None:
    assert messages_of((spoken("a", None), spoken("b", "  "), spoken("c", "Hello."))) == (user("Hello."),)


def test_what_was_written_stays_a_message_of_its_own() -> None:
    items = (spoken("a", "Read this."), c.Message("b", "user", (c.InputText("A letter."),)), spoken("c", "Thanks."))
    assert messages_of(items) == (user("Read this."), user("A letter."), user("Thanks."))


def test_calls_and_what_they_gave_stay_between() -> None:
    items = (
        spoken("a", "The time?"),
        c.FunctionCall("b", "call_1", "clock", "{}"),
        c.FunctionOutput("d", "call_1", "noon"),
        spoken("e", "Well?"),
    )
    assert messages_of(items) == (
        user("The time?"),
        Called("call_1", "clock", "{}"),
        Returned("call_1", "noon"),
        user("Well?"),
    )

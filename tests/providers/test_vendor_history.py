"""The history of a speech-to-speech model at its vendor: it becomes the conversation, with the least change."""

from __future__ import annotations

from voicepipe.ports.model import Called, Content, Image, Message, ModelRequest, Returned, Text
from voicepipe.providers.speech_model.vendor_history import HistoryEntry, VendorHistory, instructions_of


def user(text: str) -> Content:
    return Content("user", (Text(text),))


def agent(text: str) -> Content:
    return Content("assistant", (Text(text),))


def requested(*messages: Message) -> ModelRequest:
    return ModelRequest(model="m", messages=(Content("system", (Text("Be kind."),)), *messages))


def after_a_turn(text: str = "It is noon.", audio_ms: int = 1_000) -> VendorHistory:
    """The history of one question as audio, and its answer."""
    history = VendorHistory()
    voiced = history.sync(requested(user("What time is it?")), spoken=True).voiced
    assert voiced is not None
    voiced.items.append("u1")
    history.append(HistoryEntry(agent(text), ["a1"], audio_ms=audio_ms))
    return history


def test_a_first_question_is_audio_and_nothing_is_added() -> None:
    changes = VendorHistory().sync(requested(user("What time is it?")), spoken=True)
    assert (changes.deleted, changes.truncated, changes.added) == ((), (), ())
    assert changes.voiced is not None
    assert changes.voiced.message == user("What time is it?")


def test_what_the_model_lacks_is_added_before_the_question() -> None:
    """A conversation that another process or the pipeline has begun."""
    changes = VendorHistory().sync(requested(user("Hello"), agent("Hi."), user("What time?")), spoken=True)
    assert [each.message for each in changes.added] == [user("Hello"), agent("Hi.")]
    assert changes.voiced is not None


def test_a_typed_question_is_added_as_text() -> None:
    changes = VendorHistory().sync(requested(user("What time?")), spoken=False)
    assert [each.message for each in changes.added] == [user("What time?")]
    assert changes.voiced is None


def test_the_next_question_changes_nothing_of_what_was_said() -> None:
    """The STT writes the same words with other marks: still the same."""
    changes = after_a_turn().sync(
        requested(user("what time is it"), agent("It is noon."), user("Thanks.")), spoken=True
    )
    assert (changes.deleted, changes.truncated, changes.added) == ((), (), ())


def test_an_answer_that_was_interrupted_is_cut_where_it_was_played() -> None:
    history = after_a_turn("It is noon and the sun shines.", audio_ms=2_000)
    changes = history.sync(requested(user("What time is it?"), agent("It is noon"), user("Thanks")), spoken=True)
    (truncation,) = changes.truncated
    assert (truncation.entry.items, truncation.audio_end_ms) == (
        ["a1"],
        2_000 * len("It is noon") // len("It is noon and the sun shines."),
    )
    again = history.sync(
        requested(user("What time is it?"), agent("It is noon"), user("Thanks"), user("and?")), spoken=False
    )
    assert again.truncated == (), "once"


def test_an_answer_that_was_not_played_is_deleted() -> None:
    changes = after_a_turn().sync(requested(user("What time is it? And the date?")), spoken=True)
    assert [each.items for each in changes.deleted] == [["a1"]]
    assert changes.voiced is not None
    assert changes.voiced.items == ["u1"], "the user goes on with the same message"


def test_a_correction_of_the_first_words_makes_the_text_count() -> None:
    """The first part of the user's audio would be deleted with its item."""
    changes = after_a_turn().sync(requested(user("Look what the date is")), spoken=True)
    assert [each.items for each in changes.deleted] == [["u1"], ["a1"]]
    assert changes.voiced is None
    assert [each.message for each in changes.added] == [user("Look what the date is")]


def test_a_deleted_question_is_deleted_although_another_has_its_place() -> None:
    history = after_a_turn()
    changes = history.sync(requested(user("Book a table")), spoken=True)
    assert [each.items for each in changes.deleted] == [["u1"], ["a1"]]
    assert all(each.deleted for each in changes.deleted)


def test_calls_match_by_their_id_and_results_by_their_text() -> None:
    history = after_a_turn()
    history.append(HistoryEntry(Called("call_1", "look_up", '{"a":1}'), ["c1"]))
    known = (user("What time is it?"), agent("It is noon."), Called("call_1", "look_up", '{"a": 1}'))
    changes = history.sync(requested(*known, Returned("call_1", "sunny")), spoken=False)
    assert changes.deleted == ()
    assert [each.message for each in changes.added] == [Returned("call_1", "sunny")]
    late = history.sync(requested(*known, Returned("call_1", "rainy")), spoken=False)
    assert [each.message for each in late.deleted] == [Returned("call_1", "sunny")]
    assert [each.message for each in late.added] == [Returned("call_1", "rainy")]


def test_messages_of_different_kinds_never_match() -> None:
    history = after_a_turn()
    changes = history.sync(requested(agent("What time is it?")), spoken=False)
    assert len(changes.deleted) == 2
    picture = Content("user", (Text("see"), Image("data:,")))
    assert history.sync(requested(picture), spoken=False).added[0].message == picture


def test_a_cut_to_nothing_of_an_answer_without_audio_is_another_message() -> None:
    history = after_a_turn(audio_ms=0)
    changes = history.sync(requested(user("What time is it?"), agent("It")), spoken=False)
    assert [each.items for each in changes.deleted] == [["a1"]]
    assert changes.truncated == ()


def test_all_that_the_system_says_is_read_as_instructions() -> None:
    request = ModelRequest(
        model="m",
        messages=(Content("system", (Text("A."),)), user("x"), Content("system", (Text("B."),))),
    )
    assert instructions_of(request) == "A.\n\nB."
    assert instructions_of(ModelRequest(model="m", messages=(Content("system", ()),))) == ""

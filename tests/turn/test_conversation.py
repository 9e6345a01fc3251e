"""What was said, item by item: added, shown, cut to what was heard, forgotten; and what is refused, by name."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.errors import ProtocolError
from voicepipe.testing.playbook import announced, names
from voicepipe.testing.story import Story
from voicepipe.turn import announcements as a
from voicepipe.turn import events as e
from voicepipe.turn.conversation import (
    ROOT,
    ClauseSound,
    Conversation,
    FunctionCall,
    FunctionOutput,
    InputAudio,
    InputImage,
    InputText,
    Item,
    Message,
    OutputAudio,
    OutputText,
)

SPEECH = OutputAudio(
    "One two three. Four five.", (ClauseSound("One two three.", 1_000), ClauseSound("Four five.", 500))
)


def user(item_id: str, text: str = "hello") -> Message:
    """Something that the client put in."""
    return Message(item_id, "user", (InputText(text),))


def spoken(item_id: str = "reply") -> Message:
    """A reply of two clauses, 1.5 s long."""
    return Message(item_id, "assistant", (SPEECH,))


# --- items ----------------------------------------------------------------------------------------


def test_items_keep_their_order() -> None:
    """At the end, after a given one, or first of all; each answer is the id really before it."""
    conversation = Conversation()
    assert conversation.add(user("a")) is None
    assert conversation.add(user("b")) == "a"
    assert conversation.add(user("c"), after="a") == "a"
    assert conversation.add(user("d"), after=ROOT) is None
    assert [item.id for item in conversation.items] == ["d", "a", "c", "b"]
    assert conversation.before("d") is None
    assert conversation.before("b") == "c"


def test_a_put_replaces_and_never_adds() -> None:
    """An item that the client deleted does not come back with its reply's next word."""
    conversation = Conversation([user("a"), user("b")])
    conversation.put(user("a", "changed"))
    conversation.put(user("gone"))
    assert [item.text() for item in conversation.items if isinstance(item, Message)] == ["changed", "hello"]
    conversation.delete("a")
    assert [item.id for item in conversation.items] == ["b"]


def test_an_item_of_ours_takes_its_place() -> None:
    """Even if a client put something of its own under that id."""
    conversation = Conversation([user("a"), user("b")])
    assert conversation.claim(spoken("a")) == "b"
    assert conversation.items == [user("b"), spoken("a")]


class CountedId(str):
    """An id that counts how often any of its kind is compared with another string."""

    n_compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedId.n_compared += 1
        return str.__eq__(self, other)


def test_an_item_is_found_without_looking_at_the_others() -> None:
    """Whatever is done with one of 2,000 items compares a few ids: a client that adds many holds nobody up."""
    conversation = Conversation()
    CountedId.n_compared = 0
    for n in range(2_000):
        conversation.add(user(CountedId(f"item_{n}")), after=CountedId(f"item_{n - 1}") if n else None)
    for n in range(0, 2_000, 100):
        conversation.find(CountedId(f"item_{n}"))
        conversation.put(user(CountedId(f"item_{n}"), "changed"))
        conversation.before(CountedId(f"item_{n}"))
        conversation.claim(user(CountedId(f"item_{n}")))
    for n in range(1, 2_000, 2):
        conversation.delete(CountedId(f"item_{n}"))
    assert CountedId.n_compared < 20 * 2_000
    assert [item.id for item in conversation.items[:3]] == ["item_2", "item_4", "item_6"]
    assert conversation.newest == user("item_1900")


def test_items_are_in_the_order_that_their_neighbours_tell() -> None:
    """After any adding, claiming and deleting, also at both ends, `before` and `items` tell the same order."""
    chance, conversation, order = random.Random(7), Conversation(), list[str]()
    for n in range(600):
        if order and chance.random() < 0.3:
            gone = chance.choice(order)
            order.remove(gone)
            conversation.delete(gone)
        elif order and chance.random() < 0.2:
            moved = chance.choice(order)
            order.remove(moved)
            order.append(moved)
            conversation.claim(user(moved))
        else:
            after = chance.choice([None, ROOT, *order])
            place = len(order) if after is None else 0 if after == ROOT else order.index(after) + 1
            order.insert(place, f"item_{n}")
            assert conversation.add(user(f"item_{n}"), after=after) == (order[place - 1] if place else None)
        assert [item.id for item in conversation.items] == order
        assert [conversation.before(each) for each in order] == [None, *order][: len(order)]
    assert len(conversation) == len(order)


REFUSALS = [
    (lambda c: c.add(user("reply")), "item.id", "item_create_duplicate_item_id"),
    (lambda c: c.add(user("new"), after="nobody"), "previous_item_id", "item_create_invalid_previous_item_id"),
    (lambda c: c.take("nobody"), "item_id", "item_retrieve_invalid_item_id"),
    (lambda c: c.delete("nobody"), "item_id", "item_delete_invalid_item_id"),
    (
        lambda c: c.truncate("nobody", content_index=0, audio_end_ms=1),
        "item_id",
        "item_truncate_invalid_item_id",
    ),
    (lambda c: c.truncate("asked", content_index=0, audio_end_ms=1), "item_id", "item_truncate_invalid_item_id"),
    (lambda c: c.truncate("call", content_index=0, audio_end_ms=1), "item_id", "item_truncate_invalid_item_id"),
    (
        lambda c: c.truncate("reply", content_index=1, audio_end_ms=1),
        "content_index",
        "item_truncate_invalid_item_id",
    ),
    (
        lambda c: c.truncate("reply", content_index=-1, audio_end_ms=1),
        "content_index",
        "item_truncate_invalid_item_id",
    ),
    (
        lambda c: c.truncate("text", content_index=0, audio_end_ms=1),
        "content_index",
        "item_truncate_invalid_item_id",
    ),
]


@pytest.mark.parametrize(("act", "field", "code"), REFUSALS)
def test_what_can_not_be_done_is_refused_by_name(act: Callable[[Conversation], object], field: str, code: str) -> None:
    """With the wire's code and the field that is wrong; the conversation stays as it was."""
    items: list[Item] = [
        user("asked"),
        spoken(),
        FunctionCall("call", "c", "f", "{}"),
        Message("text", "assistant", (OutputText("x"),)),
    ]
    conversation = Conversation(list(items))
    with pytest.raises(ProtocolError) as refused:
        act(conversation)
    assert (refused.value.field, refused.value.code) == (field, code)
    assert conversation.items == items


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (InputText("a"), "a"),
        (InputAudio("b"), "b"),
        (InputAudio(None), ""),
        (OutputText("c"), "c"),
        (SPEECH, "One two three. Four five."),
        (InputImage("data:,x"), ""),
    ],
)
def test_the_words_of_a_message(part: InputText, words: str) -> None:
    """Whatever it is made of."""
    assert Message("m", "user", (part, InputText("end"))).text() == f"{words} end".strip()


# --- cut to what was heard ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heard_ms", "words"),
    [
        (0, ""),
        (-50, ""),
        (1, "One"),
        (300, "One two"),
        (999, "One two three."),
        (1_000, "One two three."),
        (1_001, "One two three. Four"),
        (1_500, "One two three. Four five."),
        (99_000, "One two three. Four five."),
    ],
)
def test_a_cut_finds_its_word(heard_ms: int, words: str) -> None:
    """By proportion within a clause; the word that was being spoken counts as heard."""
    conversation = Conversation([spoken()])
    cut_ms = conversation.truncate("reply", content_index=0, audio_end_ms=heard_ms)
    assert cut_ms == min(max(0, heard_ms), 1_500)
    (cut,) = conversation.items
    assert isinstance(cut, Message)
    assert cut.text() == words


def test_a_second_cut_is_found_in_the_whole_sound() -> None:
    """A correction may be later than the estimate before it."""
    conversation = Conversation([spoken()])
    conversation.truncate("reply", content_index=0, audio_end_ms=100)
    conversation.truncate("reply", content_index=0, audio_end_ms=1_400)
    assert conversation.items[0] == Message(
        "reply", "assistant", (OutputAudio("One two three. Four five.", SPEECH.clauses),)
    )


@given(
    clauses=st.lists(st.tuples(st.lists(st.text("abc", min_size=1, max_size=6), min_size=1), st.integers(1, 5_000))),
    heard_ms=st.integers(0, 20_000),
)
def test_history_holds_at_most_one_word_beyond_what_was_heard(
    clauses: list[tuple[list[str], int]], heard_ms: int
) -> None:
    """However the words lie; more sound never means fewer words."""
    sounds = tuple(ClauseSound(" ".join(words), ms) for words, ms in clauses)
    speech = OutputAudio("", sounds)
    heard = speech.heard_until(heard_ms).split()
    every = [word for words, _ in clauses for word in words]
    assert heard == every[: len(heard)]
    assert len(speech.heard_until(heard_ms + 100).split()) >= len(heard)
    begun = sum(1 for start_ms in starts(clauses) if start_ms < heard_ms)
    assert len(heard) <= begun + 1


def starts(clauses: list[tuple[list[str], int]]) -> list[float]:
    """When each word begins, by proportion of characters."""
    begun, found = 0, []
    for words, ms in clauses:
        text = " ".join(words)
        at = 0
        for word in words:
            found.append(begun + ms * at / len(text))
            at += len(word) + 1
        begun += ms
    return found


# --- what a client may do -------------------------------------------------------------------------


def test_a_client_adds_and_sees_and_forgets_an_item() -> None:
    """One without an id gets one."""
    story = Story()
    assert announced(story.offers(user(""))) == [a.ItemAdded(user("item_s_0001"), None)]
    assert announced(story.offers(user("mine"), after=ROOT)) == [a.ItemAdded(user("mine"), None)]
    book = story.book
    assert announced(book.at(book.now_ms, e.ItemWanted("evt", "mine"))) == [a.ItemShown(user("mine"))]
    assert announced(book.at(book.now_ms, e.ItemDeleted("evt", "mine"))) == [a.ItemForgotten("mine")]
    for fact in (e.ItemWanted("evt", "mine"), e.ItemDeleted("evt", "mine"), e.ItemTruncated("evt", "mine", 0, 1)):
        (refused,) = announced(book.at(book.now_ms, fact))
        assert isinstance(refused, a.Refused)
        assert (refused.event_id, refused.field) == ("evt", "item_id")


def test_an_offer_that_can_not_be_placed() -> None:
    """The refusal names the client's event."""
    (refused,) = announced(Story().offers(user("mine"), after="nobody"))
    assert isinstance(refused, a.Refused)
    assert (refused.event_id, refused.code) == ("evt", "item_create_invalid_previous_item_id")


def test_an_item_under_an_id_that_we_are_about_to_use() -> None:
    """It gives way to ours; the call goes on."""
    story = Story()
    story.speaks()
    story.offers(user("item_s_0001"))
    story.pauses()
    story.hears()
    story.stops()
    story.offers(user("item_s_0002"))
    story.answers()
    assert [type(item).__name__ for item in story.book.core.floor.conversation.items] == ["Message", "Message"]
    assert [item.id for item in story.book.core.floor.conversation.items] == ["item_s_0001", "item_s_0002"]


def test_an_item_that_is_still_growing_is_shown_as_it_stands() -> None:
    """With the words so far."""
    story = Story()
    story.says()
    story.begins_to_answer("It is ")
    (shown,) = announced(story.book.at(story.book.now_ms, e.ItemWanted("evt", "item_s_0002")))
    assert isinstance(shown, a.ItemShown)
    assert isinstance(shown.item, Message)
    assert (shown.item.text(), shown.item.status) == ("It is ", "in_progress")


def test_a_deleted_reply_does_not_come_back() -> None:
    """It goes on playing, and history stays without it."""
    story = Story()
    story.says()
    story.begins_to_answer()
    story.book.at(story.book.now_ms, e.ItemDeleted("evt", "item_s_0002"))
    story.model_done()
    story.voice_done()
    story.passes(5_000)
    assert [item.id for item in story.book.core.floor.conversation.items] == ["item_s_0001"]
    assert story.outcomes() == [("completed", "")]


def test_a_deleted_reply_writes_into_no_other_item() -> None:
    """Its client may use the id again: that item stays as it was put."""
    story = Story()
    story.says()
    story.begins_to_answer()
    story.book.at(story.book.now_ms, e.ItemDeleted("evt", "item_s_0002"))
    story.offers(user("item_s_0002", "mine"))
    story.truncates("item_s_0002", 100)
    story.token(" And more.")
    story.model_done()
    story.voice_done()
    story.passes(5_000)
    assert story.book.core.floor.conversation.find("item_s_0002") == user("item_s_0002", "mine")
    assert story.outcomes() == [("completed", "")]


def test_nothing_is_said_of_the_words_of_a_deleted_item() -> None:
    """Neither a transcript of it nor its failure; the turn is answered all the same."""
    story = Story()
    story.speaks()
    story.pauses()
    story.stops()
    story.book.at(story.book.now_ms, e.ItemDeleted("evt", "item_s_0001"))
    story.guesses("What")
    story.guesses("What time")
    story.hears("What time is it?")
    assert [*story.said(a.TranscriptDelta), *story.said(a.TranscriptDone)] == []
    story.answers()
    assert [item.id for item in story.book.core.floor.conversation.items] == ["item_s_0002"]
    story.speaks()
    story.pauses()
    story.stops()
    story.book.at(story.book.now_ms, e.ItemDeleted("evt", "item_s_0003"))
    story.goes_deaf()
    assert story.said(a.TranscriptFailed) == []


# --- truncation of replies ------------------------------------------------------------------------


def reply_text(story: Story) -> str:
    """The conversation's last message."""
    last = story.book.core.floor.conversation.items[-1]
    assert isinstance(last, Message)
    return last.text()


def test_a_reply_that_plays_on_is_silenced_by_its_truncation() -> None:
    """The client dropped the rest, so the turn is over, as interrupted."""
    story = Story()
    story.says()
    story.answers("One two three four five six.", 6_000)
    got = story.truncates("item_s_0002", 2_000)
    assert names(got) == ["StopReply", "KeepRecord", "ItemCut"]
    assert story.outcomes() == [("interrupted", "client_truncated")]
    assert reply_text(story) == "One two three"
    assert story.book.records["turn_s_0001"].heard_text == "One two three"


def test_a_reply_that_is_still_coming_is_cut_in_history_alone() -> None:
    """Only a cancel stops it; what comes later is not in history, since the client does not play it."""
    story = Story()
    story.says()
    story.begins_to_answer("One two three four.", 1_000)
    assert names(story.truncates("item_s_0002", 300)) == ["ItemCut"]
    story.token(" Five six.")
    story.model_done()
    story.voice_done()
    assert reply_text(story) == "One two"
    story.passes(5_000)
    assert story.outcomes() == [("interrupted", "client_truncated")]


def test_a_truncation_after_a_cancel_corrects_it() -> None:
    """The usual order of clients that interrupt by themselves."""
    story = Story()
    story.says()
    story.begins_to_answer("One two three four.", 2_000)
    story.cancels()
    story.truncates("item_s_0002", 600)
    assert reply_text(story) == "One two"
    assert story.outcomes() == [("interrupted", "client_cancelled")]
    assert story.book.records["turn_s_0001"].heard_text == "One two"


def test_a_truncation_at_the_very_end_cuts_nothing() -> None:
    """Clients round up: all was heard, so the turn is complete and its item whole."""
    story = Story()
    story.says()
    story.answers("One two three.", 1_000)
    story.passes(2_000)
    story.truncates("item_s_0002", 1_020)
    assert story.outcomes() == [("completed", "")]
    last = story.book.core.floor.conversation.items[-1]
    assert isinstance(last, Message)
    assert (last.text(), last.status) == ("One two three.", "completed")


def test_a_truncation_of_a_turn_that_seemed_to_be_over() -> None:
    """Our estimate was early: the client heard less, and knows better."""
    story = Story()
    story.says()
    story.answers("One two three four five six.", 1_000)
    story.passes(3_000)
    assert story.outcomes() == [("completed", "")]
    story.truncates("item_s_0002", 100)
    assert story.outcomes() == [("interrupted", "client_truncated")]
    assert reply_text(story) == "One"


def test_a_truncation_of_a_reply_that_the_client_does_not_know() -> None:
    """Nothing of it was announced."""
    story = Story()
    story.says()
    assert names(story.truncates("item_s_0002", 100)) == ["Refused"]


def test_a_call_and_its_output_in_the_conversation() -> None:
    """Both are items; neither has words."""
    conversation = Conversation([FunctionCall("a", "c", "f", "{}"), FunctionOutput("b", "c", "1")])
    assert conversation.before("b") == "a"
    assert conversation.take("a") == FunctionCall("a", "c", "f", "{}")


# --- words whose times are known --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heard_ms", "words"),
    [(0, ""), (1, "So,"), (900, "So,"), (901, "So, what"), (1_100, "So, what do"), (5_000, "So, what do you want?")],
)
def test_a_voice_that_tells_when_its_words_begin_is_believed(heard_ms: int, words: str) -> None:
    """A pause after the first word: by proportion three words would have been heard in it."""
    clause = ClauseSound("So, what do you want?", 1_500, (0, 900, 1_050, 1_200, 1_300))
    assert OutputAudio("", (clause,)).heard_until(heard_ms) == words


def test_words_that_are_still_to_come_have_not_been_heard() -> None:
    """Their times come with their sound; more times than words are of no use."""
    assert OutputAudio("", (ClauseSound("One two three.", 600, (0, 300)),)).heard_until(590) == "One two"
    assert OutputAudio("", (ClauseSound("One two.", 600, (0, 200, 400)),)).heard_until(310) == "One two."

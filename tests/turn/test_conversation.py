"""The items of a conversation: added, shown, cut to what was played, deleted; and what is refused, by name."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from voicepipe.errors import ProtocolError
from voicepipe.testing.core_driver import announced, names
from voicepipe.testing.scenario import Scenario
from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.commands import StopReply
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


@pytest.mark.parametrize(
    ("starts_ms", "from_ms", "rest"),
    [
        ((0, 700, 900), 700, ClauseSound("two three.", 300, (0, 200), 700)),
        ((0, 700), 700, ClauseSound("two three.", 300, (0,), 700)),
        ((), 571, ClauseSound("three.", 429, earlier_ms=571)),
    ],
    ids=["reported", "reported so far", "not reported"],
)
def test_the_rest_begins_with_the_word_that_is_spoken(
    starts_ms: tuple[int, ...], from_ms: int, rest: ClauseSound
) -> None:
    """Where the TTS reports it, or else by proportion of characters."""
    speech = OutputAudio("", (ClauseSound("One two three.", 1_000, starts_ms), ClauseSound("Four.", 500)))
    assert speech.rest(800) == (from_ms, (rest, ClauseSound("Four.", 500)))


CLAUSES = st.builds(
    lambda words, sound_ms, starts_ms: ClauseSound(" ".join(words), sound_ms, tuple(sorted(starts_ms))),
    st.lists(st.sampled_from(["a", "two", "longer"]), min_size=1, max_size=4),
    st.integers(1, 2_000),
    st.lists(st.integers(0, 2_000), max_size=7),
)


@given(clauses=st.lists(CLAUSES, min_size=1, max_size=3), cuts=st.lists(st.integers(0, 2_000), min_size=1, max_size=3))
@example(clauses=[ClauseSound("It costs 42.", 1_000, (0, 200, 400, 500, 600))], cuts=[950])  # "forty two": more words
def test_no_word_of_the_rest_begins_before_it(clauses: list[ClauseSound], cuts: list[int]) -> None:
    """However often a reply is cut, and whatever words the TTS counts."""
    speech = OutputAudio("", tuple(clauses))
    for cut_ms in cuts:
        _, rest = speech.rest(cut_ms)
        speech = OutputAudio("", rest)
        assert all(start_ms >= 0 for clause in rest for start_ms in clause.word_starts_ms)


def test_words_that_are_reported_after_a_cut_are_in_their_place() -> None:
    """The TTS counts from the beginning of the clause, also where an answer goes on within it."""
    _, (rest,) = OutputAudio("", (ClauseSound("One two three.", 800, (0, 700)),)).rest(750)
    whole = OutputAudio("", (rest.with_sound(200, (900,)),))
    assert [whole.played_until(ms) for ms in (1, 200, 201)] == ["two", "two", "two three."]


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
    """Every operation on one of 2,000 items compares a few ids: a client that adds many delays no other session."""
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


def test_items_follow_their_previous_item_ids() -> None:
    """After any adding, claiming and deleting, also at both ends, `before` and `items` give the same order."""
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


# --- cut to what was played -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("played_ms", "words"),
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
def test_a_cut_finds_its_word(played_ms: int, words: str) -> None:
    """The cut is by proportion within a clause; the word that was being spoken counts as played."""
    conversation = Conversation([spoken()])
    cut_ms = conversation.truncate("reply", content_index=0, audio_end_ms=played_ms)
    assert cut_ms == min(max(0, played_ms), 1_500)
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
    played_ms=st.integers(0, 20_000),
)
def test_history_has_at_most_one_unplayed_word(clauses: list[tuple[list[str], int]], played_ms: int) -> None:
    """However the words lie; more sound never means fewer words."""
    sounds = tuple(ClauseSound(" ".join(words), ms) for words, ms in clauses)
    speech = OutputAudio("", sounds)
    played = speech.played_until(played_ms).split()
    every = [word for words, _ in clauses for word in words]
    assert played == every[: len(played)]
    assert len(speech.played_until(played_ms + 100).split()) >= len(played)
    begun = sum(1 for start_ms in starts(clauses) if start_ms < played_ms)
    assert len(played) <= begun + 1


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
    scenario = Scenario()
    assert announced(scenario.creates_item(user(""))) == [a.ItemAdded(user("item_s_0001"), None)]
    assert announced(scenario.creates_item(user("mine"), after=ROOT)) == [a.ItemAdded(user("mine"), None)]
    driver = scenario.driver
    assert announced(driver.at(driver.now_ms, e.ItemRetrieveRequested("evt", "mine"))) == [
        a.ItemRetrieved(user("mine"))
    ]
    assert announced(driver.at(driver.now_ms, e.ItemDeleteRequested("evt", "mine"))) == [a.ItemDeleted("mine")]
    for event in (
        e.ItemRetrieveRequested("evt", "mine"),
        e.ItemDeleteRequested("evt", "mine"),
        e.ItemTruncateRequested("evt", "mine", 0, 1),
    ):
        (refused,) = announced(driver.at(driver.now_ms, event))
        assert isinstance(refused, a.Refused)
        assert (refused.event_id, refused.field) == ("evt", "item_id")


def test_an_offer_that_can_not_be_placed() -> None:
    """The refusal names the client's event."""
    (refused,) = announced(Scenario().creates_item(user("mine"), after="nobody"))
    assert isinstance(refused, a.Refused)
    assert (refused.event_id, refused.code) == ("evt", "item_create_invalid_previous_item_id")


def test_an_item_under_an_id_that_we_are_about_to_use() -> None:
    """It gives way to ours; the call goes on."""
    scenario = Scenario()
    scenario.speaks()
    scenario.creates_item(user("item_s_0001"))
    scenario.pauses()
    scenario.transcribes()
    scenario.stops()
    scenario.creates_item(user("item_s_0002"))
    scenario.answers()
    assert [type(item).__name__ for item in scenario.driver.core.context.conversation.items] == ["Message", "Message"]
    assert [item.id for item in scenario.driver.core.context.conversation.items] == ["item_s_0001", "item_s_0002"]


def test_growing_item_is_retrieved_as_it_is() -> None:
    """With the words so far."""
    scenario = Scenario()
    scenario.utters()
    scenario.begins_to_answer("It is ")
    (retrieved,) = announced(scenario.driver.at(scenario.driver.now_ms, e.ItemRetrieveRequested("evt", "item_s_0002")))
    assert isinstance(retrieved, a.ItemRetrieved)
    assert isinstance(retrieved.item, Message)
    assert (retrieved.item.text(), retrieved.item.status) == ("It is ", "in_progress")


def test_a_deleted_reply_does_not_come_back() -> None:
    """It goes on playing, and history stays without it."""
    scenario = Scenario()
    scenario.utters()
    scenario.begins_to_answer()
    scenario.driver.at(scenario.driver.now_ms, e.ItemDeleteRequested("evt", "item_s_0002"))
    scenario.model_done()
    scenario.voice_done()
    scenario.passes(5_000)
    assert [item.id for item in scenario.driver.core.context.conversation.items] == ["item_s_0001"]
    assert scenario.outcomes() == [("completed", "")]


def test_a_deleted_reply_writes_into_no_other_item() -> None:
    """Its client may use the id again: that item stays as it was put."""
    scenario = Scenario()
    scenario.utters()
    scenario.begins_to_answer()
    scenario.driver.at(scenario.driver.now_ms, e.ItemDeleteRequested("evt", "item_s_0002"))
    scenario.creates_item(user("item_s_0002", "mine"))
    scenario.truncates("item_s_0002", 100)
    scenario.token(" And more.")
    scenario.model_done()
    scenario.voice_done()
    scenario.passes(5_000)
    assert scenario.driver.core.context.conversation.find("item_s_0002") == user("item_s_0002", "mine")
    assert scenario.outcomes() == [("completed", "")]


def test_nothing_is_said_of_the_words_of_a_deleted_item() -> None:
    """Neither a transcript of it nor its failure; the turn is answered all the same."""
    scenario = Scenario()
    scenario.speaks()
    scenario.pauses()
    scenario.stops()
    scenario.driver.at(scenario.driver.now_ms, e.ItemDeleteRequested("evt", "item_s_0001"))
    scenario.guesses("What")
    scenario.guesses("What time")
    scenario.transcribes("What time is it?")
    assert [*scenario.notified(a.TranscriptDelta), *scenario.notified(a.TranscriptDone)] == []
    scenario.answers()
    assert [item.id for item in scenario.driver.core.context.conversation.items] == ["item_s_0002"]
    scenario.speaks()
    scenario.pauses()
    scenario.stops()
    scenario.driver.at(scenario.driver.now_ms, e.ItemDeleteRequested("evt", "item_s_0003"))
    scenario.stt_fails()
    assert scenario.notified(a.TranscriptFailed) == []


# --- truncation of replies ------------------------------------------------------------------------


def reply_text(scenario: Scenario) -> str:
    """The conversation's last message."""
    last = scenario.driver.core.context.conversation.items[-1]
    assert isinstance(last, Message)
    return last.text()


def test_a_reply_that_plays_on_is_silenced_by_its_truncation() -> None:
    """The client dropped the rest, so the turn is over, as interrupted."""
    scenario = Scenario()
    scenario.utters()
    scenario.answers("One two three four five six.", 6_000)
    got = scenario.truncates("item_s_0002", 2_000)
    assert names(got) == ["StopReply", "StoreRecord", "ItemTruncated"]
    assert scenario.outcomes() == [("interrupted", "client_truncated")]
    assert reply_text(scenario) == "One two three"
    assert scenario.driver.records["turn_s_0001"].played_text == "One two three"


def test_a_reply_that_is_still_coming_is_cut_in_history_alone() -> None:
    """Only a cancel stops it; what comes later is not in history, since the client does not play it."""
    scenario = Scenario()
    scenario.utters()
    scenario.begins_to_answer("One two three four.", 1_000)
    assert names(scenario.truncates("item_s_0002", 300)) == ["ItemTruncated"]
    scenario.token(" Five six.")
    scenario.model_done()
    scenario.voice_done()
    assert reply_text(scenario) == "One two"
    scenario.passes(5_000)
    assert scenario.outcomes() == [("interrupted", "client_truncated")]


def test_a_truncation_ends_the_reply_that_is_still_made() -> None:
    """The client wants no more of it, so nobody pays for the rest."""
    scenario = Scenario(truncation_ends_reply=True)
    scenario.utters()
    scenario.begins_to_answer("One two three four.", 1_000)
    got = scenario.truncates("item_s_0002", 300)
    assert any(isinstance(each, StopReply) for each in got)
    assert scenario.ended() == [("cancelled", "client_cancelled")]
    assert reply_text(scenario) == "One two"
    assert scenario.outcomes() == [("interrupted", "client_truncated")]


def test_a_truncation_after_a_cancel_corrects_it() -> None:
    """The usual order of clients that interrupt by themselves."""
    scenario = Scenario()
    scenario.utters()
    scenario.begins_to_answer("One two three four.", 2_000)
    scenario.cancels()
    scenario.truncates("item_s_0002", 600)
    assert reply_text(scenario) == "One two"
    assert scenario.outcomes() == [("interrupted", "client_cancelled")]
    assert scenario.driver.records["turn_s_0001"].played_text == "One two"


def test_a_truncation_at_the_very_end_cuts_nothing() -> None:
    """Clients round up: all was played, so the turn is complete and its item whole."""
    scenario = Scenario()
    scenario.utters()
    scenario.answers("One two three.", 1_000)
    scenario.passes(2_000)
    scenario.truncates("item_s_0002", 1_020)
    assert scenario.outcomes() == [("completed", "")]
    last = scenario.driver.core.context.conversation.items[-1]
    assert isinstance(last, Message)
    assert (last.text(), last.status) == ("One two three.", "completed")


def test_a_truncation_of_a_turn_that_seemed_to_be_over() -> None:
    """The core's estimate was early: the client played less, and its report counts."""
    scenario = Scenario()
    scenario.utters()
    scenario.answers("One two three four five six.", 1_000)
    scenario.passes(3_000)
    assert scenario.outcomes() == [("completed", "")]
    scenario.truncates("item_s_0002", 100)
    assert scenario.outcomes() == [("interrupted", "client_truncated")]
    assert reply_text(scenario) == "One"


def test_a_truncation_of_a_reply_that_the_client_does_not_know() -> None:
    """Nothing of it was announced."""
    scenario = Scenario()
    scenario.utters()
    assert names(scenario.truncates("item_s_0002", 100)) == ["Refused"]


def test_a_call_and_its_output_in_the_conversation() -> None:
    """Both are items; neither has words."""
    conversation = Conversation([FunctionCall("a", "c", "f", "{}"), FunctionOutput("b", "c", "1")])
    assert conversation.before("b") == "a"
    assert conversation.take("a") == FunctionCall("a", "c", "f", "{}")


# --- words whose times are known --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("played_ms", "words"),
    [(0, ""), (1, "So,"), (900, "So,"), (901, "So, what"), (1_100, "So, what do"), (5_000, "So, what do you want?")],
)
def test_word_times_of_the_tts_are_used(played_ms: int, words: str) -> None:
    """A pause after the first word: by proportion three words would have been played in it."""
    clause = ClauseSound("So, what do you want?", 1_500, (0, 900, 1_050, 1_200, 1_300))
    assert OutputAudio("", (clause,)).played_until(played_ms) == words


def test_future_words_are_not_played() -> None:
    """Their times come with their sound; more times than words are of no use."""
    assert OutputAudio("", (ClauseSound("One two three.", 600, (0, 300)),)).played_until(590) == "One two"
    assert OutputAudio("", (ClauseSound("One two.", 600, (0, 200, 400)),)).played_until(310) == "One two."

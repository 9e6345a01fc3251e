"""What is done so that the caller waits less, or at least not in silence: each action with its conditions."""

from __future__ import annotations

from typing import Any

import pytest

from voicepipe.errors import ConfigError
from voicepipe.testing.playbook import names
from voicepipe.testing.story import Story
from voicepipe.turn import announcements as a
from voicepipe.turn.commands import OpenGate, Order, SayFiller, ShortenClause, StartReply, StopReply
from voicepipe.turn.conversation import Message
from voicepipe.turn.rescue import RescueSettings

FILLER, APOLOGY = "One moment.", "Sorry, I can't answer right now."
PHRASES = RescueSettings(filler=FILLER, apology=APOLOGY)


def orders_of(kind: type, orders: list[Order]) -> list[Any]:
    return [order for order in orders if isinstance(order, kind)]


def with_filler(**more: Any) -> Story:
    story = Story(rescue=RescueSettings(filler=FILLER, **more))
    story.has_ready(FILLER)
    return story


def an_answered_turn(story: Story) -> None:
    """A turn whose stages all take 50 ms: after it that is what is expected."""
    story.says()
    story.answers()
    story.passes(2_000)


# --- the projection -------------------------------------------------------------------------------


def test_the_heard_latency_is_projected_at_every_mark() -> None:
    """Before anything is known each stage is expected to take half its limit; afterwards, what it took."""
    story = Story()
    an_answered_turn(story)
    record = story.book.records["turn_s_0001"]
    marks, projected = dict(record.marks), dict(record.projected)
    assert list(projected) == ["asked", "first_delta", "first_clause", "first_sound", "first_sent"]
    asked_ms = marks["asked"] - marks["voiced_last"]
    assert projected["asked"] == asked_ms + 300 + 50 + 75 + 10 + 25
    assert projected["first_delta"] == asked_ms + 50 + 50 + 75 + 10 + 25
    assert projected["first_sent"] == record.total_ms

    an_answered_turn(story)
    record = story.book.records["turn_s_0002"]
    assert dict(record.projected)["asked"] == record.total_ms


def test_what_is_late_is_expected_to_take_longer_still() -> None:
    story = Story()
    story.says()
    story.model_asked()
    story.passes(900)
    story.token()
    story.passes(300)
    story.clause()
    turn = story.book.core.agent.turn
    assert turn is not None
    t0_ms, asked_ms = turn.marks["voiced_last"], turn.marks["asked"]
    assert story.book.core.floor.learned.usual.heard_ms({"asked": asked_ms}, asked_ms + 900) == asked_ms + 1_200 + 160
    assert turn.reply.projected["first_clause"] == turn.marks["first_clause"] - t0_ms + 75 + 10 + 25


def test_a_revision_is_projected_anew() -> None:
    story = Story()
    story.says()
    story.model_asked()
    turn = story.book.core.agent.turn
    assert turn is not None
    assert turn.reply.projected
    story.speaks()
    assert (turn.reply.revision, turn.reply.projected) == (1, {})


def test_a_reply_without_sound_has_no_projection() -> None:
    story = Story()
    story.creates(audible=False)
    story.model_asked()
    assert story.book.core.agent.turn is not None
    assert story.book.core.agent.turn.reply.projected == {}


# --- the time that is left for the model ----------------------------------------------------------


def test_the_model_is_told_how_much_time_is_left_where_that_is_less_than_usual() -> None:
    """160 ms of the second are for what follows the model's first text, and the silence took the rest."""
    story = Story(silence_ms=300)
    started = orders_of(StartReply, story.says())
    assert [order.first_output_ms for order in started] == [300]


@pytest.mark.parametrize("silence_ms", [100, 900])
def test_a_model_with_all_its_time_or_none_is_told_nothing(silence_ms: int) -> None:
    story = Story(silence_ms=silence_ms)
    story.speaks()
    story.pauses()
    story.hears()
    story.book.at(story.book.now_ms + silence_ms - 80)
    (started,) = orders_of(StartReply, story.is_silent(silence_ms))
    assert started.first_output_ms is None


# --- a shorter first clause -----------------------------------------------------------------------


def test_a_first_clause_that_does_not_close_is_cut() -> None:
    """400 ms after the first text the voice gets what there is."""
    story = Story()
    story.says()
    story.model_asked()
    story.token("Well the")
    assert orders_of(ShortenClause, story.passes(399)) == []
    assert orders_of(ShortenClause, story.passes(1)) == [ShortenClause(1, 0)]
    story.clause("Well", shortened=True)
    assert orders_of(ShortenClause, story.passes(2_000)) == []
    turn = story.book.core.agent.turn
    assert turn is not None
    assert turn.reply.actions == ["short_clause"]


def test_a_clause_that_closed_by_itself_is_no_action() -> None:
    """The order came, and the clause with it: nothing was cut."""
    story = Story()
    story.says()
    story.model_asked()
    story.token("It is")
    story.passes(400)
    story.clause("It is noon.")
    turn = story.book.core.agent.turn
    assert turn is not None
    assert turn.reply.actions == []


def test_a_clause_in_time_is_left_alone() -> None:
    story = Story()
    story.says()
    story.begins_to_answer()
    assert orders_of(ShortenClause, story.passes(2_000)) == []


def test_no_clause_is_cut_where_nothing_is_said() -> None:
    """Not of a text reply, not of a function call, not when it is turned off, not when the answer is complete."""
    silent = Story()
    silent.creates(audible=False)
    silent.model_asked()
    silent.token("Well the")
    assert orders_of(ShortenClause, silent.passes(1_000)) == []

    calling = Story()
    calling.says()
    calling.model_asked()
    calling.call("{")
    assert orders_of(ShortenClause, calling.passes(1_000)) == []

    off = Story(rescue=RescueSettings(shorten_after_ms=None))
    off.says()
    off.model_asked()
    off.token("Well the")
    assert orders_of(ShortenClause, off.passes(1_000)) == []


def test_each_revision_has_its_own_clause() -> None:
    story = Story()
    story.says("One")
    story.model_asked()
    story.token("Well the")
    story.passes(400)
    story.speaks()
    story.pauses()
    story.hears("One two")
    story.stops()
    story.model_asked()
    story.token("Now that")
    assert orders_of(ShortenClause, story.passes(400)) == [ShortenClause(1, 1)]


# --- a filler -------------------------------------------------------------------------------------


def test_a_late_answer_is_bridged_by_a_phrase() -> None:
    """Its words are an item of the same response, marked, and no model reads them."""
    story = with_filler()
    story.says()
    got = story.model_asked() + story.passes(600)
    (order,) = orders_of(SayFiller, got)
    assert (order.turn, order.words) == (1, FILLER)
    shown = next(what for what in story.said(a.OutputStarted))
    assert shown.response_id == order.response_id
    kept = story.book.core.floor.conversation.find(shown.item.id)
    assert isinstance(kept, Message)
    assert kept.aside
    assert kept.text() == FILLER
    story.filler_sent()
    story.begins_to_answer()
    story.model_done()
    story.voice_done()
    story.passes(5_000)
    record = story.book.records["turn_s_0001"]
    assert (record.actions, record.filler, record.outcome) == (("filler",), FILLER, "completed")
    assert FILLER not in record.agent_text
    marks = dict(record.marks)
    assert marks["voiced_last"] < marks["filler_heard"] < marks["heard"]


def test_the_answer_plays_behind_its_filler() -> None:
    story = with_filler()
    story.says()
    story.model_asked()
    story.passes(700)
    story.filler_sent(900)
    heard_until_ms = story.book.now_ms + 900
    story.begins_to_answer()
    turn = story.book.core.agent.turn
    assert turn is not None
    assert turn.marks["heard"] == heard_until_ms + 20
    assert turn.audio.plays_until_ms == heard_until_ms + 1_000


def test_a_filler_that_was_cut_is_kept_as_it_was_heard() -> None:
    """A client that says how much of it was heard is believed."""
    story = with_filler()
    story.says()
    (order,) = orders_of(SayFiller, story.model_asked() + story.passes(700))
    assert order.words == FILLER
    story.filler_sent(600)
    item_id = story.said(a.OutputStarted)[0].item.id
    story.speaks()
    story.truncates(item_id, 100)
    kept = story.book.core.floor.conversation.find(item_id)
    assert isinstance(kept, Message)
    assert kept.text() == "One"


def test_no_filler_before_its_time() -> None:
    """It is said when the answer is expected after more than 1.2 s, and at that instant."""
    story = with_filler()
    story.says()
    story.model_asked()
    turn = story.book.core.agent.turn
    assert turn is not None
    late_ms = story.book.core.floor.learned.usual.late_from_ms(turn.marks, turn.marks["voiced_last"] + 1_200)
    assert orders_of(SayFiller, story.passes(late_ms - 1 - story.book.now_ms)) == []
    assert orders_of(SayFiller, story.passes(1)) != []


def test_a_filler_is_said_at_once_when_the_answer_can_only_be_late() -> None:
    """The question left so late that the usual answer to it would break the limit."""
    story = with_filler(filler_over_ms=800)
    story.says()
    assert names(story.model_asked())[:2] == ["OutputStarted", "SayFiller"]


def without_ready(story: Story) -> None:
    story.has_ready()


def with_sound(story: Story) -> None:
    story.token()
    story.clause()
    story.sound()


def with_call(story: Story) -> None:
    story.call()


@pytest.mark.parametrize("but", [without_ready, with_sound, with_call])
def test_no_filler_where_it_would_not_help(but: Any) -> None:
    """Its sound isn't there; the answer's is; a function is called."""
    story = with_filler()
    story.says()
    story.model_asked()
    but(story)
    assert orders_of(SayFiller, story.passes(3_000)) == []


def test_no_filler_unless_it_is_set() -> None:
    story = Story()
    story.has_ready(FILLER)
    story.says()
    story.model_asked()
    assert orders_of(SayFiller, story.passes(3_000)) == []


def test_no_filler_while_the_caller_may_go_on() -> None:
    """A reply that was begun early is nobody's answer yet."""
    story = with_filler()
    story.book.core.floor.core = story.book.core.floor.core.__class__(
        speculate=True, rescue=RescueSettings(filler=FILLER)
    )
    story.speaks()
    story.pauses()
    story.hears()
    story.model_asked()
    assert orders_of(SayFiller, story.passes(1_500)) == []


def test_no_filler_when_the_answer_is_nearly_there() -> None:
    """With its first clause at the voice it is expected in a moment, late as it is."""
    story = with_filler(shorten_after_ms=None)
    story.says()
    story.model_asked()
    story.passes(300)
    story.token("Well the")
    story.clause("Well the")
    assert orders_of(SayFiller, story.passes(100)) == []


def test_never_two_turns_running() -> None:
    story = with_filler()
    fillers = []
    for _ in range(4):
        story.says()
        fillers.append(len(orders_of(SayFiller, story.model_asked() + story.passes(2_000))))
        story.begins_to_answer()
        story.model_done()
        story.voice_done()
        story.passes(5_000)
    assert fillers == [1, 0, 1, 0]


def test_one_filler_a_turn() -> None:
    """Whoever goes on while it is said, and has to wait again, hears no second one."""
    story = with_filler()
    story.says("One")
    story.model_asked()
    assert orders_of(SayFiller, story.passes(1_000)) != []
    story.filler_sent()
    got = story.speaks()
    assert orders_of(StopReply, got) == [StopReply(1, 0)]
    story.pauses()
    story.hears("One two")
    story.stops()
    story.model_asked()
    assert orders_of(SayFiller, story.passes(3_000)) == []
    story.answers()
    story.passes(5_000)
    assert story.book.records["turn_s_0001"].actions == ("filler",)


def test_no_model_reads_what_was_said_aside() -> None:
    """The next question's context holds it, marked."""
    story = with_filler()
    story.says()
    story.model_asked()
    story.passes(1_000)
    story.filler_sent()
    story.answers()
    story.passes(5_000)
    story.says("And now?")
    asides = [item for item in story.started()[-1].items if isinstance(item, Message) and item.aside]
    assert [item.text() for item in asides] == [FILLER]


# --- an apology -----------------------------------------------------------------------------------


def test_a_turn_that_failed_is_apologised_for() -> None:
    """`response.done` says failed, then a response of its own says the words; the conversation goes on."""
    story = Story(rescue=PHRASES)
    story.says()
    story.model_asked()
    (apology,) = orders_of(StartReply, story.breaks())
    assert apology.words == APOLOGY
    assert story.ended() == [("failed", "llm_failed")]
    story.model_asked()
    story.token(APOLOGY)
    story.clause(APOLOGY)
    assert orders_of(OpenGate, story.sound()) != []
    story.sent()
    story.model_done()
    story.voice_done()
    story.passes(5_000)
    failed, said = (story.book.records[f"turn_s_000{n}"] for n in (1, 2))
    assert (failed.outcome, failed.actions) == ("failed", ("apology",))
    assert (said.cause, said.outcome, said.agent_text) == ("apology", "completed", APOLOGY)
    assert "llm" not in dict(said.providers)
    story.says("Are you there?")
    assert story.started()[-1].words == ""
    asides = [item for item in story.started()[-1].items if isinstance(item, Message) and item.aside]
    assert [item.text() for item in asides] == [APOLOGY]


def test_an_apology_that_fails_is_the_end_of_it() -> None:
    story = Story(rescue=PHRASES)
    story.says()
    story.model_asked()
    story.breaks()
    assert orders_of(StartReply, story.breaks("tts")) == []
    assert story.outcomes() == [("failed", "llm: fake/llm: broke"), ("failed", "tts: fake/tts: broke")]


def test_a_voice_that_failed_apologises_only_with_sound_that_is_there() -> None:
    for ready, n_apologies in (((), 0), ((APOLOGY,), 1)):
        story = Story(rescue=PHRASES)
        story.has_ready(*ready)
        story.says()
        story.model_asked()
        assert len(orders_of(StartReply, story.breaks("tts"))) == n_apologies


def test_words_that_were_lost_are_apologised_for() -> None:
    story = Story(rescue=PHRASES)
    story.speaks()
    story.pauses()
    got = story.goes_deaf() + story.stops()
    assert [order.words for order in orders_of(StartReply, got)] == [APOLOGY]


def test_no_apology_for_text_or_beside_the_conversation() -> None:
    for reply in ({"audible": False}, {"in_conversation": False}):
        story = Story(rescue=PHRASES)
        story.creates(**reply)
        story.model_asked()
        assert orders_of(StartReply, story.breaks()) == []


def test_whoever_speaks_stops_an_apology() -> None:
    """As any answer; it was not heard, so it is not said later."""
    story = Story(rescue=PHRASES)
    story.says()
    story.model_asked()
    story.breaks()
    story.says("Hello?")
    assert story.outcomes()[1][0] == "abandoned"
    assert story.started()[-1].words == ""


def test_a_client_that_asks_again_at_once_is_heard() -> None:
    """An apology that nobody has heard yet gives way."""
    story = Story(rescue=PHRASES)
    story.says()
    story.model_asked()
    story.breaks()
    got = story.creates()
    assert story.said(a.Refused) == []
    assert [order.words for order in orders_of(StartReply, got)] == [""]


def test_a_guess_that_fails_is_nobody_s_loss() -> None:
    story = Story(speculate=True, rescue=PHRASES)
    story.speaks()
    story.pauses()
    story.hears()
    story.model_asked()
    assert orders_of(StartReply, story.breaks()) == []


def test_a_reply_in_time_has_no_actions() -> None:
    story = with_filler()
    an_answered_turn(story)
    assert story.book.records["turn_s_0001"].actions == ()


def test_actions_are_told_to_whoever_watches() -> None:
    story = Story(watched=True, rescue=PHRASES)
    story.has_ready(FILLER)
    story.says()
    story.model_asked()
    story.model_joined("b/m")
    story.passes(1_000)
    story.breaks()
    assert [told.action for told in story.said(a.ActionTaken)] == ["hedge", "filler", "apology"]


def test_the_way_to_the_model_is_part_of_its_time() -> None:
    story = Story()
    story.says()
    story.model_asked()
    story.model_reached()
    story.answers()
    assert dict(story.book.records["turn_s_0001"].parts)["connect"] == 50


@pytest.mark.parametrize("wrong", [{"shorten_after_ms": -1}, {"filler_over_ms": -1}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        RescueSettings(**wrong)

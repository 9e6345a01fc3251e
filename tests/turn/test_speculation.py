"""Replies that are started before the turn is over: when, how often, what of them is kept, and what they come to."""

from __future__ import annotations

from voicepipe.testing.playbook import names
from voicepipe.testing.story import Story
from voicepipe.turn import announcements as a
from voicepipe.turn.record import Speculation
from voicepipe.turn.settings import ReplySettings, SpeculationLimits
from voicepipe.turn.states import Caller

QUESTION = "What time is it?"
PROMPT = "x" * 4_000
"""Instructions of a thousand tokens."""


def speculation(story: Story, turn: int = 1) -> Speculation:
    """What the record of a turn says of it."""
    return story.book.records[f"turn_s_{turn:04d}"].speculation


def answered_turn(story: Story, words: str = QUESTION) -> None:
    """A caller asks, and hears the whole answer; it takes 200 ms until its first sound."""
    story.speaks()
    story.pauses()
    story.hears(words)
    story.is_silent(420)
    story.model_asked()
    story.token()
    story.clause()
    story.sound()
    story.stops()
    story.sent()
    story.model_done()
    story.voice_done()
    story.passes(5_000)


def wasted_start(story: Story, words: str = QUESTION) -> None:
    """The caller pauses, and goes on when the model has been asked."""
    story.pauses()
    story.hears(words)
    story.model_asked()
    story.speaks()


# --- what it comes to -----------------------------------------------------------------------------


def test_a_kept_start_says_what_it_saved() -> None:
    """Begun 130 ms after the last voiced sample; ready 200 ms later, long before the turn was over: so much sooner."""
    story = Story(speculate=True)
    story.speaks()
    story.pauses()
    story.hears()
    story.begins_to_answer()
    story.stops()
    story.sent()
    story.model_done()
    story.voice_done()
    story.passes(5_000)
    assert speculation(story) == Speculation(starts=1, kept=1, saved_ms=200)
    assert story.book.records["turn_s_0001"].session_speculation == speculation(story)


def test_a_start_that_is_not_ready_in_time_saved_its_head_start() -> None:
    """What it was ahead of the turn's end."""
    story = Story(speculate=True)
    story.speaks()
    story.pauses()
    story.hears()
    story.model_asked()
    story.stops()
    story.token()
    story.clause()
    story.sound()
    story.passes(60_000)
    assert (speculation(story).kept, speculation(story).saved_ms) == (1, 450)


def test_a_wasted_start_is_reckoned_from_the_text() -> None:
    """No provider tells the count of an answer that it was told to stop: four characters are a token."""
    story = Story(speculate=True)
    story.changes(reply=ReplySettings(instructions=PROMPT))
    story.speaks()
    story.pauses()
    story.hears(QUESTION)
    story.model_asked()
    story.token("It is noon, more or less, all over the town.")
    story.speaks()
    story.pauses()
    story.hears(f"{QUESTION} In Paris?")
    story.begins_to_answer()
    story.stops()
    story.sent()
    story.model_done()
    story.voice_done()
    story.passes(5_000)
    expected = Speculation(
        starts=2,
        kept=1,
        saved_ms=200,
        wasted_input_tokens=(len(PROMPT) + len(QUESTION)) // 4,
        wasted_output_tokens=11,
        estimated=True,
    )
    assert speculation(story) == expected


def test_a_count_that_came_in_time_is_taken() -> None:
    """A short answer was complete before the caller went on."""
    story = Story(speculate=True)
    story.speaks()
    story.pauses()
    story.hears()
    story.model_asked()
    story.token()
    story.counts(120, 7)
    story.speaks()
    story.leaves()
    wasted = speculation(story)
    assert (wasted.wasted_input_tokens, wasted.wasted_output_tokens, wasted.estimated) == (120, 7, False)


def test_a_session_adds_its_turns_up() -> None:
    """Each record has the sum up to it."""
    story = Story(speculate=True)
    story.speaks()
    wasted_start(story)
    story.pauses()
    story.hears("Never mind.")
    story.stops()
    story.answers()
    story.passes(5_000)
    answered_turn(story)
    total = story.book.records["turn_s_0002"].session_speculation
    assert (total.starts, total.kept) == (3, 2)
    assert total.wasted_tokens == speculation(story, 1).wasted_tokens > 0


def test_a_reply_that_began_at_the_turns_end_is_none() -> None:
    """Also when the caller goes on before it is audible."""
    story = Story()
    story.says()
    story.model_asked()
    story.speaks()
    story.leaves()
    assert speculation(story) == Speculation()


# --- when -----------------------------------------------------------------------------------------


def test_no_work_begins_in_a_shorter_pause_than_the_rule_says() -> None:
    """The words are known at once; the voice tells nothing, so it takes 120 ms of silence."""
    story = Story(speculate=True)
    story.speaks()
    now_ms = story.book.now_ms
    story.pauses()
    story.is_silent(100)
    assert story.started() == []
    story.hears()
    assert len(story.started()) == 1
    assert story.book.now_ms - now_ms < 200


def test_a_session_that_knows_its_answers_begins_as_late_as_it_can() -> None:
    """They take 250 ms until the first sound, and the turn is over after 500 ms of silence: 250 are time enough."""
    story = Story(speculate=True)
    for _ in range(3):
        answered_turn(story)
    story.speaks()
    story.pauses()
    assert "StartReply" not in names(story.hears())
    assert "StartReply" not in names(story.is_silent(240))
    assert "StartReply" in names(story.is_silent(260))


def test_a_turn_that_ends_without_an_early_start_is_answered() -> None:
    """A silence that is told late, and the turn is over at once."""
    story = Story(speculate=True)
    for _ in range(3):
        answered_turn(story)
    story.speaks()
    story.pauses()
    story.hears()
    assert names(story.stops()).count("StartReply") == 1
    assert story.book.core.unlawful == []


# --- what is kept ---------------------------------------------------------------------------------


def test_a_reply_is_kept_when_only_its_spelling_changes() -> None:
    """The final text has another case, other punctuation and spacing: the same words."""
    story = Story(speculate=True)
    story.speaks()
    story.ends_it("what time is it")
    story.pauses()
    assert "StopReply" not in names(story.hears("What time  is it?"))
    assert names(story.stops()).count("StartReply") == 0
    assert len(story.started()) == 1


def test_a_reply_to_other_words_is_not_kept() -> None:
    """3.5 is not 35."""
    story = Story(speculate=True)
    story.speaks()
    story.ends_it("I want 35 of them")
    story.pauses()
    assert names(story.hears("I want 3.5 of them")) == ["StopReply", "StartReply"]


def test_a_call_of_a_function_waits_for_the_gate() -> None:
    """A client acts on a call, and what it does can't be taken back: before the turn is over it hears of none."""
    story = Story(speculate=True)
    story.speaks()
    story.pauses()
    story.hears()
    story.model_asked()
    told = [*story.call(), *story.model_done("tool_calls"), *story.voice_done()]
    assert names(told) == []
    story.speaks()
    story.pauses()
    story.hears("What time is it in Paris?")
    story.model_asked()
    story.call()
    story.model_done("tool_calls")
    story.voice_done()
    assert story.said(a.OutputStarted) == []
    assert "OpenGate" in names(story.stops())
    assert [what.item.id for what in story.said(a.OutputStarted)] == ["item_s_0003_call0"]


# --- how often ------------------------------------------------------------------------------------


def test_a_turn_has_at_most_three_starts_in_vain() -> None:
    """A caller who stops and goes on: three starts, and the fourth reply is the answer."""
    story = Story(speculate=True, max_flushes=9)
    story.speaks()
    for n in range(3):
        wasted_start(story, "It is noon." * (n + 1))
    for n in range(3, 6):
        story.pauses()
        story.hears("It is noon." * (n + 1))
        assert "StartReply" not in names(story.is_silent(300))
        story.speaks()
    story.pauses()
    story.hears("and that is all.")
    assert len(story.started()) == 3
    story.stops()
    assert len(story.started()) == 4
    assert story.book.core.caller.state is Caller.ENDED


def test_an_operator_may_allow_fewer() -> None:
    """Or none."""
    story = Story(speculate=True, speculation=SpeculationLimits(max_starts=0))
    story.speaks()
    story.pauses()
    assert names(story.hears()) == []
    assert "StartReply" in names(story.stops())


def test_a_session_has_a_limit_of_wasted_tokens() -> None:
    """The next start could pass it, so it is not made."""
    story = Story(speculate=True, speculation=SpeculationLimits(max_wasted_tokens=1_500))
    story.changes(reply=ReplySettings(instructions=PROMPT))
    story.speaks()
    wasted_start(story)
    story.pauses()
    story.hears()
    story.stops()
    story.answers()
    story.passes(5_000)
    assert (speculation(story).starts, speculation(story).refused) == (1, 1)


def test_a_share_of_waste_is_a_limit_once_there_is_something_to_share() -> None:
    """The first two thousand tokens of a session tell nothing."""
    story = Story(speculate=True, speculation=SpeculationLimits(max_wasted_share=0.5))
    story.changes(reply=ReplySettings(instructions=PROMPT))
    story.speaks()
    wasted_start(story)
    wasted_start(story)
    story.pauses()
    story.hears()
    assert len(story.started()) == 2
    story.stops()
    story.answers()
    story.passes(5_000)
    assert speculation(story).refused == 1


# --- whether it pays ------------------------------------------------------------------------------


def test_what_does_not_pay_is_given_up_and_taken_up_again() -> None:
    """A long prompt and a caller who always goes on; then one who never does: nothing was spent to find that out."""
    story = Story(speculate=True)
    story.changes(reply=ReplySettings(instructions=PROMPT * 5))
    n_started = []
    for _ in range(6):
        story.speaks()
        before = len(story.started())
        for _ in range(2):
            story.pauses()
            story.hears()
            story.is_silent(450)
            story.speaks()
        n_started.append(len(story.started()) - before)
        story.pauses()
        story.hears()
        story.stops()
        story.answers()
        story.passes(5_000)
    assert n_started[0] > 0
    assert n_started[-3:] == [0, 0, 0]
    refused = story.book.core.floor.learned.speculation.total.refused
    assert refused > 0
    for _ in range(12):
        answered_turn(story)
    total = story.book.core.floor.learned.speculation.total
    assert speculation(story, 18).starts == 1
    assert total.refused > refused
    assert total.kept > 0


def test_tokens_that_cost_nothing_always_pay() -> None:
    """For a model of one's own."""
    story = Story(speculate=True, speculation=SpeculationLimits(ms_per_1000_tokens=0))
    story.changes(reply=ReplySettings(instructions=PROMPT * 5))
    for _ in range(4):
        story.speaks()
        wasted_start(story)
        wasted_start(story)
        story.pauses()
        story.hears()
        story.stops()
        story.answers()
        story.passes(5_000)
    assert story.book.core.floor.learned.speculation.total.refused == 0


def test_one_late_answer_makes_the_next_begin_early_again() -> None:
    """Who is late is heard late; a start that is too soon is only dearer."""
    story = Story(speculate=True)
    for _ in range(3):
        answered_turn(story)
    story.speaks()
    story.pauses()
    story.hears()
    story.stops()
    story.model_asked()
    story.passes(3_000)
    story.token()
    story.clause()
    story.sound()
    story.sent()
    story.model_done()
    story.voice_done()
    story.passes(5_000)
    story.speaks()
    story.pauses()
    assert "StartReply" in names(story.hears())

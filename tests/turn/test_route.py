"""What a turn's record tells of the models that were tried for it."""

from __future__ import annotations

from voicepipe.testing.story import Story
from voicepipe.turn import announcements as a
from voicepipe.turn.record import ModelAttempt

LOST = ModelAttempt(provider="a/m", role="primary", outcome="lost", began_ms=0, first_ms=None, cost_usd=0.0004)
SPOKE = ModelAttempt(provider="b/m", role="hedge", outcome="spoke", began_ms=300, first_ms=120)


def test_a_routed_answer_is_owned_by_who_gave_it() -> None:
    """The stage belongs to the model that spoke, and the calls and their cost are on the record."""
    story = Story()
    story.says()
    story.model_asked()
    story.model_chosen("b/m", "first to speak")
    story.token()
    story.clause()
    story.sound()
    story.sent()
    story.model_attempted(LOST)
    story.model_attempted(SPOKE)
    story.model_done()
    story.voice_done()
    story.passes(5_000)
    record = story.book.records["turn_s_0001"]
    assert dict(record.providers)["llm"] == "b/m"
    assert next(span.owner for span in record.stages if span.stage == "llm_ttft") == "b/m"
    assert record.route == "first to speak"
    assert record.attempts == (LOST, SPOKE)
    assert record.actions == ("hedge",)


def test_who_goes_on_with_an_answer_is_told_behind_who_began_it() -> None:
    story = Story()
    story.says()
    story.model_asked()
    story.model_chosen("a/m", "first choice")
    story.token()
    story.model_chosen("b/m", "goes on for a/m: cut")
    story.model_attempted(ModelAttempt(provider="a/m", role="primary", outcome="failed", began_ms=0, first_ms=80))
    story.model_attempted(ModelAttempt(provider="b/m", role="continuation", outcome="spoke", began_ms=400, first_ms=90))
    story.model_done()
    story.voice_done()
    story.passes(5_000)
    record = story.book.records["turn_s_0001"]
    assert record.route == "first choice; goes on for a/m: cut"
    assert record.actions == ("continuation",)


def test_a_revision_begins_its_route_anew() -> None:
    """Nothing of the reply that was put away is told of the one that was heard."""
    story = Story()
    story.says("One")
    story.model_asked()
    story.model_chosen("a/m", "first choice")
    story.model_attempted(LOST)
    turn = story.book.core.agent.turn
    assert turn is not None
    story.speaks()
    assert (turn.revision, turn.route, turn.attempts, turn.actions) == (1, "", [], [])


def test_a_turn_that_is_watched_tells_its_actions() -> None:
    story = Story(watched=True)
    story.says()
    story.model_asked()
    story.model_attempted(SPOKE)
    story.token()
    assert [told.action for told in story.said(a.ActionTaken)] == ["hedge"]


def test_sound_that_is_still_to_be_heard_is_known() -> None:
    story = Story()
    story.says()
    story.model_asked()
    story.token()
    story.clause()
    story.sound()
    turn = story.book.core.agent.turn
    assert turn is not None
    arrived_ms = turn.arrived_ms
    assert turn.queued_ms(story.book.now_ms) == arrived_ms > 0
    story.sent()
    assert 0 < turn.queued_ms(story.book.now_ms) <= arrived_ms
    assert turn.queued_ms(story.book.now_ms + 60_000) == 0


def test_connecting_to_the_voice_is_on_the_record() -> None:
    """What was over when the reply began; of several voices that of the first."""
    story = Story()
    story.says()
    story.model_asked()
    story.voice_reached(80)
    story.voice_reached(5)
    story.token()
    story.clause()
    story.sound()
    story.sent()
    story.model_done()
    story.voice_done()
    story.passes(5_000)
    assert story.book.records["turn_s_0001"].connect_hidden_ms == 80

"""What a turn's record tells of the models that were tried for it."""

from __future__ import annotations

from voicepipe.testing.story import Story
from voicepipe.turn import announcements as a
from voicepipe.turn import events as e
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
    reply = turn.reply
    assert (reply.revision, reply.route, reply.attempts, reply.actions) == (1, [], [], [])


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
    arrived_ms = turn.audio.arrived_ms
    assert turn.audio.queued_ms(story.book.now_ms) == arrived_ms > 0
    story.sent()
    assert 0 < turn.audio.queued_ms(story.book.now_ms) <= arrived_ms
    assert turn.audio.queued_ms(story.book.now_ms + 60_000) == 0


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


def test_connecting_to_the_ear_is_on_the_record() -> None:
    """Of the first turn what was over when it began; later ones wait for none of it."""
    story = Story()
    story.speaks()
    story.book.at(story.book.now_ms, e.EarReached(took_ms=300, hidden_ms=120))
    story.pauses()
    story.hears()
    story.stops()
    story.answers()
    story.passes(5_000)
    story.says()
    story.answers()
    story.passes(5_000)
    records = sorted(story.book.records.values(), key=lambda record: record.turn)
    assert [record.ear_connect_hidden_ms for record in records] == [120, 300]


def test_an_ear_without_a_connection_of_its_own_hides_none() -> None:
    story = Story()
    story.says()
    story.answers()
    story.passes(5_000)
    assert story.book.records["turn_s_0001"].ear_connect_hidden_ms is None


def test_who_hears_for_another_is_on_the_record() -> None:
    """Also when the turn is revised, since its first words were heard again; and it is told live, once."""
    story = Story(watched=True)
    story.speaks()
    changed = e.EarChanged(1, "b/stt", "continuation", "a/stt: HTTP 503")
    story.book.at(story.book.now_ms, changed)
    story.pauses()
    story.hears("What")
    story.speaks()
    story.pauses()
    story.hears("What time is it?")
    story.stops()
    story.model_asked()
    story.model_joined("b/m")
    story.answers()
    story.passes(5_000)
    record = story.book.records["turn_s_0001"]
    assert record.route == "b/stt hears: a/stt: HTTP 503"
    assert sorted(record.actions) == ["continuation", "hedge"]
    assert sorted(told.action for told in story.said(a.ActionTaken)) == ["continuation", "hedge"]


def test_an_ear_that_changes_in_silence_is_no_turns_affair() -> None:
    story = Story()
    story.says()
    story.answers()
    story.book.at(story.book.now_ms, e.EarChanged(1, "b/stt", "continuation", "a/stt: HTTP 503"))
    story.passes(5_000)
    record = story.book.records["turn_s_0001"]
    assert (record.route, record.actions) == ("", ())

"""A turn's record lists the models that were tried for it."""

from __future__ import annotations

import pytest

from voicepipe.testing.scenario import Scenario
from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.record.arm import Arm
from voicepipe.turn.record.values import ModelAttempt

LOST = ModelAttempt(provider="a/m", role="primary", outcome="lost", began_ms=0, first_ms=None, cost_usd=0.0004)
SPOKE = ModelAttempt(provider="b/m", role="hedge", outcome="spoke", began_ms=300, first_ms=120)


def test_a_routed_answer_is_owned_by_who_gave_it() -> None:
    """The stage belongs to the model that spoke, and the calls and their cost are on the record."""
    scenario = Scenario()
    scenario.utters()
    scenario.model_requested()
    scenario.model_chosen("b/m", "first to speak")
    scenario.token()
    scenario.clause()
    scenario.sound()
    scenario.sent()
    scenario.model_attempted(LOST)
    scenario.model_attempted(SPOKE)
    scenario.model_done()
    scenario.voice_done()
    scenario.passes(5_000)
    record = scenario.driver.records["turn_s_0001"]
    assert dict(record.providers)["llm"] == "b/m"
    assert next(span.owner for span in record.stages if span.stage == "llm_ttft") == "b/m"
    assert record.route == "first to speak"
    assert record.attempts == (LOST, SPOKE)
    assert record.actions == ("hedge",)


def test_continuation_follows_the_first_provider_in_the_route() -> None:
    scenario = Scenario()
    scenario.utters()
    scenario.model_requested()
    scenario.model_chosen("a/m", "first choice", "new", Arm("summer", "new"))
    scenario.token()
    scenario.model_chosen("b/m", "continues for a/m: cut", "new", Arm("summer", "new"))
    scenario.model_attempted(ModelAttempt(provider="a/m", role="primary", outcome="failed", began_ms=0, first_ms=80))
    scenario.model_attempted(
        ModelAttempt(provider="b/m", role="continuation", outcome="spoke", began_ms=400, first_ms=90)
    )
    scenario.model_done()
    scenario.voice_done()
    scenario.passes(5_000)
    record = scenario.driver.records["turn_s_0001"]
    assert record.route == "first choice; continues for a/m: cut"
    assert next(span.owner for span in record.stages if span.stage == "llm_ttft") == "a/m"
    assert (record.pool, record.arm) == ("new", Arm("summer", "new"))
    assert record.actions == ("continuation",)


def test_a_revision_begins_its_route_anew() -> None:
    """The route of the played reply holds nothing of the discarded reply."""
    scenario = Scenario()
    scenario.utters("One")
    scenario.model_requested()
    scenario.model_chosen("a/m", "first choice")
    scenario.model_attempted(LOST)
    turn = scenario.driver.core.agent.turn
    assert turn is not None
    scenario.speaks()
    reply = turn.reply
    assert (reply.revision, reply.route, reply.attempts, reply.actions) == (1, [], [], [])


def test_watched_turn_notifies_its_actions() -> None:
    scenario = Scenario(watched=True)
    scenario.utters()
    scenario.model_requested()
    scenario.model_attempted(SPOKE)
    scenario.token()
    assert [notices.action for notices in scenario.notified(a.ActionTaken)] == ["hedge"]


def test_queued_audio_is_known() -> None:
    scenario = Scenario()
    scenario.utters()
    scenario.model_requested()
    scenario.token()
    scenario.clause()
    scenario.sound()
    turn = scenario.driver.core.agent.turn
    assert turn is not None
    arrived_ms = turn.audio.arrived_ms
    assert turn.audio.queued_ms(scenario.driver.now_ms) == arrived_ms > 0
    scenario.sent()
    assert 0 < turn.audio.queued_ms(scenario.driver.now_ms) <= arrived_ms
    assert turn.audio.queued_ms(scenario.driver.now_ms + 60_000) == 0


def test_connecting_to_the_voice_is_on_the_record() -> None:
    """What was over when the reply began; of several voices that of the first."""
    scenario = Scenario()
    scenario.utters()
    scenario.model_requested()
    scenario.synthesizer_connected(80)
    scenario.synthesizer_connected(5)
    scenario.token()
    scenario.clause()
    scenario.sound()
    scenario.sent()
    scenario.model_done()
    scenario.voice_done()
    scenario.passes(5_000)
    assert scenario.driver.records["turn_s_0001"].tts_connect_hidden_ms == 80


def test_stt_connect_time_is_recorded() -> None:
    """Of the first turn what was over when it began; later ones wait for none of it."""
    scenario = Scenario()
    scenario.speaks()
    scenario.driver.at(scenario.driver.now_ms, e.TranscriberConnected(took_ms=300, hidden_ms=120))
    scenario.pauses()
    scenario.transcribes()
    scenario.stops()
    scenario.answers()
    scenario.passes(5_000)
    scenario.utters()
    scenario.answers()
    scenario.passes(5_000)
    records = sorted(scenario.driver.records.values(), key=lambda record: record.turn)
    assert [record.stt_connect_hidden_ms for record in records] == [120, 300]


def test_stt_without_a_connection_hides_no_time() -> None:
    scenario = Scenario()
    scenario.utters()
    scenario.answers()
    scenario.passes(5_000)
    assert scenario.driver.records["turn_s_0001"].stt_connect_hidden_ms is None


def test_stt_fallback_is_recorded() -> None:
    """This holds also when the turn is revised, since its first words were transcribed again; the client is notified
    once.
    """
    scenario = Scenario(watched=True)
    scenario.speaks()
    changed = e.TranscriberChanged(1, "b/stt", "continuation", "a/stt: HTTP 503")
    scenario.driver.at(scenario.driver.now_ms, changed)
    scenario.pauses()
    scenario.transcribes("What")
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes("What time is it?")
    scenario.stops()
    scenario.model_requested()
    scenario.model_joined("b/m")
    scenario.answers()
    scenario.passes(5_000)
    record = scenario.driver.records["turn_s_0001"]
    assert record.route == "b/stt transcribes: a/stt: HTTP 503"
    assert sorted(record.actions) == ["continuation", "hedge"]
    assert sorted(notices.action for notices in scenario.notified(a.ActionTaken)) == ["continuation", "hedge"]


@pytest.mark.parametrize(("waits_ms", "owner"), [(2_000, "a/stt"), (0, "b/stt")])
def test_a_late_text_is_owned_by_the_stt_that_was_waited_for_longest(waits_ms: int, owner: str) -> None:
    """The second one has the text 300 ms after it got the audio."""
    scenario = Scenario()
    scenario.speaks()
    scenario.pauses()
    scenario.stops()
    scenario.passes(waits_ms)
    changed = e.TranscriberChanged(1, "b/stt", "continuation", "a/stt: no transcript", "a/stt")
    scenario.driver.at(scenario.driver.now_ms, changed)
    scenario.passes(300 if waits_ms else 3_000)
    scenario.transcribes(provider="b/stt")
    scenario.answers()
    scenario.passes(5_000)
    record = scenario.driver.records["turn_s_0001"]
    assert next(span.owner for span in record.stages if span.stage == "endpoint") == owner
    assert dict(record.providers)["stt"] == "b/stt"


def test_a_late_first_output_is_owned_by_the_provider_that_was_waited_for() -> None:
    """The one that has answered is credited all the same, and what it does afterwards is its own."""
    scenario = Scenario()
    scenario.utters()
    scenario.model_requested()
    turn = scenario.started()[-1]
    key = (turn.turn, turn.revision)
    scenario.driver.at(scenario.driver.now_ms, e.ModelChosen(*key, "b/llm", "first to speak", waited_for="a/llm"))
    scenario.token()
    scenario.clause()
    changed = e.SynthesizerChanged(*key, "b/tts", "hedge", "first audible", 11, waited_for="fake/tts")
    scenario.driver.at(scenario.driver.now_ms, changed)
    scenario.sound()
    scenario.sent()
    scenario.driver.at(scenario.driver.now_ms, e.ModelChosen(*key, "c/llm", "continues for b/llm: cut"))
    scenario.model_done()
    scenario.voice_done()
    scenario.passes(5_000)
    record = scenario.driver.records["turn_s_0001"]
    owners = {span.stage: span.owner for span in record.stages}
    assert (owners["llm_ttft"], owners["tts_ttfb"]) == ("a/llm", "fake/tts")
    assert (dict(record.providers)["llm"], dict(record.providers)["tts"]) == ("c/llm", "b/tts")


def test_a_voice_that_continues_is_not_waited_for_at_the_first_audio() -> None:
    scenario = Scenario()
    scenario.utters()
    scenario.begins_to_answer("It is noon.")
    turn = scenario.started()[-1]
    changed = e.SynthesizerChanged(turn.turn, turn.revision, "b/tts", "continuation", "fake/tts: broke", 5)
    scenario.driver.at(scenario.driver.now_ms, changed)
    scenario.clause("And then?")
    scenario.model_done()
    scenario.voice_done()
    scenario.passes(5_000)
    record = scenario.driver.records["turn_s_0001"]
    assert next(span.owner for span in record.stages if span.stage == "tts_ttfb") == "fake/tts"


def test_stt_change_in_silence_is_not_recorded() -> None:
    scenario = Scenario()
    scenario.utters()
    scenario.answers()
    scenario.driver.at(scenario.driver.now_ms, e.TranscriberChanged(1, "b/stt", "continuation", "a/stt: HTTP 503"))
    scenario.passes(5_000)
    record = scenario.driver.records["turn_s_0001"]
    assert (record.route, record.actions) == ("", ())


def test_stt_that_connected_before_any_speech_delays_no_turn() -> None:
    """All of its time was over when the user began to speak."""
    scenario = Scenario()
    scenario.driver.at(scenario.driver.now_ms, e.TranscriberConnected(took_ms=300, hidden_ms=300))
    scenario.utters()
    scenario.answers()
    scenario.passes(5_000)
    assert scenario.driver.records["turn_s_0001"].stt_connect_hidden_ms == 300


def test_a_choice_without_a_reason_is_no_route() -> None:
    """Nothing was decided: the first candidate answered."""
    scenario = Scenario()
    scenario.utters()
    scenario.model_requested()
    scenario.model_chosen("fake/other", "")
    scenario.answers()
    scenario.passes(5_000)
    record = scenario.driver.records["turn_s_0001"]
    assert record.route == ""

"""A strategy in the core: when work begins, when the answer is audible, when the end is irrevocable; and its faults."""

from __future__ import annotations

from typing import Any

import pytest

from voicepipe.testing.scenario import Scenario
from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.commands import OpenGate, ReportStrategyFailure
from voicepipe.turn.endpointing.built_in import BUILT_IN
from voicepipe.turn.endpointing.strategies import Silence
from voicepipe.turn.endpointing.strategy import MAX_WAIT_MS, Decision, Evidence
from voicepipe.turn.states import UserState

SECRET = "my PIN is 4711"


class Fixed:
    """Decides the same for any evidence, and keeps what it got."""

    def __init__(self, decision: Any, max_wait_ms: Any = 1_000) -> None:
        self.decision, self.max_wait_ms = decision, max_wait_ms
        self.seen: list[Evidence] = []

    def __call__(self, silence_ms: int) -> Fixed:
        self.silence_ms = silence_ms
        return self

    def decide(self, evidence: Evidence) -> Decision:
        self.seen.append(evidence)
        return self.decision  # type: ignore[no-any-return]


def session(strategy: Any, **more: Any) -> Scenario:
    """A session that this strategy serves."""
    return Scenario(end_of_turn="mine", strategies={**BUILT_IN, "mine": strategy}, **more)


def failures(scenario: Scenario) -> list[ReportStrategyFailure]:
    return [command for command in scenario.driver.commands if isinstance(command, ReportStrategyFailure)]


def paused(scenario: Scenario, words: str = "What time is it?") -> None:
    scenario.speaks()
    scenario.pauses()
    scenario.transcribes(words)


# --- the three moments ----------------------------------------------------------------------------


def test_work_begins_and_the_answer_is_audible_when_the_strategy_says() -> None:
    """Begun at 300 ms, ready long before, released at 600."""
    scenario = session(Fixed(Decision(300, 600)), speculate=True)
    paused(scenario)
    scenario.is_silent(280)
    assert len(scenario.started()) == 0
    scenario.is_silent(300)
    assert len(scenario.started()) == 1
    scenario.model_requested()
    scenario.token()
    scenario.clause()
    scenario.sound()
    assert not any(isinstance(command, OpenGate) for command in scenario.is_silent(580))
    assert any(isinstance(command, OpenGate) for command in scenario.is_silent(600))


@pytest.mark.parametrize(("final_ms", "n_turns"), [(None, 1), (600, 2), (2_000, 2), (60_000, 1)])
def test_a_user_who_goes_on_after_an_irrevocable_end_begins_another_turn(final_ms: int | None, n_turns: int) -> None:
    """Otherwise the same turn continues: its answer is not audible yet."""
    scenario = session(Fixed(Decision(600, 600, final_ms)))
    paused(scenario)
    scenario.is_silent(600)
    scenario.passes(3_000)
    paused(scenario, "In Rome?")
    scenario.is_silent(600)
    assert len({command.turn for command in scenario.started()}) == n_turns
    over = [
        (record.turn, record.outcome, record.reason) for record in scenario.driver.records.values() if record.outcome
    ]
    assert over == ([(1, "abandoned", "turn_detected")] if n_turns == 2 else [])
    assert scenario.driver.illegal_moves == []


def test_an_irrevocable_end_is_answered_though_its_words_come_late() -> None:
    """The turn leaves the user's side before its transcript is known."""
    scenario = session(Fixed(Decision(600, 600, 600)))
    scenario.speaks()
    scenario.pauses()
    scenario.is_silent(600)
    scenario.passes(20)
    assert scenario.driver.user_state() is UserState.QUIET
    scenario.transcribes("What time is it?")
    scenario.answers("It is noon.")
    (record,) = scenario.driver.records.values()
    assert record.agent_text == "It is noon."


def test_a_turn_that_is_continued_in_time_is_not_ended_by_the_old_deadline() -> None:
    """The user goes on before the end is irrevocable, and speaks on past that instant."""
    scenario = session(Fixed(Decision(600, 600, 1_000)))
    paused(scenario)
    scenario.is_silent(600)
    scenario.speaks(for_ms=3_000)
    assert scenario.driver.user_state() is UserState.SPEAKING
    assert [what for what in scenario.driver.announced if isinstance(what, a.InputSpeechStopped)] != []
    scenario.pauses()
    scenario.transcribes("In Rome?")
    scenario.is_silent(600)
    assert {command.turn for command in scenario.started()} == {1}


# --- evidence -------------------------------------------------------------------------------------


def test_a_strategy_sees_all_that_is_known_of_the_pause() -> None:
    """Silence, words, partial words, language, the question before, models' scores."""
    strategy = Fixed(Decision(900, 900))
    scenario = session(strategy, language="en", silence_ms=640, telephone=True)
    scenario.driver.at(1_000, e.SpeechStarted(940, 640))
    scenario.driver.at(1_700, e.TranscriptGrew(1, "I would"))
    scenario.driver.at(2_080, e.SpeechPaused(2_000, 2_000, 90))
    scenario.driver.at(2_100, e.EndpointScored(2_000, "smart-turn", 0.4))
    scenario.driver.at(2_150, e.EndpointScored(2_000, "smart-turn", 0.7))
    scenario.driver.at(2_160, e.EndpointScored(1_990, "smart-turn", 0.1))
    scenario.driver.at(2_170, e.TranscriptFinished(1, 1, "I would like the", language="en-GB"))
    scenario.driver.at(2_200, e.SilenceGrew(200))
    assert strategy.silence_ms == 640
    assert strategy.seen[-1] == Evidence(
        silence_ms=200,
        noticed_ms=90,
        speech_ms=1_360,
        text="I would like the",
        interim_text="I would",
        language="en-GB",
        telephone=True,
        unfinished=1.0,
        scores=(("smart-turn", 0.7),),
    )


def test_a_score_is_of_its_pause_alone() -> None:
    """The next pause begins without one, and a late score of the pause before changes nothing."""
    strategy = Fixed(Decision(900, 900))
    scenario = session(strategy)
    scenario.driver.at(1_000, e.SpeechStarted(940, 640))
    scenario.driver.at(2_080, e.SpeechPaused(2_000, 2_000), e.EndpointScored(2_000, "p", 0.9), e.SilenceGrew(100))
    assert strategy.seen[-1].score("p") == 0.9
    scenario.driver.at(2_500, e.SpeechStarted(2_440, 2_440), e.EndpointScored(2_000, "p", 0.9))
    scenario.driver.at(3_080, e.SpeechPaused(3_000, 3_000), e.EndpointScored(2_000, "p", 0.9), e.SilenceGrew(100))
    assert strategy.seen[-1].score("p") is None


# --- faults ---------------------------------------------------------------------------------------


class Raises(Fixed):
    def decide(self, evidence: Evidence) -> Decision:
        raise ValueError(SECRET)


def broken_factory(silence_ms: int) -> Silence:
    raise RuntimeError(SECRET)


NONSENSE = [
    (Raises(None), "ValueError in test_endpointing_strategies.py, line"),
    (broken_factory, "RuntimeError in test_endpointing_strategies.py, line"),
    (Fixed(None), "expected a Decision, got NoneType"),
    (Fixed(SECRET), "expected a Decision, got str"),
    (Fixed(Decision(0, "soon")), "audible_ms: expected whole ms, got str"),  # type: ignore[arg-type]
    (Fixed(Decision(0, 500.5)), "audible_ms: expected whole ms, got 500.5"),  # type: ignore[arg-type]
    (Fixed(Decision(True, 500)), "start_ms: expected whole ms, got True"),
    (Fixed(Decision(-1, 500)), "expected 0 <= start_ms <= audible_ms <= 1000, got -1 and 500"),
    (Fixed(Decision(501, 500)), "expected 0 <= start_ms <= audible_ms <= 1000, got 501 and 500"),
    (Fixed(Decision(0, 1_001)), "expected 0 <= start_ms <= audible_ms <= 1000, got 0 and 1001"),
    (Fixed(Decision(0, 500, 499)), "final_ms: expected at least audible_ms 500, got 499"),
    (Fixed(Decision(0, 500, effects_ms=499)), "effects_ms: expected audible_ms 500 to 1000, got 499"),
    (Fixed(Decision(0, 500, effects_ms=1_001)), "effects_ms: expected audible_ms 500 to 1000, got 1001"),
    (Fixed(Decision(0, 500, reversible_ms=2_001)), "reversible_ms: expected 0 to 2000, got 2001"),
    (Fixed(Decision(0, 500, reversible_ms=0.5)), "reversible_ms: expected whole ms, got 0.5"),  # type: ignore[arg-type]
    (Fixed(Decision(0, 500, float("nan"))), "final_ms: expected whole ms, got nan"),  # type: ignore[arg-type]
    (Fixed(Decision(0, 500), MAX_WAIT_MS + 1), f"max_wait_ms: expected whole ms from 0 to {MAX_WAIT_MS}, got 60001"),
    (Fixed(Decision(0, 500), None), f"max_wait_ms: expected whole ms from 0 to {MAX_WAIT_MS}, got NoneType"),
]


@pytest.mark.parametrize(("strategy", "why"), NONSENSE, ids=[why for _, why in NONSENSE])
def test_a_strategy_that_fails_is_replaced_by_silence(strategy: Any, why: str) -> None:
    """Its turn and the next end after exactly the silence that was set; it is reported once, without any words."""
    scenario = session(strategy, silence_ms=640)
    for words in ("What time is it?", "And in Rome?"):
        paused(scenario, words)
        scenario.is_silent(620)
        assert scenario.driver.user_state() is UserState.HOLDING
        scenario.is_silent(640)
        assert scenario.driver.user_state() is UserState.ENDED
        scenario.answers("Noon.")
    (failure,) = failures(scenario)
    assert failure.strategy == "mine"
    assert failure.why.startswith(why)
    assert SECRET not in repr(scenario.driver.commands)


def test_a_strategy_that_is_not_installed_is_replaced_by_silence() -> None:
    """As in the replay of a journal from another machine."""
    scenario = Scenario(end_of_turn="absent", silence_ms=640)
    paused(scenario)
    scenario.is_silent(640)
    assert scenario.driver.user_state() is UserState.ENDED
    assert failures(scenario) == [ReportStrategyFailure("absent", "expected the name of an installed strategy")]


def test_a_strategy_that_failed_is_not_tried_again() -> None:
    """Another may be chosen, and is used."""
    scenario = session(Raises(None), silence_ms=640)
    paused(scenario)
    scenario.is_silent(640)
    scenario.answers("Noon.")
    scenario.changes(end_of_turn="adaptive", silence_ms=720)
    paused(scenario, "I would like the")
    scenario.is_silent(1_280)
    assert scenario.driver.user_state() is UserState.HOLDING
    scenario.is_silent(1_300)
    assert scenario.driver.user_state() is UserState.ENDED
    scenario.answers("Yes?")
    scenario.changes(end_of_turn="mine", silence_ms=640)
    paused(scenario)
    scenario.is_silent(640)
    assert scenario.driver.user_state() is UserState.ENDED
    assert len(failures(scenario)) == 1

"""After a silence that has lasted too long the agent speaks up."""

from __future__ import annotations

from typing import Any

import pytest

from voicepipe.testing.scenario import Scenario
from voicepipe.turn import notifications as a
from voicepipe.turn.commands import CommitSilence, StartReply

TIMEOUT_MS = 5_000
AUDIO_MS = 30_000
"""How much audio the STT has received when the silence is committed."""


def idle(scenario: Scenario, for_ms: int = TIMEOUT_MS) -> list[Any]:
    """Let time pass in silence; return the commands, with those of the silence that was committed, if any."""
    got = scenario.passes(for_ms)
    return got + (scenario.goes_silent(AUDIO_MS) if CommitSilence() in got else [])


@pytest.fixture
def answered() -> Scenario:
    """The user has put a question, and the reply was played."""
    scenario = Scenario(idle_timeout_ms=TIMEOUT_MS)
    scenario.utters()
    scenario.answers(duration_ms=1_000)
    return scenario


def prompted(commands: list[Any]) -> bool:
    """Whether a reply was started."""
    return any(isinstance(command, StartReply) for command in commands)


def test_silence_is_committed_and_answered(answered: Scenario) -> None:
    """The client gets the silence, the commit, the item and a response, in this order; the turn's cause is `idle`."""
    answered.passes(1_000)
    n_before = len(answered.driver.announced)
    assert prompted(idle(answered))
    timed_out, committed, added, started = answered.driver.announced[n_before:]
    assert isinstance(added, a.ItemAdded)
    assert timed_out == a.SilenceTimedOut(added.item.id, AUDIO_MS - TIMEOUT_MS, AUDIO_MS)
    assert isinstance(committed, a.AudioCommitted)
    assert (committed.item_id, committed.previous_item_id) == (added.item.id, added.previous_item_id)
    assert isinstance(started, a.ResponseStarted)
    answered.answers("Are you there?", 500)
    answered.passes(600)
    record = max(answered.driver.records.values(), key=lambda record: record.turn)
    assert (record.cause, record.outcome) == ("idle", "completed")
    assert answered.driver.illegal_moves == []


def test_the_time_counts_from_the_end_of_the_sound(answered: Scenario) -> None:
    """Not from when it was sent."""
    assert not prompted(idle(answered, 1_000 + TIMEOUT_MS - 200))
    assert prompted(idle(answered, 400))


def test_no_idle_prompt_before_the_first_answer() -> None:
    """The user may take their time to begin."""
    assert not prompted(idle(Scenario(idle_timeout_ms=TIMEOUT_MS), 10 * TIMEOUT_MS))


def test_each_answer_is_followed_by_one_prompt(answered: Scenario) -> None:
    """A silent user gets the second prompt only after the first prompt was played."""
    answered.passes(1_000)
    assert prompted(idle(answered))
    assert not prompted(idle(answered, TIMEOUT_MS))  # the model is thinking
    answered.answers("Are you there?", 500)
    answered.passes(600)
    assert prompted(idle(answered))


@pytest.mark.parametrize(
    "act",
    [
        lambda s: s.speaks(for_ms=0),
        lambda s: s.creates(),
        lambda s: s.changes(idle_timeout_ms=None),
        lambda s: s.changes(detection="none"),
        lambda s: s.changes(create_response=False),
    ],
    ids=["speech", "a request", "switched off", "turns by hand", "no responses"],
)
def test_it_is_over_with_the_silence(answered: Scenario, act: Any) -> None:
    """Speech and client requests make the prompt unnecessary; a session without idle timeout gets none."""
    answered.passes(1_000 + TIMEOUT_MS - 100)
    act(answered)
    n_started = len(answered.started())
    assert CommitSilence() not in answered.passes(200)
    assert len(answered.started()) == n_started


def test_late_speech_stops_the_idle_prompt(answered: Scenario) -> None:
    """The silence was to be committed, and speech comes before it is."""
    assert CommitSilence() in answered.passes(1_000 + TIMEOUT_MS)
    answered.speaks(for_ms=0)
    assert not prompted(answered.goes_silent(AUDIO_MS))
    assert answered.notified(a.SilenceTimedOut) == []


def test_noise_that_was_nothing_starts_it_anew(answered: Scenario) -> None:
    """A turn without words leaves the silence to go on."""
    answered.passes(1_000 + TIMEOUT_MS - 500)
    answered.utters("")
    assert not prompted(idle(answered, TIMEOUT_MS - 500))
    assert prompted(idle(answered, 1_000))


def test_unexpected_silence_commit_is_ignored() -> None:
    """An event that the state has no use for."""
    scenario = Scenario()
    assert scenario.goes_silent(100) == []

"""The small parts of the core: settings that are refused by name, the loudspeaker, the wait, the diagram."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import pytest

from tests import docs
from voicepipe.errors import ConfigError
from voicepipe.testing.transitions import AGENT_TRANSITIONS, USER_TRANSITIONS, illegal_moves, may_follow
from voicepipe.turn import events as e
from voicepipe.turn.context import Due, Timer, Transitions, TurnContext
from voicepipe.turn.endpointing.strategies import Silence
from voicepipe.turn.endpointing.strategy import NOTHING
from voicepipe.turn.responses import PlaybackModel
from voicepipe.turn.settings import BudgetLimits, CoreSettings, Deadlines, TurnSettings
from voicepipe.turn.states import (
    AgentState,
    Gate,
    OverlapState,
    QueuePlace,
    Revisable,
    SpeechEnd,
    TranscriptState,
    UserState,
)

# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [0, -1])
@pytest.mark.parametrize(
    ("kind", "section", "name"),
    [
        *((BudgetLimits, "budget", field.name) for field in fields(BudgetLimits)),
        *((Deadlines, "deadlines", field.name) for field in fields(Deadlines)),
    ],
)
def test_a_limit_that_is_not_positive_is_refused(kind: type, section: str, name: str, wrong: int) -> None:
    """By its key, with what was expected and what came."""
    with pytest.raises(ConfigError, match=rf"^{section}\.{name}: expected a positive number of ms, got {wrong}$"):
        kind(**{name: wrong})


def test_a_silence_below_zero_is_refused() -> None:
    """By its key."""
    with pytest.raises(ConfigError, match=r"^silence_ms: expected 0 ms or more, got -1$"):
        TurnSettings(silence_ms=-1)


def test_a_wait_of_calls_below_zero_is_refused() -> None:
    """By its name."""
    with pytest.raises(ConfigError, match=r"^calls_wait_ms: expected 0 ms or more, got -1$"):
        CoreSettings(calls_wait_ms=-1)


def test_zero_flushes_are_refused() -> None:
    """The end of a turn needs a flush, so there is at least one."""
    with pytest.raises(ConfigError, match=r"^max_flushes: expected 1 or more, got 0$"):
        CoreSettings(max_flushes=0)


def test_wait_is_the_requested_silence() -> None:
    """In ms since the last voiced sample."""
    assert Silence(320).decide(NOTHING).audible_ms == 320


# --- the loudspeaker ------------------------------------------------------------------------------


def test_sound_plays_behind_what_plays() -> None:
    """At once when the line is silent, else when the sound before it is over."""
    playback = PlaybackModel()
    assert [playback.send(1_000, 500), playback.send(500, 600), playback.send(100, 9_000)] == [500, 1_500, 9_000]
    assert playback.ends_ms == 9_100


def test_sound_that_was_dropped_is_not_waited_for() -> None:
    """And what has been played stays played."""
    playback = PlaybackModel()
    playback.send(1_000, 0)
    playback.flush(400)
    assert playback.ends_ms == 400
    playback.flush(2_000)
    assert playback.ends_ms == 400
    assert playback.send(100, 500) == 500


# --- the floor ------------------------------------------------------------------------------------


def test_ids_name_their_session() -> None:
    """And count by kind."""
    context = TurnContext("s", CoreSettings(), TurnSettings())
    assert [context.new_id("item"), context.new_id("resp"), context.new_id("item")] == [
        "item_s_0001",
        "resp_s_0001",
        "item_s_0002",
    ]


def test_only_an_earlier_deadline_sets_the_alarm_again() -> None:
    """A later one is seen when the earlier has passed."""
    context = TurnContext("s", CoreSettings(), TurnSettings())
    alarms = []
    a, b, c = Timer(Due.REPLY, 1), Timer(Due.REPLY, 2), Timer(Due.VAD_CONFIRMS)
    for timer, at_ms in ((b, 500), (c, 900), (a, 300)):
        context.timers.set(timer, at_ms)
        alarms.append(context.timers.wake_ms())
    assert alarms == [500, None, 300]
    assert context.timers.passed(500) == [a, b]
    assert context.timers.due == {c: 900}


# --- the diagram of the transitions ---------------------------------------------------------------


def test_illegal_move_is_found() -> None:
    """And carried out: our bug must not hold up a call."""
    transitions = Transitions()
    transitions.event = e.SpeechPaused
    assert transitions.move(UserState.QUIET, UserState.ENDED) is UserState.ENDED
    assert illegal_moves(transitions.moves) == ["user quiet -> ended by SpeechPaused"]
    assert may_follow(AgentState.IDLE, e.SpeechPaused) == frozenset()


def test_every_state_can_be_left_and_reached() -> None:
    """No state is a dead end, and none is only on paper."""
    for kind, table in ((UserState, USER_TRANSITIONS), (AgentState, AGENT_TRANSITIONS)):
        assert {source for source, _ in table} == set(kind)
        assert {target for targets in table.values() for target in targets} == set(kind)


def test_the_drawings_for_people_have_every_arrow_of_the_table() -> None:
    """And no other; the sub-states are those of the code."""
    (user, agent, overlap) = docs.code(r"mermaid \w+", docs.section("The states"))
    drawn = set(re.findall(r"((?:user|agent)_\w+) --> ((?:user|agent)_\w+)", user + agent))
    tables: dict[str, Mapping[Any, Any]] = {"user": USER_TRANSITIONS, "agent": AGENT_TRANSITIONS}
    assert drawn == {
        (f"{machine}_{source.value}", f"{machine}_{target.value}")
        for machine, table in tables.items()
        for (source, _), targets in table.items()
        for target in targets
    }
    assert set(re.findall(r"^ +(\w+): ", user, re.MULTILINE)) == {each.value for each in SpeechEnd}
    names = set(re.findall(r"\w+", overlap))
    assert {each.value for each in OverlapState} <= names


def test_the_page_has_every_sub_state_in_order() -> None:
    """Each in a row of the table beside the drawing, with its meaning."""
    rows = re.findall(r"^\|.*\| `(\w+)` \| \w", docs.section("The states"), re.MULTILINE)
    assert rows == [each.value for kind in (Gate, TranscriptState, QueuePlace, Revisable) for each in kind]

"""Whatever happens in whatever order, the promises of a turn hold."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.turn.random_world import cores, play, steps
from voicepipe.turn import events as e
from voicepipe.turn.settings import BudgetActionSettings, CoreSettings, Deadlines
from voicepipe.turn.states import AgentState, UserState
from voicepipe.values import replace

pytestmark = pytest.mark.slow

FILLER = BudgetActionSettings(filler="One moment.", filler_over_ms=600, apology="Sorry.")
EAGER = CoreSettings()
LATE = CoreSettings(speculate=False)
"""Replies begin in a pause, or at the end of the turn."""

SOFT_END = [(0, "start", 0), (0, "pause", 0), (0, "text", 0), (0, "quiet", 4)]
"""An utterance that ends softly, so that function calls still wait."""


@example(  # the client cancels a reply of function calls that wait for a certain end
    plot=[*SOFT_END, (0, "asked", 0), (0, "voice_done", 0), (0, "cancel", 0)], core=LATE, softly=True
)
@example(  # the words of such a reply come after its calls
    plot=[*SOFT_END, (0, "asked", 0), (0, "voice_done", 0), (0, "token", 0), (0, "back", 0)], core=LATE, softly=True
)
@example(  # the user speaks over the answer to an overlong turn, after another turn
    plot=[
        *[(668, "start", 0), (668, "pause", 0), (668, "text", 0), (668, "quiet", 0), (629, "start", 0)],
        *[(629, "pause", 0), (629, "quiet", 0), (629, "text", 0), (607, "create", 0)],
        *SOFT_END,
        *[(0, "asked", 0), (0, "token", 0), (0, "clause", 0), (0, "sound", 0), (0, "start", 0), (0, "lasts", 6)],
    ],
    core=LATE,
    softly=True,
)
@example(  # a commit that is refused, while an overlap is judged
    plot=[
        *[(0, "start", 0), (0, "pause", 0), (286, "quiet", 4), (0, "text", 0), (0, "asked", 0), (0, "call", 0)],
        *[(0, "token", 0), (0, "clause", 0), (0, "sound", 0), (92, "quiet", 0), (92, "text", 0)],
        *[(0, "start", 0), (0, "pause", 0), (0, "text", 0), (100, "commit", 0)],
    ],
    core=replace(EAGER, short_words=False, budget_actions=FILLER),
    softly=False,
)
@example(  # a sound stops a reply that was played to its end, and whose outcome waits
    plot=[
        *SOFT_END,
        *[(0, "asked", 0), (256, "voice_done", 0), (270, "start", 0), (0, "pause", 0), (0, "empty_text", 0)],
    ],
    core=LATE,
    softly=True,
)
@example(  # the same of a reply whose function calls wait: its LLM goes on in another response
    plot=[
        *SOFT_END,
        *[(0, "asked", 0), (0, "call", 0), (0, "token", 0), (0, "voice_done", 0)],
        *[(0, "start", 0), (0, "pause", 0), (667, "token", 0)],
    ],
    core=LATE,
    softly=True,
)
@example(  # a sound stops an answer that was played to its end, twice
    plot=[
        *SOFT_END,
        *[(0, "asked", 0), (424, "voice_done", 0), (0, "start", 0), (0, "token", 0), (0, "clause", 0)],
        *[(0, "sound", 0), (0, "pause", 0), (0, "empty_text", 0), (0, "start", 0)],
    ],
    core=EAGER,
    softly=True,
)
@example(  # the agent's audio comes after the end of its synthesis, and a voice stops it
    plot=[
        *[(0, "start", 7), (0, "pause", 7), (0, "text", 7), (100, "quiet", 7), (0, "asked", 0), (0, "token", 0)],
        *[(0, "clause", 0), (0, "finished", 0), (0, "voice_done", 0), (0, "sound", 1), (0, "sent", 0)],
        *[(332, "start", 7), (0, "pause", 7), (0, "text", 7)],
    ],
    core=replace(EAGER, short_words=False),
    softly=True,
)
@example(  # a reply that is stopped while its function runs
    plot=[
        *[(0, "start", 0), (0, "pause", 0), (672, "phrases", 0), (0, "mhm", 0), (505, "asked", 0)],
        *[(505, "finished", 0), (505, "voice_done", 0), (0, "misplaced", 0), (373, "asked", 0), (373, "call", 0)],
        *[(373, "finished", 0), (373, "voice_done", 0), (474, "text", 0), (271, "text", 0), (271, "quiet", 0)],
    ],
    core=replace(
        EAGER,
        short_words=False,
        budget_actions=FILLER,
        deadlines=Deadlines(utterance_ms=5_000, transcript_ms=900, first_output_ms=2_000, progress_ms=1_500),
    ),
    softly=True,
)
@example(  # a sound over an answer that began softly, after the client has requested another
    plot=[
        (0, "start", 0),
        (0, "commit", 2),
        (0, "start", 0),
        (0, "pause", 0),
        (0, "mhm", 0),
        (0, "quiet", 9),
        (0, "asked", 0),
        (0, "token", 0),
        (0, "clause", 0),
        (0, "sound", 0),
        (0, "finished", 0),
        (0, "voice_done", 0),
        (0, "create", 0),
        (0, "start", 0),
        (0, "pause", 0),
        (0, "text", 0),
    ],
    core=replace(
        EAGER,
        short_words=False,
        speculate=False,
        deadlines=Deadlines(utterance_ms=5_000, transcript_ms=900, first_output_ms=2_000, progress_ms=1_500),
    ),
    softly=True,
)
@example(  # an out-of-band text while the session learns how long answers take
    plot=[
        (0, "start", 0),
        (0, "pause", 0),
        (0, "text", 0),
        (0, "quiet", 6),
        (0, "asked", 0),
        (0, "token", 0),
        (0, "clause", 0),
        (0, "sound", 0),
        (0, "start", 0),
        (0, "pause", 0),
        (0, "text", 0),
        (0, "quiet", 5),
        (0, "asked", 0),
        (0, "token", 0),
        (0, "clause", 0),
        (0, "sound", 0),
        (0, "start", 0),
        (0, "pause", 0),
        (0, "text", 0),
        (0, "quiet", 8),
        (0, "asked", 0),
        (0, "token", 0),
        (0, "clause", 0),
        (0, "sound", 0),
        (0, "out_of_band", 7),
        (110, "start", 0),
        (110, "pause", 0),
        (110, "text", 0),
        (0, "asked", 0),
        (0, "token", 0),
    ],
    core=replace(
        EAGER,
        short_words=True,
        speculate=True,
        deadlines=Deadlines(utterance_ms=5_000, transcript_ms=900, first_output_ms=2_000, progress_ms=1_500),
    ),
    softly=False,
)
@example(  # a long voice takes back an answer, and an overlong turn waits for its words
    plot=[
        (0, "start", 0),
        (0, "pause", 0),
        (0, "text", 0),
        (0, "start", 0),
        (543, "phrases", 0),
        (543, "asked", 0),
        (543, "wait", 0),
        (543, "filler_sent", 0),
        (641, "asked", 0),
        (641, "token", 0),
        (641, "clause", 0),
        (641, "sound", 0),
        (641, "sent", 0),
        (0, "start", 0),
        (0, "pause", 0),
        (66, "text", 0),
        (66, "quiet", 6),
        (66, "asked", 0),
        (66, "token", 0),
        (66, "clause", 0),
        (66, "sound", 0),
        (66, "start", 0),
        (66, "lasts", 6),
    ],
    core=replace(
        EAGER,
        short_words=True,
        speculate=False,
        deadlines=Deadlines(utterance_ms=5_000, transcript_ms=900, first_output_ms=2_000, progress_ms=1_500),
    ),
    softly=True,
)
@example(  # the client cancels function calls that wait, over a reply that plays
    plot=[
        (0, "start", 0),
        (0, "lost", 0),
        (0, "create", 0),
        (0, "pause", 0),
        (0, "text", 0),
        (0, "quiet", 9),
        (0, "asked", 0),
        (0, "finished", 0),
        (0, "voice_done", 0),
        (0, "asked", 5),
        (0, "call", 5),
        (0, "cancel", 0),
    ],
    core=replace(
        EAGER,
        short_words=True,
        speculate=False,
        deadlines=Deadlines(utterance_ms=5_000, transcript_ms=900, first_output_ms=2_000, progress_ms=1_500),
    ),
    softly=True,
)
@settings(max_examples=400, deadline=None)
@given(plot=steps, core=cores, softly=st.booleans())
def test_no_event_order_makes_an_illegal_move(
    plot: list[tuple[int, str, int]], core: CoreSettings, softly: bool
) -> None:
    """No move that is not allowed, no second end, no output of a stopped reply; every turn's parts sum to its total."""
    world = play(plot, core, softly=softly)
    assert world.driver.illegal_moves == []
    assert world.driver.core.n_stuck == 0
    for record in world.driver.records.values():
        if record.outcome == "completed" and record.total_ms is not None and record.latency_source != "none":
            assert record.unattributed_ms == 0
            assert sum(part.duration_ms for part in record.contributions) == record.total_ms


@settings(max_examples=300, deadline=None)
@given(plot=steps, core=cores, softly=st.booleans())
@example(  # the user speaks over an answer whose turn an interruption had ended
    plot=[(0, "start", 0), (294, "a_resume", 0), (295, "a_filler", 0), (0, "a_resume", 4)],
    core=CoreSettings(speculate=False),
    softly=True,
)
@example(  # the client commits what the user says over an answer that began softly, and requests no other
    plot=[
        *SOFT_END,
        *[
            (0, "asked", 0),
            (0, "token", 0),
            (0, "finished", 0),
            (0, "voice_done", 0),
            (0, "start", 0),
            (0, "commit", 4),
        ],
    ],
    core=LATE,
    softly=True,
)
@example(  # a filler is said while a function runs, after the calls have waited for a certain end
    plot=[(0, "phrases", 0), *SOFT_END, (0, "asked", 0), (0, "call", 0), (0, "finished", 0), (0, "voice_done", 0)],
    core=replace(LATE, budget_actions=FILLER),
    softly=True,
)
def test_every_turn_ends_within_its_deadlines(
    plot: list[tuple[int, str, int]], core: CoreSettings, softly: bool
) -> None:
    """Whatever was going on: leave it alone, and within the sum of the deadlines all is quiet and has a reason."""
    world = play(plot, core, softly=softly)
    driver = world.driver
    world.watch(driver.at(driver.now_ms, e.ConnectionResumed()))  # a line that stays down ends the session
    d = core.deadlines
    end_ms = driver.now_ms + d.utterance_ms + d.transcript_ms + d.first_output_ms + d.progress_ms + d.reply_ms + 30_000
    world.until(end_ms)
    assert driver.core.agent.state is AgentState.IDLE
    assert driver.core.agent.turn is None
    assert driver.core.user.state is UserState.QUIET
    assert world.open_responses == set()
    assert not driver.core.context.timers.due, "no deadline is left behind"
    assert not driver.core.undecided, "whose the floor is has been said"
    assert driver.core.n_stuck == 0, "a deadline ended it, not the last resort"
    assert driver.illegal_moves == []
    unfinished = [record for record in driver.records.values() if record.outcome is None]
    assert len(unfinished) <= 1, "one turn may wait for the client's request"
    assert all(record.resumed for record in unfinished), "and has a record if an answer to it was taken back"
    for record in driver.records.values():
        assert record.outcome in ("completed", None) or record.reason


@example(  # two turns call functions, and the second begins before the calls of the first
    plot=[
        *[(0, "start", 0), (627, "start", 0), (627, "pause", 0), (627, "mhm", 0), (627, "quiet", 0)],
        *[(680, "no_phrases", 0), (1_200, "start", 0), (0, "asked", 0), (0, "call", 0), (0, "finished", 0)],
        *[(0, "voice_done", 0), (0, "pause", 0), (0, "quiet", 4), (0, "text", 0)],
        *[(0, "asked", 5), (0, "call", 5), (0, "finished", 5), (0, "voice_done", 5)],
    ],
    core=replace(
        EAGER, deadlines=Deadlines(utterance_ms=5_000, transcript_ms=900, first_output_ms=2_000, progress_ms=1_500)
    ),
    softly=False,
)
@settings(max_examples=200, deadline=None)
@given(plot=steps, core=cores, softly=st.booleans())
def test_leaving_ends_everything_at_once(plot: list[tuple[int, str, int]], core: CoreSettings, softly: bool) -> None:
    """When the user hangs up, every reply is stopped, every turn has an outcome, and nothing happens after."""
    world = play(plot, core, softly=softly)
    world.watch(world.driver.at(world.driver.now_ms, e.UserLeft("the user left")))
    assert world.open_responses == set()
    n_turns = world.driver.core.context.counts.get("turn", 0)
    assert len(world.driver.records) == n_turns, "every turn has a record"
    assert all(record.outcome is not None for record in world.driver.records.values())
    assert world.driver.at(world.driver.now_ms + 60_000, e.SpeechStarted(0, 0)) == []
    assert world.driver.illegal_moves == []


FILLED_TWICE = [
    (0, "an_ended_utterance", 4),
    (31, "a_filler", 0),
    (241, "an_overlap", 0),
    (0, "create", 1),
    (518, "an_overlap", 0),
]
"""A turn with a filler is revised while another one is answered, and comes back."""


@example(
    plot=FILLED_TWICE,
    softly=False,
    core=CoreSettings(
        short_words=False,
        budget_actions=FILLER,
        deadlines=Deadlines(utterance_ms=5_000, transcript_ms=900, first_output_ms=2_000, progress_ms=1_500),
    ),
)
@settings(max_examples=200, deadline=None)
@given(plot=steps, core=cores, softly=st.just(True))
def test_the_same_events_give_the_same_commands(
    plot: list[tuple[int, str, int]], core: CoreSettings, softly: bool
) -> None:
    """The core is a function of its events: what a journal replays is what happened."""
    once, again = (play(plot, core, softly=softly) for _ in range(2))
    assert once.driver.commands == again.driver.commands

"""The passes after an event: those that its row of the dispatch table leaves out would have changed nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.turn.random_world import cores, play, steps
from voicepipe.turn import events as e
from voicepipe.turn.commands import Command
from voicepipe.turn.core import EVERYTHING, NOTHING, After, Core
from voicepipe.turn.events import Event
from voicepipe.turn.settings import CoreSettings


class ThoroughCore(Core):
    """Runs every pass after every event, whatever the state."""

    def _is_answering(self) -> bool:
        return True

    def _may_be_idle(self) -> bool:
        return True

    def _run_passes(self, after: After, now_ms: int) -> None:
        self.transitions.changed = self.context.timers.changed = True
        super()._run_passes(EVERYTHING, now_ms)


def commands_of(core: Core, events: list[tuple[int, Event]]) -> list[Command]:
    """What these events, each at its time, make the core command."""
    return [command for now_ms, event in events for command in core.handle(event, now_ms)]


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(plot=steps, core=cores, late_ms=st.integers(0, 500))
def test_no_event_needs_a_pass_that_it_leaves_out(
    plot: list[tuple[int, str, int]], core: CoreSettings, late_ms: int
) -> None:
    """Whatever happens in whatever order, also where the clock's own events come late."""
    driver = play(plot, core, late_ms=late_ms).driver
    assert commands_of(ThoroughCore("s", driver.settings, core), driver.events) == driver.commands


def test_a_row_that_leaves_out_too_much_is_found() -> None:
    """A pause whose silence lets no reply begin: then the early reply comes late."""
    plot = [(100, "an_utterance", 3), (100, "quiet", 3), (100, "quiet", 4)]
    driver = play(plot, CoreSettings(speculate=True)).driver
    without_passes = Core("s", driver.settings, CoreSettings(speculate=True))
    handler, _ = without_passes.handlers[e.TranscriptFinished]
    without_passes.handlers[e.TranscriptFinished] = (handler, NOTHING)
    assert commands_of(without_passes, driver.events) != driver.commands

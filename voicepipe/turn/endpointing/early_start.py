"""When work on an answer begins, given the wait that ends the turn."""

from __future__ import annotations

from typing import Final

from voicepipe.turn.endpointing.held import hold
from voicepipe.turn.endpointing.strategy import Evidence

_START_MS: Final = 80
_START_HELD_MS: Final = 160
_START_SHARE: Final = 0.4
"""Share of the wait after which work on the answer begins at the latest.

Work begins no sooner than after 80 ms, later by up to 160 ms when the speech was held. Of the pauses after held speech
more are only pauses, and each of them would waste a start.
"""

TRANSCRIBER_SILENCE_MS: Final = 120
"""The silence, in ms, that the STT's end-of-speech event counts as before the VAD has detected one: enough to begin
when the speech gives no evidence.
"""


def start_ms(wait_ms: int, evidence: Evidence) -> int:
    """Return the silence, in ms since the last voiced sample, after which work on the answer begins. Within the wait.

    An answer that is ready before the turn is over is held. Starting earlier than `answer_ms` before the end of the
    wait therefore saves nothing, and wastes a start each time the user goes on. An unknown `answer_ms` is taken for
    long.
    """
    soonest_ms = min(_START_MS + _START_HELD_MS * hold(evidence) ** 2, _START_SHARE * wait_ms)
    return round(soonest_ms if evidence.answer_ms is None else max(soonest_ms, wait_ms - evidence.answer_ms))

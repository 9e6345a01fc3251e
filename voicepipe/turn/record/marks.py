"""The marks of a turn: named instants, in session ms, each stamped by the core when its event came."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Final

from msgspec import Struct

# The marks of a turn, in the order in which a turn without speculation stamps them.
VOICED_LAST = "voiced_last"
"""t0: the user's last voiced sample, or the client event that requested the reply."""

FLUSHED = "flushed"
TRANSCRIBED = "transcribed"
START_DUE = "start_due"
"""The end of the silence that had to pass before a speculative reply could begin: chosen, no work of the server's."""

END_DUE = "end_due"
"""The end of the silence that was chosen for the end of the turn; with a commit, the commit: the client chose it."""

ENDED = "ended"
LLM_REQUESTED = "llm_requested"
SPEECH_REQUESTED = "speech_requested"
"""The reply was requested of a speech-to-speech model. `LLM_REQUESTED` follows only where it failed, and LLM and TTS
answer in its place.
"""

CONNECTED = "connected"
"""The LLM request has a connection to its provider."""

FIRST_DELTA = "first_delta"
LAST_DELTA = "last_delta"
"""The last text or arguments of the whole answer. It is beside the path to what is played, as the filler's mark is."""

FIRST_CLAUSE = "first_clause"
FIRST_SOUND = "first_sound"
REQUESTED = "requested"
"""The client requested the reply."""

GATE_OPENED = "gate_opened"
FIRST_SENT = "first_sent"
FIRST_AUDIBLE = "first_audible"

EARLIER_AUDIO_ENDED = "earlier_audio_ended"
"""What was sent before the answer's audio has been played: the filler, a greeting, another answer. Stamped only where
it still played when the answer's first audio was sent.
"""

FILLER_SENT = "filler_sent"
FILLER_AUDIBLE = "filler_audible"
"""Beside the path to the answer, which the filler does not end."""

FILLER_MARKS = (FILLER_SENT, FILLER_AUDIBLE)


class ToolRound(Struct, frozen=True):
    """A round of function calls of a turn, and the names of its marks. The marks from `LLM_REQUESTED` on are those of
    the reply to the results.
    """

    number: int
    """From 1."""

    @property
    def called(self) -> str:
        """Return the mark at which the function calls of a reply were sent to the client."""
        return f"tool_called_{self.number}"

    @property
    def returned(self) -> str:
        """Return the mark at which the client requested the next reply, with their results."""
        return f"tool_returned_{self.number}"

    @property
    def written(self) -> str:
        """Return the mark at which the LLM had written calls that were then held back until the turn was over. It is
        beside the path, which has the silence there.
        """
        return f"call_written_{self.number}"

    @property
    def llm_requested(self) -> str:
        """Return the mark of the request to an LLM for the reply that called."""
        return f"{LLM_REQUESTED}_{self.number}"

    @property
    def speech_requested(self) -> str:
        """Return the mark of the request to a speech-to-speech model for the reply that called."""
        return f"{SPEECH_REQUESTED}_{self.number}"

    @property
    def announced(self) -> str:
        """Return the mark of the first audible sample of what the reply that called has said."""
        return f"{FIRST_AUDIBLE}_{self.number}"

    @property
    def marks(self) -> tuple[str, ...]:
        """Return the names of all its marks; a turn has some of them."""
        return (
            *(self.called, self.returned, self.written),
            *(self.llm_requested, self.speech_requested, self.announced),
        )

    @property
    def following(self) -> ToolRound:
        """Return the round after this one."""
        return ToolRound(self.number + 1)


FIRST_ROUND: Final = ToolRound(1)


def tool_rounds(marks: Container[str]) -> Iterator[ToolRound]:
    """Yield the rounds of function calls that a turn with these marks had, in order."""
    found = FIRST_ROUND
    while found.called in marks:
        yield found
        found = found.following

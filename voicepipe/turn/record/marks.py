"""The marks of a turn: named instants, in session ms, each stamped by the core when its event came."""

from __future__ import annotations

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

TOOL_CALLED = "tool_called_"
TOOL_RETURNED = "tool_returned_"
"""With the number of the round behind it: the function calls of a reply were sent to the client, and the client
requested the next reply with their results. The marks below `LLM_REQUESTED` are those of that next reply.
"""

CALL_WRITTEN = "call_written_"
"""Likewise numbered, where function calls were written before the turn was over, and held back until then: when the LLM
had written them. It is beside the path, which has the silence there.
"""

FIRST_REQUESTED = "llm_requested_"
FIRST_SPEECH_REQUESTED = "speech_requested_"
FIRST_ANNOUNCED = "first_audible_"
"""Likewise numbered: the request of the reply that called, to an LLM or to a speech-to-speech model, and the first
audible sample of what it said.
"""

FILLER_MARKS = (FILLER_SENT, FILLER_AUDIBLE)

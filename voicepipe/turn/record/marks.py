"""The marks of a turn: named instants, in session ms, each stamped by the core when its event came."""

from __future__ import annotations

# The marks of a turn, in the order in which a turn without speculation stamps them.
VOICED_LAST = "voiced_last"
"""t0: the user's last voiced sample, or the client event that requested the reply."""

FLUSHED = "flushed"
TRANSCRIBED = "transcribed"
ENDED = "ended"
LLM_REQUESTED = "llm_requested"
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

FILLER_SENT = "filler_sent"
FILLER_AUDIBLE = "filler_audible"
"""Beside the path to the answer, which the filler does not end."""

FILLER_MARKS = (FILLER_SENT, FILLER_AUDIBLE)

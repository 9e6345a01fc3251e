"""The marks of a turn: named instants, in session ms, each stamped by the core when its fact came."""

from __future__ import annotations

# The marks of a turn, in the order in which a turn without speculation stamps them.
VOICED_LAST = "voiced_last"
"""t0: the caller's last voiced sample, or the client event that asked for the reply."""

FLUSHED = "flushed"
TRANSCRIBED = "transcribed"
ENDED = "ended"
ASKED = "asked"
CONNECTED = "connected"
"""The question has a connection to the model's provider."""

FIRST_DELTA = "first_delta"
LAST_DELTA = "last_delta"
"""The last words or arguments of the answer, when it is whole. Beside the way to what is heard, like the filler's."""

FIRST_CLAUSE = "first_clause"
FIRST_SOUND = "first_sound"
REQUESTED = "requested"
"""The client asked for the reply."""

GATE_OPENED = "gate_opened"
FIRST_SENT = "first_sent"
HEARD = "heard"

FILLER_SENT = "filler_sent"
FILLER_HEARD = "filler_heard"
"""Beside the way to the answer, which they do not end."""

FILLER_MARKS = (FILLER_SENT, FILLER_HEARD)

"""When an answer has failed: who is owed an apology."""

from __future__ import annotations

from typing import Final

from voicepipe.turn.floor import Floor
from voicepipe.turn.turns import Turn

APOLOGY: Final = "apology"


def is_owed(floor: Floor, turn: Turn, stage: str) -> bool:
    """Whether the caller is told aloud that this turn failed in that stage.

    Not if the client is what failed, nor for an apology; and if the voice did, only if the words have been spoken
    before, so that there is sound of them.
    """
    words, reply = floor.core.rescue.apology, turn.reply
    can_be_said = stage != "client" and (stage != "tts" or words in floor.phrases)
    return bool(words) and can_be_said and reply.audible and reply.in_conversation and not turn.words

"""The strategies that need no entry point."""

from __future__ import annotations

from typing import Final

from voicepipe.turn.endpointing.adaptive import Adaptive
from voicepipe.turn.endpointing.silence import Silence
from voicepipe.turn.endpointing.strategy import Strategies

SILENCE: Final = "silence"
ADAPTIVE: Final = "adaptive"

BUILT_IN: Final[Strategies] = {ADAPTIVE: Adaptive, SILENCE: Silence}

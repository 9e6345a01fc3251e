"""The strategies that need no entry point."""

from __future__ import annotations

from typing import Final

from voicepipe.turn.endpointing.strategies import ADAPTIVE, SILENCE, SOFT, Adaptive, Silence, Soft
from voicepipe.turn.endpointing.strategy import Strategies

BUILT_IN: Final[Strategies] = {SOFT: Soft, ADAPTIVE: Adaptive, SILENCE: Silence}
"""Name as in `end_of_turn` -> factory, in the order of the docs. A new strategy is a file beside this one, and a line
here.
"""

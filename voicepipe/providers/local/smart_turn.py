"""Smart-turn: the adapter of the model that judges from the audio of a pause whether the user has finished."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from voicepipe.audio.samples import Samples
from voicepipe.providers.local import wire
from voicepipe.providers.local.connection import Link, scored
from voicepipe.providers.local.prerequisites import check_smart_turn
from voicepipe.turn.endpointing.probability import SMART_TURN

_TIMEOUT_MS: Final = 5_000
"""A session waits for 80 ms, and `voicepipe check` for this."""


def open_smart_turn(weights: Path, socket_path: Path, *, key: str) -> LocalSmartTurn:
    """Make the adapter of the model in the file `weights`, whose engine listens at `socket_path`.

    Raises:
        ConfigError: naming `key`, when there is no such file, or a package is missing.
    """
    check_smart_turn(weights, key=key)
    return LocalSmartTurn(Link("endpoint", SMART_TURN, socket_path, _TIMEOUT_MS, _TIMEOUT_MS))


class LocalSmartTurn:
    """Smart-turn in the engine process; the port `AudioScorer`."""

    score_name = SMART_TURN

    def __init__(self, link: Link) -> None:
        self.name = link.provider
        self._link = link

    async def score(self, session: str, samples: Samples, rate_hz: int) -> float:
        """Return how likely the user has finished after `samples`, int16, (n_samples,), 0 to 1.

        Raises:
            StageError: the engine refused, stalled or broke.
        """
        return await scored(self._link, wire.ScoreAudio(session, samples.tobytes(), rate_hz))

"""Transcribe pauses with the local STT (English), in this process: for the bench."""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any, Final

import numpy as np

from voicepipe.audio.resample import Resampler
from voicepipe.audio.samples import FULL_SCALE, Samples
from voicepipe.errors import ConfigError
from voicepipe.extras import install_command

_RATE_HZ: Final = 16_000
_MAX_SAMPLES: Final = 28 * _RATE_HZ
"""The model repeats itself past 30 s; then only the newest part is transcribed."""


class LocalWords:
    """The Moonshine tiny model.

    Raises:
        ConfigError: its package is not installed.
    """

    def __init__(self, rate_hz: int) -> None:
        try:
            transcriber = importlib.import_module("moonshine_voice.transcriber")
        except ImportError as why:
            raise ConfigError(f"--words: expected the package moonshine-voice: {install_command('local')}") from why
        arch = importlib.import_module("moonshine_voice.moonshine_api").ModelArch.TINY
        path = importlib.import_module("moonshine_voice.utils").get_model_path("tiny-en")
        # Its own VAD would cut the audio that ours has found.
        self._model: Any = transcriber.Transcriber(path, arch, options={"vad_threshold": "0.0"})
        self._rate_hz = rate_hz

    def __call__(self, samples: Samples) -> str:
        """Return the text of `samples`, int16, (n_samples,). About 40 ms of CPU for each second."""
        recent = Resampler(self._rate_hz, _RATE_HZ).push(samples)[-_MAX_SAMPLES:]
        audio = (recent.astype(np.float32) / np.float32(FULL_SCALE)).tolist()
        lines = self._model.transcribe_without_streaming(audio, _RATE_HZ).lines
        return " ".join(line.text.strip() for line in lines)


@lru_cache(maxsize=1)
def shared(rate_hz: int) -> LocalWords:
    """Return this process's only model."""
    return LocalWords(rate_hz)

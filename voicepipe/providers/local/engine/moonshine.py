"""Moonshine tiny: English STT, 44 MB of weights inside the wheel."""

from __future__ import annotations

import ctypes
import importlib
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from voicepipe.audio.silence_trim import trim
from voicepipe.providers.local import wire
from voicepipe.providers.local.engine.worker import Task

MAX_AUDIO_S: Final = 30
"""Longer audio is refused. From about 30 s on the model repeats itself without end, and takes seconds to do so."""


class Moonshine:
    """A decoder; a decode is one native call, which cannot be interrupted (about 25 ms for each second of speech)."""

    concurrency = 1

    def __init__(self) -> None:
        transcriber = importlib.import_module("moonshine_voice.transcriber")
        self._api = importlib.import_module("moonshine_voice.moonshine_api")
        path = importlib.import_module("moonshine_voice.utils").get_model_path("tiny-en")
        # Moonshine's own VAD inserts a "You" before some clips; the session's VAD has already found the utterance.
        self._model = transcriber.Transcriber(path, self._api.ModelArch.TINY, options={"vad_threshold": "0.0"})
        self._decode(np.zeros(wire.STT_RATE_HZ, np.float32))  # the first call is slower

    def run(self, task: Task) -> None:
        """Answer a `Transcribe` with `Transcribed`."""
        job = task.job
        assert isinstance(job, wire.Transcribe)
        if len(job.audio) > MAX_AUDIO_S * wire.STT_RATE_HZ * 2:
            task.emit(wire.JobRefused(f"expected {MAX_AUDIO_S} s of audio at most", retryable=False))
            return
        samples = np.frombuffer(job.audio, "<i2")
        # Room tone at the ends costs time and, when there is nothing else, makes the model output "You".
        speech = trim(samples, wire.STT_RATE_HZ, before_ms=200, after_ms=300)
        text = self._decode(speech.astype(np.float32) / np.float32(32768)) if speech.size else ""
        task.emit(wire.Transcribed(text))

    def _decode(self, audio: npt.NDArray[np.float32]) -> str:
        """The C call of the binding's `transcribe_without_streaming`, without its way through Python lists.

        Those cost 15 ms for 4 s of audio, there and back. The package is pinned to the version that this
        was written for.
        """
        library: Any = self._model._lib
        transcript = ctypes.POINTER(self._api.TranscriptC)()
        status = library.moonshine_transcribe_without_streaming(
            self._model._handle,
            audio.ctypes.data_as(ctypes.POINTER(ctypes.c_float)),
            audio.size,
            wire.STT_RATE_HZ,
            0,
            ctypes.byref(transcript),
        )
        if status != self._api.MOONSHINE_ERROR_NONE:
            raise RuntimeError(f"moonshine: error {status}")
        lines = transcript.contents.lines[: transcript.contents.line_count] if transcript else []
        texts = [ctypes.string_at(line.text).decode("utf-8", "ignore").strip() for line in lines if line.text]
        return " ".join(filter(None, texts))

"""Score the audio of pauses with smart-turn v3: its weights are the operator's own file, and it runs on onnxruntime.

The weights are in the wheel of `pipecat-ai` (BSD-2-Clause). The licence of the data that they were trained on is not
published, so that voicepipe neither contains nor fetches them.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from voicepipe.audio.resample import Resampler
from voicepipe.audio.samples import FULL_SCALE, Samples, silence
from voicepipe.errors import ConfigError
from voicepipe.providers.local import wire
from voicepipe.providers.local.engine.worker import Task
from voicepipe.providers.local.prerequisites import SMART_TURN, check_smart_turn

Floats = npt.NDArray[np.float64]

RATE_HZ: Final = 16_000
_SAMPLES: Final = 8 * RATE_HZ
"""The model gets the last 8 s; before shorter audio there are zeros."""

_FFT: Final = 400
_HOP: Final = 160
_MELS: Final = 80
"""Source of these and of the features: Radford et al., Robust Speech Recognition via Large-Scale Weak Supervision, 2022
(Whisper), section 2.2, and its published code."""

_MIN_POWER: Final = 1e-10
_RANGE: Final = 8.0
"""Log10 units below the loudest value: what is further below is raised to that level."""

_LINEAR_TO_HZ: Final = 1_000.0
_LINEAR_MELS: Final = 15.0
_LOG_STEP: Final = np.log(6.4) / 27.0
"""The mel scale of Slaney's Auditory Toolbox, 1998: linear up to 1 kHz, then logarithmic."""


_INPUT: Final = "input_features"
_SHAPE: Final = [_MELS, _SAMPLES // _HOP]
"""The model's input, behind the number of pauses. Source: smart-turn v3.2, `local_smart_turn_v3.py` of pipecat."""


class SmartTurn:
    """The model. 47 ms of CPU a score.

    Raises:
        ConfigError: naming `key`, when onnxruntime is not installed, or the file is no such model.
    """

    concurrency = 1

    def __init__(self, weights: Path | None, *, key: str = SMART_TURN) -> None:
        check_smart_turn(weights, key=key)
        runtime = importlib.import_module("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        try:
            model: Any = runtime.InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])
        except Exception as why:
            raise ConfigError(f"{key}: expected an ONNX file of smart-turn v3, got {weights}") from why
        inputs = {each.name: list(each.shape)[1:] for each in model.get_inputs()}
        if inputs != {_INPUT: _SHAPE}:
            raise ConfigError(
                f"{key}: expected an ONNX file of smart-turn v3, whose input is {_INPUT} of {_SHAPE}, "
                f"got {weights} with {inputs}"
            )
        self._run = model.run
        self.probability(silence(RATE_HZ), RATE_HZ)  # the first call is slower

    def run(self, task: Task) -> None:
        """Answer a `ScoreAudio` with `Scored`."""
        job = task.job
        assert isinstance(job, wire.ScoreAudio)
        task.emit(wire.Scored(self.probability(np.frombuffer(job.audio, "<i2"), job.rate_hz)))

    def probability(self, samples: Samples, rate_hz: int) -> float:
        """Return the probability, 0 to 1, that the user has finished, of `samples`, int16, (n_samples,)."""
        audio = Resampler(rate_hz, RATE_HZ).push(samples)[-_SAMPLES:].astype(np.float64) / FULL_SCALE
        padded = np.concatenate((np.zeros(_SAMPLES - len(audio)), audio))
        output = self._run(None, {_INPUT: log_mel(padded)[None].astype(np.float32)})
        return float(output[0].reshape(-1)[0])


def log_mel(audio: Floats) -> Floats:
    """Return Whisper's features, (80, n_samples / 160), of `audio`, (n_samples,) at 16 kHz, after normalisation."""
    normal = (audio - audio.mean()) / np.sqrt(audio.var() + 1e-7)
    padded = np.pad(normal, _FFT // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, _FFT)[::_HOP][:-1]
    power = np.abs(np.fft.rfft(frames * np.hanning(_FFT + 1)[:-1])) ** 2
    levels: Floats = np.log10(np.maximum(_MIN_POWER, power @ _FILTERS)).T
    audible: Floats = np.maximum(levels, levels.max() - _RANGE)
    return (audible + 4.0) / 4.0


def _filters() -> Floats:
    """Return the triangular filters, (n_bins, 80), each of the same area."""
    top = _LINEAR_MELS + np.log(RATE_HZ / 2 / _LINEAR_TO_HZ) / _LOG_STEP
    edges_hz = _hz(np.linspace(0.0, top, _MELS + 2))
    bins_hz = np.linspace(0, RATE_HZ / 2, _FFT // 2 + 1)[:, None]
    rising = (bins_hz - edges_hz[:-2]) / (edges_hz[1:-1] - edges_hz[:-2])
    falling = (edges_hz[2:] - bins_hz) / (edges_hz[2:] - edges_hz[1:-1])
    triangles: Floats = np.maximum(0.0, np.minimum(rising, falling)) * 2.0 / (edges_hz[2:] - edges_hz[:-2])
    return triangles


def _hz(mels: Floats) -> Floats:
    linear = mels * _LINEAR_TO_HZ / _LINEAR_MELS
    return np.where(mels < _LINEAR_MELS, linear, _LINEAR_TO_HZ * np.exp(_LOG_STEP * (mels - _LINEAR_MELS)))


_FILTERS: Final = _filters()

"""Probe each stage with one short question, and report the time it took or the error text."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from voicepipe import clock
from voicepipe.audio.resample import Resampler
from voicepipe.audio.samples import Samples, first_audible, silence
from voicepipe.errors import VoicepipeError
from voicepipe.ports.endpoint_scorer import AudioScorer
from voicepipe.ports.model import Content, Model, ModelRequest, Text, TextDelta
from voicepipe.ports.synthesizer import RATE_HZ, Synthesizer, Voice, audio_of
from voicepipe.ports.transcriber import Final as FinalTranscript
from voicepipe.ports.transcriber import Transcriber, TranscriptionOptions

CLAUSE: Final = "The quick brown fox jumps over the lazy dog."
QUESTION: Final = "Say hello in one short sentence."
ANSWER_TOKENS: Final = 40
"""Token limit of the LLM's answer."""

PROBE_TIMEOUT_S: Final = 30.0
"""A stage that has not answered by then is useless to a user."""

Probed = Literal["stt", "llm", "tts", "endpoint"]
"""A stage, or `endpoint`: smart-turn."""

_TONE_HZ: Final = 440
_PUSH_MS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The result of probing one stage."""

    stage: Probed
    spec: str
    ok: bool
    first_ms: int | None
    """Time to the first text or audible audio; None when there was none."""

    total_ms: int
    outcome: str
    """The answer, or the reason of the failure."""

    @property
    def summary(self) -> str:
        """Return the result as one line."""
        first = "" if self.first_ms is None else f"first after {self.first_ms} ms, all after {self.total_ms} ms: "
        return f"{'ok' if self.ok else 'FAILED'}  {self.spec}  {first}{self.outcome}"


@dataclass(frozen=True, slots=True)
class StageOutput:
    """The output of a stage."""

    first_ms: int | None
    outcome: str
    sound: Samples
    """int16, (n_samples,), 24 kHz; empty unless the stage is a TTS."""


async def probe(stage: Probed, spec: str, pending: Awaitable[StageOutput]) -> tuple[Probe, Samples]:
    """Wait for a stage's reply and return the result and the audio. Never raises the stage's errors."""
    began_ms = clock.monotonic_ms()
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            reply = await pending
    except (VoicepipeError, TimeoutError) as error:
        why = str(error) if isinstance(error, VoicepipeError) else f"no answer within {PROBE_TIMEOUT_S:.0f} s"
        total_ms = clock.monotonic_ms() - began_ms
        return Probe(stage=stage, spec=spec, ok=False, first_ms=None, total_ms=total_ms, outcome=why), silence(0)
    total_ms, ok = clock.monotonic_ms() - began_ms, reply.first_ms is not None
    outcome = reply.outcome if ok else "it answered with nothing"
    return Probe(
        stage=stage, spec=spec, ok=ok, first_ms=reply.first_ms, total_ms=total_ms, outcome=outcome
    ), reply.sound


async def probe_tts(synthesizer: Synthesizer, voice: Voice) -> StageOutput:
    """Synthesize one clause."""
    began_ms, first_ms, pieces = clock.monotonic_ms(), None, [silence(0)]
    async with synthesizer.open(voice) as speech:
        speech.push(CLAUSE)
        speech.finish()
        async for spoken in audio_of(speech):
            if first_ms is None and first_audible(spoken.samples) is not None:
                first_ms = clock.monotonic_ms() - began_ms
            pieces.append(spoken.samples)
    sound = np.concatenate(pieces)
    return StageOutput(first_ms, f"{len(sound) / RATE_HZ:.1f} s of speech", sound)


async def probe_llm(model: Model, name: str) -> StageOutput:
    """Send one short question."""
    began_ms, first_ms, words = clock.monotonic_ms(), None, []
    request = ModelRequest(model=name, messages=(Content("user", (Text(QUESTION),)),), max_output_tokens=ANSWER_TOKENS)
    async with model.open(request) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                first_ms = clock.monotonic_ms() - began_ms if first_ms is None else first_ms
                words.append(event.text)
    return StageOutput(first_ms, " ".join("".join(words).split()), silence(0))


async def probe_stt(transcriber: Transcriber, transcription: TranscriptionOptions, sound: Samples) -> StageOutput:
    """Transcribe `sound`, int16, (n_samples,), 24 kHz; a tone instead when `sound` is empty.

    An STT that answers passes: its transcript of a tone does not matter.
    """
    rate_hz = transcriber.capabilities.rate_hz
    audio = Resampler(RATE_HZ, rate_hz).push(sound if len(sound) else _tone())
    step = rate_hz * _PUSH_MS // 1_000
    async with transcriber.open(transcription) as stream:
        stream.begin(1)
        for first in range(0, len(audio), step):
            stream.push(audio[first : first + step])
        began_ms = clock.monotonic_ms()
        stream.flush(1)
        async for answer in stream:
            if isinstance(answer, FinalTranscript):
                outcome = f'transcribed "{answer.text}"' if len(sound) else "answered (a tone: there was no speech)"
                return StageOutput(clock.monotonic_ms() - began_ms, outcome, silence(0))
    return StageOutput(None, "", silence(0))


async def probe_endpoint(scorer: AudioScorer, sound: Samples) -> StageOutput:
    """Have smart-turn judge `sound`, int16, (n_samples,), 24 kHz; a tone instead when `sound` is empty."""
    began_ms = clock.monotonic_ms()
    score = await scorer.score("check", sound if len(sound) else _tone(), RATE_HZ)
    return StageOutput(clock.monotonic_ms() - began_ms, f"probability of the end: {score:.2f}", silence(0))


def _tone() -> Samples:
    """Return a tone of 1 s."""
    at_s = np.arange(RATE_HZ) / RATE_HZ
    return (8_000 * np.sin(2 * np.pi * _TONE_HZ * at_s)).astype(np.int16)

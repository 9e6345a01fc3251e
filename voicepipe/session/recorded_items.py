"""Transcribe the recordings in items that a client adds: whole utterances, beside the session's own stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import numpy as np

from voicepipe.audio.encoding import AudioEncoding
from voicepipe.audio.resample import Resampler
from voicepipe.audio.samples import Samples, silence
from voicepipe.audio.silence_trim import quietest_cut
from voicepipe.errors import Overload, ProtocolError, StageBroken, StageError
from voicepipe.ports.provider_events import ProviderChanged
from voicepipe.ports.transcriber import Final, Transcriber, TranscriptionOptions, TranscriptStream
from voicepipe.protocol.inbound import RecordingCreated
from voicepipe.protocol.session_types import AudioFormat
from voicepipe.telemetry.log import log_crash
from voicepipe.turn import commands as c
from voicepipe.turn import events as e
from voicepipe.values import replace

PIECE_S, EARLIEST_CUT_S = 25, 10
"""A longer recording is cut at its quietest point between these: transcribers take 30 s at once."""

PUSH_MS = 100
MIN_MS = 100
"""As for a commit: shorter audio has no words."""

MAX_CONCURRENT = 4
"""Recordings of one session that are transcribed at a time."""


class RecordedItems:
    """The recordings of one session that are being transcribed."""

    def __init__(self, transcriber: Transcriber, post: Callable[[e.Event], None]) -> None:
        self._transcriber, self._post = transcriber, post
        self._created: tuple[Samples, int] | None = None
        """The recording of the item that is being created, and its rate in Hz."""

        self._n_running = 0

    def create(self, created: RecordingCreated, form: AudioFormat) -> ProtocolError | None:
        """Add the item, or return why not: too many recordings are being transcribed. While the core handles the item,
        it requests the transcript.
        """
        if self._n_running >= MAX_CONCURRENT:
            why = f"item: expected at most {MAX_CONCURRENT} recordings that are not transcribed yet, got one more"
            return ProtocolError(why, field="item", code="too_many_recordings")
        samples = AudioEncoding(form.rate_hz, form.name).decode(created.audio)
        recording_ms = len(samples) * 1_000 // form.rate_hz
        self._created = samples, form.rate_hz
        self._post(replace(created.request, recording_ms=recording_ms if recording_ms >= MIN_MS else 0))
        self._created = None
        return None

    def transcribe(
        self, command: c.TranscribeRecording, options: TranscriptionOptions, group: asyncio.TaskGroup
    ) -> None:
        """Transcribe the recording of the item that is being created, in a task of `group`."""
        if self._created is not None:
            self._n_running += 1
            work = self._transcribe(command.utterance, options, *self._created)
            group.create_task(work, name=f"item-{command.utterance}")

    async def _transcribe(self, utterance: int, options: TranscriptionOptions, samples: Samples, rate_hz: int) -> None:
        provider, why = self._transcriber.name, ""
        try:
            async with asyncio.timeout(2 * len(samples) / rate_hz + 30):
                provider, text, language = await self._text(options, samples, rate_hz)
        except (StageError, Overload) as failure:
            why = failure.why
        except TimeoutError:
            why = "the transcript took too long"
        except Exception as bug:
            log_crash(f"stt by {provider}", bug)
            why = f"internal error ({type(bug).__name__})"
        finally:
            self._n_running -= 1
        if why:
            self._post(e.TranscriberFailed(utterance, provider, why))
        else:
            length_ms = len(samples) * 1_000 // rate_hz
            self._post(e.TranscriptFinished(utterance, 1, text, language, provider, length_ms))

    async def _text(self, options: TranscriptionOptions, samples: Samples, rate_hz: int) -> tuple[str, str, str | None]:
        """Return the provider, the words, and the language that it reports."""
        stt_hz, provider = self._transcriber.capabilities.push_hz(options), self._transcriber.name
        samples = await asyncio.to_thread(_resampled, samples, rate_hz, stt_hz)
        texts, language = list[str](), None
        async with self._transcriber.open(options) as stream:
            events = aiter(stream)
            for number, piece in enumerate(_pieces(samples, stt_hz), 1):
                _push(stream, number, piece, PUSH_MS * stt_hz // 1_000)
                async for event in events:
                    if isinstance(event, ProviderChanged):
                        provider = event.provider
                    if isinstance(event, Final) and (event.utterance, event.flush) == (number, 1):
                        texts.append(event.text.strip())
                        language = language or event.language
                        break
                else:
                    why = "the STT ended before the recording was transcribed"
                    raise StageBroken("stt", provider=provider, why=why, retryable=True)
        return provider, " ".join(filter(None, texts)), language


def _resampled(samples: Samples, from_hz: int, to_hz: int) -> Samples:
    """Return all of the samples at another rate; silence at the end pushes out what the filter holds."""
    return Resampler(from_hz, to_hz).push(np.concatenate((samples, silence(from_hz // 10))))


def _pieces(samples: Samples, rate_hz: int) -> Iterator[Samples]:
    max_samples = PIECE_S * rate_hz
    while len(samples) > max_samples:
        n = quietest_cut(samples[:max_samples], rate_hz, from_ms=1_000 * EARLIEST_CUT_S)
        yield samples[:n]
        samples = samples[n:]
    yield samples


def _push(stream: TranscriptStream, number: int, samples: Samples, n_pushed: int) -> None:
    stream.begin(number)
    for first in range(0, len(samples), n_pushed):
        stream.push(samples[first : first + n_pushed])
    stream.flush(1)

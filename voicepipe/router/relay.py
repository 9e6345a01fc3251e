"""One session's speech-to-text by several transcribers: which listens now, and what the next must get again."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from voicepipe import clock
from voicepipe.audio.resample import Resampler
from voicepipe.errors import Overload, StageBroken, StageError, StageExpired, StageTimeout
from voicepipe.router.candidate import Candidate
from voicepipe.router.health import blame
from voicepipe.router.kept import Kept, KeptUtterance
from voicepipe.router.lineup import Lineup
from voicepipe.stages.notes import TookOver
from voicepipe.stages.transcriber import (
    Final,
    Heard,
    Hearing,
    Samples,
    Transcriber,
    TranscriberCapabilities,
    TranscriptStream,
)
from voicepipe.telemetry.log import log_crash

UNREAD_TEXTS = 64
"""The most texts that are not yet read. Full: the transcriber is not read until a text is."""

PIECE_MS = 100
"""The length of the pieces in which an utterance is replayed."""


@dataclass(frozen=True, slots=True)
class Hearer:
    """A transcriber that may replace others."""

    candidate: Candidate
    transcriber: Transcriber

    def hearing(self, asked: Hearing) -> Hearing:
        """Return the settings for this transcriber."""
        return replace(asked, model=self.candidate.spec.partition("/")[2], note=None)


class Relay:
    """Meets `TranscriptStream`. `run` it as a task."""

    def __init__(
        self, hearing: Hearing, hearers: Mapping[str, Hearer], lineup: Lineup, capabilities: TranscriberCapabilities
    ) -> None:
        self._hearing, self._hearers, self._lineup, self._capabilities = hearing, hearers, lineup, capabilities
        self._kept = Kept(capabilities.rate_hz, leads=capabilities.streams)
        self._line: _Line | None = None
        self._texts: deque[Heard] = deque()  # bounded: at `UNREAD_TEXTS` the transcriber waits
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._failure: StageError | None = None
        self._over = False
        self._failed: set[str] = set()
        """Transcribers that have failed since a text came."""

        self._aged: set[str] = set()
        """Transcribers whose connection grew too old since then: each gets another connection, once."""

        self._settled: int | None = None
        """An utterance that is replayed though its text has come: the user may continue in it. Until its text is
        requested again, its transcripts are known already."""

        self._patience: asyncio.Timeout | None = None

    # --- the session --------------------------------------------------------------------------

    def begin(self, utterance: int) -> None:
        self._kept.begin(utterance)
        self._settled = None
        if self._line is not None and (current := self._kept.current) is not None:
            self._line.begin(current)

    def push(self, samples: Samples) -> None:
        self._kept.push(samples)
        if self._line is not None:
            self._line.push(samples)

    def flush(self, flush: int) -> None:
        self._kept.flush(flush)
        self._settled = None
        if self._line is not None:
            self._line.stream.flush(flush)
            self._be_patient()

    def close(self) -> None:
        """End the relay: the session has left."""
        self._over = True
        self._news.set()

    def __aiter__(self) -> Relay:
        return self

    async def __anext__(self) -> Heard:
        while not self._texts:
            if self._failure is not None:
                raise self._failure
            if self._over:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        self._room.set()
        return self._texts.popleft()

    # --- one transcriber after the other ------------------------------------------------------

    async def run(self) -> None:
        """Run one transcriber after the other until all have failed, or the task is cancelled."""
        why = ""
        failure: StageError | None = None
        while (candidate := self._lineup.next_after(self._failed, "", clock.monotonic_ms())) is not None:
            hearer = self._hearers[candidate.spec]
            if candidate.spec not in self._aged:
                self._tell_of(candidate, why)
            try:
                await self._listen(hearer)
            except StageExpired as aged:
                failure = aged
                if candidate.spec not in self._aged:
                    self._aged.add(candidate.spec)
                    continue  # with the same: it gets again what waits for its text
            except StageError as broke:
                failure = broke
            except Overload as full:
                failure = StageBroken("stt", provider=candidate.spec, why=full.why, retryable=True)
            except Exception as bug:
                log_crash(f"stt by {candidate.spec}", bug)
                bad = f"internal error ({type(bug).__name__})"
                failure = StageBroken("stt", provider=candidate.spec, why=bad, retryable=False)
            else:
                break  # it ended by itself, between two utterances: the session opens another
            self._failed.add(candidate.spec)
            why = f"{candidate.spec}: {failure.why}"
            breaker = self._lineup.experience.breaker(candidate)
            blame(breaker, candidate.spec, failure, clock.monotonic_ms())
        self._failure, self._over = failure if failure is not None and candidate is None else None, True
        self._news.set()

    def _tell_of(self, candidate: Candidate, why: str) -> None:
        """Report that a transcriber begins that is not the first choice, or not the same as before."""
        is_first = candidate.spec == next(iter(self._hearers))
        if self._hearing.note is not None and (why or not is_first):
            role: Literal["replacement", "continuation"] = "continuation" if why else "replacement"
            self._hearing.note(TookOver(candidate.spec, role, why or "the first choice is not well"))

    async def _listen(self, hearer: Hearer) -> None:
        """Give this transcriber all audio whose text is pending, and the audio that follows, until the stream ends.

        Raises:
            StageError: the transcriber failed, or is too late with a text that another might have.
        """
        try:
            async with (
                asyncio.timeout(None) as self._patience,
                hearer.transcriber.open(hearer.hearing(self._hearing)) as stream,
            ):
                self._line = _Line(stream, hearer.transcriber.capabilities, self._capabilities)
                self._line.catch_up(self._kept)
                current = self._kept.current
                self._settled = current.number if current is not None and current.is_known else None
                if self._kept.waits:
                    self._be_patient()
                async for heard in stream:
                    await self._take(heard, hearer)
        except TimeoutError:
            why = f"no text came for {self._lineup.options.fallback_after_ms} ms"
            raise StageTimeout("stt", provider=hearer.candidate.spec, why=why, retryable=True) from None
        finally:
            self._line = self._patience = None
        if self._kept.waits:
            why = "ended its stream with a text still due"
            raise StageBroken("stt", provider=hearer.candidate.spec, why=why, retryable=True)

    async def _take(self, heard: Heard, hearer: Hearer) -> None:
        if heard.utterance == self._settled:
            return
        if isinstance(heard, Final):
            self._failed.clear()
            self._aged.clear()
            self._kept.answered(heard.utterance, heard.flush)
            self._lineup.experience.breaker(hearer.candidate).succeeded()
            if not self._kept.waits and self._patience is not None:
                self._patience.reschedule(None)
        self._texts.append(heard)
        self._news.set()
        while len(self._texts) >= UNREAD_TEXTS:
            self._room.clear()
            await self._room.wait()

    def _be_patient(self) -> None:
        """Start the timeout for a text, where another transcriber might have it sooner."""
        if self._patience is None or len(self._hearers) < 2 or self._patience.expired():
            return
        after_s = self._lineup.options.fallback_after_ms / 1_000
        if self._patience.when() is None:
            self._patience.reschedule(clock.loop_s() + after_s)


class _Line:
    """The stream to one transcriber: which audio it gets, at its own rate, and when."""

    def __init__(self, stream: TranscriptStream, its: TranscriberCapabilities, ours: TranscriberCapabilities) -> None:
        self.stream = stream
        self._its, self._ours = its, ours
        self._resampler = Resampler(ours.rate_hz, its.rate_hz)
        self._in_utterance = False

    def begin(self, utterance: KeptUtterance) -> None:
        """Begin an utterance. A transcriber that gets only utterances also gets the audio just before."""
        self.stream.begin(utterance.number)
        self._in_utterance = True
        if self._ours.streams and not self._its.streams:
            self._resampler = Resampler(self._ours.rate_hz, self._its.rate_hz)
            self.push(utterance.lead_sound)

    def push(self, samples: Samples) -> None:
        """Pass on more of the user's audio, if this transcriber gets it."""
        if self._its.streams or self._in_utterance:
            heard = self._resampler.push(samples) if self._its.rate_hz != self._ours.rate_hz else samples
            if len(heard):
                self.stream.push(heard)

    def catch_up(self, kept: Kept) -> None:
        """Replay the audio that came before this transcriber was open."""
        n_piece = PIECE_MS * self._ours.rate_hz // 1_000
        for utterance in kept:
            if self._its.streams:
                self.push(utterance.lead_sound)
            self.begin(utterance)
            sound = utterance.sound
            for at in range(0, len(sound), n_piece):
                self.push(sound[at : at + n_piece])
            if utterance.flush is not None:
                self.stream.flush(utterance.flush)

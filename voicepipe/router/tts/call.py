"""Run one synthesizer's attempt at a turn, or at the rest of a turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from msgspec import Struct

from voicepipe.errors import StageBroken, StageError
from voicepipe.ports.synthesizer import Speech, SpeechEvent, Spoken, Synthesizer, Voice
from voicepipe.router.candidate import Candidate
from voicepipe.router.race import Attempt
from voicepipe.router.race_runner import RacingCall, failure_of
from voicepipe.values import replace

MAX_WAITING: Final = 32
"""Pieces of audio that are not yet taken. Full: the synthesizer is not read until a piece is taken."""


class SynthesizerCandidate(Struct, frozen=True):
    """A synthesizer that may replace others."""

    candidate: Candidate
    synthesizer: Synthesizer
    knows_voices: bool
    """Whether it belongs to the provider whose voices the session names. Other providers get such a name only if they
    report to have it, and use their own voice otherwise."""

    def voice(self, requested: Voice) -> Voice:
        """Return the voice settings for this synthesizer."""
        known = self.synthesizer.voices
        takes = requested.voice in known if known is not None else self.knows_voices
        return replace(requested, model=self.candidate.model, voice=requested.voice if takes else None)


class SynthesizerCallListener(Protocol):
    """Receives the events of calls. Each method but `wait_for_space` returns at once."""

    def on_audio(self, call: SynthesizerCall, spoken: Spoken) -> None: ...
    def on_event(self, call: SynthesizerCall, event: SpeechEvent) -> None:
        """Handle what the synthesizer reports beside its audio."""
        ...

    def on_complete(self, call: SynthesizerCall) -> None: ...
    def on_failure(self, call: SynthesizerCall, failure: StageError) -> None: ...
    async def wait_for_space(self, call: SynthesizerCall) -> None:
        """Wait until more audio may be passed."""
        ...


class SynthesizerCall(RacingCall[Spoken]):
    """An attempt. `run` it as a task of the turn's group."""

    def __init__(
        self, attempt: Attempt, speaker: SynthesizerCandidate, voice: Voice, *, clause: int = 0, played_ms: int = 0
    ) -> None:
        """`clause`: the turn's number of the first clause it is given; `played_ms`: how much of that clause was spoken
        before."""
        super().__init__("tts", attempt)
        self.speaker = speaker
        self.n_chars = 0
        """Amount of text that it was given."""

        self._voice, self._clause, self._played_ms = speaker.voice(voice), clause, played_ms
        self._unsent: list[str] = []  # bounded: a turn's clauses, until the synthesizer is open
        self._finished = False
        self._speech: Speech | None = None

    def push(self, clauses: Sequence[str]) -> None:
        """Add clauses to speak."""
        for clause in clauses:
            self.n_chars += len(clause)
            if self._speech is None:
                self._unsent.append(clause)
            else:
                self._speech.push(clause)

    def finish(self) -> None:
        """Mark the end: no clause follows."""
        self._finished = True
        if self._speech is not None:
            self._speech.finish()

    async def run(self, listener: SynthesizerCallListener) -> None:
        """Speak, and pass the audio to the listener. Cancel the task to close it."""
        if (failure := await failure_of(self.stage, self.spec, self._pass_speech(listener))) is not None:
            listener.on_failure(self, failure)

    async def _pass_speech(self, listener: SynthesizerCallListener) -> None:
        has_audio = False
        async with self.speaker.synthesizer.open(self._voice) as speech:
            self._begin(speech)
            async for event in speech:
                if isinstance(event, Spoken):
                    has_audio = has_audio or bool(len(event.samples))
                    listener.on_audio(self, self._placed(event))
                    await listener.wait_for_space(self)
                else:
                    listener.on_event(self, event)
        if self.n_chars and not has_audio:
            raise StageBroken("tts", provider=self.spec, why="the answer had no audio", retryable=True)
        listener.on_complete(self)

    def _begin(self, speech: Speech) -> None:
        self._speech = speech
        for clause in self._unsent:
            speech.push(clause)
        self._unsent = []
        if self._finished:
            speech.finish()

    def _placed(self, spoken: Spoken) -> Spoken:
        """Return the audio with the turn's own clause numbers and times."""
        words = spoken.words
        if spoken.clause == 0 and self._played_ms:
            words = tuple(replace(word, start_ms=word.start_ms + self._played_ms) for word in words)
        return replace(spoken, clause=self._clause + spoken.clause, words=words)

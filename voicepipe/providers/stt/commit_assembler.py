"""Map a vendor's answers to commits to the texts of utterances. Pure: no socket, no clock.

Some vendors transcribe segments: all audio since the last commit is a segment, and each commit is answered once, in
order. Only utterances are sent to them. So a segment belongs to one utterance, and needs no word times.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from voicepipe.ports.transcriber import Final, Interim, TranscriptEvent

REMEMBERED_COMMITS = 64
"""Maximum number of flushes that wait for an answer, the latest ones; the core flushes at most three times a turn."""


class Partial(Struct, frozen=True):
    """The vendor's interim text of the oldest segment without a final text: the whole segment, may change."""

    text: str


class Committed(Struct, frozen=True):
    """The whole text of a segment. It answers the oldest commit, or none if the vendor ended the segment itself."""

    text: str
    language: str | None = None


TranscriptPart = Partial | Committed


@dataclass(slots=True, eq=False)
class _Utterance:
    number: int
    parts: list[str] = field(default_factory=list)
    partial: str = ""
    reported: str = ""
    """The text returned last, so that no text is returned twice."""

    language: str | None = None

    @property
    def text(self) -> str:
        return " ".join(text for text in (*self.parts, self.partial) if text)


@dataclass(slots=True, eq=False)
class _Commit:
    utterance: _Utterance | None
    """The utterance; None: audio after an utterance's last flush, whose text is not requested."""

    flush: int
    """0: no flush waits for it."""


class CommitAssembler:
    """The utterances of one stream, and the unanswered commits."""

    def __init__(self) -> None:
        self._utterance: _Utterance | None = None
        # Full: the oldest answer would be assigned to the next commit, but the vendor has been silent for 64 commits.
        self._waiting: deque[_Commit] = deque(maxlen=REMEMBERED_COMMITS)
        self._fresh = False
        """Whether audio was sent since the last commit."""

    @property
    def waiting(self) -> bool:
        """Whether the vendor has an unanswered commit."""
        return bool(self._waiting)

    # --- the session --------------------------------------------------------------------------

    def begin(self, utterance: int) -> bool:
        """Begin an utterance; true: discard the audio since the last commit first."""
        leftover, self._fresh = self._fresh, False
        self._utterance = _Utterance(utterance)
        return leftover

    def discarded(self) -> None:
        """Record that a commit discards the audio; its answer is ignored."""
        self._waiting.append(_Commit(None, 0))

    def pushed(self) -> None:
        """Record that more audio was sent."""
        self._fresh = True

    def flush(self, flush: int, *, may_return: bool = True) -> Final | Literal["commit", "wait"]:
        """Return the answer if the text is complete; else commit, or wait for the pending commit.

        `may_return`: False where the calling code can take no answer now; it is never returned at once then.
        """
        utterance = self._utterance
        if utterance is None:
            return Final(0, flush, "")  # no utterance has begun, so there is no speech
        latest = next((commit for commit in reversed(self._waiting) if commit.utterance is utterance), None)
        for commit in self._waiting:
            if commit.utterance is utterance:
                commit.flush = 0
        if latest is not None and not self._fresh:
            latest.flush = flush
            return "wait"
        if may_return and not self._fresh:
            return self._final(utterance, flush)
        self._waiting.append(_Commit(utterance, flush))
        self._fresh = False
        return "commit"

    # --- the vendor ---------------------------------------------------------------------------

    def take(self, part: TranscriptPart) -> TranscriptEvent | None:
        """Return the new texts from a vendor's answer, if any."""
        match part:
            case Partial(text):
                utterance = self._waiting[0].utterance if self._waiting else self._utterance
                return None if utterance is None else self._grown(utterance, text)
            case Committed():
                return self._answered(part)

    def _answered(self, part: Committed) -> TranscriptEvent | None:
        # No commit waits: the vendor ended a segment that got too long for it.
        commit = self._waiting.popleft() if self._waiting else _Commit(self._utterance, 0)
        utterance = commit.utterance
        if utterance is None:
            return None
        utterance.parts.append(part.text)
        utterance.language = part.language or utterance.language
        if commit.flush:
            utterance.partial = ""
            return self._final(utterance, commit.flush)
        return self._grown(utterance, "")

    def _grown(self, utterance: _Utterance, partial: str) -> Interim | None:
        utterance.partial = partial
        text = utterance.text
        if text in ("", utterance.reported):
            return None
        utterance.reported = text
        return Interim(utterance.number, text)

    def _final(self, utterance: _Utterance, flush: int) -> Final:
        utterance.reported = utterance.text
        return Final(utterance.number, flush, utterance.text, utterance.language)

"""From a vendor's answers to commits to the texts of utterances. Pure: no socket, no clock.

Some vendors hear stretches of audio: all that was sent since the last commit is a segment, and each commit is answered
once, in order. Only utterances are sent to them, so that a segment is of one utterance, and needs no word times.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from voicepipe.stages.transcriber import Final, Heard, Interim

REMEMBERED_COMMITS = 64
"""The latest so many are waited for; the core asks three times a turn at most."""


@dataclass(frozen=True, slots=True)
class Partial:
    """What the vendor makes so far of the oldest segment whose text it has not given yet: all of it, may change."""

    text: str


@dataclass(frozen=True, slots=True)
class Committed:
    """The whole text of a segment. It answers the oldest commit, or none if the vendor ended the segment by itself."""

    text: str
    language: str | None = None


Said = Partial | Committed


@dataclass(slots=True, eq=False)
class _Utterance:
    number: int
    parts: list[str] = field(default_factory=list)
    partial: str = ""
    shown: str = ""
    """The text last given, so that nothing is given twice."""

    language: str | None = None

    @property
    def text(self) -> str:
        return " ".join(text for text in (*self.parts, self.partial) if text)


@dataclass(slots=True, eq=False)
class _Commit:
    utterance: _Utterance | None
    """None: what was sent after an utterance's last flush, which nobody asks about."""

    flush: int
    """0: no flush waits for it."""


class Commits:
    """The utterances of one stream, and which commits are still unanswered."""

    def __init__(self) -> None:
        self._utterance: _Utterance | None = None
        # Full: the oldest answer would be taken for the next one's, but the vendor has been silent for 64 commits.
        self._waiting: deque[_Commit] = deque(maxlen=REMEMBERED_COMMITS)
        self._fresh = False
        """Something was sent since the last commit."""

    @property
    def waiting(self) -> bool:
        """Whether the vendor owes an answer."""
        return bool(self._waiting)

    # --- the session --------------------------------------------------------------------------

    def begin(self, utterance: int) -> bool:
        """A new utterance; true: what was sent since the last commit is to be forgotten first."""
        leftover, self._fresh = self._fresh, False
        self._utterance = _Utterance(utterance)
        return leftover

    def discarded(self) -> None:
        """It is forgotten by a commit, whose answer nobody asks about."""
        self._waiting.append(_Commit(None, 0))

    def pushed(self) -> None:
        """More audio was sent."""
        self._fresh = True

    def flush(self, flush: int, *, room: bool = True) -> Final | Literal["commit", "wait"]:
        """The answer if all is known; else commit, or wait for the commit that is under way.

        Without `room` the answer never comes at once: whoever calls has no place for it now.
        """
        utterance = self._utterance
        if utterance is None:
            return Final(0, flush, "")  # nothing has begun, so nothing was said
        latest = next((its for its in reversed(self._waiting) if its.utterance is utterance), None)
        for commit in self._waiting:
            if commit.utterance is utterance:
                commit.flush = 0
        if latest is not None and not self._fresh:
            latest.flush = flush
            return "wait"
        if room and not self._fresh:
            return self._final(utterance, flush)
        self._waiting.append(_Commit(utterance, flush))
        self._fresh = False
        return "commit"

    # --- the vendor ---------------------------------------------------------------------------

    def take(self, said: Said) -> Heard | None:
        """What the vendor's word tells, if it tells anything new."""
        match said:
            case Partial(text):
                utterance = self._waiting[0].utterance if self._waiting else self._utterance
                return None if utterance is None else self._grown(utterance, text)
            case Committed():
                return self._answered(said)

    def _answered(self, said: Committed) -> Heard | None:
        # Without a commit that waits: the vendor ended a segment that got too long for it.
        commit = self._waiting.popleft() if self._waiting else _Commit(self._utterance, 0)
        utterance = commit.utterance
        if utterance is None:
            return None
        utterance.parts.append(said.text)
        utterance.language = said.language or utterance.language
        if commit.flush:
            utterance.partial = ""
            return self._final(utterance, commit.flush)
        return self._grown(utterance, "")

    def _grown(self, utterance: _Utterance, partial: str) -> Interim | None:
        utterance.partial = partial
        text = utterance.text
        if text in ("", utterance.shown):
            return None
        utterance.shown = text
        return Interim(utterance.number, text)

    def _final(self, utterance: _Utterance, flush: int) -> Final:
        utterance.shown = utterance.text
        return Final(utterance.number, flush, utterance.text, utterance.language)

"""Map a vendor's stream of timed segments to the texts of utterances. Pure: no socket, no clock.

A streaming STT gets all audio of the session and cuts it anywhere; the port requires the text of an utterance, from its
`begin` on. Both count the same samples, so a word belongs to the utterance that has its audio, whenever its text
arrives. Positions are samples of all pushed audio.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec import Struct

from voicepipe.audio.timed_words import TimedWord
from voicepipe.ports.transcriber import EndOfTurn, Final, Interim, TranscriptEvent

REMEMBERED_UTTERANCES = 8
"""Number of the latest utterances that can still get words."""

WAITING_FLUSHES = 64
"""Maximum number of flushes that wait for an answer, the latest ones; the core flushes at most three times a turn."""


class Margins(Struct, frozen=True, kw_only=True):
    """Tolerances of positions, in samples."""

    lead: int
    """Maximum time between the first word of an utterance and the detection of its speech."""

    trailing: int
    """A vendor's own end of speech answers a flush that comes at most this much later: the rest was silence."""

    too_short: int
    """Amount of audio up to which a vendor may leave a request for the final text unanswered."""


class Word(Struct, frozen=True):
    """A word and its position."""

    start: int
    end: int
    text: str
    speaker: str | None = None
    """The vendor's label of who said it."""


class Segment(Struct, frozen=True, kw_only=True):
    """A vendor's transcript of a stretch of the audio."""

    start: int
    end: int
    text: str
    words: tuple[Word, ...] = ()
    final: bool = False
    """Whether it will not be revised."""

    speech_ended: bool = False
    """Whether the vendor detected the end of speech at its end."""

    complete: bool = False
    """Whether it contains all speech before its end, though some of it may still be revised."""

    requested: bool = False
    """Whether it answers a request for the final text."""

    end_probability: float | None = None
    """The vendor's judgement whether the user has finished, 0 to 1; None: it gave none."""

    language: str | None = None


@dataclass(slots=True, eq=False)
class _Utterance:
    number: int
    begun_at: int
    since: int
    finals: list[Segment] = field(default_factory=list)
    interim: str = ""
    interim_at: int = 0
    """The position at which the segment of the interim text begins."""

    interim_words: tuple[Word, ...] = ()

    reported: str = ""
    """The text returned last, so that no text is returned twice."""

    sent: str = ""
    """The text last returned as final."""

    language: str | None = None

    @property
    def text(self) -> str:
        return " ".join(text for text in (*(final.text for final in self.finals), self.interim) if text)

    @property
    def words(self) -> Iterator[Word]:
        for final in self.finals:
            yield from final.words
        yield from self.interim_words

    def take(self, segment: Segment, text: str, words: tuple[Word, ...]) -> None:
        """Add a final text, or replace the interim one."""
        # A vendor that sends a stretch again revises it. An empty answer to a request for the rest means that there is
        # none, for any stretch that it names.
        if text or (segment.final and not segment.requested):
            self.finals = [
                final for final in self.finals if not segment.start <= final.start <= final.end <= segment.end
            ]
        if not segment.final:
            self.interim, self.interim_at, self.interim_words = text, segment.start, words
            return
        self.interim, self.interim_words = "", ()
        self.language = segment.language or self.language
        if text:
            self.finals.append(Segment(start=segment.start, end=segment.end, text=text, words=words))
            self.finals.sort(key=lambda final: final.start)

    def words_in(self, segment: Segment) -> int:
        """Number of its words reported inside that stretch."""
        texts = [final.text for final in self.finals if segment.start <= final.start <= final.end <= segment.end]
        if segment.start <= self.interim_at < segment.end:
            texts.append(self.interim)
        return sum(len(text.split()) for text in texts)


@dataclass(slots=True, eq=False)
class _Request:
    utterance: _Utterance
    flush: int
    at: int
    waited_for: bool = True


class SegmentAssembler:
    """The utterances of one stream, and the flushes that wait."""

    def __init__(self, margins: Margins, *, word_rate_hz: int | None = None) -> None:
        """`word_rate_hz`: sample rate of the positions; None: final texts come without the times of their words."""
        self._margins, self._word_rate_hz = margins, word_rate_hz
        # Full: the oldest is dropped, and its late words with it.
        self._utterances: deque[_Utterance] = deque(maxlen=REMEMBERED_UTTERANCES)
        # Full: the oldest stays unanswered; it was requested many turns ago.
        self._requests: deque[_Request] = deque(maxlen=WAITING_FLUSHES)
        self._begun_at = self._flushed_at = 0
        self._final_to = self._complete_to = 0
        self._ended = False
        """Whether the latest final segment ended with silence, and no word came since."""

    # --- the session --------------------------------------------------------------------------

    def begin(self, utterance: int, at: int) -> None:
        """Start an utterance: words from here on, or shortly before, belong to it; words that were flushed already do
        not."""
        self._begun_at = at
        since = max(self._flushed_at, at - self._margins.lead)
        if self._utterances:
            since = max(since, self._utterances[-1].since)
        self._utterances.append(_Utterance(utterance, at, since))

    def flush(self, flush: int, at: int, *, must_request: bool = False) -> Final | None:
        """Answer if the text is complete; None: request the final text from the vendor, and pass its answer to `take`.

        With `must_request`, never answer: the calling code has no room for the answer now.
        """
        if not self._utterances:
            return Final(0, flush, "")  # no utterance has begun, so there is no speech
        self._flushed_at = at
        utterance = self._utterances[-1]
        for earlier in self._requests:
            earlier.waited_for = earlier.waited_for and earlier.utterance is not utterance
        if not must_request and (self._known_to(at) or at <= utterance.since):
            return self._final(utterance, flush)
        self._requests.append(_Request(utterance, flush, at))
        return None

    # --- the vendor ---------------------------------------------------------------------------

    def take(self, segment: Segment) -> list[TranscriptEvent]:
        """Return the results of a segment: answers to flushes first, then texts that grew."""
        shares = self._share(segment)
        for utterance, text, words in shares:
            utterance.take(segment, text, words)
        if segment.final:
            self._final_to = max(self._final_to, segment.end)
            self._ended = segment.speech_ended
        elif segment.text:
            self._ended = False
        if segment.complete:
            self._complete_to = max(self._complete_to, segment.end)
        answers = self._answers(segment) if segment.final or segment.complete else []
        grown = [event for utterance, *_ in shares if (event := self._grown(utterance, segment))]
        return [*answers, *grown, *self._judged(segment)]

    def _judged(self, segment: Segment) -> list[TranscriptEvent]:
        """Return the vendor's judgement of the utterance at the segment's end."""
        utterance = self._owner(max(0, segment.end - 1))
        if segment.end_probability is None or utterance is None:
            return []
        return [EndOfTurn(utterance.number, min(1.0, max(0.0, segment.end_probability)))]

    def _share(self, segment: Segment) -> list[tuple[_Utterance, str, tuple[Word, ...]]]:
        """Assign the words to utterances. An utterance that had interim words there and has none now gets an empty
        share."""
        owners = self._owners(segment)
        texts = [word.text for word in segment.words] or segment.text.split() or [""]
        shares: list[tuple[_Utterance, str, tuple[Word, ...]]] = []
        for utterance in self._utterances:
            if all(owner is utterance for owner in owners):
                shares.append((utterance, segment.text, segment.words))
            elif utterance in owners:
                positions = [n for n, owner in enumerate(owners) if owner is utterance]
                words = tuple(segment.words[n] for n in positions) if segment.words else ()
                shares.append((utterance, " ".join(texts[n] for n in positions), words))
            elif utterance.interim and segment.start <= utterance.interim_at < segment.end:
                shares.append((utterance, "", ()))
        return shares

    def _owners(self, segment: Segment) -> list[_Utterance | None]:
        """Return the utterance of each word. Where words have no positions, an earlier utterance keeps the same number
        of words."""
        if segment.words:
            return [self._owner((word.start + word.end) // 2) for word in segment.words]
        last = self._owner(max(0, segment.end - 1))
        n_words = max(1, len(segment.text.split()))
        owners: list[_Utterance | None] = []
        for utterance in self._utterances:
            if utterance is last or not segment.text:
                break
            owners += [utterance] * utterance.words_in(segment)
        return (owners + [last] * n_words)[:n_words]

    def _owner(self, at: int) -> _Utterance | None:
        return next((utterance for utterance in reversed(self._utterances) if utterance.since <= at), None)

    def _answers(self, segment: Segment) -> list[TranscriptEvent]:
        """Return the flushes that this final segment answers."""
        answered = [request for request in self._requests if self._known_to(request.at)]
        if segment.requested and not answered and self._requests:
            answered = [
                self._requests[0]
            ]  # requests are answered in order, independent of the stretch that the vendor names
        for request in answered:
            self._requests.remove(request)
        return [self._final(request.utterance, request.flush) for request in answered if request.waited_for]

    def _known_to(self, at: int) -> bool:
        """Whether no word from before `at` can still arrive."""
        return at <= max(self._final_to + (self._margins.trailing if self._ended else 0), self._complete_to)

    def _grown(self, utterance: _Utterance, segment: Segment) -> TranscriptEvent | None:
        text = utterance.text
        if segment.final and (segment.speech_ended or segment.requested) and text != utterance.sent:
            return self._final(utterance, 0)
        if text in ("", utterance.reported):
            return None
        utterance.reported = text
        return Interim(utterance.number, text)

    def _final(self, utterance: _Utterance, flush: int) -> Final:
        utterance.reported = utterance.sent = utterance.text
        return Final(utterance.number, flush, utterance.text, utterance.language, self._timed(utterance))

    def _timed(self, utterance: _Utterance) -> tuple[TimedWord, ...]:
        rate_hz = self._word_rate_hz
        if rate_hz is None:
            return ()
        at = utterance.begun_at
        return tuple(
            TimedWord((word.start - at) / rate_hz, (word.end - at) / rate_hz, word.text, word.speaker)
            for word in utterance.words
        )

    # --- deadlines ----------------------------------------------------------------------------

    @property
    def waiting(self) -> bool:
        """Whether a flush waits for the vendor."""
        return any(request.waited_for for request in self._requests)

    @property
    def resting(self) -> bool:
        """Whether the words of all utterances so far were requested and received."""
        return not self.waiting and self._flushed_at >= self._begun_at

    @property
    def requested_at(self) -> int | None:
        """The end of the audio at the oldest unanswered request to the vendor."""
        return self._requests[0].at if self._requests else None

    @property
    def waited_at(self) -> int | None:
        """The end of the audio at the oldest waiting flush."""
        return self._oldest().at if self.waiting else None

    @property
    def too_short(self) -> bool:
        """Whether the oldest waiting flush may stay unanswered, for lack of audio."""
        oldest = self._oldest()
        return oldest.at - max(self._final_to, oldest.utterance.since) <= self._margins.too_short

    @property
    def known(self) -> bool:
        """Whether there is a text to answer the oldest waiting flush with."""
        return self._oldest().utterance.text != ""

    def give_up(self) -> Final:
        """Answer the oldest waiting flush with the text so far. A late answer of the vendor is still assigned to it."""
        oldest = self._oldest()
        oldest.waited_for = False
        return self._final(oldest.utterance, oldest.flush)

    def _oldest(self) -> _Request:
        return next(request for request in self._requests if request.waited_for)

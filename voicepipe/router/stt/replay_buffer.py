"""A buffer of the audio of utterances whose text has not come, for replay to the next transcriber. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np

from voicepipe.ports.transcriber import Samples

MAX_MS = 30_000
"""Maximum of buffered audio. Full: the oldest is dropped, as in the streams' own buffers, and is counted."""

LEAD_MS = 600
"""Audio buffered before an utterance begins: its first word comes before its detection."""

MAX_UTTERANCES = 8
"""Utterances whose texts are pending. Full: the oldest is dropped."""


class BufferedUtterance:
    """An utterance: its audio and its requests."""

    def __init__(self, number: int, lead: list[Samples]) -> None:
        self.number = number
        self.lead, self.pieces = lead, deque[Samples]()  # bounded by `ReplayBuffer`
        self.flush: int | None = None
        """The latest flush whose text is pending."""

        self.is_known = False
        """Whether its text has come, and was not requested again since."""

    @property
    def sound(self) -> Samples:
        """Return all its audio: int16, (n_samples,)."""
        return _joined(self.pieces)

    @property
    def lead_sound(self) -> Samples:
        """Return the audio before it, none of it of an earlier utterance: int16, (n_samples,)."""
        return _joined(self.lead)


class ReplayBuffer:
    """The utterances of one session, the oldest first."""

    def __init__(self, rate_hz: int, *, leads: bool) -> None:
        """`leads`: audio is pushed between utterances too."""
        self._max_samples, self._lead_samples = MAX_MS * rate_hz // 1_000, LEAD_MS * rate_hz // 1_000
        self._leads = leads
        self._utterances: deque[BufferedUtterance] = deque()
        self._n_samples = 0
        self._latest: deque[Samples] = deque()  # bounded by `LEAD_MS`
        self.n_dropped_samples = 0

    def __iter__(self) -> Iterator[BufferedUtterance]:
        return iter(self._utterances)

    @property
    def current(self) -> BufferedUtterance | None:
        """The latest utterance."""
        return self._utterances[-1] if self._utterances else None

    @property
    def waits(self) -> bool:
        """Return whether a requested text has not come."""
        return any(each.flush is not None for each in self._utterances)

    def begin(self, utterance: int) -> None:
        """Begin a new utterance with the next `push`."""
        self._drop_answered()
        self._utterances.append(BufferedUtterance(utterance, list(self._latest)))
        self._latest.clear()
        while len(self._utterances) > MAX_UTTERANCES:
            self._drop(self._utterances[0])

    def push(self, samples: Samples) -> None:
        """Keep more audio."""
        if self._leads:
            self._buffer_lead(samples)
        if self._utterances:
            self._utterances[-1].pieces.append(samples)
            self._n_samples += len(samples)
        while self._n_samples > self._max_samples:
            oldest = next(each for each in self._utterances if each.pieces)
            n_gone = len(oldest.pieces.popleft())
            self._n_samples -= n_gone
            self.n_dropped_samples += n_gone

    def flush(self, flush: int) -> None:
        """Request the text of the current utterance."""
        if self._utterances:
            self._utterances[-1].flush, self._utterances[-1].is_known = flush, False
        self._latest.clear()

    def answered(self, utterance: int, flush: int) -> None:
        """Record that a text came; it may belong to a request before the latest."""
        for each in self._utterances:
            if each.number == utterance and each.flush == flush:
                each.flush, each.is_known = None, True
        self._drop_answered(but=self.current)

    def _buffer_lead(self, samples: Samples) -> None:
        self._latest.append(samples)
        while sum(map(len, self._latest)) - len(self._latest[0]) >= self._lead_samples:
            self._latest.popleft()

    def _drop_answered(self, but: BufferedUtterance | None = None) -> None:
        for each in [each for each in self._utterances if each.flush is None and each is not but]:
            self._drop(each)

    def _drop(self, utterance: BufferedUtterance) -> None:
        self._utterances.remove(utterance)
        self._n_samples -= sum(map(len, utterance.pieces))


def _joined(pieces: list[Samples] | deque[Samples]) -> Samples:
    return np.concatenate(list(pieces)) if pieces else np.zeros(0, dtype=np.int16)

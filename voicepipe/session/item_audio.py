"""The newest audio of a session's items, held in memory: what the user said in an item, and what the agent was heard
with.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

import numpy as np

from voicepipe.audio.samples import Samples
from voicepipe.protocol.item_audio import coded_audio
from voicepipe.protocol.outbound import EventRenderer
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.session.read_limit import RETRIEVE_EVENTS, ReadLimit
from voicepipe.turn import notifications as a

MAX_ITEMS: Final = 256
"""Items of the user whose place in the audio is known."""


class UserAudioReceiver(Protocol):
    """Something that records the user's audio."""

    def user_audio(self, samples: Samples, rate_hz: int, ended_ms: int) -> None:
        """See `CallRecorder`."""
        ...


@dataclass(slots=True)
class _AgentItem:
    rate_hz: int
    pieces: list[Samples] = field(default_factory=list)
    n_samples: int = 0
    is_lost: bool = False
    """It alone is longer than what is held."""


class ItemAudio:
    """The latest `keep_s` seconds of either side. Belongs to one event loop. Samples are int16, (n_samples,)."""

    def __init__(self, keep_s: int) -> None:
        """Begin with nothing."""
        self._retention_ms = 1_000 * keep_s
        # (where it ends in the user's audio, in ms; rate in Hz; samples). Bounded by `user_audio`.
        self._user: deque[tuple[float, int, Samples]] = deque()
        self._user_ms = 0.0
        self._spans: OrderedDict[str, tuple[int, int | None]] = OrderedDict()  # bounded by `MAX_ITEMS`
        self._committed_ms = 0
        self._agent: OrderedDict[str, _AgentItem] = OrderedDict()  # bounded by `agent_audio`
        self._agent_ms = 0.0

    # --- what is said ---------------------------------------------------------------------------

    def user_audio(self, samples: Samples, rate_hz: int, ended_ms: int) -> None:
        """Store more of the user's audio, in order."""
        self._user_ms += 1_000 * len(samples) / rate_hz
        self._user.append((self._user_ms, rate_hz, samples.copy()))
        while self._user[0][0] <= self._user_ms - self._retention_ms:
            self._user.popleft()

    def agent_audio(self, item_id: str, samples: Samples, rate_hz: int) -> None:
        """Store more audio of one of the agent's items, and drop that of the oldest ones if it is too much."""
        item = self._agent.setdefault(item_id, _AgentItem(rate_hz))
        if item.is_lost:
            return
        item.pieces.append(samples.copy())
        item.n_samples += len(samples)
        self._agent_ms += 1_000 * len(samples) / rate_hz
        while self._agent_ms > self._retention_ms:
            oldest = next(iter(self._agent))
            self._drop_agent(oldest)
            if oldest == item_id:
                self._agent[item_id] = _AgentItem(rate_hz, is_lost=True)

    def of_agent(self, item_id: str) -> Callable[[Samples, int], None]:
        """Return a function that takes audio of one of the agent's items."""
        return partial(self.agent_audio, item_id)

    def on_notification(self, what: a.Notification, received_ms: int) -> None:
        """Record which audio belongs to which item, by a notification to the client.

        `received_ms` of the user's audio have come.
        """
        match what:
            case a.InputSpeechStarted(item_id, start_ms):
                self._place(item_id, self._spans.get(item_id, (start_ms, None))[0], None)
            case a.InputSpeechStopped(item_id, end_ms):
                self._place(item_id, self._spans.get(item_id, (self._committed_ms, None))[0], end_ms)
            case a.SilenceTimedOut(item_id, start_ms, end_ms):
                self._place(item_id, start_ms, end_ms)
            case a.AudioCommitted(item_id):
                start_ms, known_ms = self._spans.get(item_id, (self._committed_ms, None))
                self._place(item_id, start_ms, received_ms if known_ms is None else known_ms)
                self._committed_ms = received_ms
            case a.AudioCleared():
                self._committed_ms = received_ms
            case a.ItemTruncated(item_id=item_id, audio_end_ms=end_ms):
                self._truncate(item_id, end_ms)
            case a.ItemDeleted(item_id):
                self._spans.pop(item_id, None)
                self._drop_agent(item_id)

    def _place(self, item_id: str, start_ms: int, end_ms: int | None) -> None:
        self._spans[item_id] = start_ms, end_ms
        if len(self._spans) > MAX_ITEMS:
            self._spans.popitem(last=False)

    # --- retrieval ------------------------------------------------------------------------------

    def is_of_agent(self, item_id: str) -> bool:
        """Return whether this is the audio of an item of the agent's."""
        return item_id in self._agent

    def of(self, item_id: str) -> tuple[Samples, int] | None:
        """Return all audio of an item and its rate in Hz; None: there is none, or not all of it is stored any more."""
        if (item := self._agent.get(item_id)) is not None and item.pieces:
            return np.concatenate(item.pieces), item.rate_hz
        if (span := self._spans.get(item_id)) is not None:
            return self._of_user(span[0], self._user_ms if span[1] is None else span[1])
        return None

    def _of_user(self, start_ms: float, end_ms: float) -> tuple[Samples, int] | None:
        rates, pieces = set[int](), list[Samples]()
        stored_from_ms = self._user_ms
        for piece_end_ms, rate_hz, samples in self._user:
            piece_start_ms = piece_end_ms - 1_000 * len(samples) / rate_hz
            stored_from_ms = min(stored_from_ms, piece_start_ms)
            if piece_end_ms > start_ms and piece_start_ms < end_ms:
                first = max(0, round((start_ms - piece_start_ms) * rate_hz / 1_000))
                last = round((end_ms - piece_start_ms) * rate_hz / 1_000)
                rates.add(rate_hz)
                pieces.append(samples[first:last])
        if len(rates) != 1 or stored_from_ms > start_ms + 1:  # the format has changed in it, or its beginning is gone
            return None
        return np.concatenate(pieces), rates.pop()

    def _truncate(self, item_id: str, end_ms: int) -> None:
        item = self._agent.get(item_id)
        if item is None or not item.pieces:
            return
        # A copy: a part of the whole would keep all of it.
        rest = np.concatenate(item.pieces)[: end_ms * item.rate_hz // 1_000].copy()
        if not len(rest):
            self._drop_agent(item_id)
            return
        self._agent_ms -= 1_000 * (item.n_samples - len(rest)) / item.rate_hz
        item.pieces, item.n_samples = [rest], len(rest)

    def _drop_agent(self, item_id: str) -> None:
        if (item := self._agent.pop(item_id, None)) is not None:
            self._agent_ms -= 1_000 * item.n_samples / item.rate_hz


class RetrievedAudio:
    """The audio of the item that the client retrieves, in the session's format of its direction."""

    def __init__(self, items: ItemAudio | None, wire: EventRenderer, read_limit: ReadLimit) -> None:
        """Have `wire` render it; `read_limit` charges the work. `items` None: no audio is stored."""
        self._items, self._read_limit = items, read_limit
        self._coded: tuple[str, str] | None = None
        if items is not None:
            wire.audio_of = self._take

    async def prepare(self, item_id: str, config: SessionConfig) -> None:
        """Code an item's audio, in a thread. Call it before the item is retrieved."""
        if self._items is None:
            return
        self._read_limit.charge(RETRIEVE_EVENTS)
        if (found := self._items.of(item_id)) is None:
            return
        form = config.output_format if self._items.is_of_agent(item_id) else config.input_format
        audio = await asyncio.to_thread(coded_audio, *found, form)
        self._coded = None if audio is None else (item_id, audio)

    def _take(self, item_id: str) -> str | None:
        coded, self._coded = self._coded, None
        return coded[1] if coded is not None and coded[0] == item_id else None


def both(items: ItemAudio | None, recorder: UserAudioReceiver | None) -> UserAudioReceiver | None:
    """Return what takes the user's audio for both of these."""
    if items is None or recorder is None:
        return recorder if items is None else items
    return _Both(items, recorder)


class _Both:
    """Two that record the user's audio."""

    def __init__(self, one: UserAudioReceiver, other: UserAudioReceiver) -> None:
        self._one, self._other = one, other

    def user_audio(self, samples: Samples, rate_hz: int, ended_ms: int) -> None:
        self._one.user_audio(samples, rate_hz, ended_ms)
        self._other.user_audio(samples, rate_hz, ended_ms)

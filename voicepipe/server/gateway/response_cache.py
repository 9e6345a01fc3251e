"""Cache REST answers in memory, by exact request and project.

Off by default. Requests with tools, images or data of one user (`user`, `safety_identifier`, `prompt_cache_key`,
`metadata`, a client secret's subject or routing) never use the cache. Other temperatures than 0 use it only if the
settings allow it. The cache stores the digest of the request and the text of the answer.
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import accumulate
from typing import Final, Literal, Protocol

import msgspec

from voicepipe import clock
from voicepipe.ports.model import (
    Content,
    Finished,
    Image,
    ModelEvent,
    ModelRequest,
    Routed,
    TextDelta,
    Usage,
)
from voicepipe.server.authenticate import Principal
from voicepipe.server.chat_ports import ChatModels, ChatRoute
from voicepipe.server.gateway.response_cache_settings import ResponseCacheSettings

ENTRY_BYTES: Final = 512
"""Approximate memory of an entry beside its text and ends: digest, objects, slot of the dictionary."""


class AnswerUsage(Protocol):
    """The usage of one answer. It records each event before the next event is read."""

    spec: str
    """The spec of the provider that answers."""

    cache: Literal["hit", "miss"] | None
    """Set by the cache; None: the request may not use it."""

    @property
    def reported(self) -> Usage | None:
        """The tokens as the provider counts them."""
        ...

    def answer_usd(self, models: ChatModels) -> float | None:
        """Return the provider's price of the answer; None: unknown."""
        ...


class CachedResponse(msgspec.Struct, frozen=True):
    """An answer of a provider."""

    spec: str
    text: str
    """The text of all pieces: a string for each piece would take ten times the memory."""

    ends: array[int]
    """Position in the text at which each piece ends."""

    usage: Usage | None
    usd: float
    """The provider's price of the answer; 0 if unknown."""

    n_bytes: int
    """Memory of the entry."""

    stored_ms: int

    def events(self) -> Iterator[ModelEvent]:
        """Yield the answer as a model's events."""
        yield Routed(self.spec, "from the response cache")
        start = 0
        for end in self.ends:
            yield TextDelta(self.text[start:end])
            start = end
        if self.usage is not None:
            yield self.usage
        yield Finished("stop")


class ResponseCache:
    """The answers of one process. Belongs to one event loop."""

    def __init__(self, settings: ResponseCacheSettings, models: ChatModels, *, n_processes: int = 1) -> None:
        """`models` have the prices. Each of `n_processes` has its share of the limits."""
        self._settings, self._models = settings, models
        self._max_bytes = settings.mb * 1_000_000 // n_processes
        self._max_entries = max(1, settings.entries // n_processes)
        self._responses: OrderedDict[bytes, CachedResponse] = OrderedDict()  # the least recently used first
        self.n_bytes = 0
        self.hits = self.misses = self.excluded = 0
        """Number of requests that were answered from the cache, that were not, and that may not use the cache."""

        self.saved_usd = 0.0
        """The providers' prices of the answers that the cache has given."""

    def __len__(self) -> int:
        return len(self._responses)

    @property
    def is_on(self) -> bool:
        """Return whether answers are stored."""
        return self._max_bytes > 0

    @property
    def max_chars(self) -> int:
        """Return the length of the longest answer that could be stored."""
        return self._max_bytes

    @asynccontextmanager
    async def open(
        self, principal: Principal, route: ChatRoute, request: ModelRequest, usage: AnswerUsage
    ) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        """Answer a request from the cache, or by the model of its route. Sets `usage.cache`.

        Raises:
            StageError: as `Model.open`.
        """
        key = self._key(principal, route, request) if self.is_on else None
        response = None if key is None else self.find(key)
        if response is not None:
            usage.cache = "hit"
            self.saved_usd += response.usd
            yield _CachedEvents(response.events())
            return
        async with route.model.open(request) as events:
            if key is None:
                yield events
            else:
                usage.cache = "miss"
                yield _StoredEvents(events, key, usage, self)

    def counts(self) -> tuple[tuple[str, int], ...]:
        """Return the number of requests by result."""
        return (("hit", self.hits), ("miss", self.misses), ("excluded", self.excluded))

    def find(self, key: bytes) -> CachedResponse | None:
        """Return the stored answer to a request; None: there is none. Counts a hit or a miss."""
        response = self._responses.get(key)
        if response is not None and clock.monotonic_ms() - response.stored_ms >= self._settings.keep_s * 1_000:
            self._remove(key)
            response = None
        if response is None:
            self.misses += 1
            return None
        self.hits += 1
        self._responses.move_to_end(key)
        return response

    def store(self, key: bytes, texts: Sequence[str], usage: AnswerUsage) -> None:
        """Store a complete answer; drop the least recently used answers beyond the limits."""
        text, ends = "".join(texts), array("I", list(accumulate(map(len, texts))))
        n_bytes = ENTRY_BYTES + sys.getsizeof(text) + sys.getsizeof(ends)
        if n_bytes > self._max_bytes:
            return
        self._remove(key)
        usd = usage.answer_usd(self._models) or 0.0
        now_ms = clock.monotonic_ms()
        self._responses[key] = CachedResponse(usage.spec, text, ends, usage.reported, usd, n_bytes, now_ms)
        self.n_bytes += n_bytes
        while len(self._responses) > self._max_entries or self.n_bytes > self._max_bytes:
            self._remove(next(iter(self._responses)))

    def _key(self, principal: Principal, route: ChatRoute, request: ModelRequest) -> bytes | None:
        """Return the digest of everything that determines the answer; None: the request may not use the cache."""
        if not self._may_use(principal, request):
            self.excluded += 1
            return None
        messages = [
            (each.role, [part.text for part in each.parts if not isinstance(part, Image)])
            for each in request.messages
            if isinstance(each, Content)
        ]
        limits = (request.max_output_tokens, request.temperature, request.passed)
        models = (route.name, route.specs, route.reached, request.models)  # a name may have other models after a reload
        determining = (principal.project, models, messages, limits)
        return hashlib.sha256(msgspec.json.encode(determining)).digest()

    def _may_use(self, principal: Principal, request: ModelRequest) -> bool:
        claims = principal.claims
        if request.user or request.session or request.metadata or (claims is not None and claims.subject):
            return False
        if request.functions or not (request.temperature == 0 or self._settings.any_temperature):
            return False
        return all(
            isinstance(each, Content) and not any(isinstance(part, Image) for part in each.parts)
            for each in request.messages
        )

    def _remove(self, key: bytes) -> None:
        if (response := self._responses.pop(key, None)) is not None:
            self.n_bytes -= response.n_bytes


class _CachedEvents:
    """Yields the events of a stored answer."""

    def __init__(self, events: Iterator[ModelEvent]) -> None:
        self._events = events

    def __aiter__(self) -> _CachedEvents:
        return self

    async def __anext__(self) -> ModelEvent:
        for event in self._events:
            return event
        raise StopAsyncIteration


class _StoredEvents:
    """Yields a model's events, and stores the answer when it is complete. No generator: it would be closed late."""

    def __init__(self, events: AsyncIterator[ModelEvent], key: bytes, usage: AnswerUsage, cache: ResponseCache) -> None:
        self._events, self._key, self._usage, self._cache = events, key, usage, cache
        self._texts: list[str] = []  # bounded by `max_chars` of the cache
        self._n_left = cache.max_chars
        self._is_complete = False

    def __aiter__(self) -> _StoredEvents:
        return self

    async def __anext__(self) -> ModelEvent:
        try:
            event = await anext(self._events)
        except StopAsyncIteration:
            if self._is_complete and self._n_left >= 0:
                self._cache.store(self._key, self._texts, self._usage)
            raise
        match event:
            case TextDelta(text):
                self._n_left -= len(text)
                if self._n_left >= 0:
                    self._texts.append(text)
                else:
                    self._texts.clear()
            case Finished(reason):
                self._is_complete = reason == "stop"
        return event

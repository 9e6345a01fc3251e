"""Send webhooks from a queue that survives restarts, with retries, never delaying a turn."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
from msgspec import Struct

from voicepipe.clock import monotonic_ms, unix_s, utc_iso
from voicepipe.storage import StorageHealth
from voicepipe.telemetry.log import log_event
from voicepipe.telemetry.storage_log import new_health
from voicepipe.telemetry.store.port import StoredTurn, StoreError, turn_plain
from voicepipe.telemetry.webhooks.payload import Webhook, WebhookEvent, WebhookKind, new_event_id, signed_headers
from voicepipe.telemetry.webhooks.queue import NewDelivery, WebhookDelivery, WebhookQueue

WORKERS: Final = 4
"""Parallel deliveries of one webhook: a receiver that hangs delays only its own."""

MAX_BUFFERED: Final = 2_000
"""Events that wait to be written. Writing takes milliseconds; at most this many turns end in a quarter of an hour."""

AT_ONCE: Final = 50
"""Events that are written together; making the JSON of one takes about 0.02 ms of the event loop."""

IDLE_S: Final = 60.0
"""Interval in which a worker checks by itself: for deliveries that another process has queued, or taken and not
finished."""

HELD_S: Final = 0.2
"""Pause before a due delivery is tried again whose row another node holds."""

RETRY_S: Final = 1.0
MAX_RETRY_S: Final = 5.0
"""Pause between two tries at a file that can't be read or written: starts at `RETRY_S`, doubles each time, at
most `MAX_RETRY_S`."""

LOG_DROPPED_MS: Final = 10_000
"""Dropped events are logged once in that time, with their number."""

MAX_RETRY_AFTER_S: Final = 86_400
"""The longest `Retry-After` that is obeyed."""


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """The intervals between attempts: 5 s, then 3 times as long each time, up to six hours.

    Twelve attempts take about 23 hours, as in the Standard Webhooks specification's example within a factor of three.
    """

    first_ms: int = 5_000
    factor: float = 3.0
    max_ms: int = 6 * 3_600_000
    attempts: int = 12
    jitter: float = 0.2
    """Share of the wait, more or less: receivers that were down don't get everything at once."""

    def wait_ms(self, n_failed: int) -> int | None:
        """Return how long to wait after this number of failed attempts; None: give it up."""
        if n_failed >= self.attempts:
            return None
        wait_ms = min(self.max_ms, self.first_ms * self.factor ** (n_failed - 1))
        return round(wait_ms * random.uniform(1 - self.jitter, 1 + self.jitter))


_DEFAULTS: Final = RetryPolicy()


@dataclass(slots=True)
class WebhookCounts:
    """The counts since the server began."""

    delivered: int = 0
    failed: int = 0
    """Attempts."""

    given_up: int = 0
    """Deliveries, after their last attempt or because the queue was full."""

    dropped: int = 0
    """Events that were never queued, since the disk was stuck."""


class Webhooks:
    """The webhooks of one event loop; `run` must be running for anything to be sent."""

    def __init__(
        self,
        webhooks: Sequence[Webhook] = (),
        queue: WebhookQueue | None = None,
        retry_policy: RetryPolicy = _DEFAULTS,
        *,
        health: StorageHealth | None = None,
    ) -> None:
        """`queue` may only be missing where there are no webhooks."""
        self._health = health if health is not None else new_health()
        self._dropped_logged: tuple[int, int] | None = None
        """(number of dropped events at the latest log line, time of that line)"""

        self.all = tuple(webhooks)
        self._queue, self._retry_policy = queue, retry_policy
        # Full means that the disk is stuck: an event is dropped and counted.
        self._events: deque[WebhookEvent] = deque()
        self._writing: tuple[NewDelivery, ...] = ()
        self._to_write = asyncio.Event()
        self._one_write = asyncio.Lock()
        self._wakeups = {webhook.name: asyncio.Event() for webhook in self.all}
        self._failing: set[str] = set()  # bounded by the webhooks
        self.counts = WebhookCounts()

    @property
    def queue(self) -> WebhookQueue | None:
        """Return the queue of deliveries; None: there are no webhooks."""
        return self._queue

    def on_turn_end(self, turn: StoredTurn) -> None:
        """Queue the record of a turn that has ended (`EndedTurns` passes each once)."""
        whose = (turn.project, turn.record.session)
        self.notify("turn.completed", *whose, lambda: turn_plain(turn))
        if turn.record.total_verdict == "over":
            self.notify("turn.over_budget", *whose, lambda: turn_plain(turn))

    def notify(self, kind: WebhookKind, project: str, session: str, make: Callable[[], dict[str, Any]]) -> None:
        """Queue an event, if a webhook subscribes to it; `make` returns its data. Never waits. Without room the event
        is dropped and counted."""
        if not self.is_subscribed(kind, project):
            return
        if len(self._events) >= MAX_BUFFERED:
            self._drop()
            return
        event = WebhookEvent(
            id=new_event_id(),
            kind=kind,
            project=project,
            session=session,
            at=utc_iso().replace("+00:00", "Z"),
            data=make(),
        )
        self._events.append(event)
        self._to_write.set()

    def is_subscribed(self, kind: WebhookKind, project: str) -> bool:
        """Return whether a webhook subscribes to such events of a project."""
        return any(webhook.subscribes_to(kind, project) for webhook in self.all)

    def _drop(self) -> None:
        self.counts.dropped += 1
        before, logged_ms = self._dropped_logged or (0, -LOG_DROPPED_MS)
        now_ms = monotonic_ms()
        if self._dropped_logged is None or now_ms - logged_ms >= LOG_DROPPED_MS:
            self._dropped_logged = (self.counts.dropped, now_ms)
            log_event("webhooks_dropped", level=logging.ERROR, count=self.counts.dropped - before)

    async def delete_session(self, project: str, session: str) -> None:
        """Delete all deliveries about a session, waiting or given up."""
        deleted = (project, session)
        self._events = deque(each for each in self._events if (each.project, each.session) != deleted)
        if self._queue is not None:
            await self._queue.delete_session(project, session)

    def wake(self) -> None:
        """Check the queue again, after dead letters were queued again."""
        for event in self._wakeups.values():
            event.set()

    async def run(self) -> None:
        """Write and deliver until cancelled. `write_waiting_events` writes the events that were offered before and are
        not written yet."""
        if self._queue is None:
            return
        connector = aiohttp.TCPConnector(limit=0)  # bounded: `WORKERS` deliveries of each webhook
        async with (
            aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as http,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(self._write_all(self._queue), name="webhooks-writer")
            for webhook in self.all:
                for _ in range(WORKERS):
                    worker = _DeliveryWorker(webhook, self._queue, http, self._retry_policy, self._failing, self.counts)
                    worker.set_handlers(self._failed, self._worked)
                    group.create_task(worker.run(self._wakeups[webhook.name]), name=f"webhook-{webhook.name}")

    async def write_waiting_events(self) -> None:
        """Write the events that were offered last."""
        while self._queue is not None and (self._events or self._writing):
            await self._write(self._queue)

    async def _write_all(self, queue: WebhookQueue) -> None:
        pause_s = RETRY_S
        while await self._to_write.wait():
            self._to_write.clear()
            try:
                await self._write(queue)
                self._worked()
                pause_s = RETRY_S
            except StoreError as why:
                self._failed(why)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, MAX_RETRY_S)
                self._to_write.set()

    def _failed(self, why: StoreError) -> None:
        self._health.failed("webhooks", why.kind, str(why))

    def _worked(self) -> None:
        if not self._writing:  # a delivery worker that only reads would not detect that the disk is full
            self._health.worked("webhooks")

    async def _write(self, queue: WebhookQueue) -> None:
        async with self._one_write:  # written twice, a delivery that arrived in between would be sent again
            await self._write_batch(queue)

    async def _write_batch(self, queue: WebhookQueue) -> None:
        if not self._writing:
            batch = [self._events.popleft() for _ in range(min(AT_ONCE, len(self._events)))]
            self._writing = tuple(self._deliveries(batch))
        n_evicted = await queue.put(self._writing)
        names, self._writing = {delivery.webhook for delivery in self._writing}, ()
        for name in names:
            self._wakeups[name].set()
        self.counts.given_up += n_evicted
        if n_evicted:
            log_event("webhooks_given_up", level=logging.WARNING, count=n_evicted, why="the queue was full")
        if self._events:
            self._to_write.set()

    def _deliveries(self, events: Sequence[WebhookEvent]) -> list[NewDelivery]:
        made = []
        for event in events:
            body = event.body()
            subscribers = (webhook.name for webhook in self.all if webhook.subscribes_to(event.kind, event.project))
            made += [
                NewDelivery(name, event.id, event.kind, event.project, event.session, body) for name in subscribers
            ]
        return made


class _DeliveryWorker:
    """Delivers the due events of one webhook, one at a time."""

    def __init__(
        self,
        webhook: Webhook,
        queue: WebhookQueue,
        http: aiohttp.ClientSession,
        retry_policy: RetryPolicy,
        failing: set[str],
        counts: WebhookCounts,
    ) -> None:
        self._webhook, self._queue, self._http = webhook, queue, http
        self._retry_policy, self._failing, self._counts = retry_policy, failing, counts

    def set_handlers(self, failed: Callable[[StoreError], None], worked: Callable[[], None]) -> None:
        """Set the handlers for the queue's errors and successes."""
        self._failed, self._worked = failed, worked

    async def run(self, wakeup: asyncio.Event) -> None:
        pause_s = RETRY_S
        while True:
            try:
                await self._deliver_due(wakeup)
                pause_s = RETRY_S
            except StoreError as why:
                self._failed(why)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, MAX_RETRY_S)

    async def _deliver_due(self, wakeup: asyncio.Event) -> None:
        wakeup.clear()
        name, lease_ms = self._webhook.name, 2 * self._webhook.timeout_ms
        while (due := await self._queue.take(name, lease_ms=lease_ms)) is not None:
            await self._deliver(due)
        due_in_ms = await self._queue.due_in_ms(name)
        self._worked()
        left_s = IDLE_S if due_in_ms is None else due_in_ms / 1_000
        wait_s = min(IDLE_S, left_s) if left_s > 0 else HELD_S
        try:
            async with asyncio.timeout(wait_s):
                await wakeup.wait()
        except TimeoutError:
            return

    async def _deliver(self, due: WebhookDelivery) -> None:
        why, retry_after_ms = await self._attempt(due)
        if not why:
            self._counts.delivered += 1
            await self._queue.delivered(due)
            self._log_change("")
            return
        self._counts.failed += 1
        wait_ms = None if retry_after_ms is None else self._retry_policy.wait_ms(due.attempts + 1)
        if wait_ms is None:
            self._counts.given_up += 1
            await self._queue.give_up(due, why=why)
            log_event("webhook_given_up", level=logging.WARNING, webhook=due.webhook, id=due.id, why=why)
        else:
            await self._queue.failed(due, why=why, wait_ms=max(wait_ms, retry_after_ms or 0))
        self._log_change(why)

    async def _attempt(self, due: WebhookDelivery) -> tuple[str, int | None]:
        """Send once; return the error, and the pause that the receiver requests (None: without end)."""
        headers = signed_headers(self._webhook, due.id, due.body, now_s=unix_s())
        timeout = aiohttp.ClientTimeout(total=self._webhook.timeout_ms / 1_000)
        try:
            async with self._http.post(
                self._webhook.url, data=due.body, headers=headers, timeout=timeout, allow_redirects=False
            ) as answer:
                return _judged(answer.status, answer.headers.get("Retry-After", ""))
        except TimeoutError:
            return f"no answer within {self._webhook.timeout_ms} ms", 0
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return type(error).__name__, 0  # its text may hold the address, and with it a password

    def _log_change(self, why: str) -> None:
        """Log when a receiver begins to fail, and when it works again; not every attempt."""
        name = self._webhook.name
        if bool(why) == (name in self._failing):
            return
        if why:
            self._failing.add(name)
            log_event("webhook_failing", level=logging.WARNING, webhook=name, why=why)
        else:
            self._failing.discard(name)
            log_event("webhook_recovered", webhook=name)


def _judged(status: int, retry_after: str) -> tuple[str, int | None]:
    """Return the meaning of a status: an empty text is success. 410 (Gone) means that the receiver refuses it for
    ever."""
    if 200 <= status < 300:
        return "", 0
    if status == 410:
        return "HTTP 410: the receiver is gone", None
    if 300 <= status < 400:
        return f"HTTP {status}: redirects are not followed", 0
    seconds = int(retry_after) if retry_after.isascii() and retry_after.isdigit() and len(retry_after) < 9 else 0
    return f"HTTP {status}", min(seconds, MAX_RETRY_AFTER_S) * 1_000

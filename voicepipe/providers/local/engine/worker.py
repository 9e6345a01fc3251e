"""The model of one stage and the threads that run it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

from voicepipe.clock import monotonic_ms, monotonic_us
from voicepipe.providers.local import wire
from voicepipe.providers.local.engine.fair_queue import FairQueue

log = logging.getLogger(__name__)

QUEUE_LIMIT: Final = 24
"""Maximum number of jobs of all sessions that wait for one model. On two cores the last of them waits some seconds
already."""

SESSION_LIMIT: Final = 6
"""Maximum number of waiting jobs of one session: a turn and its revisions."""


@dataclass(slots=True, eq=False)
class Task:
    """A job, the function for its replies, and whether it was cancelled."""

    job: wire.Job
    emit: Callable[[wire.EngineReply], None]
    """Safe to call from any thread."""

    cancelled: threading.Event = field(default_factory=threading.Event)


class Model(Protocol):
    """A loaded model. `run` is called by this many threads at once: `concurrency`."""

    concurrency: int

    def run(self, task: Task) -> None:
        """Run the job and emit its replies, the final one too; stop at the next safe point once it is cancelled."""
        ...


class Worker:
    """Loads a model on its first thread, then runs the sessions' jobs in turn."""

    def __init__(self, stage: wire.Stage, load: Callable[[], Model], on_progress: Callable[[], None]) -> None:
        """`on_progress` is called on the worker's thread whenever `progress` has changed."""
        self.progress = wire.LoadProgress(stage, "loading")
        self._load, self._on_progress = load, on_progress
        self._queue: FairQueue[Task] = FairQueue(limit=QUEUE_LIMIT, session_limit=SESSION_LIMIT)
        self._concurrency = 1
        self._meter = threading.Lock()
        self._running_since_us: dict[int, int] = {}  # thread -> when it began its task; bounded by the threads
        self._worked_us, self._read_us = 0, monotonic_us()
        self._start(self._load_and_work)

    def submit(self, task: Task) -> bool:
        """Queue a task, or return False when the queue is full. Tasks may be queued while the model loads."""
        if self.progress.state == "failed":
            task.emit(wire.JobRefused(self.progress.why, retryable=False))
            return True
        return self._queue.put(task.job.session, task)

    def cancel(self, task: Task) -> None:
        """Cancel a task: its replies are dropped."""
        task.cancelled.set()
        self._queue.discard(task.job.session, task)

    def read_load(self) -> float:
        """Return the share of the time since the last reading in which the threads ran jobs, 0 to 1."""
        with self._meter:
            now_us = monotonic_us()
            for thread, since_us in self._running_since_us.items():
                self._worked_us += now_us - since_us
                self._running_since_us[thread] = now_us
            worked_us, passed_us = self._worked_us, max(1, now_us - self._read_us)
            self._worked_us, self._read_us = 0, now_us
        return min(1.0, worked_us / (passed_us * self._concurrency))

    @contextmanager
    def _metered(self) -> Iterator[None]:
        thread = threading.get_ident()
        with self._meter:
            self._running_since_us[thread] = monotonic_us()
        try:
            yield
        finally:
            with self._meter:
                self._worked_us += monotonic_us() - self._running_since_us.pop(thread)

    def _start(self, run: Callable[[], None]) -> None:
        # Daemons: a model inside a long native call must not keep the process from ending.
        threading.Thread(target=run, name=self.progress.stage, daemon=True).start()

    def _load_and_work(self) -> None:
        began_ms = monotonic_ms()
        try:
            model = self._load()
        except Exception as error:
            log.exception("%s: can't load", self.progress.stage)
            self._fail(f"can't load the local {self.progress.stage} model: {error}")
            return
        self._concurrency = model.concurrency
        self._report(wire.LoadProgress(self.progress.stage, "ready", monotonic_ms() - began_ms))
        for _ in range(model.concurrency - 1):
            self._start(lambda: self._work(model))
        self._work(model)

    def _fail(self, why: str) -> None:
        self._report(wire.LoadProgress(self.progress.stage, "failed", why=why))
        while True:  # tasks queued while it was loading, and those of the same instant
            self._queue.take().emit(wire.JobRefused(why, retryable=False))

    def _report(self, progress: wire.LoadProgress) -> None:
        self.progress = progress
        self._on_progress()

    def _work(self, model: Model) -> None:
        while True:
            task = self._queue.take()
            if task.cancelled.is_set():
                continue
            try:
                with self._metered():
                    model.run(task)
            except Exception as error:
                # Never log the job's text: it contains the user's speech.
                log.error("%s: a job failed: %s", self.progress.stage, type(error).__name__)
                if not task.cancelled.is_set():
                    task.emit(wire.JobFailed(f"the local model failed: {type(error).__name__}"))

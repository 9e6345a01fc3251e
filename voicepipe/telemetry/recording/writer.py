"""Write recordings of calls: one thread writes them while they run, another compresses them afterwards."""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from voicepipe import clock
from voicepipe.audio.samples import Samples
from voicepipe.storage import StorageHealth, kind_of
from voicepipe.telemetry.log import log_crash, log_event
from voicepipe.telemetry.recording.folder import (
    DONE_SUFFIX,
    UNFINISHED_SUFFIX,
    RecordingFolder,
    StoredRecording,
    delete_all,
)
from voicepipe.telemetry.recording.port import CallRecorder
from voicepipe.telemetry.recording.settings import RecordingSettings
from voicepipe.telemetry.recording.timeline import AgentTimeline, PlacedAudio, UserTrack, position
from voicepipe.telemetry.recording.work_file import AGENT, USER, WorkFile
from voicepipe.telemetry.storage_log import new_health

MAX_QUEUED: Final = 4_096
MAX_QUEUED_BYTES: Final = 32_000_000
"""Maximum slices of audio, and bytes of audio, that wait for the disk, of all calls: 3 s of 100 calls."""

TRIM_S: Final = 60.0
"""Interval of the search for old recordings."""

CHECK_BYTES: Final = 64_000_000
"""Bytes that are written between two checks of the total size."""

FINISH_S: Final = 10.0
"""Time for which a request for a recording waits until the recording is compressed."""

_MB: Final = 1_000_000

_Task = Callable[[], object]


class RecordingWriter:
    """Records calls to a folder. Use it from one thread; it writes in threads of its own.

    A disk error ends the affected recording and is logged; the call goes on.
    """

    def __init__(
        self,
        folder: Path,
        settings: RecordingSettings,
        *,
        keep_days: int | None = None,
        health: StorageHealth | None = None,
    ) -> None:
        """`keep_days`: days for which recordings are stored; None: no limit."""
        self._folder, self._settings, self._keep_days = RecordingFolder(folder), settings, keep_days
        self._health = health if health is not None else new_health()
        # Full: the disk is too slow. A slice is dropped and counted, and the recording has silence instead.
        self._queue: queue.Queue[_Task | None] = queue.Queue(maxsize=MAX_QUEUED)
        self._last_tasks: deque[_Task] = deque()  # bounded: one for each call, and one for each request
        self._thread: threading.Thread | None = None
        self._compressor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="recordings-flac")
        self._open: set[_CallFile] = set()  # used by the thread only
        self._finishing: dict[str, Future[None]] = {}
        """Session -> running compression of its recording."""

        self._unchecked_bytes = 0
        self._queued_bytes = 0
        """Bytes of all audio that was queued. Only the event loop counts them."""

        self._done_bytes = 0
        """Bytes of all audio that has left the queue. Only the thread counts them."""

        self.dropped = 0
        """Slices of audio that were dropped because the queue was full."""

    def open(self, project: str, session: str, user: str) -> CallRecorder:
        """Return the recorder of a call. It writes nothing before `begin`."""
        self.start()
        file = _CallFile(self, partial(self._folder.new_path, project, session, user, clock.unix_ms()), session)
        return SessionRecorder(self, file)

    # --- for requests, each in a thread of its own ------------------------------------------------

    def find(self, project: str | None, session: str) -> StoredRecording | None:
        """Return the recording of a session, in a project or in any; waits until the recording is compressed."""
        self._wait_for(session)
        found = self._folder.of_session(project, session)
        return max(found, key=lambda each: each.is_done, default=None)

    def delete_session(self, project: str, session: str) -> int:
        """Delete the recording of a session that is over."""
        self._wait_for(session)
        return delete_all(self._folder.of_session(project, session))

    def delete_user(self, project: str, user: str) -> int:
        """Delete the recordings of a user whose sessions are over, also those without a turn."""
        for session in tuple(self._finishing):
            self._wait_for(session)
        return delete_all(self._folder.of_user(project, user))

    def _wait_for(self, session: str) -> None:
        if self._thread is not None:
            written = threading.Event()
            self.enqueue_last(written.set)
            written.wait(FINISH_S)
        if (finishing := self._finishing.get(session)) is not None:
            with suppress(TimeoutError):
                finishing.result(FINISH_S)

    # --- the threads ----------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread, which first completes recordings of a killed process. A second call does nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="recordings", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop the threads, and wait until everything queued is on the disk and compressed."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None
        self._compressor.shutdown()

    def enqueue(self, task: _Task, n_bytes: int = 0) -> bool:
        """Queue a task for the thread, with its bytes of audio. Never waits: a task beyond the limits is dropped and
        counted. Return whether the task was queued."""
        fits = self._queued_bytes - self._done_bytes + n_bytes <= MAX_QUEUED_BYTES and self._put(task)
        self._queued_bytes += n_bytes if fits else 0
        self.dropped += not fits
        return fits

    def count_done(self, n_bytes: int) -> None:
        """Count audio that has left the queue. In the thread."""
        self._done_bytes += n_bytes

    def enqueue_last(self, task: _Task) -> None:
        """Queue a task behind all queued audio. It is never dropped."""
        self._last_tasks.append(task)
        self._put(_wake)  # wakes the thread; when the queue is full, it is awake

    def _put(self, task: _Task) -> bool:
        try:
            self._queue.put_nowait(task)
        except queue.Full:
            return False
        return True

    def _run(self) -> None:
        self._run_task(self._recover)
        self._run_task(self._trim)
        trim_at_ms = clock.monotonic_ms() + round(1_000 * TRIM_S)
        while True:
            try:
                task = self._queue.get(timeout=TRIM_S)
            except queue.Empty:
                task = _wake
            if task is None:
                break
            self._run_task(task)
            if self._queue.empty():
                self._end_calls()
            if clock.monotonic_ms() >= trim_at_ms:
                self._run_task(self._trim)
                trim_at_ms = clock.monotonic_ms() + round(1_000 * TRIM_S)
        self._end_calls()
        for file in tuple(self._open):
            self._run_task(file.end)

    def _end_calls(self) -> None:
        while self._last_tasks:
            self._run_task(self._last_tasks.popleft())

    def _run_task(self, task: _Task) -> None:
        try:
            task()
        except OSError as why:
            self.failed(why)
        except Exception as bug:
            log_crash("recordings", bug)

    def failed(self, why: OSError) -> None:
        """Report that the disk fails."""
        kind = kind_of(why)
        self._health.failed("recordings", kind, f"{type(why).__name__}: {why}")

    def add(self, file: _CallFile) -> None:
        """Add a recording that is written. In the thread."""
        self._open.add(file)
        self._trim()

    def count_written(self, n_bytes: int) -> bool:
        """Count written bytes; return whether there is room for more. In the thread."""
        self._health.worked("recordings")
        self._unchecked_bytes += n_bytes
        return self._unchecked_bytes < CHECK_BYTES or self._trim()

    def compress(self, file: WorkFile, session: str) -> None:
        """Compress a recording that has ended, in the other thread."""
        self._finishing[session] = future = self._compressor.submit(self._compress, file)
        future.add_done_callback(lambda _: self._finishing.pop(session, None))

    def remove(self, file: _CallFile) -> None:
        """Remove a recording that is no longer written. In the thread."""
        self._open.discard(file)

    def _compress(self, file: WorkFile) -> None:
        try:
            file.compress(file.path.with_suffix(DONE_SUFFIX))
        except OSError as why:  # the next start tries again
            self.failed(why)
        except Exception as bug:
            log_crash("recordings", bug)
        finally:
            file.close()

    def _recover(self) -> None:
        """Compress the recordings of a process that was killed."""
        for each in self._folder.all():
            if not each.is_done:
                with suppress(OSError):  # another process writes it
                    self.compress(WorkFile(each.path, is_new=False), each.session)

    def _trim(self) -> bool:
        self._unchecked_bytes = 0
        max_bytes = self._settings.total_mb * _MB
        return self._folder.trim(clock.unix_ms(), keep_days=self._keep_days, max_bytes=max_bytes) <= 0

    @property
    def max_samples(self) -> int:
        """Return the length of the longest recording."""
        return position(round(self._settings.max_minutes * 60_000))


class _CallFile:
    """The file of one call, and its two tracks. All methods run in the writer's thread."""

    def __init__(self, writer: RecordingWriter, new_path: Callable[[], Path], session: str) -> None:
        self._writer, self._new_path, self._session = writer, new_path, session
        self._file: WorkFile | None = None
        self._tracks = (UserTrack(), AgentTimeline())
        self._began_ms = 0

    def begin(self, now_ms: int) -> None:
        """Create the file."""
        self._began_ms = now_ms
        path = self._new_path()
        self._file = WorkFile(path.with_name(path.name + UNFINISHED_SUFFIX))
        self._writer.add(self)

    def user_audio(self, samples: Samples, rate_hz: int, ended_ms: int) -> None:
        """Place and write the user's audio."""
        self._writer.count_done(samples.nbytes)
        for placed in self._tracks[USER].push(samples, rate_hz, self._at(ended_ms)):
            self._write(USER, placed)

    def agent_audio(self, samples: Samples, rate_hz: int, now_ms: int) -> None:
        """Place and write the agent's audio."""
        self._writer.count_done(samples.nbytes)
        self._write(AGENT, self._tracks[AGENT].push(samples, rate_hz, self._at(now_ms)))

    def agent_stops(self, now_ms: int) -> None:
        """Replace audio that the client does not play by silence."""
        self._write(AGENT, self._tracks[AGENT].stop(self._at(now_ms)))

    def end(self, now_ms: int | None = None) -> None:
        """Write the remaining audio, and have the file compressed; `now_ms`: the end of the call, None: the last
        audio."""
        user_end = 0
        for placed in self._tracks[USER].flush():
            self._write(USER, placed)
            user_end = placed.end
        if self._file is not None and now_ms is not None:
            self._file.end_at(min(max(user_end, self._at(now_ms)), self._writer.max_samples))
        self._stop(is_usable=True)

    def _at(self, at_ms: int) -> int:
        return position(at_ms - self._began_ms)

    def _write(self, channel: int, placed: PlacedAudio) -> None:
        """Write audio, up to `max_samples`. A disk error or a full disk ends the recording."""
        samples = placed.samples[: max(0, self._writer.max_samples - placed.start)]
        if self._file is None or not len(samples):
            return
        try:
            fits = self._writer.count_written(self._file.write(channel, PlacedAudio(placed.start, samples)))
        except OSError as failure:
            self._writer.failed(failure)
            self._stop(is_usable=False)
            log_event("recording_stopped", level=logging.WARNING, session=self._session, why="the disk failed")
            return
        if not fits:
            self._stop(is_usable=True)
            why = "recordings.total_mb is reached, and no older recording can be deleted"
            log_event("recording_stopped", level=logging.WARNING, session=self._session, why=why)

    def _stop(self, *, is_usable: bool) -> None:
        """End the recording. A file with a disk error is deleted: other recordings need the room."""
        file, self._file = self._file, None
        self._writer.remove(self)
        if file is None:
            return
        if is_usable:
            self._writer.compress(file, self._session)
        else:
            file.delete()


class SessionRecorder:
    """The recorder of one call, as its session uses it."""

    def __init__(self, writer: RecordingWriter, file: _CallFile) -> None:
        self._writer, self._file = writer, file
        self._begin_ms: int | None = None
        self._begun = False

    def begin(self, now_ms: int) -> None:
        """Record from this instant on."""
        if self._begin_ms is None:
            self._begin_ms = now_ms
            self._put()

    def user_audio(self, samples: Samples, rate_hz: int, ended_ms: int) -> None:
        """Record the user's audio."""
        self._put(partial(self._file.user_audio, samples, rate_hz, ended_ms), samples.nbytes)

    def agent_audio(self, samples: Samples, rate_hz: int, now_ms: int) -> None:
        """Record audio that is sent to the client now."""
        self._put(partial(self._file.agent_audio, samples, rate_hz, now_ms), samples.nbytes)

    def agent_stops(self, now_ms: int) -> None:
        """Record that the client plays none of the remaining audio."""
        self._put(partial(self._file.agent_stops, now_ms))

    def close(self, now_ms: int) -> None:
        """End the recording."""
        if self._begun:
            self._writer.enqueue_last(partial(self._file.end, now_ms))

    def _put(self, task: _Task | None = None, n_bytes: int = 0) -> None:
        """Queue a task behind `begin`, which is queued again if the queue was full."""
        if self._begin_ms is None:
            return
        if not self._begun:
            self._begun = self._writer.enqueue(partial(self._file.begin, self._begin_ms))
        if self._begun and task is not None:
            self._writer.enqueue(task, n_bytes)


def _wake() -> None:
    """Wake the thread."""

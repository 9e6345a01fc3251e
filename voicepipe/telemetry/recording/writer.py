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
from voicepipe.telemetry.recording.folder import DONE, UNFINISHED, CallRecording, RecordingFolder, delete_all
from voicepipe.telemetry.recording.port import CallRecorder
from voicepipe.telemetry.recording.settings import RecordingSettings
from voicepipe.telemetry.recording.timeline import AgentTrack, Placed, UserTrack, position
from voicepipe.telemetry.recording.work_file import AGENT, USER, WorkFile
from voicepipe.telemetry.storage_log import new_health

WAITING: Final = 4_096
WAITING_BYTES: Final = 32_000_000
"""The most slices of audio, of all calls, that wait for the disk, and the most bytes of them: at 100 calls, 3 s."""

TRIM_S: Final = 60.0
"""How often recordings that are too old are looked for."""

CHECK_BYTES: Final = 64_000_000
"""How much may be written until the size of all recordings is checked again."""

FINISH_S: Final = 10.0
"""How long a request for a recording waits until it is compressed."""

_MB: Final = 1_000_000

_Work = Callable[[], object]


class RecordingWriter:
    """Opens recordings in a folder. Use it from one thread; threads of its own write.

    A disk error costs the recording where it happens, and is logged; calls are not affected.
    """

    def __init__(
        self,
        folder: Path,
        settings: RecordingSettings,
        *,
        keep_days: int | None = None,
        health: StorageHealth | None = None,
    ) -> None:
        """`keep_days`: how long recordings are kept; None: without limit."""
        self._folder, self._settings, self._keep_days = RecordingFolder(folder), settings, keep_days
        self._health = health if health is not None else new_health()
        # Full means that the disk is too slow: a slice is dropped and counted, and is silent in its recording.
        self._work: queue.Queue[_Work | None] = queue.Queue(maxsize=WAITING)
        self._ends: deque[_Work] = deque()  # bounded: one for each call, and one for each request
        self._thread: threading.Thread | None = None
        self._compressor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="recordings-flac")
        self._open: set[_CallFile] = set()  # the thread's
        self._finishing: dict[str, Future[None]] = {}
        """Session -> its compression, until that is over."""

        self._unchecked_bytes = 0
        self._queued_bytes = 0
        """Of all audio that was queued; only the event loop counts here."""

        self._done_bytes = 0
        """Of all audio that has left the queue; only the thread counts here."""

        self.dropped = 0
        """Slices of audio that were dropped because the queue was full."""

    def open(self, project: str, session: str, user: str) -> CallRecorder:
        """Return the recorder of a call. Nothing is on the disk before it begins."""
        self.start()
        file = _CallFile(self, partial(self._folder.place_of, project, session, user, clock.unix_ms()), session)
        return SessionRecorder(self, file)

    # --- for requests, each in a thread of its own ------------------------------------------------

    def find(self, project: str | None, session: str) -> CallRecording | None:
        """Return the recording of a project's session, or of any project's; waits until it is compressed."""
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
            self.offer_end(written.set)
            written.wait(FINISH_S)
        if (finishing := self._finishing.get(session)) is not None:
            with suppress(TimeoutError):
                finishing.result(FINISH_S)

    # --- the threads ----------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread, and complete what another process has left behind; a second call does nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="recordings", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop the threads, and wait until everything queued is on the disk and compressed."""
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
            self._thread = None
        self._compressor.shutdown()

    def offer(self, work: _Work, n_bytes: int = 0) -> bool:
        """Queue work for the thread, with its bytes of audio. Never waits; without room it is dropped and counted, and
        this returns False."""
        has_room = self._queued_bytes - self._done_bytes + n_bytes <= WAITING_BYTES and self._offer(work)
        self._queued_bytes += n_bytes if has_room else 0
        self.dropped += not has_room
        return has_room

    def done(self, n_bytes: int) -> None:
        """Count audio that has left the queue. In the thread."""
        self._done_bytes += n_bytes

    def offer_end(self, work: _Work) -> None:
        """Have this done after all queued audio; it is never dropped."""
        self._ends.append(work)
        self._offer(_nothing)  # wakes the thread; when the queue is full, it is awake

    def _offer(self, work: _Work) -> bool:
        try:
            self._work.put_nowait(work)
        except queue.Full:
            return False
        return True

    def _run(self) -> None:
        self._guard(self._recover)
        self._guard(self._trim)
        trim_at_ms = clock.monotonic_ms() + round(1_000 * TRIM_S)
        while True:
            try:
                work = self._work.get(timeout=TRIM_S)
            except queue.Empty:
                work = _nothing
            if work is None:
                break
            self._guard(work)
            if self._work.empty():
                self._end_calls()
            if clock.monotonic_ms() >= trim_at_ms:
                self._guard(self._trim)
                trim_at_ms = clock.monotonic_ms() + round(1_000 * TRIM_S)
        self._end_calls()
        for file in tuple(self._open):
            self._guard(file.end)

    def _end_calls(self) -> None:
        while self._ends:
            self._guard(self._ends.popleft())

    def _guard(self, work: _Work) -> None:
        try:
            work()
        except OSError as why:
            self.failed(why)
        except Exception as bug:
            log_crash("recordings", bug)

    def failed(self, why: OSError) -> None:
        """Report that the disk fails."""
        kind = kind_of(why)
        self._health.failed("recordings", kind, f"{type(why).__name__}: {why}")

    def began(self, file: _CallFile) -> None:
        """Add a recording that is written. In the thread."""
        self._open.add(file)
        self._trim()

    def grew(self, n_bytes: int) -> bool:
        """Count what was written; return whether there is room for more. In the thread."""
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
            file.compress(file.path.with_suffix(DONE))
        except OSError as why:  # the next start tries again
            self.failed(why)
        except Exception as bug:
            log_crash("recordings", bug)
        finally:
            file.close()

    def _recover(self) -> None:
        """Compress what a process that was killed has left."""
        for each in self._folder.all():
            if not each.is_done:
                with suppress(OSError):  # its owner lives
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
    """The file of one call, and its tracks. All of it runs in the writer's thread."""

    def __init__(self, writer: RecordingWriter, place: Callable[[], Path], session: str) -> None:
        self._writer, self._place, self._session = writer, place, session
        self._file: WorkFile | None = None
        self._tracks = (UserTrack(), AgentTrack())
        self._began_ms = 0

    def begin(self, now_ms: int) -> None:
        """Make the file."""
        self._began_ms = now_ms
        place = self._place()
        self._file = WorkFile(place.with_name(place.name + UNFINISHED))
        self._writer.began(self)

    def user_audio(self, samples: Samples, rate_hz: int, ended_ms: int) -> None:
        """Write what the user's audio places."""
        self._writer.done(samples.nbytes)
        for placed in self._tracks[USER].push(samples, rate_hz, self._at(ended_ms)):
            self._write(USER, placed)

    def agent_audio(self, samples: Samples, rate_hz: int, now_ms: int) -> None:
        """Write the agent's audio where it plays."""
        self._writer.done(samples.nbytes)
        self._write(AGENT, self._tracks[AGENT].push(samples, rate_hz, self._at(now_ms)))

    def agent_stops(self, now_ms: int) -> None:
        """Replace what the client does not play."""
        self._write(AGENT, self._tracks[AGENT].stop(self._at(now_ms)))

    def end(self, now_ms: int | None = None) -> None:
        """Write the rest and have the file compressed; without a time, the file ends where it ends."""
        said = 0
        for placed in self._tracks[USER].flush():
            self._write(USER, placed)
            said = placed.end
        if self._file is not None and now_ms is not None:
            self._file.end_at(min(max(said, self._at(now_ms)), self._writer.max_samples))
        self._stop(keeps=True)

    def _at(self, at_ms: int) -> int:
        return position(at_ms - self._began_ms)

    def _write(self, channel: int, placed: Placed) -> None:
        """Write audio, up to the longest recording. A disk that fails or is full costs this recording."""
        samples = placed.samples[: max(0, self._writer.max_samples - placed.start)]
        if self._file is None or not len(samples):
            return
        try:
            has_room = self._writer.grew(self._file.write(channel, Placed(placed.start, samples)))
        except OSError as failure:
            self._writer.failed(failure)
            self._stop(keeps=False)
            log_event("recording_stopped", level=logging.WARNING, session=self._session, why="the disk failed")
            return
        if not has_room:
            self._stop(keeps=True)
            why = "recordings.total_mb is reached, and no older recording can be deleted"
            log_event("recording_stopped", level=logging.WARNING, session=self._session, why=why)

    def _stop(self, *, keeps: bool) -> None:
        """Write no more. What a disk that fails has taken is deleted: others need the room."""
        file, self._file = self._file, None
        self._writer.remove(self)
        if file is None:
            return
        if keeps:
            self._writer.compress(file, self._session)
        else:
            file.delete()


class SessionRecorder:
    """The recorder of one call, as its session uses it."""

    def __init__(self, writer: RecordingWriter, file: _CallFile) -> None:
        self._writer, self._file = writer, file
        self._begins_ms: int | None = None
        self._begun = False

    def begin(self, now_ms: int) -> None:
        """Record from this instant on."""
        if self._begins_ms is None:
            self._begins_ms = now_ms
            self._offer()

    def user_audio(self, samples: Samples, rate_hz: int, ended_ms: int) -> None:
        """Record the user's audio."""
        self._offer(partial(self._file.user_audio, samples, rate_hz, ended_ms), samples.nbytes)

    def agent_audio(self, samples: Samples, rate_hz: int, now_ms: int) -> None:
        """Record audio that is sent to the client now."""
        self._offer(partial(self._file.agent_audio, samples, rate_hz, now_ms), samples.nbytes)

    def agent_stops(self, now_ms: int) -> None:
        """Record that the client plays no more of what it was sent."""
        self._offer(partial(self._file.agent_stops, now_ms))

    def close(self, now_ms: int) -> None:
        """End the recording."""
        if self._begun:
            self._writer.offer_end(partial(self._file.end, now_ms))

    def _offer(self, work: _Work | None = None, n_bytes: int = 0) -> None:
        """Queue work behind the beginning, which is tried again where the queue was full."""
        if self._begins_ms is None:
            return
        if not self._begun:
            self._begun = self._writer.offer(partial(self._file.begin, self._begins_ms))
        if self._begun and work is not None:
            self._writer.offer(work, n_bytes)


def _nothing() -> None:
    """Write nothing."""

"""The folder of journals: one thread writes them all, and keeps them within the disk limits.

Several processes may share the folder, and with it the limits. Each counts the open journals of all, and deletes none.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from voicepipe import clock
from voicepipe.audio.samples import Samples
from voicepipe.errors import ConfigError
from voicepipe.storage import StorageHealth, kind_of
from voicepipe.telemetry.journal import format
from voicepipe.telemetry.journal.format import Texts
from voicepipe.telemetry.journal.plain import as_it_is
from voicepipe.telemetry.journal.port import NO_JOURNAL, Journal
from voicepipe.telemetry.journal.pseudonyms import Pseudonymizer
from voicepipe.telemetry.journal.recordings import SideRecording, recording_in
from voicepipe.telemetry.journal.session_files import SessionFiles, is_open
from voicepipe.telemetry.journal.settings import JournalSettings
from voicepipe.telemetry.log import log_event
from voicepipe.telemetry.storage_log import new_health
from voicepipe.turn.commands import Command
from voicepipe.turn.events import Event
from voicepipe.turn.journal import Opening

WAITING: Final = 4_096
"""Maximum of events and slices of audio, of all sessions, that wait for the disk: about 20 MB of audio."""

_DAY_MS: Final = 86_400_000
_MB: Final = 1_000_000

_Work = Callable[[], None]


class JournalWriter:
    """Opens journals in a folder. Use it from one thread; another thread does the writing.

    A disk error costs the journal where it happens, and is logged; sessions are not affected.
    """

    def __init__(
        self, folder: Path, settings: JournalSettings, *, keeps_text: bool, health: StorageHealth | None = None
    ) -> None:
        self._health = health if health is not None else new_health()
        self._folder, self._settings, self._keeps_text = folder, settings, keeps_text
        # Full means that the disk is too slow: an event is dropped, and its journal ends there with a note.
        self._work: queue.Queue[_Work | None] = queue.Queue(maxsize=WAITING)
        self._open: set[str] = set()
        """Stems of files that this process is writing; only the thread uses it."""

        self._closed: set[str] = set()
        """Stems of files in the folder that no process is writing any more; only the thread uses it."""

        self._session_files: set[SessionFiles] = set()
        self._ended: deque[_Work] = deque()  # bounded: one for each session that was open
        self._thread: threading.Thread | None = None
        self.dropped = 0
        """Events and slices of audio that were dropped because the queue was full."""

    @property
    def folder(self) -> Path:
        """Return the folder."""
        return self._folder

    def open(self, opening: Opening, *, agent: str, project: str = "") -> Journal:
        """Return a journal for this session. Nothing is on the disk before its first event."""
        if not self._settings.enabled:
            return NO_JOURNAL
        texts: Texts = "plain" if self._keeps_text else "pseudonymized"
        words = as_it_is if self._keeps_text else Pseudonymizer(os.urandom(32))
        now_ms = clock.unix_ms()
        head = partial(format.head, opening, agent=agent, project=project, began_unix_ms=now_ms)
        files = SessionFiles(
            self._folder / f"{now_ms}-{opening.session}.jsonl",
            head=partial(head, texts=texts, words=words),
            texts=texts,
            words=words,
            max_bytes=round(self._settings.session_mb * _MB),
        )
        return SessionJournal(self, files, f"{now_ms}-{opening.session}", audio=self._settings.audio)

    def delete_session(self, project: str, session: str) -> int:
        """Delete the files of a project's session that is over; return their number. Waits for the disk.

        Another project's files stay: ids are no secrets. Files without an owner are deleted too, such as the audio of
        a journal that was deleted for space.
        """
        found = [path for path in self._files() if _session_of(path) == session]
        owners = {stem: self._owner(stem) for stem in {_stem(path) for path in found}}
        gone = [path for path in found if owners[_stem(path)] in (project, "")]
        for path in gone:
            path.unlink(missing_ok=True)
        return len(gone)

    def recordings(self, project: str | None, session: str) -> tuple[SideRecording, ...]:
        """Return the audio of a project's session, the longest of each side first; without a project, of any. Waits
        for the disk.
        """
        found = [each for path in self._files() if _session_of(path) == session and (each := recording_in(path))]
        owners = {stem: self._owner(stem) for stem in {_stem(each.path) for each in found}}
        allowed = [each for each in found if project is None or owners[_stem(each.path)] == project]
        return tuple(sorted(allowed, key=lambda each: (each.side, -each.n_samples)))

    def _owner(self, stem: str) -> str | None:
        """Return the project, empty when it is no longer known; None: the file is still being written."""
        is_written = stem in self._open or is_open(self._journal(stem))  # first: a closed file has its whole head
        owner = ""
        with suppress(FileNotFoundError), self._journal(stem).open("rb") as file:
            owner = format.project_of(file.readline())
        return None if not owner and is_written else owner

    # --- the thread ---------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread, if journals are enabled.

        Raises:
            ConfigError: the folder can't be made.
        """
        if not self._settings.enabled:
            return
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as problem:
            raise ConfigError(f"journals.enabled: can't make {str(self._folder)!r}: {problem.strerror}") from problem
        self._thread = threading.Thread(target=self._run, name="journals", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait until everything queued is on the disk."""
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
            self._thread = None

    def offer(self, work: _Work) -> bool:
        """Queue work for the thread; False when the queue is full. Never waits."""
        try:
            self._work.put_nowait(work)
        except queue.Full:
            self.dropped += 1
            return False
        return True

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            if self._work.empty():
                self._catch_up()
        self._catch_up()
        for files in self._session_files:
            self.guard(partial(files.close, ended=False))
        self._session_files.clear()

    def _catch_up(self) -> None:
        while self._ended and self._work.empty():
            self._ended.popleft()()
        for files in tuple(self._session_files):
            try:
                if files.flush():
                    self._health.worked("journals")
            except OSError as why:  # a full disk: the written part stays, and is cut off somewhere
                self._failed(why)
                files.give_up()
                self._session_files.discard(files)

    def begin(self, files: SessionFiles, stem: str) -> None:
        """Make space for a session's whole journal before its first line is written. In the thread."""
        self._session_files.add(files)
        self._open.add(stem)
        # Open before the others are counted: of two processes that begin at the same instant, at least one counts the
        # other's journal. So the total stays within its limit. Where only one of the two fits, both may be refused.
        self.guard(files.begin, files)
        self.guard(partial(self._make_space, files, stem))

    def _make_space(self, files: SessionFiles, stem: str) -> None:
        paths = self._files()
        open_stems = self._open_stems(paths)
        if len(open_stems) * self._settings.session_mb > self._settings.total_mb:
            files.refuse()
            self._open.discard(stem)
            open_stems.discard(stem)
            log_event("journal_refused", level=logging.WARNING, why="too many open journals for journals.total_mb")
        self._evict_oldest(paths, open_stems)

    def end(self, files: SessionFiles, stem: str, n_lost: int) -> None:
        """End a session's journal, with the number of lost events: close its files after all queued writes. Never
        waits."""
        self._ended.append(partial(self._finish, files, stem, n_lost))
        self.offer(_nothing)  # wakes the thread; when the queue is full, it is awake

    def _finish(self, files: SessionFiles, stem: str, n_lost: int) -> None:
        if n_lost:
            self.guard(partial(files.break_off, n_lost, "events came faster than the disk wrote them"))
        self.guard(partial(files.close, ended=True))
        self._session_files.discard(files)
        self._open.discard(stem)

    def _open_stems(self, paths: list[Path]) -> set[str]:
        """Return the stems of these files that a process is writing, and of all files of this one."""
        stems = {_stem(path) for path in paths}
        self._closed &= stems  # those of deleted files need no memory
        others = {stem for stem in stems - self._closed - self._open if is_open(self._journal(stem))}
        self._closed |= stems - self._open - others
        return self._open | others

    def _evict_oldest(self, paths: list[Path], open_stems: set[str]) -> None:
        """Delete files that are too old, and then the oldest until all open journals can grow to their limit."""
        oldest_ms = clock.unix_ms() - self._settings.keep_days * _DAY_MS
        old = sorted((path for path in paths if _stem(path) not in open_stems), key=_began_ms)
        left = self._settings.total_mb * _MB - len(open_stems) * self._settings.session_mb * _MB
        for path in reversed(old):
            with suppress(FileNotFoundError):
                left -= path.stat().st_size
                if left < 0 or _began_ms(path) < oldest_ms:
                    path.unlink()

    def guard(self, work: _Work, files: SessionFiles | None = None) -> None:
        """Run the work; an error costs one journal and nothing else. In the thread."""
        try:
            work()
        except OSError as why:  # a full disk, a folder that was taken away
            self._failed(why)
            if files is not None:
                files.give_up()
        except Exception as why:  # a value that can't be written: a bug in voicepipe
            log_event("journal_failed", level=logging.WARNING, why=f"{type(why).__name__}: {why}")
            if files is not None:
                with suppress(Exception):
                    files.break_off(0, "the file could not be written")

    def _failed(self, why: OSError) -> None:
        self._health.failed("journals", kind_of(why), f"{type(why).__name__}: {why}")

    def _journal(self, stem: str) -> Path:
        return self._folder / f"{stem}.jsonl"

    def _files(self) -> list[Path]:
        return [path for path in self._folder.glob("*-*.*") if path.suffix in (".jsonl", ".au")]


class SessionJournal:
    """The journal of one session, as the session uses it."""

    def __init__(self, writer: JournalWriter, files: SessionFiles, stem: str, *, audio: bool) -> None:
        self._writer, self._files, self._stem, self._audio = writer, files, stem, audio
        self._begun = False
        self._n_lost = 0

    def record(self, now_ms: int, event: Event, commands: tuple[Command, ...]) -> None:
        """Record an event given to the core, and the commands that followed."""
        if self._n_lost:  # events after a gap can't be replayed
            self._n_lost += 1
            return
        if not self._begun:
            self._begun = self._writer.offer(partial(self._writer.begin, self._files, self._stem))
        if not (self._begun and self._offer(partial(self._files.record, now_ms, event, commands))):
            self._n_lost = 1

    def user_audio(self, samples: Samples, rate_hz: int) -> None:
        """Record the user's audio."""
        self._sound("user", samples, rate_hz)

    def agent_audio(self, samples: Samples, rate_hz: int) -> None:
        """Record the agent's audio that goes to the client."""
        self._sound("agent", samples, rate_hz)

    def close(self) -> None:
        """End the journal: the session is over."""
        if self._begun:
            self._writer.end(self._files, self._stem, self._n_lost)

    def _sound(self, side: str, samples: Samples, rate_hz: int) -> None:
        if self._audio and self._begun:
            self._offer(partial(self._files.write_audio, side, samples, rate_hz))

    def _offer(self, work: _Work) -> bool:
        return self._writer.offer(partial(self._writer.guard, work, self._files))


def _nothing() -> None:
    """Write nothing."""


def _stem(path: Path) -> str:
    return path.name.partition(".")[0]


def _session_of(path: Path) -> str:
    return _stem(path).partition("-")[2]


def _began_ms(path: Path) -> int:
    began = path.name.partition("-")[0]
    return int(began) if began.isdecimal() else 0

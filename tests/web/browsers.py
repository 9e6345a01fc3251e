"""The browsers that tests share: with a browser for each test, all of tests/web took 177 s of CPU instead of 125 s."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from voicepipe.testing.chromium import Browser, Chromium


class Browsers:
    """At most one browser for each of the three kinds of microphone. Each page has its own profile."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: dict[str, Chromium] = {}
        self._n_started = 0

    @asynccontextmanager
    async def browser(self, *, microphone: Path | None = None, has_microphone: bool = True) -> AsyncIterator[Browser]:
        """Connect to a browser, which is started when none of this kind runs.

        Args:
            microphone: the WAV file for pages that open the microphone from now on; None: beeps.
            has_microphone: False: a machine without one.
        """
        kind = "none" if not has_microphone else "beeps" if microphone is None else "recording"
        recording = None
        if microphone is not None:
            recording = self._folder / "microphone.wav"
            await asyncio.to_thread(shutil.copyfile, microphone, recording)
        process = self._processes.get(kind)
        if process is None or not process.is_running:
            if process is not None:
                process.close()
            self._n_started += 1
            folder = self._folder / str(self._n_started)
            folder.mkdir()
            process = Chromium(folder, microphone=recording, has_microphone=has_microphone)
            self._processes[kind] = process
        async with process.connected() as browser:
            yield browser

    def close(self) -> None:
        """End all browsers."""
        for process in self._processes.values():
            process.close()

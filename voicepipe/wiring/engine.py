"""The local engines from the server's side: loading, loaded, or restarting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from voicepipe.providers.local import wire
from voicepipe.providers.local.process import LocalEngine, start_engine
from voicepipe.registry import Stage

WHAT = {"stt": "speech to text", "llm": "language model", "tts": "voice"}


class LocalModels:
    """Runs the engine process while `run` runs, and reports what is not loaded yet."""

    def __init__(self, socket_path: Path, stages: tuple[Stage, ...], say: Callable[[str], None]) -> None:
        self._socket_path, self._stages, self._say = socket_path, stages, say
        self._loading = {stage: WHAT[stage] for stage in stages}
        self._engine: LocalEngine | None = None
        self.loaded = asyncio.Event()
        """Set once, when all models have been loaded for the first time; at once when no local model is needed."""

    async def run(self) -> None:
        """Run the engine until cancelled.

        Raises:
            ConfigError: this machine or this installation can't run it; the text says what to do.
            StageBroken: the engine does not start.
        """
        if not self._stages:
            self.loaded.set()
            return
        async with start_engine(self._socket_path, self._note, stages=self._stages) as self._engine:
            self.loaded.set()
            await asyncio.Event().wait()

    def missing(self) -> tuple[str, ...]:
        """Return what is not loaded yet, as text; empty when sessions can be accepted."""
        if not self._stages or (self._engine is not None and self._engine.ready):
            return ()
        if self._engine is not None:
            return ("local models: being started again",)
        return tuple(f"local {what}: loading" for what in self._loading.values()) or ("local models: warming up",)

    def _note(self, progress: wire.Progress) -> None:
        what = WHAT[progress.stage]
        if progress.state == "loading":
            self._say(f"  loading the local {what} ...")
        elif progress.state == "ready":
            self._loading.pop(progress.stage, None)
            self._say(f"  the local {what} is ready ({progress.took_ms / 1_000:.1f} s)")

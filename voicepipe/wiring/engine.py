"""The local engines from the server's side: loading, loaded, or restarting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from voicepipe.config.settings import LOCAL, STAGES, Settings
from voicepipe.providers.local import wire
from voicepipe.providers.local.process import LocalEngine, start_engine

WARM_S: Final = 30.0
"""How long sessions wait for the models to read ahead: long instructions of many agents take minutes on one core."""

WHAT: Final[dict[wire.Stage, str]] = {"stt": "speech to text", "llm": "language model", "tts": "voice"}


class EngineUse(Struct, frozen=True):
    """An engine process that the settings need."""

    socket_path: Path
    stages: tuple[wire.Stage, ...]
    model_file: Path | None = None
    """The operator's file of its model; None: the models that come along."""

    @property
    def is_optional(self) -> bool:
        """Return whether sessions go on without it while it is started again: they lack a score, and no stage."""
        return self.stages == ("endpoint",)

    def name_of(self, stage: wire.Stage) -> str:
        """Return what it loads for `stage`, for the operator."""
        return WHAT[stage] if self.model_file is None else self.model_file.name


def is_local_everywhere(settings: Settings) -> bool:
    """Return whether each agent has a local model as its first choice in some stage: then a session too many slows all
    others. A session that does without local models must not be refused because they are busy."""
    return all(
        any(settings.providers[agent.specs(stage)[0].provider].kind in LOCAL for stage in STAGES)
        for agent in settings.agents.values()
    )


class LocalModels:
    """Runs the engine processes while `run` runs, and reports what is not loaded yet."""

    def __init__(self, uses: tuple[EngineUse, ...], print_line: Callable[[str], None]) -> None:
        self._uses, self._print_line = uses, print_line
        self._loading = {(use, stage): use.name_of(stage) for use in uses for stage in use.stages}
        self._engines: dict[EngineUse, LocalEngine] = {}
        self.loaded = asyncio.Event()
        """Set once, when all models have been loaded for the first time; at once when no local model is needed."""

        self.warmed = asyncio.Event()
        """Set once, when `warm` has ended: a session would wait for what the models still read."""

        self._is_warming = False

    async def run(self) -> None:
        """Run the engines until cancelled.

        Raises:
            ConfigError: this machine or this installation can't run one, alone or in a group; the text has what to do.
            StageBroken: one does not start, alone or in a group.
        """
        if not self._uses:
            self.loaded.set()
            return
        async with asyncio.TaskGroup() as group:
            for use in self._uses:
                group.create_task(self._run(use), name=f"local-engine {use.socket_path.stem}")

    async def warm(self, read_ahead: Callable[[], Awaitable[None]]) -> None:
        """Once all models are loaded, have them read what sessions begin with. Sessions are refused until then, for
        `WARM_S` at most; what was not read by then is read in the first session."""
        self._is_warming = bool(self._uses)
        try:
            await self.loaded.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(WARM_S):
                    await read_ahead()
        finally:
            self._is_warming = False
            self.warmed.set()

    def loads(self) -> dict[str, float]:
        """Return the share of its time that each local model worked lately, of all clients of its engine together; the
        largest where two serve a stage. Empty before the first report."""
        loads: dict[str, float] = {}
        for engine in self._engines.values():
            for stage, share in engine.load.items():
                loads[stage] = max(share, loads.get(stage, 0.0))
        return loads

    def busiest_share(self) -> float | None:
        """Return the largest of `loads`; None before the first report."""
        return max(self.loads().values(), default=None)

    def missing(self) -> tuple[str, ...]:
        """Return what is not loaded yet, as text; empty when sessions can be accepted."""
        if all(use in self._engines and (self._engines[use].ready or use.is_optional) for use in self._uses):
            return ("local models: warming up",) if self._is_warming else ()
        if len(self._engines) == len(self._uses):
            return ("local models: being started again",)
        return tuple(f"local {what}: loading" for what in self._loading.values()) or ("local models: warming up",)

    async def _run(self, use: EngineUse) -> None:
        def on_progress(progress: wire.LoadProgress) -> None:
            self._report(use, progress)

        async with start_engine(use.socket_path, on_progress, stages=use.stages, model_file=use.model_file) as engine:
            self._engines[use] = engine
            if len(self._engines) == len(self._uses):
                self.loaded.set()
            await asyncio.Event().wait()

    def _report(self, use: EngineUse, progress: wire.LoadProgress) -> None:
        what = use.name_of(progress.stage)
        if progress.state == "loading":
            self._print_line(f"  loading the local {what} ...")
        elif progress.state == "ready":
            self._loading.pop((use, progress.stage), None)
            self._print_line(f"  the local {what} is ready ({progress.took_ms / 1_000:.1f} s)")

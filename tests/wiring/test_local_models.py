"""Which engines a server waits for: those of its stages always, and that of smart-turn until it is loaded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from voicepipe.wiring.engine import EngineUse, LocalModels

VOICE = EngineUse(Path("/data/engine.sock"), ("tts",))
SMART_TURN = EngineUse(Path("/data/onnx.sock"), ("endpoint",), Path("/smart-turn.onnx"))


async def test_sessions_go_on_while_smart_turn_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """They lack its scores. Without the voice there is no answer."""
    engines = {use.socket_path: SimpleNamespace(ready=True) for use in (VOICE, SMART_TURN)}

    @asynccontextmanager
    async def start(socket_path: Path, *_: object, **__: object) -> AsyncIterator[SimpleNamespace]:
        yield engines[socket_path]

    monkeypatch.setattr("voicepipe.wiring.engine.start_engine", start)
    models = LocalModels((VOICE, SMART_TURN), lambda line: None)
    assert models.missing() == ("local voice: loading", "local smart-turn.onnx: loading")
    running = asyncio.ensure_future(models.run())
    await models.loaded.wait()
    assert models.missing() == ()
    engines[SMART_TURN.socket_path].ready = False
    assert models.missing() == ()
    engines[VOICE.socket_path].ready = False
    assert models.missing() == ("local models: being started again",)
    running.cancel()
    await asyncio.wait([running])

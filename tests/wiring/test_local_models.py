"""Which engines a server waits for: those of its stages always, and that of smart-turn until it is loaded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from voicepipe.errors import StageBroken
from voicepipe.wiring import engine
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


async def loaded_voice(monkeypatch: pytest.MonkeyPatch) -> tuple[LocalModels, asyncio.Future[None]]:
    """Return models that are loaded, and what runs them."""

    @asynccontextmanager
    async def start(*_: object, **__: object) -> AsyncIterator[SimpleNamespace]:
        yield SimpleNamespace(ready=True)

    monkeypatch.setattr("voicepipe.wiring.engine.start_engine", start)
    models = LocalModels((VOICE,), lambda line: None)
    running = asyncio.ensure_future(models.run())
    await models.loaded.wait()
    return models, running


async def test_sessions_wait_until_the_models_have_read_the_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first session would wait for it, in the middle of its first turn."""
    models, running = await loaded_voice(monkeypatch)
    reading, read = asyncio.Event(), asyncio.Event()

    async def read_ahead() -> None:
        reading.set()
        await read.wait()

    warming = asyncio.ensure_future(models.warm(read_ahead))
    await reading.wait()
    assert models.missing() == ("local models: warming up",)
    assert not models.warmed.is_set()
    read.set()
    await warming
    assert models.missing() == ()
    assert models.warmed.is_set()
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.parametrize("fails", [True, False])
async def test_sessions_do_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    """Instructions that take too long, or can't be read, are read in the first session."""
    monkeypatch.setattr(engine, "WARM_S", 0.0)
    models, running = await loaded_voice(monkeypatch)

    async def read_ahead() -> None:
        if fails:
            raise StageBroken("llm", provider="local", why="no answer", retryable=False)
        await asyncio.Event().wait()

    with pytest.raises(StageBroken) if fails else nullcontext():
        await models.warm(read_ahead)
    assert models.missing() == ()
    assert models.warmed.is_set()
    running.cancel()
    await asyncio.wait([running])

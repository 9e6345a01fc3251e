"""A server that answers, from its settings: every part built, in an order in which it can be taken down again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from voicepipe.auth.apikeys import ApiKeys
from voicepipe.auth.attempts import FailedAttempts
from voicepipe.auth.key_store import KeyStore
from voicepipe.cluster.port import Cluster
from voicepipe.cluster.sqlite import open_sqlite
from voicepipe.config.settings import Settings
from voicepipe.errors import ConfigError, VoicepipeError
from voicepipe.providers.net import http
from voicepipe.server.doorway import Doorway
from voicepipe.server.listening import listening
from voicepipe.server.lobby import Lobby
from voicepipe.server.parts import Parts
from voicepipe.telemetry.sink import TurnSink
from voicepipe.telemetry.sqlite import SqliteTurnStore
from voicepipe.telemetry.store import TurnStore
from voicepipe.wiring.engine import LocalModels
from voicepipe.wiring.sessions import Sessions
from voicepipe.wiring.stages import Stages


def _silent(line: str) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers."""

    base_url: str
    """`http://HOST:PORT`, without a slash at its end."""

    is_open: bool
    """Whether anybody on this machine may use it without a key."""

    ready: asyncio.Event
    """Set when its models are loaded and sessions are taken."""


@asynccontextmanager
async def running(settings: Settings, *, say: Callable[[str], None] = _silent) -> AsyncIterator[Running]:
    """Run the server for as long as the block runs. It answers at once, and takes sessions when its models are loaded.

    Args:
        settings: everything; nothing else is read.
        say: gets a line of progress at a time.

    Raises:
        VoicepipeError: a setting, this machine or this installation can't do what was asked. It may come while the
            block runs, which is cancelled then: when the local models turn out not to load.
    """
    _make_private(settings.data_path)
    try:
        async with _open(settings, say) as server:
            yield server
    except BaseExceptionGroup as group:
        raise _reason(group) from None


@asynccontextmanager
async def _open(settings: Settings, say: Callable[[str], None]) -> AsyncIterator[Running]:
    stages = Stages(settings)
    async with (
        http.lifetime(),
        open_sqlite(settings.data_path) as cluster,
        _turns(settings.data_path) as turns,
        TurnSink(turns) as sink,
        asyncio.TaskGroup() as group,
    ):
        sessions = Sessions(settings, stages, sink)
        models = LocalModels(stages.engine_socket, stages.local(), say)
        parts = _parts(settings, cluster=cluster, turns=turns, sessions=sessions, models=models)
        async with listening(parts) as base_url:
            engine = group.create_task(models.run(), name="local-engine")
            warming = group.create_task(_warm(models, sessions), name="warm-up")
            is_open = await asyncio.to_thread(parts.doorway.is_open)
            yield Running(base_url, is_open, models.loaded)
        warming.cancel()
        engine.cancel()


def _reason(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What ended the group: the first failure of ours, or the only one of others, or the group as it is."""
    reason: BaseException = group.subgroup(VoicepipeError) or group
    while isinstance(reason, BaseExceptionGroup) and (len(reason.exceptions) == 1 or reason is not group):
        reason = reason.exceptions[0]
    return reason


async def _warm(models: LocalModels, sessions: Sessions) -> None:
    await models.loaded.wait()
    await sessions.warm()


def _parts(settings: Settings, *, cluster: Cluster, turns: TurnStore, sessions: Sessions, models: LocalModels) -> Parts:
    key_store, api_keys = KeyStore(settings.data_path), ApiKeys(settings.data_path)
    doorway = Doorway(
        key_store=key_store,
        api_keys=api_keys,
        cluster=cluster,
        attempts=FailedAttempts(),
        on_loopback=settings.on_loopback,
        allow_query=settings.server.query_token,
        allowed_origins=settings.server.allowed_origins,
    )
    return Parts(
        options=settings.server,
        doorway=doorway,
        lobby=Lobby(settings.server.max_sessions),
        key_store=key_store,
        cluster=cluster,
        turns=turns,
        agent_named=settings.agent_named,
        start_config=sessions.start_config,
        open_session=sessions.open,
        missing=models.missing,
    )


@asynccontextmanager
async def _turns(data_path: Path) -> AsyncIterator[SqliteTurnStore]:
    store = await SqliteTurnStore.open(data_path / "turns.sqlite3")
    try:
        yield store
    finally:
        await store.close()


def _make_private(data_path: Path) -> None:
    """Make the one folder that is written at run time, for its owner only."""
    try:
        data_path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        raise ConfigError(
            f"server.data_dir: expected a folder that can be made and written, got {str(data_path)!r}: "
            f"{problem.strerror or problem}"
        ) from problem

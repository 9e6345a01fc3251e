"""Send spans to a collector, where the settings enable it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from voicepipe.config.settings import Settings
from voicepipe.errors import ConfigError
from voicepipe.extras import install_command
from voicepipe.telemetry.tracing.port import NoTracing, Tracing


@asynccontextmanager
async def tracing(settings: Settings) -> AsyncIterator[Tracing]:
    """Send spans for the duration of the block; leaving waits at most a few seconds for unsent spans.

    Raises:
        ConfigError: the settings enable it, and the extra `otel` is not installed.
    """
    if not settings.telemetry.otel:
        yield NoTracing()
        return
    try:
        from voicepipe.telemetry.tracing.otel import OtelTracing
        from voicepipe.telemetry.tracing.otel_export import exporting
    except ImportError as missing:
        raise ConfigError(
            f"telemetry.otel: expected the extra to be installed ({install_command('otel')}), since it is true; "
            f"{missing.name} is missing"
        ) from missing
    way = exporting()
    given = await asyncio.to_thread(way.__enter__)
    try:
        yield OtelTracing(*given)
    finally:
        await asyncio.to_thread(way.__exit__, None, None, None)

"""Spans to a collector, where the settings want them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from voicepipe.config.settings import Settings
from voicepipe.errors import ConfigError
from voicepipe.extras import install_command
from voicepipe.telemetry.tracing import NoTracing, Tracing


@asynccontextmanager
async def tracing(settings: Settings) -> AsyncIterator[Tracing]:
    """Have spans sent for as long as the block runs; leaving waits a few seconds at most for what is still to be sent.

    Raises:
        ConfigError: the settings want it, and the extra `otel` is not installed.
    """
    if not settings.telemetry.otel:
        yield NoTracing()
        return
    try:
        from voicepipe.telemetry.otel import OtelTracing
        from voicepipe.telemetry.otel_export import exporting
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

"""Settings of the recordings."""

from __future__ import annotations

from dataclasses import dataclass

from voicepipe.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingSettings:
    """Limits of the recordings of calls (`agents.NAME.record_calls`)."""

    max_minutes: float = 120.0
    """The longest recording, in minutes; what follows is left out. While a call runs, a minute takes 5.8 MB."""

    total_mb: float = 10_000.0
    """The size limit of all recordings, in MB: the oldest are deleted."""

    def __post_init__(self) -> None:
        for name in ("max_minutes", "total_mb"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"recordings.{name}: expected more than 0, got {getattr(self, name)}")

"""Settings of the journals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from voicepipe.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings:
    """Whether sessions are recorded for replay: `voicepipe replay`."""

    enabled: bool = False
    """Write each session's events and commands to a file in the folder `journals` of `server.data_dir`."""

    text: Literal["loopback", "always", "never"] = "loopback"
    """Whether the words of both sides are written: only while the server listens on a loopback address, always or
    never. Without them a journal holds other words of the same length, and can still be replayed."""

    audio: bool = False
    """Write the audio of both sides beside it, as `.au` files."""

    session_mb: float = 20.0
    """The size limit of one session's files, in MB; later events are missing, and the journal has a mark for them."""

    total_mb: float = 2_000.0
    """The size limit of all files, in MB: the oldest are deleted."""

    keep_days: float = 14.0
    """Days for which files are stored."""

    def __post_init__(self) -> None:
        for name in ("session_mb", "total_mb", "keep_days"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"journals.{name}: expected more than 0, got {getattr(self, name)}")
        if self.total_mb < self.session_mb:
            raise ConfigError(
                f"journals.total_mb: expected at least session_mb, {self.session_mb}, got {self.total_mb}"
            )

"""Whether and how journals are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from voicepipe.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings:
    """Whether sessions are written down, to be replayed: `voicepipe replay`."""

    enabled: bool = False
    """Write each session's facts and orders to a file in the folder `journals` of `server.data_dir`."""

    text: Literal["loopback", "always", "never"] = "loopback"
    """Whether the words of both sides stand in it: only while the server listens on a loopback address, always or
    never. Without them a journal holds other words of the same length, and can be replayed all the same."""

    audio: bool = False
    """Write the sound of both sides beside it, as `.au` files."""

    session_mb: float = 20.0
    """How large one session's files may become, in MB; what comes later is missing, and the journal says so."""

    total_mb: float = 2_000.0
    """How large all of them may become, in MB: the oldest make room."""

    keep_days: float = 14.0
    """How long they are kept, in days."""

    def __post_init__(self) -> None:
        for name in ("session_mb", "total_mb", "keep_days"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"journals.{name}: expected more than 0, got {getattr(self, name)}")
        if self.total_mb < self.session_mb:
            raise ConfigError(
                f"journals.total_mb: expected at least session_mb, {self.session_mb}, got {self.total_mb}"
            )

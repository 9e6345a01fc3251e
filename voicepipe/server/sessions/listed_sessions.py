"""Open sessions, as they are listed: of this process, of other workers, of other nodes."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class ListedSessions(Struct, frozen=True):
    """Open sessions."""

    rows: list[dict[str, Any]]
    why_more: str
    """Why there may be more of them; an empty text: these are all."""

"""Quotas of API keys, projects and users: their sessions at once, and their minutes and spending of a day, as all
processes together count them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from msgspec import Struct

from voicepipe.errors import ConfigError

HolderKind = Literal["key", "project", "user"]
Metered = Literal["seconds", "spend"]
"""What a quota of a day counts: seconds of sessions, and millionths of a USD."""

MICRO: Final = 1_000_000
"""Money is counted in whole millionths of a USD: a sum of floats depends on its order."""

MAX_QUOTA: Final = 1_000_000_000
"""The largest quota: in millionths of a USD and in seconds it fits an integer of any store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """The quotas of each API key, project and user. A day is one of UTC. The next session beyond a quota is answered
    429 with `Retry-After`; at a quota of a day a session that runs ends after its turn. 0: no quota."""

    key_sessions: int = 0
    """Maximum number of sessions at once of one API key, and of the client secrets that it minted."""

    key_minutes_per_day: int = 0
    """Minutes of these sessions in a day."""

    key_usd_per_day: float = 0.0
    """Cost of these sessions and of the key's REST requests in a day, in USD, at the prices in the settings."""

    project_sessions: int = 0
    """Maximum number of sessions at once of one project, so that one customer cannot take all."""

    project_minutes_per_day: int = 0
    """Minutes of the project's sessions in a day."""

    project_usd_per_day: float = 0.0
    """Cost of the project's sessions and REST requests in a day, in USD."""

    user_sessions: int = 0
    """Maximum number of sessions at once of one user: the `subject` of a client secret, inside its project."""

    user_minutes_per_day: int = 0
    """Minutes of the user's sessions in a day."""

    user_usd_per_day: float = 0.0
    """Cost of the user's sessions and REST requests in a day, in USD."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not 0 <= getattr(self, name) <= MAX_QUOTA:
                raise ConfigError(f"quotas.{name}: expected a number from 0 to {MAX_QUOTA}, got {getattr(self, name)}")

    def of(self, *, project: str, key_id: str, subject: str) -> tuple[Quota, ...]:
        """Return the quotas that a client's sessions and requests count for. `key_id` and `subject` may be empty."""
        holders: tuple[tuple[HolderKind, str, str], ...] = (
            ("key", f"key/{project}/{key_id}" if key_id else "", "this API key"),
            ("project", f"project/{project}", f"project {project!r}"),
            ("user", f"user/{project}/{subject}" if subject else "", "this user"),
        )
        return tuple(self._quota(kind, name, label) for kind, name, label in holders if name)

    def _quota(self, kind: HolderKind, name: str, label: str) -> Quota:
        minutes, usd = getattr(self, f"{kind}_minutes_per_day"), getattr(self, f"{kind}_usd_per_day")
        per_day: dict[Metered, int] = {}
        if minutes:
            per_day["seconds"] = 60 * minutes
        if usd:
            per_day["spend"] = round(usd * MICRO)
        return Quota(name, label, getattr(self, f"{kind}_sessions"), MappingProxyType(per_day))


class Quota(Struct, frozen=True):
    """The quotas of one API key, project or user."""

    name: str
    """Of its pool of slots and of its counters."""

    label: str
    sessions: int
    """At once; 0: no quota."""

    per_day: Mapping[Metered, int]

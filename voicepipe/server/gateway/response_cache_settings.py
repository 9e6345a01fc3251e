"""Settings of the response cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from voicepipe.errors import ConfigError

BOUNDS: Final = {"mb": (0, 100_000), "entries": (1, 10_000_000), "keep_s": (1, 31_536_000)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseCacheSettings:
    """Settings of the response cache."""

    mb: int = 0
    """Memory for answers of chat completions and responses, in MB, which are given again to exactly the same request of
    the same project. Each worker has its share. Only for requests
    [without tools, users and metadata](gateway.md#response-cache). 0: none."""

    entries: int = 10_000
    """Maximum number of stored answers, shared likewise; beyond that the one that was not used for the longest time is
    dropped."""

    keep_s: int = 3_600
    """Age at which a stored answer is requested anew, in seconds."""

    any_temperature: bool = False
    """Use the cache for requests of any temperature, and of none. Off: only for `temperature: 0`, where the same
    question means the same answer."""

    def __post_init__(self) -> None:
        for name, (low, high) in BOUNDS.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(f"response_cache.{name}: expected a whole number from {low} to {high}, got {value}")

"""`[regions.NAME]`: the regions in which sets of nodes serve the same clients, each set with stores of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from voicepipe.config.sources import Leaves
from voicepipe.errors import ConfigError

Read = Callable[[Any, tuple[str, ...], Leaves], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionEntry:
    """A `[regions.NAME]`: a region and its address."""

    url: str = ""
    """Address of the region's nodes as clients reach it, `https://eu.example.com`: a balancer's, or a single node's."""


def read_regions(leaves: Leaves, read: Read, own: str) -> Mapping[str, RegionEntry]:
    """Return the regions of the settings, in the order in which they are written.

    `own`: `cluster.region`, the region of this node.

    Raises:
        ConfigError: an address is missing or wrong, or this node's region is not among them.
    """
    names = dict.fromkeys(path[1] for path in leaves if path[0] == "regions" and len(path) > 1)
    regions = {name: _checked(read(RegionEntry(), ("regions", name), leaves), name) for name in names}
    if regions and own not in regions:
        raise ConfigError(f"cluster.region: expected one of {', '.join(regions)}, as in [regions.NAME], got {own!r}")
    return regions


def _checked(entry: RegionEntry, name: str) -> RegionEntry:
    parts = urlsplit(entry.url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
        raise ConfigError(
            f"regions.{name}.url: expected an address without a path, such as https://eu.example.com, got {entry.url!r}"
        )
    return RegionEntry(url=f"{parts.scheme}://{parts.netloc}")

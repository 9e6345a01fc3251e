"""All that a worker needs at its start, as its supervisor sends it."""

from __future__ import annotations

import copyreg
import io
import pickle
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from voicepipe.config.reader import SettingsReader
from voicepipe.config.settings import Settings


class WorkerStart(Struct, frozen=True, kw_only=True):
    """All that a worker needs at its start."""

    settings: Settings | None
    """Those of the supervisor, also when their file has changed since; None: the worker reads them."""

    read: SettingsReader
    """Reads them again, for a reload."""

    index: int
    n_workers: int
    base_url: str
    feed_epoch: str
    feed_number: int


def _view(items: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(items)  # the class has no name of its own that pickle could find


class _Pickler(pickle.Pickler):
    """The mappings of frozen settings are views, which pickle does not support."""

    dispatch_table = copyreg.dispatch_table | {MappingProxyType: lambda view: (_view, (dict(view),))}


def packed(start: WorkerStart) -> bytes:
    """Return what a worker reads on stdin: secrets are in no argument and in no environment."""
    file = io.BytesIO()
    _Pickler(file).dump(start)
    return file.getvalue()

"""The process's file descriptors: as many as the system allows, and some of them kept for the server itself."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final

from voicepipe.server.options import ServerSettings
from voicepipe.telemetry.log import log_event

try:
    import resource
except ImportError:  # no such thing on Windows
    resource = None  # type: ignore[assignment]

RESERVED_SHARE: Final = 4
"""One in so many descriptors is no client's: files, and connections to providers, up to three of a session."""

RESERVED_MOST: Final = 4_096

MOST: Final = 1 << 20
"""Enough, where the system says that there is no limit."""

OF_SESSION: Final = 4
"""Descriptors of a session: its client, and three providers."""

OF_SERVER: Final = 256
"""Of the server itself: databases, pages, connections that are kept warm."""


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard one, and return it. Shells set it to 1024 for old programs."""
    if resource is None:
        return MOST
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, max(soft, MOST))
    if soft != resource.RLIM_INFINITY and wanted > soft:
        with suppress(ValueError, OSError):  # some systems have a lower bound of their own: as many as there are
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else soft


def most_for_clients(limit: int) -> int:
    """Return the first descriptor's number that is not for clients' connections.

    The system gives the lowest number that is free, so a connection that gets this one tells that all below are taken.
    """
    return limit - min(limit // RESERVED_SHARE, RESERVED_MOST)


def warn_of_few(options: ServerSettings, limit: int) -> None:
    """Say in the log that the system allows fewer descriptors than the settings' calls can need."""
    wanted = OF_SERVER + OF_SESSION * options.max_sessions + 2 * (options.max_chats + options.max_audio)
    if wanted > most_for_clients(limit):
        log_event("few_descriptors", level=logging.WARNING, limit=limit, wanted=wanted)

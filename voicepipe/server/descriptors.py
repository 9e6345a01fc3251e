"""The process's file descriptors: the system's maximum, with some reserved for the server itself."""

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
"""Reserve one of this number of descriptors: for files, and connections to providers, up to three per session."""

MAX_RESERVED: Final = 4_096

MAX_DESCRIPTORS: Final = 1 << 20
"""Limit to use where the system has none."""

OF_SESSION: Final = 4
"""Descriptors of a session: its client, and three providers."""

OF_SERVER: Final = 256
"""Descriptors of the server itself: databases, pages, warm connections."""


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard one, and return it. Shells set it to 1024 for old programs."""
    if resource is None:
        return MAX_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, max(soft, MAX_DESCRIPTORS))
    if soft != resource.RLIM_INFINITY and needed > soft:
        with suppress(ValueError, OSError):  # some systems have a lower limit of their own: keep the current one
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def max_client_connections(limit: int) -> int:
    """Return the lowest descriptor number that is not for clients' connections.

    The system gives the lowest free number, so a connection with this number means that all lower ones are taken.
    """
    return limit - min(limit // RESERVED_SHARE, MAX_RESERVED)


def warn_of_few(options: ServerSettings, limit: int) -> None:
    """Log a warning if the system allows fewer descriptors than the sessions of the settings can need."""
    needed = OF_SERVER + OF_SESSION * options.max_sessions + 2 * (options.max_chats + options.max_audio)
    if needed > max_client_connections(limit):
        log_event("few_descriptors", level=logging.WARNING, limit=limit, needed=needed)

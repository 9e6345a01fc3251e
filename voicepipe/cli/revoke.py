"""`voicepipe revoke`: revoke client secrets on the command line, and end the sessions opened with them."""

from __future__ import annotations

import asyncio
import sys

from voicepipe.cli.options import RevokeOptions
from voicepipe.clock import unix_s
from voicepipe.cluster.revocation import Revocation, RevokedSubject, RevokedToken
from voicepipe.config import Settings, load
from voicepipe.errors import ConfigError
from voicepipe.wiring.cluster import open_store


def run(options: RevokeOptions) -> int:
    """Revoke one client secret by its id, or all of a subject's; servers of the same store apply it within 1 s.

    Raises:
        ConfigError: neither or both were named.
    """
    if bool(options.id) == bool(options.subject):
        raise ConfigError("revoke: expected the id of a client secret, or --subject NAME")
    if options.id.startswith("ek_"):
        raise ConfigError(
            "revoke: expected the id that 'voicepipe token' prints beside the client secret, not the secret"
        )
    now_s, project = unix_s(), options.project
    gone: Revocation
    if options.id:
        gone = RevokedToken.at(now_s, project, options.id)
    else:
        gone = RevokedSubject.at(now_s, project, options.subject)
    asyncio.run(_revoke(load(options.config, overrides=options.overrides()), gone, now_s))
    sys.stdout.write("revoked\n")
    return 0


async def _revoke(settings: Settings, gone: Revocation, now_s: int) -> None:
    async with open_store(settings) as cluster:
        await cluster.revoke(gone, now_s=now_s)

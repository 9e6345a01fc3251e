"""`voicepipe records`: change the tables of the turn records."""

from __future__ import annotations

import asyncio
import sys

from voicepipe.cli.options import RecordsOptions
from voicepipe.config import load
from voicepipe.wiring.store import downgrade_turns


def run(options: RecordsOptions) -> int:
    """Bring the tables of the turn records that the settings name back to an older version.

    Raises:
        ConfigError: there are none, or there is no way back to that version.
    """
    settings = load(options.config, overrides=options.overrides())
    present = asyncio.run(downgrade_turns(settings, options.version))
    sys.stdout.write(f"version {present} -> {options.version}\n")
    return 0

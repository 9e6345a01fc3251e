"""Make the folder for everything that is written at run time."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from voicepipe.errors import ConfigError
from voicepipe.storage import advice, kind_of

PROBE_BYTES: Final = 65_536
"""Written to the data folder at the start: with less free space the server could not create its files."""


def make_private(data_path: Path) -> None:
    """Create the one folder that is written at run time, for its owner only, and test a write: SQLite's error would be
    less precise.
    """
    try:
        data_path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=data_path) as probe:
            probe.write(bytes(PROBE_BYTES))
    except OSError as problem:
        raise ConfigError(
            f"server.data_dir: expected a folder that can be made and written, got {str(data_path)!r}: "
            f"{problem.strerror or problem}; {advice(kind_of(problem), 'name another folder with --data-dir')}"
        ) from problem

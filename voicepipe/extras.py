"""Name the command that installs an extra of this package."""

from __future__ import annotations

from typing import Final

DISTRIBUTION: Final = "voicepipe-server"
"""The name of this package for pip; `voicepipe` on the package index is another project's."""


def install_command(extra: str) -> str:
    """Return the command that installs an extra of pyproject.toml, for a person in a clone.

    The command requests this package from no index: the package is not published there, and anyone may take the name.
    """
    return f"pip install --editable '.[{extra}]' in the clone of voicepipe"

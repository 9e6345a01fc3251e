"""How a person installs what an extra of this package brings."""

from __future__ import annotations

from typing import Final

DISTRIBUTION: Final = "voicepipe-server"
"""The name of this package for pip; `voicepipe` on the package index is another project's."""


def install_command(extra: str) -> str:
    """Return the command that installs an extra of pyproject.toml, for a person in a clone.

    No index is asked for this package itself: it is not published there, and a name that nobody holds may be taken.
    """
    return f"pip install --editable '.[{extra}]' in the clone of voicepipe"

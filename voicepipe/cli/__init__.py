"""The command line: `voicepipe serve`, `talk`, `check`, `keys`, `token`, `revoke`.

`options` is what can be written, `entry` runs it; each command has a module of its own, imported when it is used.
"""

from voicepipe.cli.entry import main
from voicepipe.cli.options import parser

__all__ = ["main", "parser"]

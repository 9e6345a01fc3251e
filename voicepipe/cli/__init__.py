"""The command line: `voicepipe serve`, `talk`, `check`, `keys`, `token`, `revoke`.

`options` defines the options, `entry` runs the command. Each command has its own module, imported on use.
"""

from voicepipe.cli.main import main
from voicepipe.cli.options import parser

__all__ = ["main", "parser"]

"""The command line: `voicepipe serve`, `talk`, `check`, `keys`, `token`, `revoke`.

`command_line` parses the options, `main` runs the command. Each command has its own module, imported on use.
"""

from voicepipe.cli.command_line import parser
from voicepipe.cli.main import main

__all__ = ["main", "parser"]

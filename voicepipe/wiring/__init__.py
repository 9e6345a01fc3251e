"""The composition root: the only package that builds the parts of one package for another.

`running` builds a server from settings, `serve` runs it in a terminal until it is stopped.
"""

from voicepipe.wiring.serve import run, serve
from voicepipe.wiring.server import Running, running
from voicepipe.wiring.stages import Stages

__all__ = ["Running", "Stages", "run", "running", "serve"]

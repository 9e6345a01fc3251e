"""The composition root: the only room that builds things of one room for another.

`running` turns settings into a server that answers, `serve` runs it in a terminal until it is told to stop.
"""

from voicepipe.wiring.house import Running, running
from voicepipe.wiring.serve import run, serve
from voicepipe.wiring.stages import Stages

__all__ = ["Running", "Stages", "run", "running", "serve"]

"""The composition root: the only package that builds the parts of one package for another.

`running` builds a server from settings, `run` runs it in a terminal until it is stopped. Both load the whole server
when first used: a command that only reads the stored turns needs none of it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from voicepipe.wiring.serve import run
    from voicepipe.wiring.server import Running, running
    from voicepipe.wiring.stages import Stages

__all__ = ["Running", "Stages", "run", "running"]

_MODULES = {"Running": "server", "Stages": "stages", "run": "serve", "running": "server"}


def __getattr__(name: str) -> Any:
    """Return what is imported from here."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

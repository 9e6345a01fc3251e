"""`voicepipe serve`."""

from __future__ import annotations

from voicepipe.cli.options import Options
from voicepipe.config import load


def run(options: Options) -> int:
    """Serve until stopped.

    Raises:
        VoicepipeError: the server could not start; the text says why.
    """
    from voicepipe.wiring.serve import run as serve

    serve(load(options.config, overrides=options.overrides()))
    return 0

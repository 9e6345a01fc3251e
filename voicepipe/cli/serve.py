"""`voicepipe serve`."""

from __future__ import annotations

from voicepipe.cli.options import ServeOptions
from voicepipe.config import load


def run(options: ServeOptions) -> int:
    """Serve until stopped.

    Raises:
        VoicepipeError: the server could not start; the text says why.
    """
    from voicepipe.wiring.serve import run as serve

    serve(load(options.config, overrides=options.overrides()))
    return 0

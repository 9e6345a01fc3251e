"""`voicepipe serve`."""

from __future__ import annotations

from voicepipe.agents import load_file
from voicepipe.cli.options import ServeOptions
from voicepipe.config import load


def run(options: ServeOptions) -> int:
    """Serve until stopped.

    Raises:
        VoicepipeError: the server could not start; the text says why.
    """
    from voicepipe.wiring import workers
    from voicepipe.wiring.serve import print_line
    from voicepipe.wiring.serve import run as serve

    agents = () if options.file is None else load_file(options.file)
    settings = load(options.config, overrides=options.overrides(), agents=agents)
    n_workers = workers.count(settings)
    if n_workers > 1:
        workers.run(settings, n_workers, print_line)
    else:
        serve(settings)
    return 0

"""`voicepipe serve`."""

from __future__ import annotations

from voicepipe.cli.options import ServeOptions
from voicepipe.cli.scripted_llm import scripted_llm
from voicepipe.config.reader import SettingsReader


def run(options: ServeOptions) -> int:
    """Serve until stopped.

    Raises:
        VoicepipeError: the server could not start; the text has the reason.
    """
    from voicepipe.wiring.terminal import print_to_terminal

    with scripted_llm(options, print_to_terminal) as serve_options:
        _serve(serve_options)
    return 0


def _serve(options: ServeOptions) -> None:
    from voicepipe.wiring import workers
    from voicepipe.wiring.terminal import print_to_terminal

    read = SettingsReader(options.config, options.overrides(), options.file)
    settings = read()
    n_workers = workers.count(settings)
    if n_workers > 1:
        workers.run(settings, n_workers, print_to_terminal, read)
    else:
        # Imported late: the supervisor of workers does without all that serves.
        from voicepipe.wiring.serve import run as serve

        serve(settings, read=read)

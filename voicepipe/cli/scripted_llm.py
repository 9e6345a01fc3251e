"""A script in place of the language model: `--llm scripted/FILE.yaml` of `serve`, `talk` and `check`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from voicepipe.cli.options import StageOptions
from voicepipe.values import replace

if TYPE_CHECKING:
    from voicepipe.evals.scripted_models import ScriptedModels

PREFIX: Final = "scripted/"
SUFFIXES: Final = (".yaml", ".yml")

AnyOptions = TypeVar("AnyOptions", bound=StageOptions)


@contextmanager
def scripted_llm(options: AnyOptions, print_line: Callable[[str], None]) -> Iterator[AnyOptions]:
    """Serve the script that `--llm` names, and yield options with its address; other options stay as they are.

    Args:
        options: of the command.
        print_line: gets the line that names what answers.

    Raises:
        ConfigError: the file is no script.
    """
    if not names_a_script(options.llm):
        yield options
        return
    # Imported late: a server without a script needs neither the fake providers nor the reader of YAML.
    from voicepipe.evals.scenario import read_script
    from voicepipe.evals.scripted_models import ScriptedModels

    assert options.llm is not None
    path = Path(options.llm.removeprefix(PREFIX)).expanduser()
    models = ScriptedModels(read_script(path), names_unmatched=True)
    with _served(models):
        print_line(f"NOTE: answers come from the script {path}: no language model runs.")
        yield replace(options, set=(*options.set, f"providers.scripted.base_url={models.base_url}"))


def names_a_script(llm: str | None) -> bool:
    """Return whether an LLM's spec is a script."""
    return llm is not None and llm.startswith(PREFIX) and llm.lower().endswith(SUFFIXES)


@contextmanager
def _served(models: ScriptedModels) -> Iterator[None]:
    """Serve on an event loop of its own: the command's begins later, and may be another process's."""
    ready: Future[Callable[[], object]] = Future()

    async def serve() -> None:
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        async with models.serving():
            ready.set_result(partial(loop.call_soon_threadsafe, stopped.set))
            await stopped.wait()

    with ThreadPoolExecutor(1, thread_name_prefix="scripted-llm") as thread:
        serving = thread.submit(asyncio.run, serve())
        either: list[Future[Any]] = [ready, serving]
        wait(either, return_when=FIRST_COMPLETED)
        if not ready.done():
            serving.result()  # raises why it could not listen
        stop = ready.result()
        try:
            yield
        finally:
            stop()
            serving.result()

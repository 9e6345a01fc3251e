"""Start the engine process: check the machine, take the lock, detach from the starter, serve.

Exit codes, all before it detaches: 0 an engine runs now, this one or another; 2 this machine cannot run it (reason on
stderr).
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import logging
import os
import sys
from pathlib import Path
from typing import Final, NoReturn

from voicepipe.errors import ConfigError
from voicepipe.providers.local.prerequisites import check_engine, check_socket_path, llm_socket

EXIT_CANNOT: Final = 2


def main() -> int:
    """Run the command line. Returns in the starter's child; the engine itself is a grandchild and never returns."""
    parser = argparse.ArgumentParser(prog="voicepipe.providers.local.engine")
    parser.add_argument("--socket", type=Path, required=True, help="where to listen; its folder must be private")
    parser.add_argument("--linger-ms", type=int, default=3_000, help="how long to outlive the last client")
    parser.add_argument("--model-file", type=Path, help="the LLM's (GGUF), or that of smart-turn (ONNX)")
    arguments = parser.parse_args()
    socket_path: Path = arguments.socket.absolute()
    try:
        check_socket_path(socket_path)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_CANNOT
    os.umask(0o077)
    lock = os.open(socket_path.with_name(socket_path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        # Held through the fork and until the end of the process: two engines never share a socket.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0
    if not os.fork():
        _detach(socket_path)
        _serve(socket_path, arguments.model_file, arguments.linger_ms)
    return 0


def _detach(socket_path: Path) -> None:
    """Detach from the starter's terminal, whose Ctrl-C must not end an engine that others use; its output goes to a
    file."""
    os.setsid()
    log = os.open(socket_path.with_name(socket_path.name + ".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for number in (1, 2):
        os.dup2(log, number)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")


def _serve(socket_path: Path, model_file: Path | None, linger_ms: int) -> NoReturn:
    # Only now: the models' libraries start threads, which a fork would lose.
    from voicepipe.providers.local.engine.daemon import Daemon, Loaders
    from voicepipe.providers.local.engine.hibari import Hibari
    from voicepipe.providers.local.engine.llama_cpp import LlamaCpp, gguf_file, smollm2
    from voicepipe.providers.local.engine.moonshine import Moonshine
    from voicepipe.providers.local.engine.smart_turn import SmartTurn

    def load_stt() -> Moonshine:
        check_engine(("stt",), None)
        return Moonshine()

    def load_llm() -> LlamaCpp:
        check_engine(("llm",), model_file)
        return LlamaCpp(llm_socket(socket_path), smollm2() if model_file is None else gguf_file(model_file))

    def load_tts() -> Hibari:
        check_engine(("tts",), None)
        return Hibari()

    def load_endpoint() -> SmartTurn:
        return SmartTurn(model_file)

    loaders: Loaders = {"stt": load_stt, "llm": load_llm, "tts": load_tts, "endpoint": load_endpoint}

    async def run() -> None:
        await Daemon(loaders, linger_ms=linger_ms).serve(socket_path)

    code = 1
    try:
        socket_path.unlink(
            missing_ok=True
        )  # of a killed engine: this process holds the lock, so no process listens there
        asyncio.run(run())
        code = 0
    except Exception:
        logging.exception("the engine failed")
    finally:
        llm_socket(socket_path).unlink(missing_ok=True)
        # The threads of three native runtimes may be inside a native call; stopping them in order takes seconds.
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())

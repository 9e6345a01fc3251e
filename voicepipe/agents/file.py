"""Load the agents of a Python file."""

from __future__ import annotations

import runpy
import sys
import traceback
from pathlib import Path

from voicepipe.agents.agent import Agent
from voicepipe.errors import ConfigError


def load_file(path: Path) -> tuple[Agent, ...]:
    """Run a file, and return the agents among its names, in their order. It may import modules of its folder.

    Raises:
        ConfigError: the file cannot be read, fails, or has no agent; the text has the line that failed.
    """
    if not path.is_file():
        raise ConfigError(f"expected a Python file with an agent, got {str(path)!r}, which does not exist")
    if (folder := str(path.parent.absolute())) not in sys.path:
        sys.path.append(folder)  # last: a file called `mcp.py` must not take the place of an installed package
    try:
        names = runpy.run_path(str(path))
    except ConfigError:
        raise
    except (Exception, SystemExit) as why:  # a reload must not end the server
        lines = [frame.lineno for frame in traceback.extract_tb(why.__traceback__) if frame.filename == str(path)]
        at = f", line {lines[-1]}" if lines else ""
        raise ConfigError(f"{path}{at}: {type(why).__name__}: {why}") from why
    agents = tuple({id(value): value for value in names.values() if isinstance(value, Agent)}.values())
    if not agents:
        raise ConfigError(f"{path}: expected an agent, such as agent = Agent(...), got none")
    if len({agent.name for agent in agents}) < len(agents):
        raise ConfigError(f"{path}: expected agents of different names, got two of one name")
    return agents

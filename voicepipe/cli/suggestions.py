"""A parser of the command line that says "did you mean" for a mistyped command."""

from __future__ import annotations

import argparse
import difflib
from typing import Any


class SuggestingParser(argparse.ArgumentParser):
    """Refuses an unknown command with the one that looks most like it; its subparsers do so too."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        # argparse has no public hook for this before Python 3.14.
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        near = difflib.get_close_matches(str(value), choices, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise argparse.ArgumentError(action, f"expected one of {', '.join(choices)}, got {value!r}{hint}")

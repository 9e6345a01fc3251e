"""A parser of the command line that suggests a name for a mistyped command or option."""

from __future__ import annotations

import argparse
import difflib
from typing import Any


class SuggestingParser(argparse.ArgumentParser):
    """Refuses an unknown command or option with the one that looks most like it; its subparsers do so too."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does, but refuse an unknown option at once."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            names = {name.lstrip("-"): name for name in self._option_string_actions}
            option = str(unknown[0]).partition("=")[0].lstrip("-")
            near = difflib.get_close_matches(option, list(names), n=1)
            self.error(f"unknown: {' '.join(unknown)}{f'; did you mean {names[near[0]]}?' if near else ''}")
        return found, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        # argparse has no public hook for this before Python 3.14.
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        near = difflib.get_close_matches(str(value), choices, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise argparse.ArgumentError(action, f"expected one of {', '.join(choices)}, got {value!r}{hint}")

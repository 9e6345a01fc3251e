"""A network namespace of its own for the store, which can be cut off: its answers vanish, as on a broken network.

Needs Linux, root and iproute2.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


class NoNamespacesError(Exception):
    """This machine, or this user, can't make network namespaces."""


@dataclass(frozen=True, slots=True)
class StoreNamespace:
    """A namespace with one address, joined to this machine's by a pair of interfaces."""

    name: str
    own_address: str
    """This machine's, as the namespace sees it."""

    address: str
    """The namespace's."""

    @property
    def prefix(self) -> tuple[str, ...]:
        """Return the beginning of a command that runs in it."""
        return ("ip", "netns", "exec", self.name)

    def cut(self) -> None:
        """Drop all that leaves it: requests arrive and have their effect, and no answer comes, no error either."""
        run_ip("-n", self.name, "route", "add", "blackhole", f"{self.own_address}/32")

    def heal(self) -> None:
        """Let it answer again."""
        run_ip("-n", self.name, "route", "del", "blackhole", f"{self.own_address}/32")


@contextmanager
def store_namespace() -> Iterator[StoreNamespace]:
    """Make a namespace for the duration of the block.

    Raises:
        NoNamespacesError: it can't be made; the text says why.
    """
    if os.geteuid() != 0 or shutil.which("ip") is None:
        raise NoNamespacesError("expected root and the program `ip` (Debian's package iproute2)")
    number = os.getpid() % 16_000
    base = f"10.213.{number // 64}.{number % 64 * 4}".rsplit(".", 1)
    near, far = (f"{base[0]}.{int(base[1]) + host}" for host in (1, 2))
    namespace = StoreNamespace(f"vp-{os.getpid()}", near, far)
    ours, there = f"vpa{os.getpid()}", f"vpb{os.getpid()}"
    run_ip("netns", "add", namespace.name)
    try:
        run_ip("link", "add", ours, "type", "veth", "peer", "name", there, "netns", namespace.name)
        try:
            run_ip("addr", "add", f"{near}/30", "dev", ours)
            run_ip("link", "set", ours, "up")
            run_ip("-n", namespace.name, "addr", "add", f"{far}/30", "dev", there)
            run_ip("-n", namespace.name, "link", "set", there, "up")
            yield namespace
        finally:
            run_ip(
                "link", "del", ours
            )  # now: with its namespace it goes some time later, and its name is taken so long
    finally:
        run_ip("netns", "del", namespace.name)


def run_ip(*arguments: str) -> None:
    """Run `ip` with these arguments.

    Raises:
        NoNamespacesError: it failed; the text says why.
    """
    done = subprocess.run(("ip", *arguments), capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoNamespacesError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")

"""Try the firewalls of the guide for three hosts: `python -m tests.measure.firewall`.

It makes two network namespaces, a host with the rules and one that has the addresses of all others, and connects from
each address to each port. Needs Linux, root, iproute2 and nftables.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.measure.store_namespace import NoNamespacesError, run_ip

NODES: Final = Path(__file__).parents[2] / "deploy" / "nodes"

HOSTS: Final = {"balancer": "10.0.0.10", "store": "10.0.0.20", "node": "10.0.0.12", "stranger": "10.0.0.99"}

HOST: Final = "10.0.0.11"
"""The host with the rules. To the rules of the store this address does not matter."""

LISTENING: Final = """
import selectors, socket, sys
ports = [socket.create_server(("0.0.0.0", int(port))) for port in sys.argv[1:]]
print("ready", flush=True)
reading = selectors.DefaultSelector()
for each in ports:
    reading.register(each, selectors.EVENT_READ)
while True:
    for key, _ in reading.select():
        key.fileobj.accept()[0].close()
"""

CONNECTING: Final = """
import socket, sys
host, port, source = sys.argv[1:]
try:
    socket.create_connection((host, int(port)), timeout=5, source_address=(source, 0)).close()
    print("connects")
except ConnectionRefusedError:
    print("refused")
"""


@contextlib.contextmanager
def two_hosts() -> Iterator[tuple[str, str]]:
    """Make the two namespaces for the duration of the block; yield their names."""
    host, others = f"vpf-{os.getpid()}", f"vpo-{os.getpid()}"
    with contextlib.ExitStack() as stack:
        for name in (host, others):
            run_ip("netns", "add", name)
            stack.callback(run_ip, "netns", "del", name)
        run_ip("-n", host, "link", "add", "near", "type", "veth", "peer", "name", "far", "netns", others)
        for name, interface, addresses in ((host, "near", (HOST,)), (others, "far", tuple(HOSTS.values()))):
            for address in addresses:
                run_ip("-n", name, "addr", "add", f"{address}/24", "dev", interface)
            for each in (interface, "lo"):
                run_ip("-n", name, "link", "set", each, "up")
        yield host, others


def measure(rules: Path, ports: tuple[int, ...]) -> Iterator[str]:
    """Yield a line for each address and port."""
    with two_hosts() as (host, others), contextlib.ExitStack() as stack:
        subprocess.run(("ip", "netns", "exec", host, "nft", "--file", str(rules)), check=True)
        listening = stack.enter_context(
            subprocess.Popen(
                ("ip", "netns", "exec", host, sys.executable, "-c", LISTENING, *map(str, ports)),
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        stack.callback(listening.kill)
        assert listening.stdout is not None
        listening.stdout.readline()
        for port in ports:
            for name, source, namespace in (*((n, a, others) for n, a in HOSTS.items()), ("itself", "127.0.0.1", host)):
                target = "127.0.0.1" if namespace == host else HOST
                done = subprocess.run(
                    ("ip", "netns", "exec", namespace, sys.executable, "-c", CONNECTING, target, str(port), source),
                    capture_output=True,
                    text=True,
                    check=False,
                )
                yield f"| {rules.name} | {port} | {name} | {done.stdout.strip() or done.stderr.strip()} |"


def main() -> int:
    """Print the table."""
    sys.stdout.write("| rules | port | from | |\n| --- | --- | --- | --- |\n")
    try:
        for line in (
            *measure(NODES / "firewall.nft", (8080, 6379, 22)),
            *measure(NODES / "firewall-store.nft", (6379, 5432)),
        ):
            sys.stdout.write(f"{line}\n")
    except NoNamespacesError as why:
        sys.stderr.write(f"firewall: {why}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

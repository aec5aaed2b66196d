"""Hosts that are network namespaces of this machine, on links with a known rate."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "support"))

import networks  # noqa: E402  (needs the line above)

BURST_BYTES = 16 * 1024
"""Bytes that a link may pass at once above its rate."""


def why_not() -> str | None:
    """Return why this machine cannot make such hosts; None if it can."""
    import shutil

    return networks.why_not() or (None if shutil.which("tc") else "needs `tc`, of iproute2")


class CappedHosts:
    """Hosts on a bridge, whose network cards have a capped sending rate.

    Args:
        names: Names of the hosts, at most 5 letters each.

    Attributes:
        addresses: The address of each host, by name.
        here: The address of this machine on the bridge.
    """

    def __init__(self, *names: str) -> None:
        self._id = os.getpid() % 10_000
        subnet = f"10.{214 + self._id // 256}.{self._id % 256}"
        self._bridge = f"dbr{self._id}"
        self.here = f"{subnet}.1"
        self.addresses = {name: f"{subnet}.{2 + number}" for number, name in enumerate(names)}

    def __enter__(self) -> Self:
        self._remove()
        networks.ip("link", "add", self._bridge, "type", "bridge")
        networks.ip("addr", "add", f"{self.here}/24", "dev", self._bridge)
        networks.ip("link", "set", self._bridge, "up")
        for name, address in self.addresses.items():
            outside, namespace = f"d{self._id}{name}", self.namespace(name)
            networks.ip("netns", "add", namespace)
            peer = ("peer", "name", "eth0", "netns", namespace)
            networks.ip("link", "add", outside, "type", "veth", *peer)
            networks.ip("link", "set", outside, "master", self._bridge)
            networks.ip("link", "set", outside, "up")
            self.on(name, "link", "set", "lo", "up")
            self.on(name, "addr", "add", f"{address}/24", "dev", "eth0")
            self.on(name, "link", "set", "eth0", "up")
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def namespace(self, name: str) -> str:
        """Return the name of a host's network namespace."""
        return f"distrain-{self._id}-{name}"

    def on(self, name: str, *words: str) -> None:
        """Run `ip` on a host."""
        networks.ip("-n", self.namespace(name), *words)

    def wrapper(self, name: str) -> list[str]:
        """Return the words to put before a command, to run it on a host under the host's name."""
        words = ["ip", "netns", "exec", self.namespace(name), "unshare", "--uts"]
        return [*words, "sh", "-c", f'hostname {name} && exec "$@"', "sh"]

    def cap(self, mbit: int) -> None:
        """Cap the sending rate of each host at `mbit` Mbit/s; 0: no cap."""
        words = f"replace dev eth0 root tbf rate {mbit}mbit burst {BURST_BYTES} latency 400ms"
        for name in self.addresses:
            inside = ("ip", "netns", "exec", self.namespace(name), "tc", "qdisc")
            asked = words if mbit else "replace dev eth0 root pfifo"
            subprocess.run([*inside, *asked.split()], check=True, capture_output=True)

    def cap_link(self, name: str, to: str, mbit: int, others_mbit: int) -> None:
        """Cap the rate from one host to another, and its rate to all other hosts together."""
        tc = ("ip", "netns", "exec", self.namespace(name), "tc")
        for words in (
            "qdisc del dev eth0 root",
            "qdisc add dev eth0 root handle 1: htb default 10",
            f"class add dev eth0 parent 1: classid 1:10 htb rate {others_mbit}mbit",
            f"class add dev eth0 parent 1: classid 1:20 htb rate {mbit}mbit",
            f"filter add dev eth0 parent 1: protocol ip u32 match ip dst {self.addresses[to]}/32 "
            "flowid 1:20",
        ):
            subprocess.run([*tc, *words.split()], check=True, capture_output=True)

    def _remove(self) -> None:
        for name in self.addresses:
            subprocess.run(
                ["ip", "netns", "del", self.namespace(name)], check=False, capture_output=True
            )
        subprocess.run(["ip", "link", "del", self._bridge], check=False, capture_output=True)

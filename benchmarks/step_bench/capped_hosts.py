"""Hosts that are network namespaces of this machine, on links with a known rate."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "support"))

import networks  # noqa: E402  (needs the line above)

BURST_BYTES = 16 * 1024
"""Bytes that a link may pass at once above its rate."""


def why_not() -> str | None:
    """Return why this machine cannot make such hosts; None if it can."""
    import shutil

    return networks.why_not() or (None if shutil.which("tc") else "needs `tc`, of iproute2")


class CappedHosts(networks.ManyHosts):
    """Hosts whose network cards have a capped sending rate."""

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

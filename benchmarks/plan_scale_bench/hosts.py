"""Hosts that are network namespaces of this machine, on links of a known rate, with a rank each."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "support"))

import networks  # noqa: E402  (needs the line above)

BURST_BYTES = 16 * 1024
"""What a link passes at once above its rate."""


def why_not() -> str | None:
    """Why this machine cannot do it, if it cannot."""
    import shutil

    return networks.why_not() or (None if shutil.which("tc") else "needs `tc`, of iproute2")


class CappedHosts(networks.ManyHosts):
    """Hosts whose network cards send no faster than they are told to."""

    def cap(self, mbit: int) -> None:
        """Let each send so many Mbit/s; 0: as fast as it can."""
        words = f"replace dev eth0 root tbf rate {mbit}mbit burst {BURST_BYTES} latency 400ms"
        for name in self.addresses:
            inside = ("ip", "netns", "exec", self.namespace(name), "tc", "qdisc")
            asked = words if mbit else "replace dev eth0 root pfifo"
            subprocess.run([*inside, *asked.split()], check=True, capture_output=True)

    def cap_link(self, name: str, to: str, mbit: int, others_mbit: int) -> None:
        """Let one host send another so many Mbit/s, and `others_mbit` to all others together."""
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


class Ranks:
    """Processes on hosts, one on each, that take orders."""

    def __init__(self, hosts: CappedHosts, log: Path):
        self._log = log.open("w")
        self.processes = [
            subprocess.Popen(
                ["ip", "netns", "exec", hosts.namespace(name), *_PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
                start_new_session=True,
                cwd=ROOT,
                env=os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"},
            )
            for name in hosts.addresses
        ]

    def __call__(self, orders: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Hand the first ranks an order each; their answers.

        Raises:
            RuntimeError: One of them ended, or says that it failed.
        """
        asked = self.processes[: len(orders)]
        for process, order in zip(asked, orders, strict=True):
            assert process.stdin is not None
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
        answers = []
        for number, process in enumerate(asked):
            assert process.stdout is not None
            line = process.stdout.readline()
            answer = json.loads(line) if line else {"error": f"it ended: {process.wait()}"}
            if "error" in answer:
                raise RuntimeError(f"rank {number} of {len(asked)}: {answer}; {self._log.name}")
            answers.append(answer)
        return answers

    def hurry(self, nice: int) -> None:
        """Give them another share of the cores than what else runs here has; -20 is the most."""
        for process in self.processes:
            os.setpriority(os.PRIO_PROCESS, process.pid, nice)
            # Where the kernel groups processes by session, it weighs those groups instead.
            group = Path(f"/proc/{process.pid}/autogroup")
            if group.exists():
                group.write_text(str(nice))

    def end(self) -> None:
        """End all of them."""
        for process in self.processes:
            process.kill()
            process.communicate()
        self._log.close()


_PROGRAM = (sys.executable, "-m", "benchmarks.plan_scale_bench.rank")


@contextmanager
def ranks_on_hosts(number: int, log: Path) -> Iterator[tuple[CappedHosts, Ranks]]:
    """So many hosts with a rank on each, and nothing of them afterwards."""
    with CappedHosts(*(f"n{rank}" for rank in range(number))) as hosts:
        ranks = Ranks(hosts, log)
        try:
            yield hosts, ranks
        finally:
            ranks.end()

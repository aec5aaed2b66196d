"""What connects a comparison's ranks: nothing but this machine, or links of a known rate."""

import contextlib
from collections.abc import Iterator

from benchmarks.step_bench.capped_hosts import CappedHosts, why_not
from benchmarks.step_bench.cases import Comparison


class Links:
    """The hosts that ranks run on.

    Args:
        hosts: One for each rank; `None`: all ranks run on this machine as it is.
    """

    def __init__(self, hosts: CappedHosts | None = None):
        self._hosts = hosts

    def wrapper(self, rank: int) -> list[str]:
        """Words before a command that run it on a rank's host."""
        if self._hosts is None:
            return []
        namespace = self._hosts.namespace(host_name(rank))
        return ["ip", "netns", "exec", namespace, "env", "GLOO_SOCKET_IFNAME=eth0"]

    def cap(self, mbit: int) -> None:
        """Let each host send so many Mbit/s; 0: as fast as it can."""
        if self._hosts is not None:
            self._hosts.cap(mbit)


def host_name(rank: int) -> str:
    """Of the host on which a rank runs."""
    return f"n{rank}"


@contextlib.contextmanager
def linked(comparison: Comparison) -> Iterator[Links]:
    """Hosts for the ranks of a comparison on links, and nothing of them afterwards.

    Raises:
        SystemExit: This machine makes none.
    """
    if not comparison.mbits:
        yield Links()
        return
    if reason := why_not():
        raise SystemExit(f"--mbit {reason}")
    with CappedHosts(*(host_name(rank) for rank in range(comparison.ranks))) as hosts:
        yield Links(hosts)

"""The links between a comparison's ranks: this machine itself, or links with a capped rate."""

import contextlib
from collections.abc import Iterator

from benchmarks.step_bench.capped_hosts import CappedHosts, why_not
from benchmarks.step_bench.cases import Comparison


class Links:
    """The hosts that ranks run on.

    Args:
        hosts: One for each rank; `None`: all ranks run directly on this machine.
    """

    def __init__(self, hosts: CappedHosts | None = None):
        self._hosts = hosts

    def wrapper(self, rank: int) -> list[str]:
        """Return the words to put before a command, to run it on a rank's host."""
        if self._hosts is None:
            return []
        namespace = self._hosts.namespace(host_name(rank))
        return ["ip", "netns", "exec", namespace, "env", "GLOO_SOCKET_IFNAME=eth0"]

    def cap(self, mbit: int) -> None:
        """Cap the sending rate of each host at `mbit` Mbit/s; 0: no cap."""
        if self._hosts is not None:
            self._hosts.cap(mbit)


def host_name(rank: int) -> str:
    """Return the name of a rank's host."""
    return f"n{rank}"


@contextlib.contextmanager
def linked(comparison: Comparison) -> Iterator[Links]:
    """Make the hosts for a comparison's ranks; removes them afterwards.

    Raises:
        SystemExit: This machine cannot make them.
    """
    if not comparison.mbits:
        yield Links()
        return
    if reason := why_not():
        raise SystemExit(f"--mbit {reason}")
    with CappedHosts(*(host_name(rank) for rank in range(comparison.ranks))) as hosts:
        yield Links(hosts)

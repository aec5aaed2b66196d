"""`python -m distrain.diagnostics.bench.measuring.rank`: one rank of a collectives benchmark.

Reads a request from stdin as JSON, and writes measures to stdout as JSON: those of groups whose
first rank is this rank, and those of links on which it sends.
"""

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from distrain.diagnostics.bench.measuring.sizes import MOST_PAIRED_NODES


@dataclass(frozen=True)
class Among:
    """A group of ranks that together measure collectives, and its name in results."""

    suffix: str  # of the measures' names, such as `.off_node`
    place: str
    ranks: list[int]


def groups_of(hosts: list[str]) -> list[list[Among]]:
    """Return the phases of a benchmark, each a list of groups that measure at the same time.

    The phases are: the ranks of each node; the first ranks of all nodes; all ranks. A phase without
    a group of several ranks, or equal to an earlier phase, is left out.

    Args:
        hosts: The node of each rank.

    >>> [[(g.suffix, g.place, g.ranks) for g in phase] for phase in groups_of(["a", "a", "b"])]
    ... # doctest: +NORMALIZE_WHITESPACE
    [[('.on_node', 'node a', [0, 1])], [('.off_node', '2 nodes', [0, 2])],
     [('', '3 ranks', [0, 1, 2])]]
    """
    nodes = {host: [r for r, h in enumerate(hosts) if h == host] for host in dict.fromkeys(hosts)}
    inside = [Among(".on_node", f"node {h}", ranks) for h, ranks in nodes.items() if len(ranks) > 1]
    phases = [inside] if inside else []
    if len(nodes) > 1:
        first = [ranks[0] for ranks in nodes.values()]
        phases.append([Among(".off_node", f"{len(nodes)} nodes", first)])
        if inside:
            phases.append([Among("", f"{len(hosts)} ranks", list(range(len(hosts))))])
    return phases


def pairs_of(nodes: int) -> Iterator[tuple[int, int]]:
    """Yield the pairs of nodes to measure, as indices of sender and receiver.

    These are all ordered pairs; above `MOST_PAIRED_NODES` nodes, only each node and the next one.

    >>> list(pairs_of(2)), len(list(pairs_of(8))), list(pairs_of(9))[-1]
    ([(0, 1), (1, 0)], 56, (8, 0))
    """
    if nodes > MOST_PAIRED_NODES:
        yield from ((node, (node + 1) % nodes) for node in range(nodes))
        return
    yield from ((a, b) for a in range(nodes) for b in range(nodes) if a != b)


class Measuring:
    """The measurements of one rank; the results are in `measures`, as fields of `Measure`."""

    def __init__(self, request: dict[str, Any], device: torch.device) -> None:
        self.request, self.device = request, device
        self.rank: int = request["rank"]
        self.repeats: int = request["repeats"]
        self.measures: list[dict[str, Any]] = []

    def collectives(self) -> None:
        """Measure all collectives in all groups, phase by phase.

        For a collective and group, message sizes are measured in ascending order, until the next
        size would take longer than `message_budget_s` of the request.
        """
        for phase in groups_of(self.request["hosts"]):
            # `new_group` is collective: every rank must create each group.
            peer = timedelta(seconds=self.request["peer_s"])
            made = [(among, dist.new_group(among.ranks, timeout=peer)) for among in phase]
            for among, group in made:
                if self.rank in among.ranks:
                    self._of_group(among, group)
            dist.barrier()

    def _of_group(self, among: Among, group: Any) -> None:
        count = len(among.ranks)
        for name, make in (
            ("all_reduce", self._all_reduce),
            ("all_gather", self._all_gather),
            ("all_to_all", self._all_to_all),
        ):
            # The bus bandwidth of nccl-tests: bytes on each rank's link.
            share = (2 if name == "all_reduce" else 1) * (count - 1) / count
            took_s, before = 0.0, 0
            for size in self.request["message_bytes"]:
                expected_s = took_s * (self.repeats + 1) * (size / before if before else 0.0)
                if expected_s > self.request["message_budget_s"]:
                    break
                values = max(1, size // (4 * count)) * count
                seconds = self._timed(make(values, count, group), group)
                took_s, before = median(seconds), size
                if self.rank == among.ranks[0]:
                    rates = [share * 4 * values / s for s in seconds]
                    self._keep(name + among.suffix, among.place, size, rates)

    def _all_reduce(self, values: int, count: int, group: Any) -> Callable[[], object]:
        tensor = torch.zeros(values, device=self.device)
        return lambda: dist.all_reduce(tensor, group=group)

    def _all_gather(self, values: int, count: int, group: Any) -> Callable[[], object]:
        out = torch.zeros(values, device=self.device)
        own = torch.zeros(values // count, device=self.device)
        # Later versions of torch renamed this function.
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        return lambda: gather(out, own, group=group)

    def _all_to_all(self, values: int, count: int, group: Any) -> Callable[[], object]:
        from distrain.models.embeddings.peers import all_to_all

        out, own = (torch.zeros(values, device=self.device) for _ in range(2))
        each = [values // count] * count
        return lambda: all_to_all(out, own, each, each, group)  # as ranks exchange rows

    def _timed(self, work: Callable[[], object], group: Any) -> list[float]:
        """Return the seconds that the slowest rank of a group takes, in each repetition."""
        seconds = []
        for _ in range(self.repeats + 1):
            dist.barrier(group=group)
            start_s = time.perf_counter()
            work()
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
            seconds.append(time.perf_counter() - start_s)
        slowest = torch.tensor(seconds[1:], dtype=torch.float64, device=self.device)
        dist.all_reduce(slowest, dist.ReduceOp.MAX, group=group)
        return [float(value) for value in slowest.tolist()]

    def links(self) -> None:
        """Measure the links between the first ranks of nodes, one pair after another.

        All ranks must call this. Only the sender keeps the rates of a pair.
        """
        hosts = self.request["hosts"]
        first = {host: hosts.index(host) for host in dict.fromkeys(hosts)}
        names = list(first)
        for a, b in pairs_of(len(names)) if len(names) > 1 else ():
            sender, receiver = first[names[a]], first[names[b]]
            if self.rank in (sender, receiver):
                rates = self._send(sender, receiver)
                if self.rank == sender:
                    place = f"link {names[a]} > {names[b]}"
                    self._keep("link", place, self.request["link_bytes"], rates)
            dist.barrier()

    def _send(self, sender: int, receiver: int) -> list[float]:
        # Gloo sends only from host memory.
        on = torch.device("cpu") if dist.get_backend() == "gloo" else self.device
        tensor = torch.zeros(self.request["link_bytes"] // 4, device=on)
        word = torch.zeros(1, device=on)
        rates = []
        for _ in range(self.repeats + 1):
            if self.rank == sender:
                start_s = time.perf_counter()
                dist.send(tensor, receiver)
                dist.recv(word, receiver)  # acknowledgement
                if self.device.type == "cuda":  # NCCL's calls are asynchronous
                    torch.cuda.synchronize(self.device)
                rates.append(4 * len(tensor) / (time.perf_counter() - start_s))
            else:
                dist.recv(tensor, sender)
                dist.send(word, sender)
        return rates[1:]

    def _keep(self, name: str, place: str, size_bytes: int, rates: list[float]) -> None:
        self.measures.append(
            {
                "name": name,
                "place": place,
                "unit": "bytes/s",
                "values": rates,
                "size_bytes": size_bytes,
            }
        )


def main() -> None:
    request = json.load(sys.stdin)
    signal.alarm(int(request["limit_s"]))
    from distrain.train.control.rank_setup import choose_backend

    device = torch.device("cuda", 0) if request["device"] == "cuda" else torch.device("cpu")
    timeout = timedelta(seconds=request["peer_s"])
    host, port = request["store"]
    store = dist.TCPStore(host, port, is_master=False, timeout=timeout)
    backend = choose_backend(device)
    dist.init_process_group(
        backend,
        store=dist.PrefixStore(request["key"], store),
        rank=request["rank"],
        world_size=len(request["workers"]),
        # Ranks outside a phase's groups wait for the ranks that measure.
        timeout=timedelta(seconds=request["limit_s"]),
        device_id=device if backend == "nccl" else None,
    )
    measuring = Measuring(request, device)
    measuring.collectives()
    measuring.links()
    dist.destroy_process_group()
    print(json.dumps(measuring.measures), flush=True)


if __name__ == "__main__":
    main()

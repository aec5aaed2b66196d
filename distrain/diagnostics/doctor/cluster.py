"""Examines a running cluster: queries all its processes at the same time, with a timeout."""

import asyncio
import random
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar
from uuid import uuid4

from distributed.comm.addressing import get_address_host

from distrain.diagnostics.doctor import links, probes
from distrain.diagnostics.doctor.facts import (
    ClusterFacts,
    FolderSeen,
    Link,
    ProcessFacts,
    ProcessPlace,
    ProcessRole,
)
from distrain.diagnostics.doctor.report import Report, judge

Answer = TypeVar("Answer")

MOST_WRITERS = 16
MOST_HOSTS_IN_PAIRS = 16
PEERS_OF_MANY = 8
CONNECT_S = 5.0
_END_S = 10.0


def examine_cluster(
    client: Any, run_root: str = "", device: str = "auto", timeout_s: float = 20.0
) -> Report:
    """Examine the cluster of a `distributed.Client`.

    Jobs continue to run. For some seconds, the cluster's hosts listen at free ports, and each
    worker and this process has a file in `run_root`.

    Args:
        run_root: The folder that all workers should share; "" to skip this check.
        device: The device of jobs: `auto`, `cpu`, `cuda`.
        timeout_s: Timeout for the answers of all processes in each step.
    """
    info = client.scheduler_info(n_workers=-1)
    examination = _Examination(client, info, timeout_s)
    work = examination.run(run_root, device)
    future = asyncio.run_coroutine_threadsafe(work, client.loop.asyncio_loop)
    try:
        seen = future.result()
    except KeyboardInterrupt:
        future.cancel()
        examination.ended.wait(_END_S)  # the examination is removing its files
        raise
    return Report(seen, tuple(judge(seen)))


class _Examination:
    """One examination of a cluster by `examine_cluster`, to be run once, in Dask's event loop.

    `ended` is set when its files and listeners are removed.
    """

    def __init__(self, client: Any, info: Mapping[str, Any], timeout_s: float):
        self._client = client
        self._timeout_s = timeout_s
        self.scheduler = ProcessPlace(ProcessRole.SCHEDULER, info["address"])
        self.here = ProcessPlace(ProcessRole.CLIENT)
        self.workers = [_worker(address, facts) for address, facts in info["workers"].items()]
        self._silent: dict[ProcessPlace, str] = {}
        self._key = f".distrain-doctor-{uuid4().hex[:12]}"
        self._run_root = ""
        self._files: dict[ProcessPlace, str] = {}
        self._listeners: list[ProcessPlace] = []
        self.ended = threading.Event()

    async def run(self, run_root: str, device: str) -> ClusterFacts:
        try:
            return await self._run(run_root, device)
        finally:
            await self._clean_up()
            self.ended.set()

    async def _run(self, run_root: str, device: str) -> ClusterFacts:
        self._run_root = run_root
        everywhere = [self.scheduler, self.here, *self.workers]
        answers = await self._ask_all(everywhere, probes.look, lambda p: (get_host(p),))
        facts = {place: ProcessFacts.from_json(values) for place, values in answers.items()}
        seen = ClusterFacts(self.scheduler.address, facts, device=device, run_root=run_root)
        links_seen, not_listening = await self._try_links(facts)
        users = [place for place in facts if place.role is not ProcessRole.SCHEDULER]
        folders_seen = await self._compare_folders(users) if run_root else {}
        return replace(
            seen,
            silent=self._silent,
            folders=folders_seen,
            links=links_seen,
            not_listening=not_listening,
        )

    async def _clean_up(self) -> None:
        files, self._files = self._files, {}
        listeners, self._listeners = self._listeners, []
        # The folder is shared, so other processes can remove the files of silent processes.
        left = [name for place, name in files.items() if place in self._silent]
        names = {place: [name, *left] for place, name in files.items()}
        await asyncio.gather(
            self._ask_all(files, probes.remove_files, lambda p: (self._run_root, names[p])),
            self._ask_all(listeners, links.stop_listening, lambda p: (self._key,)),
        )

    async def _compare_folders(self, places: list[ProcessPlace]) -> dict[ProcessPlace, FolderSeen]:
        names = {place: f"{self._key}-{number}" for number, place in enumerate(places)}
        self._files = dict(names)
        left = await self._ask_all(places, probes.leave_file, lambda p: (self._run_root, names[p]))
        seen = {place: FolderSeen(**values) for place, values in left.items()}
        written = [place for place, folder in seen.items() if not folder.trouble]
        writers = sorted(written)[:: max(1, -(-len(written) // MOST_WRITERS))]
        wanted = [names[place] for place in writers]
        answers = await self._ask_all(
            written, probes.find_files, lambda p: (self._run_root, wanted)
        )
        for place, there in answers.items():
            missing = tuple(p for p in writers if names[p] not in there)
            seen[place] = replace(seen[place], missing=missing)
        return seen

    async def _try_links(
        self, facts: Mapping[ProcessPlace, ProcessFacts]
    ) -> tuple[tuple[Link, ...], dict[ProcessPlace, str]]:
        hosts = one_per_host({p: f for p, f in facts.items() if p.role is ProcessRole.WORKER})
        lifetime_s = 3 * self._timeout_s + 2 * CONNECT_S
        self._listeners = [*hosts, self.scheduler]
        not_listening: dict[ProcessPlace, str] = {}
        scheduler_host = get_host(self.scheduler)
        ports = await self._ask_all(
            hosts,
            links.listen,
            lambda p: (self._key, facts[p].rank_address, lifetime_s),
            not_listening,
        )
        words = (self._key, scheduler_host, await self._listens_at(), lifetime_s)
        at_scheduler = await self._ask_all(
            [self.scheduler], links.listen_for_rendezvous, lambda p: words, not_listening
        )
        tried: dict[ProcessPlace, list[Link]] = {
            source: [
                Link(source, target, _joined(facts[target].rank_address, ports[target][0]))
                for target in targets
                if target in ports
            ]
            + [
                Link(source, self.scheduler, _joined(scheduler_host, port), rendezvous=True)
                for port in at_scheduler.get(self.scheduler, [])
            ]
            for source, targets in choose_pairs(hosts).items()
        }
        targets = {p: [_split(link.address) for link in tries] for p, tries in tried.items()}
        answers = await self._ask_all(tried, links.try_links, lambda p: (targets[p], CONNECT_S))
        return tuple(
            replace(link, trouble=trouble)
            for source, troubles in answers.items()
            for link, trouble in zip(tried[source], troubles, strict=True)
        ), not_listening

    async def _listens_at(self) -> str:
        answers = await self._ask_all([self.scheduler], probes.listens_at, lambda p: (), {})
        return str(answers.get(self.scheduler, ""))

    async def _ask_all(
        self,
        places: Iterable[ProcessPlace],
        function: Callable[..., Any],
        arguments: Callable[[ProcessPlace], tuple[Any, ...]],
        troubles: dict[ProcessPlace, str] | None = None,
    ) -> dict[ProcessPlace, Any]:
        """Call `function` in the processes at `places`, and return the results by place.

        Errors are put into `troubles`, by place. If `troubles` is `None`, a process with an error
        counts as silent, like a process without an answer within the timeout. Processes that are
        already silent are not called, and processes without a result are left out.
        """
        return await self._gather(
            places, lambda place: self._ask(place, function, *arguments(place)), troubles
        )

    async def _gather(
        self,
        places: Iterable[ProcessPlace],
        work: Callable[[ProcessPlace], Any],
        troubles: dict[ProcessPlace, str] | None = None,
    ) -> dict[ProcessPlace, Any]:
        async def bounded(place: ProcessPlace) -> Any:
            try:
                async with asyncio.timeout(self._timeout_s):
                    return await work(place)
            except TimeoutError:
                self._silent[place] = f"no answer within {self._timeout_s:g} s"
            except Exception as error:  # any error in the process is a finding
                arguments = f"{type(error).__name__}: {error}"
                (self._silent if troubles is None else troubles)[place] = arguments
            return _NOTHING

        asked = [place for place in places if place not in self._silent]
        answers = await asyncio.gather(*(bounded(place) for place in asked))
        paired = zip(asked, answers, strict=True)
        return {place: answer for place, answer in paired if answer is not _NOTHING}

    async def _ask(self, place: ProcessPlace, function: Callable[..., Any], *arguments: Any) -> Any:
        if place.role is ProcessRole.WORKER:
            answers = await self._client.run(
                function, *arguments, workers=[place.address], on_error="return"
            )
            answer = answers[place.address]
            if isinstance(answer, BaseException):
                raise answer
            return answer
        if place.role is ProcessRole.SCHEDULER:
            return await self._client.run_on_scheduler(function, *arguments)
        answer = function(*arguments)
        return await answer if asyncio.iscoroutine(answer) else answer


_NOTHING = object()


def get_host(place: ProcessPlace) -> str:
    """Return the host of a place's Dask address; "" for this machine."""
    return get_address_host(place.address) if place.address else ""


def one_per_host(workers: Mapping[ProcessPlace, ProcessFacts]) -> list[ProcessPlace]:
    """Return one worker for each pair of a network and an address at which ranks would listen.

    Workers without such an address are left out.
    """
    hosts: dict[tuple[str, str], ProcessPlace] = {}
    for place, facts in sorted(workers.items()):
        if facts.rank_address:
            hosts.setdefault((facts.network, facts.rank_address), place)
    return list(hosts.values())


def choose_pairs(hosts: list[ProcessPlace]) -> dict[ProcessPlace, list[ProcessPlace]]:
    """Return the hosts to which each host tests connections, by host.

    These are all other hosts; above `MOST_HOSTS_IN_PAIRS` hosts, the next host and a random sample
    of others, together `PEERS_OF_MANY`.

    >>> places = [ProcessPlace(ProcessRole.WORKER, f"tcp://10.0.0.{i}:1") for i in range(100)]
    >>> [sum(map(len, choose_pairs(places[:n]).values())) for n in (1, 2, 16, 100)]
    [0, 2, 240, 800]
    """
    if len(hosts) <= MOST_HOSTS_IN_PAIRS:
        return {host: [other for other in hosts if other != host] for host in hosts}
    draw = random.Random(0)
    pairs = {}
    for index, host in enumerate(hosts):
        following = hosts[(index + 1) % len(hosts)]
        rest = [other for other in hosts if other not in (host, following)]
        pairs[host] = [following, *draw.sample(rest, PEERS_OF_MANY - 1)]
    return pairs


def _worker(address: str, facts: Mapping[str, Any]) -> ProcessPlace:
    name = str(facts.get("name", ""))
    return ProcessPlace(ProcessRole.WORKER, address, "" if name == address else name)


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _split(address: str) -> list[Any]:
    host, _, port = address.rpartition(":")
    return [host.strip("[]"), int(port)]

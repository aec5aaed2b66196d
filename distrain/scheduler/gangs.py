"""Launches gangs (the ranks of one attempt), sends them commands, and releases them."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

from distributed import Client, Scheduler, Security
from distributed.comm.addressing import get_address_host

from distrain.jobs.assignment import Assignment, Rendezvous
from distrain.scheduler.lifecycle.messages import (
    CheckpointGang,
    LaunchGang,
    StopGang,
    Submit,
    TakeStacks,
)
from distrain.scheduler.rendezvous import Stores
from distrain.workers.supervisor import COMMAND_OP, rank_key, supervise


@dataclass
class _Gang:
    """A launched gang: its rendezvous store, and the Dask tasks of its ranks' supervisors.

    The store closes when this object is freed.
    """

    store: Any  # a `TCPStore`
    futures: list[Any]  # the Dask futures of the supervisors, by rank
    workers: list[str]  # the workers' addresses, by rank


class Gangs:
    """Launches and ends the gangs of a scheduler, through a Dask client named `client_name`.

    Raises `ClusterError` if the setting of the rendezvous stores' ports is invalid.
    """

    def __init__(self, scheduler: Scheduler, client_name: str):
        self.scheduler = scheduler
        self._client_name = client_name
        self._stores = Stores()
        self._client: Client | None = None
        self._connecting = asyncio.Lock()
        self._gangs: dict[tuple[str, int], _Gang] = {}
        self._numbers: Counter[tuple[str, int]] = Counter()

    def __len__(self) -> int:
        return len(self._gangs)

    async def launch(
        self,
        gang: LaunchGang,
        request: Submit,
        still_wanted: Callable[[], bool],
    ) -> bool:
        """Open a rendezvous store, and submit a Dask task for each rank, the rank's supervisor.

        Returns True. If `still_wanted` returns False once the store is open, returns False instead,
        and submits nothing. Raises `ClusterError` if all ports for stores are in use.
        """
        client = await self.client()
        host = get_address_host(self.scheduler.address)
        store = await asyncio.to_thread(self._stores.open, host, self._listens_at())
        if not still_wanted():
            return False
        rendezvous = Rendezvous(host, store.port, f"{gang.job_id}/{gang.attempt}")
        document = request.spec.model_dump(mode="json")
        whose = gang.job_id, gang.attempt
        futures = []
        for placement in gang.placements:
            assignment = Assignment(
                *whose,
                placement.world,
                document,
                request.run_dir,
                rendezvous,
                request.first_attempt,
            )
            futures.append(_submit(client, assignment, placement.slot.worker))
        workers = [placement.slot.worker for placement in gang.placements]
        self._gangs[whose] = _Gang(store, futures, workers)
        return True

    def command(
        self, gang: CheckpointGang | TakeStacks | StopGang, op: str, **words: object
    ) -> None:
        """Send a command to the supervisors of all ranks of an attempt.

        `op` is the command, such as `checkpoint`, and `words` are further fields of the message.
        All get the same number, which is higher than that of the attempt's previous command.
        """
        whose = gang.job_id, gang.attempt
        self._numbers[whose] += 1
        message = {"op": op, "number": self._numbers[whose], **words}
        for placement in gang.placements:
            key = rank_key(*whose, placement.world.rank)
            self.send(placement.slot.worker, {"op": COMMAND_OP, "key": key, "words": message})

    def send(self, worker: str, message: Mapping[str, Any]) -> bool:
        """Send a message to a worker; return False if the worker is not connected."""
        if worker not in self.scheduler.stream_comms:
            return False
        self.scheduler.worker_send(worker, dict(message))
        return True

    def end(self, job_id: str, attempt: int) -> None:
        """Release an attempt's Dask tasks and rendezvous store, which ends ranks that still run."""
        self._numbers.pop((job_id, attempt), None)
        gang = self._gangs.pop((job_id, attempt), None)
        for future in gang.futures if gang else ():
            future.release()

    def forget_worker(self, worker: str) -> None:
        """Release the tasks on a lost worker, which Dask would run again when the worker returns.

        `worker` is the worker's address.
        """
        for gang in self._gangs.values():
            for future, of_worker in zip(gang.futures, gang.workers, strict=True):
                if of_worker == worker:
                    future.release()

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def client(self) -> Client:
        """Return this scheduler's own client, which is connected at the first call."""
        async with self._connecting:
            if self._client is None:
                self._client = await Client(
                    self.scheduler.address,
                    asynchronous=True,
                    set_as_default=False,
                    security=client_security(self.scheduler.security),
                    name=self._client_name,
                )
            return self._client

    def _listens_at(self) -> str:
        """Return the host at which the scheduler listens; "" if it does not listen.

        The host may cover several interfaces, such as 0.0.0.0.
        """
        listeners = self.scheduler.listeners
        return get_address_host(listeners[0].listen_address) if listeners else ""


def _submit(client: Client, assignment: Assignment, worker: str) -> Any:
    return client.submit(
        supervise,
        assignment.dumps(),
        key=rank_key(assignment.job_id, assignment.attempt, assignment.world.rank),
        workers=[worker],
        allow_other_workers=False,
        pure=False,
        retries=0,
    )


def client_security(security: Security) -> Security:
    """Return the security settings for a client in a scheduler's process, from the scheduler's.

    If they have no client certificate, the client uses the scheduler's certificate.
    """
    ours = copy(security)
    if not ours.tls_client_cert:  # `dask scheduler --tls-cert` sets only the scheduler's
        ours.tls_client_cert = security.tls_scheduler_cert
        ours.tls_client_key = security.tls_scheduler_key
    return ours

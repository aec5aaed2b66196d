"""Preparation of one rank's process: threads, device, seeds, and its peers."""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import numpy as np
import torch
from torch import distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore

from distrain.errors import ClusterError, DataError, SpecError
from distrain.jobs.assignment import Assignment, World
from distrain.jobs.spec.resources import ResourcesSpec
from distrain.models.embeddings.peers import Peers, gather_texts

_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"
COLLECTIVES = "DISTRAIN_COLLECTIVES"
"""Environment variable; if it is `gloo`, ranks on GPUs communicate through gloo, not NCCL."""


class MissingRanks(ClusterError):
    """Other ranks did not join in time."""


def choose_device(resources: ResourcesSpec) -> torch.device:
    """Return the rank's device: the CPU, or `cuda:0`, since Dask-CUDA lists a worker's GPU first.

    Raises `SpecError` if the job requires a GPU and torch finds none.
    """
    if resources.device == "cpu":
        return torch.device("cpu")
    if torch.cuda.is_available():
        return torch.device("cuda", 0)
    if resources.device == "cuda":
        raise SpecError(
            "resources.device is cuda, but torch finds no GPU",
            where={"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "(not set)")},
            hint="Run `distrain doctor` on that machine, or set resources.device to cpu.",
        )
    return torch.device("cpu")


def seed_everything(seed: int, rank: int, device: torch.device) -> None:
    """Seed every generator differently on each rank, and make cuBLAS add in a fixed order."""
    # Mixed, because torch's generator on the CPU uses only the lowest 32 bits.
    (own,) = np.random.SeedSequence(seed, spawn_key=(rank,)).generate_state(1)
    random.seed(int(own))
    np.random.seed(own)
    torch.manual_seed(int(own))
    if device.type == "cuda":
        # cuBLAS reads it when its first handle is made. `step/precision.py` makes torch use
        # deterministic algorithms.
        os.environ.setdefault(_CUBLAS, ":4096:8")


@contextmanager
def process_as_it_was() -> Iterator[None]:
    """Return a context that restores, on exit, the settings that a rank makes in its process.

    These are the states of the random generators, torch's number of threads, and the environment
    variable `CUBLAS_WORKSPACE_CONFIG`.
    """
    threads, cublas = torch.get_num_threads(), os.environ.get(_CUBLAS)
    drawn, drawn_by_numpy = random.getstate(), np.random.get_state()
    seed = torch.initial_seed()
    had_cuda = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    # The state of a GPU's generator is in host memory: no GPU is queried.
    generators = [torch.default_generator, *(torch.cuda.default_generators if had_cuda else ())]
    states = [generator.get_state() for generator in generators]
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        random.setstate(drawn)
        np.random.set_state(drawn_by_numpy)
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
        if not had_cuda:  # the seed that `torch.manual_seed` of the caller would have set on GPUs
            torch.cuda.manual_seed_all(seed)
        if cublas is None:
            os.environ.pop(_CUBLAS, None)


def join_peers(assignment: Assignment, device: torch.device, timeout_s: float) -> None:
    """Create torch's process group with the other ranks; do nothing if there is no rendezvous.

    `timeout_s` limits the wait for other ranks, here and in each collective operation. Raises
    `SpecError` if two ranks would use NCCL on one GPU, and `MissingRanks` after the timeout.
    """
    meeting = assignment.rendezvous
    if meeting is None:
        return
    backend = choose_backend(device)
    timeout = timedelta(seconds=timeout_s)
    store = TCPStore(meeting.host, meeting.port, is_master=False, timeout=timeout)
    own, world = PrefixStore(meeting.prefix, store), assignment.world
    here = PrefixStore("here", own)
    here.set(str(world.rank), "")
    try:
        if backend == "nccl":
            gpu = str(torch.cuda.get_device_properties(device).uuid)
            check_own_gpu(PrefixStore("gpus", own), world, gpu, timeout)
        dist.init_process_group(
            backend,
            store=own,
            rank=world.rank,
            world_size=world.num_ranks,
            timeout=timeout,
            device_id=device if backend == "nccl" else None,
        )
    except dist.DistStoreError:
        missing = [rank for rank in range(world.num_ranks) if not here.check([str(rank)])]
        if not missing:
            raise
        ranks = ", ".join(map(str, missing))
        raise MissingRanks(
            f"{'rank' if len(missing) == 1 else 'ranks'} {ranks} did not join within "
            f"{timeout_s:g} s (deadlines.collective_s)",
            where={"at": f"{meeting.host}:{meeting.port}"},
            hint="Start all ranks at about the same time, and see the output of those that did "
            "not join: each must reach this address.",
        ) from None


def check_own_gpu(store: Store, world: World, gpu: str, timeout: timedelta) -> None:
    """Raise `SpecError`, on every rank, if two ranks share a GPU.

    This happens with `dask worker` on a host with several GPUs. `gpu` is the UUID of this rank's
    GPU, which the ranks exchange through `store`. Waits at most `timeout` for all ranks, then
    raises the store's error.
    """
    keys = [str(rank) for rank in range(world.num_ranks)]
    store.set(keys[world.rank], gpu)
    store.wait(keys, timeout)
    ranks_of: dict[str, list[int]] = {}
    for rank, told in enumerate(store.multi_get(keys)):
        ranks_of.setdefault(told.decode(), []).append(rank)
    shared = {other: ranks for other, ranks in ranks_of.items() if len(ranks) > 1}
    if shared:
        other = gpu if gpu in shared else next(iter(shared))
        raise SpecError(
            f"ranks {shared[other]} have the same GPU",
            where={"rank": world.rank, "GPU": other},
            hint="Start the workers with `dask cuda worker`, which gives each worker a different "
            "first GPU; with `dask worker` all have the same. Or set a different "
            f"CUDA_VISIBLE_DEVICES for each worker, or {COLLECTIVES}=gloo to share a GPU.",
        )


def choose_backend(device: torch.device) -> str:
    """Return torch's backend: `nccl` for GPUs, `gloo` for CPUs or with `DISTRAIN_COLLECTIVES=gloo`.

    With gloo everything is copied through the host; NCCL rejects two ranks on one GPU. Raises
    `SpecError` for another value of the variable.
    """
    asked = os.environ.get(COLLECTIVES, "auto")
    if asked not in ("auto", "gloo"):
        raise SpecError(
            f"{COLLECTIVES} is {asked!r}; it may be auto or gloo",
            hint=f"Unset {COLLECTIVES} in the environment of the Dask workers.",
        )
    return "nccl" if device.type == "cuda" and asked == "auto" else "gloo"


def leave_peers() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def check_same_data(fingerprint: str, rank: int) -> None:
    """Raise `DataError`, on every rank, if the fingerprint of a rank differs from rank 0's.

    A collective operation; does nothing without a process group.
    """
    if not dist.is_initialized():
        return
    peers = Peers(rank, dist.get_world_size())
    texts = gather_texts(peers, peers.device, fingerprint)
    differing = [other for other, text in enumerate(texts) if text != texts[0]]
    if differing:
        raise DataError(
            f"ranks {differing} see other files than rank 0",
            where={"rank": rank},
            hint="Put the data on a filesystem that all workers share, at the same path.",
        )

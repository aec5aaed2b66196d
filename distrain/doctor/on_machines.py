"""Verdicts on memory, limits and GPUs. Pure."""

from collections.abc import Callable, Iterator

from distrain.doctor.facts import (
    ClusterSeen,
    Finding,
    ProcessFacts,
    ProcessPlace,
    ProcessRole,
    by_value,
    mistake,
    warning,
)
from distrain.version import how_to_install
from distrain.wording import byte_size

LEAST_SHARED_BYTES = 2**30
LEAST_MEMORY_BYTES = 4 * 2**30
LEAST_OPEN_FILES = 4096


def judge_memory(seen: ClusterSeen) -> Iterator[Finding]:
    for place, facts in sorted(seen.of(ProcessRole.WORKER).items()):
        if facts.shm_trouble:
            mend = f"Mount it with mode=1777, or let {facts.user} write there."
            yield mistake("/dev/shm", (place,), facts.shm_trouble, mend)
        elif facts.shm_bytes < LEAST_SHARED_BYTES:
            fact = f"/dev/shm has {byte_size(facts.shm_bytes)}, NCCL and loaders want 1 GiB"
            mend = (
                "`docker run --shm-size=1g`; in Kubernetes an emptyDir with medium: Memory at "
                "/dev/shm; on a host `mount -o remount,size=50% /dev/shm`."
            )
            on_gpu = seen.device == "cuda" or (seen.device == "auto" and bool(facts.first_gpu))
            yield (mistake if on_gpu else warning)("/dev/shm", (place,), fact, mend)
        if facts.available_bytes < LEAST_MEMORY_BYTES:
            fact = f"{byte_size(facts.available_bytes)} of {byte_size(facts.memory_bytes)} are free"
            mend = "`ps aux --sort=-rss` there says who has it, `distrain plan` what a job needs."
            yield warning("memory", (place,), fact, mend)


def judge_limits(seen: ClusterSeen) -> Iterator[Finding]:
    for place, facts in sorted(seen.of(ProcessRole.WORKER, ProcessRole.SCHEDULER).items()):
        if 0 <= facts.open_files < LEAST_OPEN_FILES:
            fact = f"it may open {facts.open_files} files"
            mend = f"`ulimit -n {16 * LEAST_OPEN_FILES}` before it starts; LimitNOFILE= in systemd."
            yield warning("open files", (place,), fact, mend)
        if facts.infiniband and facts.locked_bytes >= 0:
            fact = (
                f"it may lock {byte_size(facts.locked_bytes)}, and InfiniBand wants all it asks for"
            )
            mend = "`ulimit -l unlimited` before it starts; LimitMEMLOCK=infinity in systemd."
            yield warning("locked memory", (place,), fact, mend)


def judge_gpus(seen: ClusterSeen) -> Iterator[Finding]:
    """GPUs that are missing, shared by two workers, taken, or too new for their driver."""
    if seen.device == "cpu":
        return
    workers = seen.of(ProcessRole.WORKER)
    first = {place: facts.first_gpu for place, facts in workers.items()}
    for uuid, places in by_value(first).items():
        if uuid and len(places) > 1:
            yield mistake("gpu", places, *_shared(uuid, places))
    without = tuple(sorted(place for place, uuid in first.items() if not uuid))
    if without and (seen.device == "cuda" or len(without) < len(workers)):
        yield _tell(seen)("gpu", without, *_missing(workers[without[0]]))
    for place, facts in sorted(workers.items()):
        if first[place]:
            yield from _of_one(seen, place, facts)


def _shared(uuid: str, places: tuple[ProcessPlace, ...]) -> tuple[str, str]:
    fact = f"{len(places)} workers have the same GPU as their first: {uuid}"
    mend = (
        "Start them with `dask cuda worker`, one process with a GPU of its own for each; by hand, "
        "give each another CUDA_VISIBLE_DEVICES. For jobs on CPUs ask with --device cpu."
    )
    return fact, mend


def _missing(facts: ProcessFacts) -> tuple[str, str]:
    if facts.gpus:
        fact = (
            f"CUDA_VISIBLE_DEVICES={facts.visible_devices!r} shows none of {len(facts.gpus)} GPUs"
        )
        return fact, "Name one of them there, or start it with `dask cuda worker`."
    fact = "no GPU: neither NVML nor nvidia-smi shows one"
    return (
        fact,
        "Install the driver; in a container add `--gpus all`, or a runtime class of NVIDIA.",
    )


def _of_one(seen: ClusterSeen, place: ProcessPlace, facts: ProcessFacts) -> Iterator[Finding]:
    if not facts.torch_cuda:
        fact = f"torch {facts.versions.get('torch', '')} was built without CUDA"
        yield _tell(seen)("gpu", (place,), fact, f"{how_to_install('gpu')} there.")
    elif facts.cuda_driver and _major(facts.torch_cuda) > _major(facts.cuda_driver):
        fact = (
            f"torch wants CUDA {facts.torch_cuda}; its driver {facts.driver} serves CUDA "
            f"{facts.cuda_driver} at most"
        )
        mend = "Install a newer driver, or a torch that was built for that CUDA."
        yield mistake("gpu", (place,), fact, mend)
    for gpu in facts.gpus:
        if gpu.uuid == facts.first_gpu and gpu.free_bytes < gpu.total_bytes / 2:
            fact = (
                f"{byte_size(gpu.free_bytes)} of {byte_size(gpu.total_bytes)} of its {gpu.name} "
                "are free"
            )
            yield warning("gpu memory", (place,), fact, "See who has it there: nvidia-smi.")


def _tell(seen: ClusterSeen) -> Callable[..., Finding]:
    return mistake if seen.device == "cuda" else warning


def _major(version: str) -> int:
    return int(version.partition(".")[0])

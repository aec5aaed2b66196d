"""Finds differences between processes: GPUs, versions and folders; no I/O."""

import errno
import os
import shlex
from collections.abc import Iterator, Mapping

from distrain.diagnostics.doctor.facts import (
    ClusterFacts,
    Finding,
    FolderSeen,
    ProcessFacts,
    ProcessPlace,
    ProcessRole,
    by_value,
    mistake,
    warning,
)
from distrain.diagnostics.doctor.process_rules import gpu_severity
from distrain.formatting import byte_size


def judge_gpus(seen: ClusterFacts) -> Iterator[Finding]:
    """Yield findings on workers without a GPU, and on workers that have the same first GPU.

    Nothing is yielded if the checked device is "cpu". Workers without a GPU are only reported if
    the device is "cuda", or if other workers have a GPU.
    """
    if seen.device == "cpu":
        return
    workers = seen.of(ProcessRole.WORKER)
    first = {place: facts.first_gpu for place, facts in workers.items()}
    for uuid, places in by_value(first).items():
        if uuid and len(places) > 1:
            yield mistake("gpu", places, *_shared(uuid, places))
    without = tuple(sorted(place for place, uuid in first.items() if not uuid))
    if without and (seen.device == "cuda" or len(without) < len(workers)):
        fact, mend = _missing(workers[without[0]])
        yield Finding(gpu_severity(seen), "gpu", without, fact, mend)


def _shared(uuid: str, places: tuple[ProcessPlace, ...]) -> tuple[str, str]:
    fact = f"{len(places)} workers have the same first GPU: {uuid}"
    mend = (
        "Start them with `dask cuda worker`, one process per GPU; or set another "
        "CUDA_VISIBLE_DEVICES for each. For jobs on CPUs use --device cpu."
    )
    return fact, mend


def _missing(facts: ProcessFacts) -> tuple[str, str]:
    if facts.gpus:
        fact = (
            f"CUDA_VISIBLE_DEVICES={facts.visible_devices!r} selects none of {len(facts.gpus)} GPUs"
        )
        return fact, "Select one of them there, or start it with `dask cuda worker`."
    fact = "no GPU: nvidia-smi shows none"
    return (
        fact,
        "Install the driver; in a container add `--gpus all`, or NVIDIA's runtime class.",
    )


LITTLE_DISK_BYTES = 10 * 2**30
NO_DISK_BYTES = 2**30
_TALK = ("python", "distrain", "dask", "distributed")
"""Packages whose versions must be equal on client and cluster, since messages are pickled."""


def judge_versions(seen: ClusterFacts) -> Iterator[Finding]:
    """Yield findings on processes that have another version of a package than the usual one.

    The usual version is that of most processes among the scheduler and the workers; in a tie, the
    scheduler's. This process is only compared for the packages in `_TALK`. Of Python's version,
    only the first two numbers are compared.
    """
    cluster = seen.of(ProcessRole.WORKER, ProcessRole.SCHEDULER)
    clients = seen.of(ProcessRole.CLIENT)
    packages = dict.fromkeys(name for facts in cluster.values() for name in facts.versions)
    for package in ("python", *packages):
        theirs = {place: _version(facts, package) for place, facts in cluster.items()}
        usual = _usual(theirs)
        others = clients if package in _TALK else {}
        all_of_it = theirs | {place: _version(facts, package) for place, facts in others.items()}
        for version, places in by_value(all_of_it).items():
            if version != usual:
                yield mistake("versions", places, *_odd_version(package, version, usual))


def _version(facts: ProcessFacts, package: str) -> str:
    if package == "python":  # 3.12.1 and 3.12.9 are compatible
        return ".".join(facts.python.split(".")[:2])
    return facts.versions.get(package, "")


def _usual(versions: Mapping[ProcessPlace, str]) -> str:
    groups = by_value(versions)
    most = max((len(places) for places in groups.values()), default=0)
    likely = {version: places for version, places in groups.items() if len(places) == most}
    for version, places in likely.items():
        if any(place.role is ProcessRole.SCHEDULER for place in places):
            return version
    return next(iter(likely), "")


def _odd_version(package: str, version: str, usual: str) -> tuple[str, str]:
    fact = f"{package} {version or 'is not installed'}; the others have {usual or 'none'}"
    if package == "python":
        return fact, f"Start it with Python {usual}."
    if package == "distrain" and usual:
        return fact, "Install that version there, from the same checkout or wheel, and restart it."
    if not usual:
        return fact, f"pip uninstall {package}, or install it everywhere."
    return fact, f"pip install '{package}=={usual}' there, and restart it."


def judge_folders(seen: ClusterFacts) -> Iterator[Finding]:
    """Yield findings on `run_root`: not writable, another folder than elsewhere, or nearly full.

    Free space is reported once, for the first process with less than `LITTLE_DISK_BYTES`.
    """
    writers = {p: f for p, f in seen.folders.items() if not f.trouble}
    for trouble, places in by_value({p: f.trouble for p, f in seen.folders.items()}).items():
        if trouble:
            user = seen.facts[places[0]].user if places[0] in seen.facts else "its user"
            fact = f"cannot write to {seen.run_root}: {trouble}"
            mend = f"Mount the shared filesystem there, and let {user} write to {seen.run_root}."
            if trouble == os.strerror(errno.ENOENT):
                create = shlex.join(["mkdir", "-p", seen.run_root])
                mend = f"Create it, so that {user} can write there: {create}. Or mount it there."
            yield _of_workers("run root", places, fact, mend)
    yield from _apart(seen, writers)
    for place, folder in sorted(writers.items()):
        if folder.free_bytes < LITTLE_DISK_BYTES:
            severity = mistake if folder.free_bytes < NO_DISK_BYTES else warning
            fact = f"{byte_size(folder.free_bytes)} are free in {seen.run_root}"
            mend = "Remove old runs and checkpoints, or use a larger filesystem."
            yield severity("free space", (place,), fact, mend)
            break  # one finding for the shared filesystem


def _apart(seen: ClusterFacts, writers: Mapping[ProcessPlace, FolderSeen]) -> Iterator[Finding]:
    """Yield findings on processes for which `run_root` is another folder than for most processes.

    `writers` are the processes that could write a file there, with what they see of the folder.
    """
    left = set(writers)
    groups: list[set[ProcessPlace]] = []
    while left:
        first = min(left)
        group = {p for p in left if p not in writers[first].missing}
        group = {p for p in group if first not in writers[p].missing} | {first}
        groups.append(group)
        left -= group
    groups.sort(key=lambda group: (-len(group), min(group)))
    for group in groups[1:]:
        places = tuple(sorted(group))
        here = writers[places[0]].filesystem or "unknown"
        usual = writers[min(groups[0])].filesystem or "unknown"
        fact = (
            f"{seen.run_root} is another folder than on most others: on {here} here, {usual} there"
        )
        mend = f"Mount the same filesystem at {seen.run_root}, and restart the worker."
        yield _of_workers("run root", places, fact, mend)


def _of_workers(check: str, places: tuple[ProcessPlace, ...], fact: str, mend: str) -> Finding:
    # With `distrain train` the client also uses the folder, but with a service it does not.
    only_client = all(place.role is ProcessRole.CLIENT for place in places)
    return (warning if only_client else mistake)(check, places, fact, mend)

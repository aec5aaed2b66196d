"""What the doctor makes of the facts of a cluster: each fault alone, without a cluster."""

import errno
import os
from dataclasses import replace

from wording import Wording

from distrain.diagnostics.doctor.facts import (
    ClusterFacts,
    FolderSeen,
    GpuFacts,
    Link,
    ProcessFacts,
    ProcessPlace,
    ProcessRole,
    Severity,
)
from distrain.diagnostics.doctor.report import judge

ADDRESS = "tcp://10.0.0.1:8786"
SCHEDULER = ProcessPlace(ProcessRole.SCHEDULER, ADDRESS)
HERE = ProcessPlace(ProcessRole.CLIENT)
W1, W2, W3 = WORKERS = tuple(
    ProcessPlace(ProcessRole.WORKER, f"tcp://10.0.0.{1 + n}:9000", f"w{n}") for n in (1, 2, 3)
)
VERSIONS = {"distrain": "1.0", "torch": "2.13.0", "dask": "2026.7", "numpy": "2.4.6"}
GIB = 2**30


def facts_of(number: int) -> ProcessFacts:
    address = f"10.0.0.{number}"
    return ProcessFacts(
        hostname=f"node-{number}",
        network=f"boot-{number} net:[1]",
        user="distrain (10001)",
        python="3.12.4",
        versions=VERSIONS,
        host=address,
        interface="eth0",
        rank_address=address,
        interfaces={"lo": ["127.0.0.1"], "eth0": [address]},
        name_addresses=[address],
        shm_bytes=8 * GIB,
        memory_bytes=64 * GIB,
        available_bytes=60 * GIB,
        open_files=65536,
        port_range=[32768, 60999],
    )


def well(**changes: object) -> ClusterFacts:
    facts = {SCHEDULER: facts_of(1), HERE: facts_of(9)}
    facts |= {place: facts_of(2 + number) for number, place in enumerate(WORKERS)}
    links = [
        Link(source, target, f"{facts[target].rank_address}:40000")
        for source in WORKERS
        for target in WORKERS
        if source != target
    ]
    links += [Link(source, SCHEDULER, "10.0.0.1:29400", rendezvous=True) for source in WORKERS]
    folder = FolderSeen(free_bytes=500 * GIB, filesystem="nfs4 nas:/runs")
    seen = ClusterFacts(
        ADDRESS,
        facts,
        folders=dict.fromkeys((HERE, *WORKERS), folder),
        links=tuple(links),
        run_root="/runs",
    )
    return replace(seen, **changes)  # type: ignore[arg-type]


def with_facts(place: ProcessPlace, **changes: object) -> ClusterFacts:
    seen = well()
    odd = replace(seen.facts[place], **changes)  # type: ignore[arg-type]
    return replace(seen, facts={**seen.facts, place: odd})


def broken(
    seen: ClusterFacts, trouble: str, *pairs: tuple[ProcessPlace, ProcessPlace]
) -> ClusterFacts:
    links = tuple(
        replace(link, trouble=trouble) if (link.source, link.target) in pairs else link
        for link in seen.links
    )
    return replace(seen, links=links)


def on_gpus(**changes: object) -> ClusterFacts:
    seen = well()
    facts = dict(seen.facts)
    for place in WORKERS:
        gpu = GpuFacts(f"GPU-of-{place.name}", "H100", 80 * GIB, 79 * GIB)
        facts[place] = replace(
            facts[place], gpus=[gpu], torch_cuda="13.0", driver="580.1", cuda_driver="13.0"
        )
    facts[W1] = replace(facts[W1], **changes)  # type: ignore[arg-type]
    return replace(seen, facts=facts)


WELL = well()
FACTS = WELL.facts


def with_folders(**changes: object) -> ClusterFacts:
    folders = {p: replace(f, **changes) for p, f in WELL.folders.items()}  # type: ignore[arg-type]
    return replace(WELL, folders=folders)


def with_folder(place: ProcessPlace, folder: FolderSeen, **others: object) -> ClusterFacts:
    seen = with_folders(**others)
    return replace(seen, folders={**seen.folders, place: folder})


def gpu(worker: str, free: int = 79) -> list[GpuFacts]:
    return [GpuFacts(f"GPU-of-{worker}", "H100", 80 * GIB, free * GIB)]


NEWER = {place: replace(FACTS[place], versions=VERSIONS | {"dask": "2027.1"}) for place in (W1, W2)}
WITHOUT_W3 = {place: facts for place, facts in FACTS.items() if place != W3}
NO_WORKERS = {place: facts for place, facts in FACTS.items() if place not in WORKERS}
LOOPED = {
    place: replace(
        facts, network="one", host="127.0.0.1", rank_address="127.0.0.1",
        name_addresses=["127.0.1.1"],
    )
    for place, facts in FACTS.items()
}  # fmt: skip
OTHER_FOLDER = FolderSeen(
    free_bytes=90 * GIB, filesystem="ext4 /dev/vda",
    missing=tuple(p for p in WELL.folders if p != W2),
)  # fmt: skip
UNWRITABLE = FolderSeen(trouble="Permission denied", filesystem="nfs4 nas:/runs")
OTHER_NET = with_facts(W3, interface="ib0", rank_address="10.9.0.3", asked_interface="ib0")
RENDEZVOUS = with_facts(SCHEDULER, rendezvous_ports="29400-29499")
STALLS = "it opened, but 1 MiB did not get through within 5 s"

FAULTS: "list[tuple[str, tuple[ProcessPlace, ...], ClusterFacts]]" = [
    ("mistake versions", (W2,), with_facts(W2, versions=VERSIONS | {"torch": "2.9.0"})),
    ("mistake versions", (W2,), with_facts(W2, versions=VERSIONS | {"numpy": ""})),
    ("mistake versions", (W3,), with_facts(W3, python="3.11.7")),
    # Of two halves, the scheduler's version is the usual one.
    ("mistake versions", (W1, W2), replace(WELL, facts={**FACTS, **NEWER})),
    ("mistake versions", (HERE,), with_facts(HERE, versions=VERSIONS | {"distrain": "0.9"})),
    ("mistake run root", (W2,), with_folder(W2, OTHER_FOLDER, missing=(W2,))),
    ("mistake run root", (W3,), with_folder(W3, UNWRITABLE)),
    (
        "mistake run root",
        (W3,),
        with_folder(W3, replace(UNWRITABLE, trouble=os.strerror(errno.ENOENT))),
    ),
    ("warning run root", (HERE,), with_folder(HERE, UNWRITABLE)),  # a service may write the runs
    ("mistake run root", (HERE, W3),
     well(folders={**WELL.folders, HERE: UNWRITABLE, W3: UNWRITABLE})),
    ("warning free space", (HERE,), with_folders(free_bytes=5 * GIB)),
    ("mistake free space", (HERE,), with_folders(free_bytes=GIB // 2)),
    ("mistake no answer", (W3,), well(silent={W3: "no answer within 20 s"}, facts=WITHOUT_W3)),
    ("mistake workers", (SCHEDULER,), replace(WELL, facts=NO_WORKERS, links=())),
    ("mistake connections", (W3,), broken(OTHER_NET, "no answer", (W1, W3), (W2, W3))),
    ("mistake connections", (W1, W2), broken(WELL, "Connection refused", (W1, W2))),
    ("mistake connections", (W1, W2), broken(WELL, STALLS, (W1, W2))),
    ("mistake rendezvous", (W2, SCHEDULER), broken(RENDEZVOUS, "no answer", (W2, SCHEDULER))),
    ("mistake rendezvous", (SCHEDULER,), well(not_listening={SCHEDULER: "all ports are taken"})),
    ("mistake interface", (W1,),
     with_facts(W1, interface_trouble="DISTRAIN_INTERFACE is 'ib7'", rank_address="")),
    ("mistake interface", (W1,), with_facts(W1, interface="lo", rank_address="127.0.0.1")),
    ("mistake address", (W1,), with_facts(W1, host="127.0.0.1", rank_address="127.0.0.1")),
    ("warning host name", (W2,), with_facts(W2, name_addresses=["127.0.1.1"])),
    ("warning host name", (SCHEDULER,), with_facts(SCHEDULER, name_addresses=["127.0.1.1"])),
    ("warning /dev/shm", (W1,), with_facts(W1, shm_bytes=64 * 2**20)),
    ("mistake /dev/shm", (W1,), with_facts(W1, shm_bytes=8 * GIB, shm_trouble="no such folder")),
    ("warning memory", (W1,), with_facts(W1, available_bytes=GIB)),
    ("warning open files", (W1,), with_facts(W1, open_files=1024)),
    ("warning locked memory", (W1,), with_facts(W1, infiniband=["mlx5_0"], locked_bytes=2**16)),
    ("warning ports", (W1,), with_facts(W1, port_range=[40000, 40100])),
    ("warning ports", (SCHEDULER,), with_facts(SCHEDULER, rendezvous_ports="40000-40099")),
    ("mistake gpu", (W1, W2), on_gpus(gpus=gpu("w2"))),
    ("warning gpu", (W1,), on_gpus(visible_devices="3")),
    ("mistake gpu", (W1,), replace(on_gpus(visible_devices="3"), device="cuda")),
    ("warning gpu", (W1,), on_gpus(torch_cuda="")),
    ("mistake gpu", (W1,), on_gpus(driver="570.86", cuda_driver="12.8")),
    ("mistake gpu", WORKERS, well(device="cuda")),
    ("warning gpu memory", (W1,), on_gpus(gpus=gpu("w1", free=3))),
    ("mistake /dev/shm", (W1,), on_gpus(shm_bytes=64 * 2**20)),
]  # fmt: skip
"""What is found, where, and the cluster in which it is the one fault."""

FINE = {
    "a well cluster": WELL,
    "one with GPUs": on_gpus(),
    "another patch of Python": with_facts(W3, python="3.12.9"),
    "a client with another torch": with_facts(HERE, versions=VERSIONS | {"torch": "2.9.0"}),
    "a second name": with_facts(W2, name_addresses=["10.0.0.3", "127.0.1.1"]),
    "one machine that talks to itself": replace(WELL, facts=LOOPED),
    "one GPU for two, on CPUs": replace(on_gpus(gpus=gpu("w2")), device="cpu"),
}


def test_each_fault_is_found_where_it_is_with_words_that_mend_it(wording: Wording) -> None:
    for what, places, seen in FAULTS:
        found = [(f"{f.severity} {f.check}", f.places) for f in judge(seen)]
        assert found == [(what, places)]
        (finding,) = judge(seen)
        assert finding.mend
        wording(f"{what}: {finding.fault}\n{finding.mend}")


def test_what_is_fine_is_not_told() -> None:
    assert {name: judge(seen) for name, seen in FINE.items() if judge(seen)} == {}


def test_mistakes_come_first() -> None:
    found = judge(replace(with_facts(W1, open_files=10), silent={W3: "gone"}))
    assert [f.severity for f in found] == [Severity.MISTAKE, Severity.WARNING]

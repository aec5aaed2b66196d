"""What the doctor makes of the facts of a cluster: each fault alone, without a cluster."""

from dataclasses import replace

import pytest

from distrain.diagnostics.doctor.facts import (
    Clock,
    ClusterSeen,
    DataSeen,
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


def well(**changes: object) -> ClusterSeen:
    facts = {SCHEDULER: facts_of(1), HERE: facts_of(9)}
    facts |= {place: facts_of(2 + number) for number, place in enumerate(WORKERS)}
    near = Clock(-0.01, 0.01)
    links = [
        Link(source, target, f"{facts[target].rank_address}:40000")
        for source in WORKERS
        for target in WORKERS
        if source != target
    ]
    links += [Link(source, SCHEDULER, "10.0.0.1:29400", rendezvous=True) for source in WORKERS]
    folder = FolderSeen(free_bytes=500 * GIB, filesystem="nfs4 nas:/runs")
    seen = ClusterSeen(
        ADDRESS,
        facts,
        clocks=dict.fromkeys(facts, near),
        folders=dict.fromkeys((HERE, *WORKERS), folder),
        links=tuple(links),
        run_root="/runs",
    )
    return replace(seen, **changes)  # type: ignore[arg-type]


def with_facts(place: ProcessPlace, **changes: object) -> ClusterSeen:
    seen = well()
    odd = replace(seen.facts[place], **changes)  # type: ignore[arg-type]
    return replace(seen, facts={**seen.facts, place: odd})


def only(seen: ClusterSeen) -> tuple[str, tuple[ProcessPlace, ...], str, str]:
    """The one finding: severity with its check, places, fact, and how to mend it."""
    (finding,) = judge(seen)
    return f"{finding.severity} {finding.check}", finding.places, finding.fact, finding.mend


def test_a_well_cluster_has_no_findings() -> None:
    assert judge(well()) == []


def test_a_version_that_differs_from_the_others() -> None:
    what, places, fact, mend = only(with_facts(W2, versions=VERSIONS | {"torch": "2.9.0"}))
    assert (what, places) == ("mistake versions", (W2,))
    assert fact == "torch 2.9.0; the others have 2.13.0"
    assert "pip install 'torch==2.13.0'" in mend


def test_a_package_that_is_missing_and_another_python() -> None:
    what, places, fact, _ = only(with_facts(W2, versions=VERSIONS | {"numpy": ""}))
    assert (what, places, fact[:22]) == ("mistake versions", (W2,), "numpy is not installed")
    what, places, fact, mend = only(with_facts(W3, python="3.11.7"))
    assert (places, fact) == ((W3,), "python 3.11; the others have 3.12")
    assert mend == "Start it with Python 3.12."
    assert judge(with_facts(W3, python="3.12.9")) == []


def test_of_two_halves_the_scheduler_s_version_is_the_usual_one() -> None:
    seen = well()
    newer = {place: replace(seen.facts[place], versions=VERSIONS | {"dask": "2027.1"}) for place in
             (W1, W2)}  # fmt: skip
    _, places, fact, _ = only(replace(seen, facts={**seen.facts, **newer}))
    assert places == (W1, W2)
    assert fact == "dask 2027.1; the others have 2026.7"


def test_the_machine_that_asks_must_talk_as_the_cluster_does() -> None:
    _, places, fact, _ = only(with_facts(HERE, versions=VERSIONS | {"distrain": "0.9"}))
    assert (places, fact) == ((HERE,), "distrain 0.9; the others have 1.0")
    assert judge(with_facts(HERE, versions=VERSIONS | {"torch": "2.9.0"})) == []


@pytest.mark.parametrize(("ahead_s", "words"), [(30.0, "ahead of"), (-4.0, "behind")])
def test_a_clock_that_is_surely_off(ahead_s: float, words: str) -> None:
    seen = well()
    off = Clock(ahead_s - 0.5, ahead_s + 0.5)
    what, places, fact, _ = only(replace(seen, clocks={**seen.clocks, W1: off}))
    assert (what, places) == ("mistake clock", (W1,))
    assert f"{abs(ahead_s):.1f} s (± 0.51 s) {words} the scheduler's" in fact


def test_a_clock_that_may_be_right_is_not_told() -> None:
    seen = well()
    slow_answer = Clock(1.0, 9.0)  # 5 s ahead, or not at all: its answer took 8 s
    assert judge(replace(seen, clocks={**seen.clocks, W1: slow_answer})) == []


def test_a_scheduler_s_clock_is_told_once() -> None:
    seen = well()
    what, places, fact, _ = only(replace(seen, clocks={**seen.clocks, SCHEDULER: Clock(9, 9.1)}))
    assert (what, places) == ("mistake clock", (SCHEDULER,))
    assert "differs from all others" in fact


def test_a_folder_that_is_another_one() -> None:
    seen = well()
    everyone = tuple(seen.folders)
    folders = {p: replace(f, missing=(W2,)) for p, f in seen.folders.items()}
    folders[W2] = FolderSeen(
        free_bytes=90 * GIB, filesystem="ext4 /dev/vda",
        missing=tuple(p for p in everyone if p != W2),
    )  # fmt: skip
    what, places, fact, mend = only(replace(seen, folders=folders))
    assert (what, places) == ("mistake run root", (W2,))
    assert "on ext4 /dev/vda here, nfs4 nas:/runs there" in fact
    assert "Mount the same filesystem at /runs" in mend


def test_a_folder_that_cannot_be_written_and_one_that_is_full() -> None:
    seen = well()
    odd = FolderSeen(trouble="Permission denied", filesystem="nfs4 nas:/runs")
    what, places, fact, mend = only(replace(seen, folders={**seen.folders, W3: odd}))
    assert (what, places) == ("mistake run root", (W3,))
    assert fact == "cannot write to /runs: Permission denied"
    assert "let distrain (10001) write" in mend
    what, places, *_ = only(replace(seen, folders={**seen.folders, HERE: odd}))
    assert (what, places) == ("warning run root", (HERE,))  # a service may write the runs
    for free_bytes, expected in ((5 * GIB, "warning free space"), (GIB // 2, "mistake free space")):
        full = {p: replace(f, free_bytes=free_bytes) for p, f in seen.folders.items()}
        assert only(replace(seen, folders=full))[0] == expected


def test_data_that_is_missing_or_other_data() -> None:
    same = DataSeen("", 3, 2**20, "abc")
    seen = well(data=dict.fromkeys(WORKERS, same), data_path="/data")
    assert judge(seen) == []
    gone = replace(seen, data={**seen.data, W1: DataSeen("no such file")})
    assert only(gone)[:2] == ("mistake data", (W1,))
    other = replace(seen, data={**seen.data, W1: DataSeen("", 2, 2**20, "abd")})
    assert "/data has 2 files of 1.00 MiB (abd); others see 3 files" in only(other)[2]


def test_a_worker_that_does_not_answer_and_a_cluster_without_any() -> None:
    seen = well(silent={W3: "no answer within 20 s"})
    facts = {place: facts for place, facts in seen.facts.items() if place != W3}
    assert only(replace(seen, facts=facts))[:3] == (
        "mistake no answer", (W3,), "no answer within 20 s",
    )  # fmt: skip
    none = {
        place: facts for place, facts in seen.facts.items() if place.role is not ProcessRole.WORKER
    }
    found = judge(replace(well(), facts=none, links=()))
    assert [f.fact for f in found] == ["the cluster has no workers"]


def broken(
    seen: ClusterSeen, trouble: str, *pairs: tuple[ProcessPlace, ProcessPlace]
) -> ClusterSeen:
    links = tuple(
        replace(link, trouble=trouble) if (link.source, link.target) in pairs else link
        for link in seen.links
    )
    return replace(seen, links=links)


def test_a_host_that_none_reaches_is_named_once() -> None:
    seen = with_facts(
        W3, interface="ib0", rank_address="10.9.0.3", asked_interface="ib0",
    )  # fmt: skip
    what, places, fact, mend = only(broken(seen, "no answer within 5 s", (W1, W3), (W2, W3)))
    assert (what, places) == ("mistake connections", (W3,))
    assert "none of 2 other hosts reaches its ranks' address 10.9.0.3 (ib0)" in fact
    assert "DISTRAIN_INTERFACE=ib0 is set there" in mend
    assert "10.0.0.4, is on eth0" in mend


def test_a_pair_that_does_not_connect_and_a_small_mtu() -> None:
    what, places, fact, mend = only(broken(well(), "Connection refused", (W1, W2)))
    assert (what, places) == ("mistake connections", (W1, W2))
    assert "cannot reach worker w2 (tcp://10.0.0.3:9000) at 10.0.0.3:40000" in fact
    assert "net.ipv4.ip_local_port_range" in mend
    stalls = "it opened, but 1 MiB did not get through within 5 s"
    assert "MTU" in only(broken(well(), stalls, (W1, W2)))[3]


def test_rendezvous_ports_that_are_closed_or_taken() -> None:
    seen = broken(
        with_facts(SCHEDULER, rendezvous_ports="29400-29499"), "no answer", (W2, SCHEDULER)
    )
    what, places, fact, mend = only(seen)
    assert (what, places) == ("mistake rendezvous", (W2, SCHEDULER))
    assert "10.0.0.1:29400: no answer" in fact
    assert "Open TCP ports 29400-29499 of the scheduler's host" in mend
    taken = well(deaf={SCHEDULER: "all ports of DISTRAIN_RENDEZVOUS_PORTS are taken"})
    assert only(taken)[0] == "mistake rendezvous"


def test_interfaces_that_are_missing_or_lead_nowhere() -> None:
    what, places, fact, _ = only(
        with_facts(W1, interface_trouble="DISTRAIN_INTERFACE is 'ib7'", rank_address="")
    )
    assert (what, places) == ("mistake interface", (W1,))
    assert fact == "DISTRAIN_INTERFACE is 'ib7'; node-2 has lo (127.0.0.1), eth0 (10.0.0.2)"
    looped = with_facts(W1, interface="lo", rank_address="127.0.0.1")
    assert only(looped)[:2] == ("mistake interface", (W1,))
    local = with_facts(W1, host="127.0.0.1", rank_address="127.0.0.1")
    assert only(local)[:2] == ("mistake address", (W1,))


def test_a_host_name_that_resolves_to_loopback() -> None:
    for place in (W2, SCHEDULER):
        what, places, fact, mend = only(with_facts(place, name_addresses=["127.0.1.1"]))
        assert (what, places) == ("warning host name", (place,))
        assert "resolves to 127.0.1.1" in fact
        assert "/etc/hosts" in mend
    assert judge(with_facts(W2, name_addresses=["10.0.0.3", "127.0.1.1"])) == []


def test_one_machine_may_talk_to_itself() -> None:
    seen = well()
    looped = {
        place: replace(
            facts, network="one", host="127.0.0.1", rank_address="127.0.0.1",
            name_addresses=["127.0.1.1"],
        )
        for place, facts in seen.facts.items()
    }  # fmt: skip
    assert judge(replace(seen, facts=looped)) == []


def test_little_memory_and_low_limits() -> None:
    cases = {
        "warning /dev/shm": with_facts(W1, shm_bytes=64 * 2**20),
        "warning memory": with_facts(W1, available_bytes=GIB),
        "warning open files": with_facts(W1, open_files=1024),
        "warning locked memory": with_facts(W1, infiniband=["mlx5_0"], locked_bytes=2**16),
        "warning ports": with_facts(W1, port_range=[40000, 40100]),
    }
    for expected, seen in cases.items():
        what, places, _, mend = only(seen)
        assert (what, places) == (expected, (W1,))
        assert mend
    overlapping = with_facts(SCHEDULER, rendezvous_ports="40000-40099")
    assert only(overlapping)[:2] == ("warning ports", (SCHEDULER,))


def on_gpus(**changes: object) -> ClusterSeen:
    seen = well()
    facts = dict(seen.facts)
    for place in WORKERS:
        gpu = GpuFacts(f"GPU-of-{place.name}", "H100", 80 * GIB, 79 * GIB)
        facts[place] = replace(
            facts[place], gpus=[gpu], torch_cuda="13.0", driver="580.1", cuda_driver="13.0"
        )
    facts[W1] = replace(facts[W1], **changes)  # type: ignore[arg-type]
    return replace(seen, facts=facts)


def test_gpus() -> None:
    assert judge(on_gpus()) == []
    same = on_gpus(gpus=[GpuFacts("GPU-of-w2", "H100", 80 * GIB, 79 * GIB)])
    what, places, fact, mend = only(same)
    assert (what, places) == ("mistake gpu", (W1, W2))
    assert "2 workers have the same GPU as their first: GPU-of-w2" in fact
    assert "dask cuda worker" in mend
    assert judge(replace(same, device="cpu")) == []


def test_gpus_that_are_missing_taken_or_too_new() -> None:
    hidden = on_gpus(visible_devices="3")
    assert only(hidden)[:3] == (
        "warning gpu", (W1,), "CUDA_VISIBLE_DEVICES='3' shows none of 1 GPUs",
    )  # fmt: skip
    assert only(replace(hidden, device="cuda"))[0] == "mistake gpu"
    assert only(on_gpus(torch_cuda=""))[2] == "torch 2.13.0 was built without CUDA"
    what, places, fact, _ = only(on_gpus(driver="570.86", cuda_driver="12.8"))
    assert (what, places) == ("mistake gpu", (W1,))
    assert "its driver 570.86 serves CUDA 12.8 at most" in fact
    taken = on_gpus(gpus=[GpuFacts("GPU-of-w1", "H100", 80 * GIB, 3 * GIB)])
    assert only(taken)[0] == "warning gpu memory"
    assert only(replace(well(), device="cuda"))[:2] == ("mistake gpu", WORKERS)
    unwritable = with_facts(W1, shm_bytes=8 * GIB, shm_trouble="/dev/shm cannot be written: x")
    assert only(unwritable)[:3] == ("mistake /dev/shm", (W1,), "/dev/shm cannot be written: x")
    small = on_gpus(shm_bytes=64 * 2**20)
    assert only(small)[0] == "mistake /dev/shm"


def test_mistakes_come_first() -> None:
    seen = with_facts(W1, open_files=10)
    found = judge(replace(seen, clocks={**seen.clocks, W2: Clock(9, 9.1)}, silent={W3: "gone"}))
    assert [f.severity for f in found] == [Severity.MISTAKE, Severity.MISTAKE, Severity.WARNING]

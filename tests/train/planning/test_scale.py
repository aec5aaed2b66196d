"""Laws of the model of scale."""

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st
from wording import Wording

from distrain.errors import SpecError
from distrain.models.embeddings.columns import PLACEMENTS
from distrain.models.embeddings.sharding.costs import sent_bytes
from distrain.train.planning.machine_file import (
    MachineFile,
    given_machines,
    load_machine,
    machine_of,
)
from distrain.train.planning.scale import TableStore, Work, predict

H100 = load_machine("h100-node")
SPEEDS = (
    "device_bytes_per_s",
    "flops_per_s",
    "pcie_bytes_per_s",
    "host_bytes_per_s",
    "link_bytes_per_s",
    "network_bytes_per_s",
    "decode_values_per_s",
    "network_all_gather_bytes_per_s",
    "link_all_reduce_bytes_per_s",
    "cores",
)
RATES = {name: 1e10 for name in SPEEDS if "_all_" in name}
HOST = replace(
    H100, device="cpu", ranks_per_node=1, nodes_per_host=64, cores=2.0, train_s_per_row=1e-5,
    network_bytes_per_s=1e7, exchange_cpu_s_per_byte=1e-8, step_overhead_s=0.004, **RATES,
)  # fmt: skip
"""Two cores, on which each rank is a node of its own."""


def work(ranks: int, placement: str = "row_wise", unique: float = 50_000, dim: int = 16) -> Work:
    sent = sent_bytes(placement, unique, dim, ranks).total
    store = TableStore(dim, placement, sent, PLACEMENTS[placement].collectives)
    rows = 65_536
    return Work(ranks, rows, rows * ranks, rows * 40.0, rows * 160.0, 3e10, 5e8, 4e6, 1, (store,))


@settings(max_examples=30, deadline=None)
@given(
    name=st.sampled_from(SPEEDS),
    times=st.floats(1, 100),
    ranks=st.integers(1, 300),
    placement=st.sampled_from(sorted(PLACEMENTS)),
    device=st.sampled_from(("cpu", "cuda")),
)
def test_a_faster_part_never_makes_a_step_slower(
    name: str, times: float, ranks: int, placement: str, device: str
) -> None:
    machine = replace(H100, device=device, **RATES)
    faster = replace(machine, **{name: getattr(machine, name) * times})
    asked = work(ranks, placement)
    assert predict(asked, faster).step_s <= predict(asked, machine).step_s * (1 + 1e-12)


@settings(max_examples=30, deadline=None)
@given(
    power=st.integers(0, 7),
    placement=st.sampled_from(sorted(PLACEMENTS)),
    machine=st.sampled_from((H100, HOST, replace(HOST, nodes_per_host=1, cores=1.0))),
    mbit=st.floats(10, 1e5),
)
def test_more_ranks_with_as_many_rows_each_never_make_a_step_faster(
    power: int, placement: str, machine: MachineFile, mbit: float
) -> None:
    slow = replace(machine, network_bytes_per_s=mbit * 1e6 / 8)
    few, more = (predict(work(2**p, placement), slow) for p in (power, power + 1))
    assert more.step_s >= few.step_s * (1 - 1e-12)
    assert more.efficiency <= few.efficiency * (1 + 1e-12)


@settings(max_examples=30, deadline=None)
@given(
    ranks=st.integers(1, 64), cores=st.floats(0.5, 64), threads=st.integers(1, 8),
    placement=st.sampled_from(sorted(PLACEMENTS)),
)  # fmt: skip
def test_a_step_takes_its_parts_and_no_less_than_the_cores_work(
    ranks: int, cores: float, threads: int, placement: str
) -> None:
    scale = predict(replace(work(ranks, placement), threads=threads), replace(HOST, cores=cores))
    parts = scale.parts_s
    hidden = -parts["overlap"]
    assert 0 <= hidden <= parts["exchange"] + parts["all_reduce"]
    trains_s = sum(s for part, s in parts.items() if part != "decode")
    assert scale.step_s >= trains_s
    core_s = ranks * (HOST.train_s_per_row * 65_536 + HOST.step_overhead_s)
    if threads == 1:
        assert scale.step_s >= core_s / cores


def test_batches_in_slices_hide_no_exchange() -> None:
    whole, cut = (predict(replace(work(2), slices=count), HOST).parts_s for count in (1, 4))
    assert -whole["overlap"] == pytest.approx(whole["compute"] / 3)  # the exchange takes longer
    assert cut == pytest.approx({**whole, "overlap": 0.0})


def test_ranks_that_share_cores_slow_each_other_down() -> None:
    alone, pair, four = (predict(work(ranks), HOST).parts_s["compute"] for ranks in (1, 2, 4))
    assert (pair, four) == pytest.approx((alone, 2 * alone))
    apart = replace(HOST, nodes_per_host=1)  # each node has its own cores
    assert predict(work(4), apart).parts_s["compute"] == pytest.approx(alone)


def test_each_kind_of_collective_has_its_rate() -> None:
    half = replace(HOST, network_all_reduce_bytes_per_s=5e9, network_latency_s=0.0)
    whole = replace(half, network_all_reduce_bytes_per_s=1e10)
    before, after = (predict(work(4), machine).parts_s for machine in (half, whole))
    assert before["all_reduce"] == pytest.approx(2 * after["all_reduce"])
    assert before["exchange"] == after["exchange"]
    gathered = predict(work(4, "replicated"), whole)
    sent = work(4, "replicated").stores[0].sent_bytes
    assert gathered.parts_s["exchange"] == pytest.approx(sent / 1e10)


@pytest.mark.parametrize("ranks", [2, 8])
def test_half_the_link_doubles_the_exchange_on_a_node(ranks: int) -> None:
    free = replace(H100, link_latency_s=0.0, link_all_reduce_bytes_per_s=0.0)
    half = replace(free, link_bytes_per_s=free.link_bytes_per_s / 2)
    before, after = predict(work(ranks), free).parts_s, predict(work(ranks), half).parts_s
    assert after["exchange"] == pytest.approx(2 * before["exchange"])
    assert after["all_reduce"] == pytest.approx(2 * before["all_reduce"])
    assert after["compute"] == before["compute"]


def test_one_rank_exchanges_nothing_and_is_wholly_efficient() -> None:
    alone = predict(work(1), H100)
    assert (alone.parts_s["exchange"], alone.parts_s["all_reduce"]) == (0.0, 0.0)
    assert (alone.link_bytes, alone.network_bytes, alone.efficiency) == (0.0, 0.0, 1.0)


@pytest.mark.parametrize("placement", sorted(PLACEMENTS))
def test_an_all_to_all_sends_each_byte_over_one_link(placement: str) -> None:
    asked = replace(work(32, placement), dense_bytes=0.0)
    sent, scale = asked.stores[0].sent_bytes, predict(asked, H100)
    if placement == "replicated":  # 3 other nodes' blocks come in for each GPU of the node
        assert scale.network_bytes == pytest.approx(sent * 3 / 31)
    else:
        assert scale.link_bytes + scale.network_bytes == pytest.approx(sent)
        assert scale.link_bytes == pytest.approx(sent * 7 / 31)


def test_what_is_busy_longest_binds_first() -> None:
    binds = predict(work(16), replace(H100, network_bytes_per_s=1e8)).binds
    assert binds[0].name == "network"
    assert [share.headroom for share in binds] == sorted(share.headroom for share in binds)
    assert binds[0].headroom >= 1


@pytest.mark.parametrize("name", given_machines())
def test_given_machines_name_a_source_for_each_number(name: str) -> None:
    machine = load_machine(name)
    assert machine.ranks_per_node == 8
    for source in machine.sources.values():
        kind, said = source.split(": ", 1)
        assert kind in ("published", "demanded", "measured", "assumed")
        assert kind == "assumed" or "https://" in said or "docs/" in said


def test_a_wrong_machine_file_is_refused(wording: Wording) -> None:
    document: dict[str, object] = {"name": "a", "device": "cpu"} | {
        name: {"value": getattr(H100, name), "source": text} for name, text in H100.sources.items()
    }
    assert machine_of(document).cores == H100.cores
    changes: tuple[dict[str, object], ...] = (
        {"cores": 8},
        {"cores": {"value": 8, "source": " "}},
        {"ranks_per_node": {"value": 1.5, "source": "a"}},
        {"flops_per_s": {"value": 0, "source": "a"}},
        {"nic": {"value": 1, "source": "a"}},
        {"device": "tpu"},
    )
    for change in changes:
        with pytest.raises(SpecError) as caught:
            machine_of(document | change)
        wording(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: object, wording: Wording) -> None:
    with pytest.raises(SpecError) as caught:
        load_machine(f"{tmp_path}/none.yaml")
    wording(caught.value)


def test_a_node_with_a_rank_more_costs_the_network_what_that_rank_sends() -> None:
    nine = predict(work(9), H100)
    assert nine.network_bytes >= work(9).stores[0].sent_bytes
    assert nine.step_s > predict(work(8), H100).step_s

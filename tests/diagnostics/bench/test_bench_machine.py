"""A machine description made from what a bench measured."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from wording import Wording

from distrain.cli.main import cli
from distrain.diagnostics.bench.document import Bench, Measure, Step, parse_bench
from distrain.diagnostics.bench.machine import machine_of_bench
from distrain.diagnostics.bench.measuring.loading import load
from distrain.errors import InputError
from distrain.train.planning.scale_plan import costs_of

RECORDED = Path(__file__).with_name("recorded_bench.json")
"""`distrain bench --quick` on two cores that others used; lists of storage are left out."""


@pytest.fixture(scope="module")
def recorded() -> Bench:
    return parse_bench(RECORDED.read_bytes())


def of(bench: Bench, name: str) -> list[Measure]:
    return [m for m in bench.measures if m.name == name]


def test_numbers_are_those_of_the_bench(recorded: Bench) -> None:
    machine = machine_of_bench(recorded, "bench.json")
    (node,) = recorded.inventory
    assert (machine.device, machine.cores) == ("cpu", node["cores"])
    assert machine.ranks_per_node == node["workers"] == 2
    largest = max(of(recorded, "all_reduce.on_node"), key=lambda m: m.size_bytes)
    assert machine.link_rate("all_reduce") == largest.median
    assert machine.decode_values_per_s == of(recorded, "loader.threads_1")[0].median * 40
    # Half of 1 KiB leaves a rank in an all-to-all and in an all-gather, all of it in an all-reduce.
    small = [min(of(recorded, f"{kind}.on_node"), key=lambda m: m.size_bytes)
             for kind in ("all_to_all", "all_gather", "all_reduce")]  # fmt: skip
    seconds = sorted(share * 1024 / m.median for share, m in zip((0.5, 0.5, 1), small, strict=True))
    assert machine.link_latency_s == pytest.approx(seconds[1])
    # One node: what it would send to others is assumed, and the source says so.
    assert machine.network_bytes_per_s == machine.link_bytes_per_s
    assert machine.sources["network_bytes_per_s"].startswith("assumed, as nothing measured it")
    assert machine.sources["link_bytes_per_s"].startswith("all_to_all.on_node of ")
    assert costs_of(machine, 2).latency_s == machine.link_latency_s


def test_steps_of_two_sizes_tell_a_rows_cost_from_a_steps(recorded: Bench) -> None:
    own = {"forward_backward": 0.02, "optimizer": 0.01, "data_wait": 0.01, "exchange": 0.0}
    few = Step(1, "weak", 1000, (1000 / 0.04,), (own,))
    many = replace(few, scaling="strong", rows=2000, rows_per_s=(2000 / 0.06,))
    one = machine_of_bench(replace(recorded, steps=(few,)))
    two = machine_of_bench(replace(recorded, steps=(few, many)))
    # 30 ms of 40 are the rank's own for 1,000 rows, 45 of 60 for 2,000.
    assert one.step_overhead_s == 0
    assert two.step_overhead_s == pytest.approx(0.015)
    assert two.flops_per_s == pytest.approx(2 * one.flops_per_s)


def test_links_between_nodes_are_told_from_those_on_one(recorded: Bench) -> None:
    (node,) = recorded.inventory
    off = tuple(
        replace(m, name=m.name.replace("on_node", "off_node"), place="2 nodes",
                values=tuple(v / 10 for v in m.values))
        for m in recorded.measures if m.name.endswith(".on_node")
    )  # fmt: skip
    both = replace(
        recorded, inventory=(node, {**node, "cores": 1}), measures=recorded.measures + off
    )
    machine = machine_of_bench(both)
    assert machine.cores == 1
    for kind in ("all_to_all", "all_gather", "all_reduce"):
        assert machine.network_rate(kind) == pytest.approx(machine.link_rate(kind) / 10)
    assert machine.network_latency_s == pytest.approx(10 * machine.link_latency_s)


def test_a_bench_that_lacks_something_is_refused(recorded: Bench, wording: Wording) -> None:
    alone = tuple(m for m in recorded.measures if "all_" not in m.name)
    lacking: list[dict[str, Any]] = [
        {"device": "cuda"}, {"inventory": ()}, {"measures": ()}, {"steps": ()}, {"measures": alone},
    ]  # fmt: skip
    for change in lacking:
        with pytest.raises(InputError) as refused:
            machine_of_bench(replace(recorded, **change), "b.json")
        assert "b.json" in refused.value.where.values()
        wording(refused.value)


def test_the_command_plans_for_what_a_bench_measured(tmp_path: Path, recorded: Bench) -> None:
    from benchmarks.plan_scale_bench.work import job, write_rows

    write_rows(tmp_path, 4096)
    spec = tmp_path / "job.yaml"
    # The file is YAML, which JSON is.
    spec.write_text(json.dumps(job(tmp_path, 2, 512, 1, 1).model_dump(mode="json")))
    words = ["plan", spec, "--ranks", "4", "--machine", RECORDED, "--json"]
    done = CliRunner().invoke(cli, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    plan = json.loads(done.stdout.splitlines()[0])
    assert plan["machine"]["name"] == f"bench {RECORDED}"
    assert (plan["scale"]["num_ranks"], plan["scale"]["nodes"]) == (4, 2)
    assert plan["scale"]["step_s"] > plan["scale"]["parts_s"]["compute"] > 0
    gone = CliRunner().invoke(cli, ["plan", str(spec), "--machine", str(tmp_path / "none.json")])
    assert isinstance(gone.exception, InputError)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_loaders_are_measured_to_the_memory_of_the_device(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, waits = [], []

    def loader(*_: object, **options: object) -> list[SimpleNamespace]:
        made.append(options["device"])
        return [SimpleNamespace(num_rows=70), SimpleNamespace(num_rows=30)]

    monkeypatch.setattr("distrain.loader.loader.Loader", loader)
    monkeypatch.setattr("distrain.loader.dataset.Dataset", str)
    monkeypatch.setattr("torch.cuda.synchronize", lambda: waits.append(device))
    found = load("train", 0, 1, 100, 2, 3, device)
    assert [rows for rows, _ in found] == [100] * 3
    assert made == [device]
    assert waits == (["cuda"] * 4 if device == "cuda" else [])

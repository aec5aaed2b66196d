"""The benchmark of the model of scale: machine files, figures, and a small case for real."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from benchmarks import plan_scale
from benchmarks.plan_scale_bench import hosts
from benchmarks.plan_scale_bench.machine import (
    COLLECTIVES,
    Measured,
    Timed,
    latency_and_rate,
    line_through,
    machine_document,
)
from benchmarks.plan_scale_bench.result import Case, document, table
from distrain.train.planning.machine_file import load_machine, machine_of

WHY_NOT = hosts.why_not()


def measured(**changes):
    """What two cores and links of 12.5 MB/s might give."""
    timed = [Timed(1e3, 0.001), Timed(6e4, 0.006), Timed(5e5, 0.041)]
    found = {
        "hosts": 4,
        "cores": 1.75,
        "memory_bytes": 2.0e10,
        "host_bytes_per_s": 1e10,
        "one_rank": [(1024, 0.015), (4096, 0.051)],
        "decode_values_per_s": 2e7,
        "collectives": dict.fromkeys(COLLECTIVES, timed),
        "exchange_cpu_s_per_byte": 1e-8,
    }
    return Measured(**{**found, **changes})


def test_a_machine_file_holds_what_was_measured_with_its_source():
    machine = machine_of(machine_document(measured(), "a", "a command"))
    assert (machine.ranks_per_node, machine.nodes_per_host, machine.cores) == (1, 4, 1.75)
    assert machine.train_s_per_row == pytest.approx(0.036 / 3072)
    assert machine.step_overhead_s == pytest.approx(0.003)
    assert machine.network_latency_s == pytest.approx(0.001)
    assert machine.network_rate("all_reduce") == pytest.approx(5e5 / 0.04)
    assert all(source.endswith("; a command") for source in machine.sources.values())


def test_ranks_that_need_no_core_for_the_exchange_are_allowed():
    document = machine_document(measured(exchange_cpu_s_per_byte=0.0), "a", "a command")
    assert machine_of(document).exchange_cpu_s_per_byte == 0


@settings(deadline=None)
@given(latency_s=st.floats(1e-6, 0.01), rate=st.floats(1e5, 1e9), large=st.floats(1e5, 1e8))
def test_latency_and_rate_are_found_again(latency_s, rate, large):
    found = latency_and_rate([Timed(0.0, latency_s), Timed(large, latency_s + large / rate)])
    assert found[0] == latency_s
    # Where latency is nearly all, its noise may not become a rate.
    assert found[1] <= rate * 1.0001
    assert found[1] == pytest.approx(min(rate, 10 * large / (latency_s + large / rate)), rel=1e-3)


@settings(deadline=None)
@given(
    rows=st.tuples(st.integers(1, 5000), st.integers(5001, 9000)),
    seconds=st.tuples(st.floats(1e-4, 1), st.floats(1e-4, 1)),
)
def test_steps_never_have_a_negative_cost(rows, seconds):
    slope, start = line_through(list(zip(rows, seconds, strict=True)))
    assert slope >= 0
    assert start >= 0


def case(predicted_s, measured_s):
    return Case(2, 100, predicted_s, measured_s, {"compute": 0.03}, {"exchange": 0.05}, 4e5, 3e5)


def test_cases_meet_the_goal_within_a_fifth():
    told = document([case(0.119, 0.1)], {"100": {"cores": 2}}, rounds=1)
    assert told["met"] == {"2 ranks at 100 Mbit/s": True}
    assert told["figures"]["2 ranks at 100 Mbit/s"]["off"] == pytest.approx(0.19)
    for predicted_s in (0.079, 0.121):
        assert document([case(predicted_s, 0.1)], {})["met"] == {"2 ranks at 100 Mbit/s": False}
    head, line, *_ = table([case(0.119, 0.1)])
    assert "predicted" in head
    assert " ".join(line.split()) == "2 ranks at 100 Mbit/s 119.0 ms 100.0 ms +19% 400 / 300"


def test_a_machine_without_namespaces_is_told_why(monkeypatch, capsys):
    monkeypatch.setattr(plan_scale, "why_not", lambda: "needs root")
    monkeypatch.setattr(sys, "argv", ["plan_scale.py", "--quick"])
    plan_scale.main()
    assert json.loads(capsys.readouterr().out) == {
        "benchmark": "plan_scale",
        "skipped": "needs root",
    }


@pytest.mark.release
@pytest.mark.slow
@pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")
def test_the_smallest_case_is_measured_and_predicted(tmp_path):
    words = ("--quick", "--rounds", "1", "--ranks", "2", "--mbit", "100", "--machine-out", tmp_path)
    done = subprocess.run(
        [sys.executable, Path(plan_scale.__file__), *map(str, words)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert list(told["figures"]) == ["1 rank", "2 ranks at 100 Mbit/s"]
    for of in told["figures"].values():
        assert of["measured_s"] > 0
        assert of["predicted_s"] > 0
    two = told["figures"]["2 ranks at 100 Mbit/s"]
    # Bytes do not depend on how busy the machine is. Distinct rows are expected ones.
    assert two["predicted_bytes"] == pytest.approx(two["measured_bytes"], rel=0.35)
    assert two["phases_s"]["exchange"] > 0
    numbers = told["machines"]["100"]
    # No link is faster than its cap; what runs besides may make it slower.
    assert 0 < numbers["network_bytes_per_s"] < 1.15 * 100e6 / 8
    assert numbers["cores"] > 0
    machine = load_machine(str(tmp_path / "machine-100.yaml"))
    assert machine.network_bytes_per_s == numbers["network_bytes_per_s"]

"""Two real gloo ranks measure what connects them, and agree."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from distrain.embeddings.costs import Costs

SCRIPT = Path(__file__).with_name("calibrate_rank.py")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What each rank measured."""
    folder = tmp_path_factory.mktemp("calibrate")
    processes = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(rank), "2", str(folder)],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        errors = [process.communicate(timeout=120)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    files = [folder / f"{rank}.json" for rank in range(2)]
    assert all(file.exists() for file in files), "\n".join(errors)
    return [json.loads(file.read_text()) for file in files]


def test_all_ranks_get_the_same_numbers(found):
    first, second = ({k: v for k, v in rank.items() if k != "took_s"} for rank in found)
    assert first == second


def test_the_numbers_are_costs_of_real_connections(found):
    costs = Costs(found[0]["bytes_per_s"], found[0]["latency_s"])
    # Wide enough for any machine: a collective is no faster than a function call, no slower than
    # a whole calibration, and nothing local is slower than a modem or faster than memory.
    assert 1e-6 < costs.latency_s < min(rank["took_s"] for rank in found)
    assert 1e5 < costs.bytes_per_s < 1e12


def test_the_least_value_is_everybodys(found):
    assert [rank["least"] for rank in found] == [2**40 + 6] * 2

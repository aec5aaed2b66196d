"""Two real gloo ranks measure what connects them, and agree."""

from pathlib import Path

import pytest
from gloo_ranks import ran

from distrain.embeddings.costs import Costs

SCRIPT = Path(__file__).with_name("calibrate_rank.py")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What each rank measured."""
    return ran(SCRIPT, tmp_path_factory.mktemp("calibrate")).of(2)


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

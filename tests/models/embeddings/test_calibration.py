"""Two real gloo ranks measure what connects them, and agree."""

from pathlib import Path

import pytest
import torch
from gloo_ranks import on_ranks
from loaded_scripts import load_script

from distrain.models.embeddings.sharding import calibration
from distrain.models.embeddings.sharding.costs import Costs

rank_side = load_script(Path(__file__).with_name("calibrate_rank.py"))


@pytest.fixture(scope="module")
def found():
    """What each rank measured."""
    return on_ranks(2, rank_side.measured)


def test_all_ranks_get_the_same_numbers(found):
    first, second = ({k: v for k, v in rank.items() if k != "took_s"} for rank in found)
    assert first == second


def test_a_measured_latency_is_part_of_the_measurement(found):
    assert 0 < found[0]["latency_s"] < min(rank["took_s"] for rank in found)


class Network:
    """Ranks whose connections have known costs, on a clock of their own."""

    def __init__(self, monkeypatch, num_ranks, costs):
        self.num_ranks, self.costs = num_ranks, costs
        self.now_s, self.most_bytes = 0.0, 0
        # The new name comes first, also where torch lacks it.
        for name in ("get_world_size", "all_gather_single", "all_to_all_single", "all_reduce"):
            monkeypatch.setattr(torch.distributed, name, getattr(self, name), raising=False)
        monkeypatch.setattr(calibration, "time", self)

    def perf_counter(self):
        return self.now_s

    def get_world_size(self, group):
        return self.num_ranks

    def all_gather_single(self, out, block, group, async_op):
        self._send(len(block), len(out) + len(block))

    def all_to_all_single(self, out, blocks, group):
        self._send(len(blocks) // self.num_ranks, len(out) + len(blocks))

    def all_reduce(self, values, op, group):
        """All ranks measure the same."""

    def _send(self, block_bytes, held_bytes):
        sent = (self.num_ranks - 1) * block_bytes
        self.now_s += self.costs.latency_s + sent / self.costs.bytes_per_s
        self.most_bytes = max(self.most_bytes, held_bytes)


@pytest.mark.parametrize("num_ranks", [2, 3, 16, 1000])
@pytest.mark.parametrize("costs", [Costs(1e9, 1e-4), Costs(2e7, 3e-3)], ids=["fast", "slow"])
def test_known_costs_are_found_in_memory_that_does_not_grow(monkeypatch, num_ranks, costs):
    network = Network(monkeypatch, num_ranks, costs)
    found = calibration.calibrate(None, torch.device("cpu"))
    assert found.bytes_per_s == pytest.approx(costs.bytes_per_s, rel=1e-9)
    small_s = (num_ranks - 1) * calibration._SMALL_BYTES / costs.bytes_per_s
    assert found.latency_s == pytest.approx(costs.latency_s + small_s, rel=1e-9)
    assert network.most_bytes < 5 << 20


def test_the_least_value_is_everybodys(found):
    assert [rank["least"] for rank in found] == [2**40 + 6] * 2

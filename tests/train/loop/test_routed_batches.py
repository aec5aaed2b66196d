"""Batches with their routes: made in turn, or one batch ahead."""

import pytest
import torch
from click_models import model_over

from distrain.loader.batch import Batch
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.embeddings import EmbeddingCollection, TableColumn
from distrain.train.loop.routed_batches import RoutedBatches
from distrain.train.step.routing import routes_of
from distrain.train.timing.phases import PhaseClock

CPU = torch.device("cpu")


class Source:
    """Batches of one to `count` rows."""

    def __init__(self, count):
        self.count = count
        self.taken = 0
        self.is_closed = False

    def __next__(self):
        if self.taken == self.count:
            raise StopIteration
        self.taken += 1
        ids = torch.arange(2 * self.taken).int().reshape(-1, 2) % 9
        rows = len(ids)
        return Batch(ids, torch.zeros(rows, 0), torch.zeros(rows), ("a", "b"), ())

    def close(self):
        self.is_closed = True


@pytest.mark.parametrize("one_ahead", [False, True])
def test_each_batch_comes_once_with_its_own_route(one_ahead):
    model = model_over(
        EmbeddingCollection([TableColumn("a", 50, 4), TableColumn("b", 9, 4)]), MLPBlock([2])
    )
    source, clock = Source(4), PhaseClock()
    with RoutedBatches(source, routes_of(model), CPU, one_ahead=one_ahead) as routed:
        for number in range(1, 5):
            batch, route, route_s = routed.take(clock)
            assert len(batch.label) == route.num_rows == number
            assert route_s > 0
            assert source.taken == min(4, number + one_ahead)
        with pytest.raises(StopIteration):
            routed.take(clock)
    assert source.is_closed
    seconds = clock.lap()
    assert seconds["data_wait"] > 0
    assert seconds["exchange"] > 0

"""Items are drawn by their probabilities, however many there are."""

import torch

from distrain.loader.batch import Batch
from distrain.models.negative_sampling import ItemDraws


def test_popularity_reaches_all_of_ten_million_items() -> None:
    draws = ItemDraws("item", 10_000_003, 1 << 20, "popularity")
    batch = Batch(torch.tensor([[5]]), torch.zeros(1, 0), None, ("item",), (), key=1)
    ids = draws.of(batch).dense().flatten()
    last = ids[ids > 9_000_000].unique()
    wanted = (1 << 20) * draws.log_q(torch.arange(9_000_001, 10_000_003)).exp().sum().item()
    assert abs(len(last) - wanted) < 5 * wanted**0.5

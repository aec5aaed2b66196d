"""Items are drawn by their probabilities, however many there are."""

import torch

from distrain.loader.batch import Batch
from distrain.models.negative_sampling import ItemDraws


def test_popularity_reaches_all_of_ten_million_items() -> None:
    num_draws = 1 << 22
    draws = ItemDraws("item", 10_000_003, num_draws, "popularity")
    batch = Batch(torch.tensor([[5]]), torch.zeros(1, 0), None, ("item",), (), key=1)
    ids = draws.of(batch).dense().flatten()
    last = ids[ids > 9_000_000].unique()
    # Each item is among the draws with probability 1 - (1 - q) ** num_draws.
    q = draws.log_q(torch.arange(9_000_001, 10_000_003)).exp()
    wanted = -(num_draws * (-q).log1p()).expm1().sum().item()
    assert abs(len(last) - wanted) < 5 * wanted**0.5

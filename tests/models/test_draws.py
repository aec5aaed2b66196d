"""Drawn items: how often each, and that nothing but a row's ids and the key decides which."""

import pytest
import torch

from distrain.errors import ModelError
from distrain.loader.batch import Batch
from distrain.models.negative_sampling import ItemDraws


def rows_of(count, key=5):
    ids = torch.stack([torch.arange(count) % 997, torch.arange(count) % 7], 1).int()
    return Batch(ids, torch.zeros(count, 0), None, ("user", "item"), (), key=key)


@pytest.mark.parametrize("kind", ["uniform", "popularity"])
def test_items_come_as_often_as_is_said(kind):
    draws = ItemDraws("item", 23, 30, kind)
    batch = rows_of(6979)  # no row twice
    counts = torch.bincount(draws.of(batch).values, minlength=23)
    expected = draws.log_q(torch.arange(3, 23)).exp()
    assert counts[:3].sum() == 0
    assert float(expected.sum()) == pytest.approx(1)
    total = int(counts.sum())
    deviation = (expected * (1 - expected) / total).sqrt()
    assert (((counts[3:] / total) - expected).abs() < 4 * deviation).all()


def test_a_rows_items_follow_from_its_ids_and_the_key():
    draws, batch = ItemDraws("item", 1000, 4), rows_of(50)
    whole = draws.of(batch).dense()
    part = draws.of(batch.part(slice(20, 31)))
    assert torch.equal(part.dense(), whole[20:31])
    assert len({tuple(row) for row in whole.tolist()}) == 50
    other = draws.of(rows_of(50, key=6)).dense()
    assert (other == whole).float().mean() < 0.1
    assert draws.of(rows_of(50, key=None)).lengths.sum() == 0


def test_one_item_is_nothing_to_draw_from(wording):
    wording.refused(ModelError, lambda: ItemDraws("item", 4, 2))

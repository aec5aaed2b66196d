"""Segments summed in pieces, as on a GPU, where no value may be asked for."""

import pytest
import torch
from kernel_cases import NeverAsks, check_sums_in_pieces
from torch.nn import functional

from distrain.models.embeddings.kernels import segments


@pytest.mark.parametrize("seed", range(6))
def test_sums_are_those_of_whole_segments_and_no_bag_is_long(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread block of a GPU sums a bag: what lies behind the last segment was one of 1.4M."""
    monkeypatch.setattr(segments, "_PIECE_ROWS", 4)
    longest = []
    sum_bags = functional.embedding_bag

    def watched(
        places: torch.Tensor, rows: torch.Tensor, starts: torch.Tensor, mode: str
    ) -> object:
        ends = torch.cat([starts[1:], torch.tensor([len(places)])])
        longest.append(int((ends - starts).max()))
        return sum_bags(places, rows, starts, mode=mode)

    monkeypatch.setattr(functional, "embedding_bag", watched)
    source = torch.Generator().manual_seed(seed)
    for length in (1, 2, 30, 400):
        few = max(1, length // (1 + seed % 3))  # of some seeds the last segments are empty
        segment = torch.randint(0, few, (200,), generator=source).sort()[0]
        starts = torch.searchsorted(segment, torch.arange(length))
        rows = torch.randn(50, 3, generator=source, dtype=torch.float64)
        sources = torch.randint(0, 50, (200,), generator=source)
        expected = torch.zeros(length, 3, dtype=torch.float64).index_add_(0, segment, rows[sources])
        found = segments.sums_in_pieces(rows, sources, starts, segment)
        torch.testing.assert_close(found, expected)
        pieces_of_longest = -(-int(segment.bincount().max()) // 4)
        assert max(longest) <= max(4, pieces_of_longest)
        longest.clear()


@pytest.mark.parametrize("rows", [1, 255, 3000])
def test_gradients_of_equal_rows_are_added_in_pieces_without_a_question(rows: int) -> None:
    check_sums_in_pieces("cpu", rows)


def test_the_question_would_be_noticed() -> None:
    with pytest.raises(AssertionError, match=r"aten\.nonzero"), NeverAsks():
        torch.ones(3).nonzero()

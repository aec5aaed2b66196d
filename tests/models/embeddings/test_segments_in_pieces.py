"""Segments summed in pieces, as on a GPU, where no value may be asked for."""

import pytest
import torch
from click_models import batches_for, model_over
from kernel_cases import NeverAsks, check_sums_in_pieces
from torch.nn import functional

from distrain.jobs.spec import TrainSpec
from distrain.models.blocks import MLPBlock
from distrain.models.embeddings import EmbeddingCollection, TableColumn
from distrain.models.embeddings.kernels import dispatch as kernels, on_torch, segments
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import PhaseClock


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


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_a_step_by_the_gpus_kernels_asks_for_no_value_on_the_cpu_either(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies between devices, for which the host would wait too, only a GPU can show."""
    monkeypatch.setattr(kernels, "_in_c", lambda *_: False)
    monkeypatch.setattr(on_torch, "collect", on_torch.collect_in_pieces)
    columns = [TableColumn("a", 500, 16), TableColumn("wide", 100, 40)]
    tables = EmbeddingCollection(columns)
    train = TrainSpec.model_validate({"optimizer": {"kind": kind}})
    step = TrainStep(model_over(tables, MLPBlock([8]), ("x",)), train, 1)
    (batch,) = batches_for(columns, ("x",), 64, 1)
    route = tables.route(batch.categorical)
    with NeverAsks():
        _, loss = step(batch, 64, 0.1, PhaseClock(), route)
    assert torch.isfinite(loss)

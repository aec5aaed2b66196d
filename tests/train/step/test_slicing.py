"""What `train.micro_batches: auto` means for a batch."""

import pytest
import torch
from click_models import model_over
from hypothesis import given, strategies as st

from distrain.jobs.spec import TrainSpec
from distrain.loader.partition.epoch_plan import EpochPlan
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.embeddings import EmbeddingCollection, TableColumn
from distrain.train.step import step as step_module
from distrain.train.step.step import ROWS_PER_THREAD, Slicing, TrainStep, slicing_of

USUAL = {"on_cpu": True, "rows_are_independent": True, "num_threads": 1}


def cut(num_rows, train=None, **options):
    return slicing_of(TrainSpec.model_validate(train or {}), **USUAL | options).count_of(num_rows)


def test_large_batches_of_independent_rows_are_cut_on_a_cpu():
    assert cut(16 * ROWS_PER_THREAD) == 16
    assert cut(16 * ROWS_PER_THREAD, num_threads=4) == 4
    assert cut(3 * ROWS_PER_THREAD) == 1


@pytest.mark.parametrize(("batch", "ranks"), [(65_536, 4), (131_072, 8), (32_768, 2), (98_304, 6)])
def test_ranks_of_a_job_are_cut_alike(batch, ranks):
    plan = EpochPlan(10 * batch, 24, batch)
    rows = {plan.rank_rows(step, rank, ranks) for step in range(10) for rank in range(ranks)}
    assert {cut(one) for one in rows} == {4}


@pytest.mark.parametrize(
    ("train", "options"),
    [
        ({}, {"on_cpu": False}),
        ({}, {"rows_are_independent": False}),
        ({"cuda_graph": True}, {}),
        ({"micro_batches": 1}, {}),
    ],
)
def test_what_keeps_a_batch_in_one_piece(train, options):
    assert cut(10**6, train, **options) == 1


@given(num_rows=st.integers(0, 5000), count=st.none() | st.integers(1, 9), rows=st.integers(1, 300))
def test_slices_are_all_rows_in_order_and_the_largest_is_as_foretold(num_rows, count, rows):
    how = Slicing(count, rows)
    parts = how.slices(num_rows)
    assert [row for part in parts for row in range(part.start, part.stop)] == list(range(num_rows))
    lengths = [part.stop - part.start for part in parts]
    assert max(lengths) - min(lengths) <= 1
    assert max(lengths) == how.most_rows(num_rows)


@pytest.mark.parametrize("normalisation", ["none", "batch_norm"])
def test_a_step_cuts_its_batches_so(normalisation, monkeypatch):
    monkeypatch.setattr(step_module, "ROWS_PER_THREAD", 10)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    torch.manual_seed(0)
    network = MLPBlock([4], normalisation=normalisation)
    tables = EmbeddingCollection([TableColumn("a", 9, 2)])
    step = TrainStep(model_over(tables, network, ("x",)), TrainSpec(), 1)
    parts = step._slicing.slices(90)
    assert len(parts) == (9 if normalisation == "none" else 1)

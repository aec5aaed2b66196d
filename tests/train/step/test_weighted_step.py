"""Weights of rows in a step: 2 is the row twice, 0 is no row, on any number of ranks."""

from pathlib import Path

import pytest
import torch
from gloo_ranks import on_ranks
from hypothesis import given, settings, strategies as st
from loaded_scripts import load_script
from played_graph import PlayedGraph
from torch_checks import one_thread as one_thread

from distrain.jobs.spec import TrainSpec
from distrain.train.step.graphed_step import GraphedStep
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import PhaseClock

rank_side = load_script(Path(__file__).with_name("weighted_ranks.py"))
pytestmark = pytest.mark.usefixtures("one_thread")
NEAR = {"rtol": 1e-12, "atol": 1e-13}


def trained(batch, step=None, **options):
    """The parameters after a step of SGD on one batch."""
    step = step or TrainStep(rank_side.make_model(**options), rank_side.SGD, 1)
    step(batch, max(1, batch.num_rows), 0.5, PhaseClock())
    return [
        p.detach().clone() for p in (*step.model.embeddings.weights, *step.model.dense.parameters())
    ]


def same(one, other):
    for ours, theirs in zip(one, other, strict=True):
        torch.testing.assert_close(ours, theirs, **NEAR)


weights = st.lists(st.integers(0, 3), min_size=1, max_size=9)


@settings(deadline=None, max_examples=20)
@given(of_rows=weights, of_task=weights)
def test_a_weight_is_the_number_of_times_that_a_row_comes(of_rows, of_task):
    """Of the batch's weights and of those of one task alone, which others do not see."""
    rows = min(len(of_rows), len(of_task))
    counts, own = (torch.tensor(given[:rows]) for given in (of_rows, of_task))
    plain = rank_side.rows_of(rows)
    weighted = rank_side.weighted(plain, counts, own)
    if counts.sum():
        repeated = rank_side.taken(plain, torch.arange(rows).repeat_interleave(counts))
        same(trained(weighted), trained(repeated))
    if own.sum():
        repeated = rank_side.taken(plain, torch.arange(rows).repeat_interleave(own))
        same(trained(weighted, tasks=("price",), own=True), trained(repeated, tasks=("price",)))


@settings(deadline=None, max_examples=12)
@given(weights, st.integers(2, 5))
def test_slices_weigh_as_one_batch(of_rows, slices):
    batch = rank_side.weighted(rank_side.rows_of(len(of_rows)), torch.tensor(of_rows), None)
    sliced = TrainStep(
        rank_side.make_model(),
        TrainSpec.model_validate({"optimizer": {"kind": "sgd"}, "micro_batches": slices}),
        1,
    )
    same(trained(batch), trained(batch, sliced))


def test_a_factor_of_a_class_is_a_weight_of_its_rows():
    plain = rank_side.rows_of(9)
    model = rank_side.make_model(tasks=("clicked",))
    model.task.tasks[0].weigh_classes({1: 3.0})
    counts = torch.where(plain.labels[:, 0] > 0, 3, 1)
    found = trained(plain, TrainStep(model, rank_side.SGD, 1))
    same(found, trained(rank_side.weighted(plain, counts, None), tasks=("clicked",)))


def test_no_row_that_counts_is_no_update():
    batch = rank_side.weighted(rank_side.rows_of(4), torch.zeros(4), None)
    before = rank_side.make_model()
    kept = [*before.embeddings.weights, *before.dense.parameters()]
    for found, was in zip(trained(batch), kept, strict=True):
        assert torch.equal(found, was)


def test_a_played_graph_weighs_as_plain_steps():
    plain = TrainStep(rank_side.make_model(), rank_side.SGD, 1)
    graphed = GraphedStep(rank_side.make_model(), rank_side.SGD, 1, 9, PlayedGraph)
    for number in range(8):
        rows = rank_side.rows_of(9, seed=number)
        counts = torch.arange(9) % (number + 2)
        batch = rank_side.weighted(rows, counts, counts.flip(0))
        for one, other in zip(trained(batch, plain), trained(batch, graphed), strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("num_ranks", rank_side.GANGS)
def test_ranks_weigh_as_one_process(num_ranks):
    """Also where one rank's rows all have the weight 0, and one has no rows."""
    expected = rank_side.train_all(0, 1)
    ranks = on_ranks(num_ranks, rank_side.train_all)
    for found in ranks:
        same(found, expected)
        assert all(torch.equal(a, b) for a, b in zip(found, ranks[0], strict=True))

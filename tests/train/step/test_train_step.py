"""A whole step of one process, against plain torch."""

import pytest
import torch
from click_models import model_over
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from distrain.jobs.spec import TrainSpec
from distrain.loader.batch import Batch
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.embeddings import EmbeddingCollection, Peers, TableColumn
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import PhaseClock

CARDINALITIES, DIM = (5, 40, 300), 4
NAMES, NUMBERS = ("a", "b", "c"), ("x", "y")
LR = 0.5
PRECISE = {"rtol": 1e-11, "atol": 1e-13}


def make_step(dtype=torch.float64, **train):
    tables = EmbeddingCollection(
        [TableColumn(name, c, DIM) for name, c in zip(NAMES, CARDINALITIES, strict=True)],
        generator=torch.Generator().manual_seed(0),
        dtype=dtype,
    )
    torch.manual_seed(1)
    model = model_over(tables, MLPBlock([8]), NUMBERS)
    model.dense.to(dtype)
    return TrainStep(model, TrainSpec.model_validate(train), 1)


def batches(dtype=torch.float64, rows=30, count=5):
    generator = torch.Generator().manual_seed(2)
    for _ in range(count):
        ids = [torch.randint(0, c, (rows,), generator=generator) for c in CARDINALITIES]
        yield Batch(
            torch.stack(ids, 1).to(torch.int32),
            torch.randn(rows, 2, generator=generator, dtype=dtype),
            torch.randint(0, 2, (rows,), generator=generator).to(dtype),
            NAMES,
            NUMBERS,
        )


def train(step, batches):
    """Every parameter after all batches, and what the steps returned."""
    told = [step(batch, max(1, batch.num_rows), LR, PhaseClock()) for batch in batches]
    parameters = [*step.model.embeddings.weights, *step.model.dense.parameters()]
    return [p.detach() for p in parameters], told


def plain_training(max_norm):
    """The same model of torch's own parts, with dense gradients, and its gradients' norms."""
    step = make_step()
    tables = [nn.Embedding.from_pretrained(step.model.embeddings.table(n).clone()) for n in NAMES]
    dense = step.model.dense
    parameters = [*(t.weight.requires_grad_() for t in tables), *dense.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=LR)
    norms = []
    for batch in batches():
        embedded = torch.stack(
            [table(batch.categorical[:, i]) for i, table in enumerate(tables)], dim=1
        )
        logits = dense((embedded,), batch.continuous)
        optimizer.zero_grad()
        binary_cross_entropy_with_logits(logits, batch.label).backward()
        norms.append(float(nn.utils.clip_grad_norm_(parameters, max_norm)))
        optimizer.step()
    weights = torch.cat([table.weight.detach() for table in tables])
    return [weights, *(p.detach() for p in dense.parameters())], norms


@pytest.mark.parametrize("max_norm", [None, 0.05, 0.1])
def test_a_clipped_step_is_that_of_torchs_clipping_on_a_plain_model(max_norm):
    expected, norms = plain_training(max_norm or float("inf"))
    if max_norm == 0.1:  # clips some steps and leaves others
        assert min(norms) < max_norm < max(norms)
    elif max_norm:
        assert min(norms) > max_norm
    ours, _ = train(make_step(optimizer={"kind": "sgd"}, clip_grad_norm=max_norm), batches())
    for mine, other in zip(ours, expected, strict=True):
        torch.testing.assert_close(mine, other, **PRECISE)


@pytest.mark.parametrize("kind", ["sgd", "adam"])
@pytest.mark.parametrize("slices", [2, 40])
def test_slices_give_what_the_whole_batch_gives(slices, kind):
    # 40 slices of 30 rows: some are empty
    options = {"optimizer": {"kind": kind}, "clip_grad_norm": 0.1}
    whole, told = train(make_step(**options), batches())
    sliced, also_told = train(make_step(**options, micro_batches=slices), batches())
    for mine, other in zip(sliced, whole, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-11)
    for mine, other in zip(also_told, told, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("slices", [1, 3])
def test_a_step_exchanges_and_updates_once(slices, monkeypatch):
    step = make_step(micro_batches=slices)
    calls = []
    for owner, name in (
        (step.model.embeddings, "fetch"),
        (step.model.embeddings, "begin_exchange"),
        (step.dense, "start_sync"),
        (step.dense, "finish_sync"),
        (step.dense, "step"),
    ):
        verb = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda *a, _n=name, _v=verb, **k: calls.append(_n) or _v(*a, **k)
        )
    train(step, batches(count=1))
    assert calls == ["fetch", "start_sync", "begin_exchange", "finish_sync", "step"]


@pytest.mark.parametrize(
    ("placement", "num_ranks", "phase"),
    [
        ("replicated", 1, "forward_backward"),
        ("row_wise", 1, "forward_backward"),
        ("replicated", 2, "forward_backward"),
        ("row_wise", 2, "exchange"),
    ],
)
def test_rows_that_come_from_other_ranks_are_exchanged(monkeypatch, placement, num_ranks, phase):
    columns = [TableColumn("a", 8, DIM)]
    tables = EmbeddingCollection(
        columns,
        placements=[placement],
        peers=Peers(0, num_ranks),
        generator=torch.Generator().manual_seed(0),
    )
    step, clock, doing = make_step(), PhaseClock(), []
    fetch, from_peers = step.model.embeddings.fetch, tables.fetches_from_peers
    monkeypatch.setattr(EmbeddingCollection, "fetches_from_peers", property(lambda _: from_peers))
    monkeypatch.setattr(
        step.model.embeddings, "fetch", lambda route: doing.append(clock.doing) or fetch(route)
    )
    step(next(batches()), 30, LR, clock)
    assert doing == [phase]

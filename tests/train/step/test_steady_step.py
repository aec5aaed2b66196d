"""What a steady step costs the host: waits for the device and launches, on a played device."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click_models import batches_for, model_over
from event_rows import SCHEMA, event_batch
from gloo_ranks import on_ranks
from host_work import played_torch
from loaded_scripts import load_script
from played_graph import graphs_of

from distrain.jobs.spec import TrainSpec, parse_spec
from distrain.loader import LoaderStats
from distrain.models import build_model
from distrain.models.blocks import hstu
from distrain.models.blocks.interaction import DLRMBlock
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.embeddings import EmbeddingCollection, TableColumn
from distrain.train.step.graphed_step import GraphedStep
from distrain.train.step.open_report import OpenReport
from distrain.train.step.recorder import WARM_UP_STEPS
from distrain.train.step.routing import RoutedBatch
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import PhaseClock

rank_side = load_script(Path(__file__).with_name("graphed_rank.py"))
THERE = torch.device("meta")
COLUMNS = [TableColumn("a", 50, 4), TableColumn("b", 3, 4), TableColumn("c", 9, 4)]
NUMBERS = ("x", "y")
ROWS = 20
SPEC = TrainSpec.model_validate({"optimizer": {"kind": "adagrad"}, "cuda_graph": False})
AVERAGED = SPEC.model_copy(update={"ema": 0.9})
CLIPPED = TrainSpec.model_validate({"optimizer": {"kind": "adam"}, "clip_grad_norm": 0.1})


def flat_model(body):
    tables = EmbeddingCollection(COLUMNS, generator=torch.Generator().manual_seed(0))
    return model_over(tables, body, NUMBERS)


def event_model(kind):
    section = {"kind": kind, "embedding_dim": 4, "max_length": 3, "hidden": [5]}
    return build_model(SCHEMA, parse_spec({"data": {"train": "t"}, "model": section}).model, seed=1)


EVENTS = ("din", "bst", "sasrec", "hstu")
MODELS = {
    "mlp": lambda: flat_model(MLPBlock([8])),
    "dlrm": lambda: flat_model(DLRMBlock([8, 4], [8])),
    **{kind: lambda kind=kind: event_model(kind) for kind in EVENTS},
}


def batch_of(name, *, from_host=True):
    """A batch on the device; without `from_host` its lists were made there."""
    if name not in EVENTS:
        return next(batches_for(COLUMNS, NUMBERS, ROWS, 1)).to(THERE)
    batch = event_batch(ROWS).to(THERE)
    if from_host:
        return batch
    made_there = {name: replace(one, host_offsets=None) for name, one in batch.lists.items()}
    return replace(batch, lists=made_there)


def steady_step(name, *, recorded=False, spec=SPEC, **batch):
    """The waits and launches of one step in the training thread, after some that warm up."""
    with played_torch() as device:
        model, rows = MODELS[name]().to(THERE), batch_of(name, **batch)
        if recorded:
            step = GraphedStep(model, spec, 1, ROWS, graphs_of(device))
        else:
            step = TrainStep(model, spec, 1)
        report = OpenReport(0, THERE, 20, model.task.targets, step if recorded else None)
        for number in range(WARM_UP_STEPS + 2):
            route = None if recorded else model.embeddings.route(*model.table_ids(rows))
            device.forget()
            scores, loss = step(rows, ROWS, 0.1, PhaseClock(), route)
            report.add(number, RoutedBatch(rows, route, 0.0), scores, loss)
        counted = device.waits, device.launches
        device.forget()
        report.close(WARM_UP_STEPS + 2, LoaderStats())
        assert device.waits == []  # the figures are on their way
    return counted


@pytest.mark.parametrize("name", ["mlp", "dlrm", *EVENTS])
def test_no_steady_step_waits_for_the_device(name):
    """With its route made ahead in a thread, as in a job."""
    waits, launches = steady_step(name)
    assert waits == []
    assert launches > 50


@pytest.mark.parametrize("name", EVENTS)
def test_lists_that_were_made_on_the_device_wait(name):
    waits, _ = steady_step(name, from_host=False)
    assert len(waits) > 3


@pytest.mark.slow
def test_the_blocks_of_attention_are_chosen_for_the_device(monkeypatch):
    _, launches = steady_step("hstu")
    monkeypatch.setattr(hstu, "_MOST_WEIGHTS", 1)
    assert steady_step("hstu")[1] == launches
    monkeypatch.setattr(hstu, "_MOST_ON_GPU", 1)
    assert steady_step("hstu")[1] > 3 * launches


@pytest.mark.parametrize(("spec", "expected"), [(SPEC, 7), (CLIPPED, 11), (AVERAGED, 11)])
@pytest.mark.parametrize("name", ["mlp", "dlrm"])
def test_a_recorded_step_is_few_launches(name, spec, expected):
    """One copies the batch, one replays, the others update the dense part and note the loss."""
    waits, launches = steady_step(name, recorded=True, spec=spec)
    assert waits == []
    assert launches == expected


@pytest.mark.slow
@pytest.mark.parametrize("num_ranks", rank_side.GANGS)
def test_no_recorded_step_of_several_ranks_waits_for_the_device(num_ranks):
    """With the request of the next batch's rows; the answer to this batch's is on the host."""
    for counted in on_ranks(num_ranks, rank_side.steady):
        assert counted == dict.fromkeys(rank_side.GANGS[num_ranks], ([], 23, 2))

"""What a steady step costs the host: waits for the device and launches, on a played device."""

from dataclasses import replace

import pytest
import torch
from click_models import batches_for, model_over
from event_rows import SCHEMA, event_batch
from host_work import PlayedDevice, played_torch
from played_graph import PlayedGraph

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


MODELS = {
    "mlp": lambda: flat_model(MLPBlock([8])),
    "dlrm": lambda: flat_model(DLRMBlock([8, 4], [8])),
    **{kind: lambda kind=kind: event_model(kind) for kind in ("din", "sasrec", "hstu")},
}
EVENTS = ("din", "sasrec", "hstu")


def batch_of(name, *, from_host=True):
    """A batch on the device; without `from_host` its lists were made there."""
    if name not in EVENTS:
        return next(batches_for(COLUMNS, NUMBERS, ROWS, 1)).to(THERE)
    batch = event_batch(ROWS).to(THERE)
    if from_host:
        return batch
    made_there = {name: replace(one, host_offsets=None) for name, one in batch.lists.items()}
    return replace(batch, lists=made_there)


class Graph(PlayedGraph):
    """A played graph whose replay is one launch."""

    device: PlayedDevice

    def replay(self):
        before = self.device.launches
        result = super().replay()
        self.device.launches = before + 1
        return result


def steady_step(name, *, recorded=False, spec=SPEC, **batch):
    """The waits and launches of one step in the training thread, after some that warm up."""
    with played_torch() as device:
        model, rows = MODELS[name]().to(THERE), batch_of(name, **batch)
        if recorded:
            graph = type("OfDevice", (Graph,), {"device": device})
            step = GraphedStep(model, spec, 1, ROWS, graph)
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

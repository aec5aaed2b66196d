"""The tables' kernels in torch on a GPU against the CPU's, and a step for which nobody waits."""

import pytest
import torch
from click_models import batches_for, model_over
from devices import no_waiting, on_gpu
from kernel_cases import check_sums_in_pieces

from distrain.jobs.spec import TrainSpec
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.embeddings import EmbeddingCollection, SparseOptimizer, TableColumn
from distrain.train.step.open_report import OpenReport
from distrain.train.step.routing import RoutedBatch
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import PhaseClock

KINDS = ["sgd", "adagrad", "rowwise_adagrad", "adam"]
COLUMNS = [TableColumn("a", 5000, 16), TableColumn("b", 3, 16), TableColumn("wide", 100, 40)]
NUMBERS = ("x", "y")
ROWS = 4096


@pytest.fixture(autouse=True, params=[False, True], ids=["torch", "triton"])
def uses_triton(monkeypatch, request):
    monkeypatch.setenv("DISTRAIN_TRITON", str(int(request.param)))


@on_gpu
@pytest.mark.parametrize("rows", [1, 255, 3000])
def test_gradients_of_equal_rows_are_added_in_pieces_without_a_wait(device, rows):
    check_sums_in_pieces(device, rows)


def table_batches(count=4):
    """Ids, and gradients of a few bits."""
    generator = torch.Generator().manual_seed(1)
    for rows in (ROWS, 7, 0, ROWS)[:count]:
        ids = [torch.randint(0, c.cardinality, (rows,), generator=generator) for c in COLUMNS]
        shapes = ((rows, 2, 16), (rows, 1, 40))
        grads = [torch.randint(-4, 5, shape, generator=generator) / 4 for shape in shapes]
        yield torch.stack(ids).int().T, grads


def updated_tables(device, kind, dtype):
    """What batches look up, add up, and leave behind in tables and optimizer, on the host."""
    tables = EmbeddingCollection(COLUMNS, generator=torch.Generator().manual_seed(0), dtype=dtype)
    tables.to(device)
    optimizer = SparseOptimizer(tables, kind, seed=3)
    told = []
    for ids, grads in table_batches():
        route = tables.route(ids.to(device))
        embedded = tables.expand(route, tables.fetch(route))
        sums = tables.collect(route, [grad.to(device) for grad in grads])
        told.append([*(store.inverse for store in route.stores), *embedded, *sums])
        optimizer.apply(tables.exchange(route, sums), 0.25)
    memory = [values for name, values in optimizer.state_dict().items() if name != "num_steps"]
    told.append([*tables.weights, *memory])
    return [[values.detach().cpu() for values in of_step] for of_step in told]


@on_gpu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lookups_sums_and_updates_are_the_cpus(device, kind, dtype):
    ours, theirs = updated_tables(device, kind, dtype), updated_tables("cpu", kind, dtype)
    for number, (found, wanted) in enumerate(zip(ours, theirs, strict=True)):
        for a, b in zip(found, wanted, strict=True):
            # The first batch meets no updated row yet, and SGD's updates of few bits are exact.
            if number == 0 or a.dtype == torch.int32 or kind == "sgd":
                assert torch.equal(a, b)
            else:
                # A last bit of float32 may move a bfloat16 across the draw between its neighbours.
                apart = 1e-5 if dtype == torch.float32 else 1e-2
                torch.testing.assert_close(a, b, rtol=apart, atol=apart)


def new_train_step(device, kind, body, dtype=torch.float32, **train):
    tables = EmbeddingCollection(COLUMNS, generator=torch.Generator().manual_seed(0), dtype=dtype)
    torch.manual_seed(1)
    model = model_over(tables, body, NUMBERS).to(device)
    spec = TrainSpec.model_validate({"optimizer": {"kind": kind}, **train})
    return TrainStep(model, spec, 1)


@on_gpu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("train", [{}, {"precision": "bf16"}, {"clip_grad_norm": 0.5}], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_steady_step_never_makes_the_host_wait(device, kind, train, dtype):
    """With its route made ahead, as in a job; what it leaves goes into the open window."""
    step = new_train_step(device, kind, MLPBlock([64, 64]), dtype, **train)
    window = OpenReport(0, torch.device(device), 10, step.model.task.targets)
    batches = list(batches_for(COLUMNS, NUMBERS, ROWS, 4, device))
    routes = [step.model.embeddings.route(batch.categorical) for batch in batches]

    def take(number):
        batch, route = batches[number], routes[number]
        (logits,), loss = step(batch, ROWS, 0.1 / (1 + number), PhaseClock(), route)
        window.add(number, RoutedBatch(batch, route, 0.0), (logits,), loss)

    take(0)
    take(1)
    with no_waiting(device):
        take(2)
        take(3)
    assert window.rows_trained == 4 * ROWS

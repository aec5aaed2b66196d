"""The tables' kernels in torch on a GPU against the CPU's, and a step for which nobody waits."""

import pytest
import torch
from click_models import model_over
from devices import each_device, no_waiting, on_gpu
from torch.utils._python_dispatch import TorchDispatchMode

from distrain.batch import Batch
from distrain.embeddings import EmbeddingCollection, SparseOptimizer, TableColumn
from distrain.embeddings.kernels import dispatch as kernels, on_torch as kernels_torch
from distrain.embeddings.kernels.on_torch import collect, collect_in_pieces
from distrain.models.blocks.interaction import DLRMBlock
from distrain.models.blocks.mlp import MLPBlock
from distrain.spec import TrainSpec
from distrain.train.step.open_report import OpenReport
from distrain.train.step.routing import Routed
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import PhaseClock

KINDS = ["sgd", "adagrad", "rowwise_adagrad", "adam"]
COLUMNS = [TableColumn("a", 5000, 16), TableColumn("b", 3, 16), TableColumn("wide", 100, 40)]
NUMBERS = ("x", "y")
ROWS = 4096


@pytest.fixture(autouse=True, params=[False, True], ids=["torch", "triton"])
def uses_triton(monkeypatch, request):
    if request.param and not torch.cuda.is_available():
        pytest.skip("Triton's kernels want a GPU")
    monkeypatch.setenv("DISTRAIN_TRITON", str(int(request.param)))


class NeverAsks(TorchDispatchMode):
    """Refuses what would read a value of a tensor to know a shape, or to go on."""

    ASKS = ("aten.nonzero", "aten._local_scalar_dense", "aten._unique2", "aten.masked_select")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert not str(func).startswith(self.ASKS), func
        indices = args[1] if str(func).startswith("aten.index.") else ()
        assert not any(i is not None and i.dtype == torch.bool for i in indices), func
        return func(*args, **(kwargs or {}))


def some_gradients(device, rows):
    """Whole numbers, whose sums are exact in any order, for 3 of 4 places of a batch.

    The first column has two numbers, the third one none of the last 50.
    """
    generator = torch.Generator().manual_seed(0)
    grads = torch.randint(-8, 9, (rows, 4, 5), generator=generator).float()
    first = torch.randint(0, 2, (rows,), generator=generator)
    second = torch.randint(2, 400, (rows,), generator=generator)
    third = torch.randint(400, 450, (rows,), generator=generator)
    numbers = torch.stack([first, second, third]).int()
    return grads.to(device), numbers.to(device), torch.tensor([3, 0, 1])


@each_device
@pytest.mark.parametrize("rows", [1, 255, 3000])
def test_gradients_of_equal_rows_are_added_in_pieces_without_a_question(device, rows):
    grads, numbers, places = some_gradients(device, rows)
    sums = torch.ones(500, 5, device=device)
    expected = sums.cpu().double()
    for column, place in enumerate(places.tolist()):
        expected.index_add_(0, numbers[column].cpu(), grads[:, place].cpu().double())
    collect_in_pieces(grads, numbers, places, torch.zeros_like(sums))  # copies the places
    with NeverAsks(), no_waiting(device):
        collect_in_pieces(grads, numbers, places, sums)
    assert torch.equal(sums.cpu().double(), expected)


def test_the_question_would_be_noticed():
    grads, numbers, places = some_gradients("cpu", 10)
    with pytest.raises(AssertionError, match=r"aten\.nonzero"), NeverAsks():
        collect(grads, numbers, places, torch.zeros(500, 5))


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


def model_batches(device, count):
    generator = torch.Generator().manual_seed(2)
    for _ in range(count):
        ids = [torch.randint(0, c.cardinality, (ROWS,), generator=generator) for c in COLUMNS]
        yield Batch(
            torch.stack(ids).int().to(device).T,
            torch.randn(2, ROWS, generator=generator).to(device).T,
            torch.randint(0, 2, (ROWS,), generator=generator).float().to(device),
            tuple(column.name for column in COLUMNS),
            NUMBERS,
        )


def new_train_step(device, kind, body, dtype=torch.float32, **train):
    columns = COLUMNS[:2] if isinstance(body, DLRMBlock) else COLUMNS
    tables = EmbeddingCollection(columns, generator=torch.Generator().manual_seed(0), dtype=dtype)
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
    batches = list(model_batches(device, 4))
    routes = [step.model.embeddings.route(batch.categorical) for batch in batches]

    def take(number):
        batch, route = batches[number], routes[number]
        (logits,), loss = step(batch, ROWS, 0.1 / (1 + number), PhaseClock(), route)
        window.add(number, Routed(batch, route, 0.0), (logits,), loss)

    take(0)
    take(1)
    with no_waiting(device):
        take(2)
        take(3)
    assert window.rows_trained == 4 * ROWS


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_a_step_by_the_gpus_kernels_asks_for_no_value_on_the_cpu_either(kind, monkeypatch):
    """Copies between devices, for which the host would wait too, only a GPU can show."""
    monkeypatch.setattr(kernels, "_in_c", lambda *_: False)
    monkeypatch.setattr(kernels_torch, "collect", collect_in_pieces)
    step = new_train_step("cpu", kind, MLPBlock([8]))
    window = OpenReport(0, torch.device("cpu"), 10, step.model.task.targets)
    (batch,) = model_batches("cpu", 1)
    route = step.model.embeddings.route(batch.categorical)
    with NeverAsks():
        (logits,), loss = step(batch, ROWS, 0.1, PhaseClock(), route)
        window.add(0, Routed(batch, route, 0.0), (logits,), loss)
    assert torch.isfinite(loss)


@on_gpu
def test_dlrms_steady_step_does_not_either(device):
    step = new_train_step(device, "adagrad", DLRMBlock([32], [32]))
    batches = [
        Batch(b.categorical[:, :2], b.continuous, b.label, b.categorical_names[:2], NUMBERS)
        for b in model_batches(device, 3)
    ]
    routes = [step.model.embeddings.route(batch.categorical) for batch in batches]
    step(batches[0], ROWS, 0.1, PhaseClock(), routes[0])
    with no_waiting(device):
        step(batches[1], ROWS, 0.1, PhaseClock(), routes[1])
    _, loss = step(batches[2], ROWS, 0.1, PhaseClock(), routes[2])
    assert torch.isfinite(loss)

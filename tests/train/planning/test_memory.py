"""The terms of a rank's predicted memory against tensors that are really allocated."""

from dataclasses import replace

import pytest
import torch
from event_rows import SCHEMA as EVENT_SCHEMA
from hypothesis import given, strategies as st

from distrain.jobs.spec import parse_spec
from distrain.jobs.spec.targets import with_targets
from distrain.loader.memory import LoaderMemory
from distrain.models import build_model
from distrain.models.embeddings import EmbeddingCollection, Peers, SparseOptimizer, TableColumn
from distrain.models.embeddings.averaging import Averaging
from distrain.models.embeddings.canonical_state import canonical_state, canonical_weights
from distrain.models.embeddings.sharding.placing import plan_placements
from distrain.models.embeddings.sharding.table_bytes import RankShare, RowBytes, TableSize
from distrain.schema import criteo_schema
from distrain.schema.criteo import CATEGORICAL
from distrain.train.checkpoint.local_rows import local_rows_of, rows_to_write
from distrain.train.planning.memory import (
    copy_bytes,
    dense_bytes,
    exchanged_bytes,
    rank_memory,
    route_bytes,
)
from distrain.train.planning.memory_probe import (
    MemoryProbe,
    _most_of_a_slice,
    _most_of_scoring,
    probe_memory,
)
from distrain.train.step.dense import DenseTraining

KINDS = ("sgd", "adagrad", "rowwise_adagrad", "adam")
SCHEMA = criteo_schema({name: 50 + i for i, name in enumerate(CATEGORICAL)})
LOADER = LoaderMemory(10, 100, blocks_bytes=160_000, decode_bytes=5_000, order_bytes=600)
SMALL = MemoryProbe(
    process_bytes=10**8,
    dense_values=1000,
    fixed_bytes=500,
    bytes_per_row=300,
    embedding_bytes_per_row=64,
    categorical=2,
)


def job(kind="mlp", optimizer="sgd", **train):
    return parse_spec(
        {
            "data": {"train": "nowhere"},
            "model": {"kind": kind, "embedding_dim": 8},
            "train": {"optimizer": {"kind": optimizer}, **train},
        }
    )


def placed(sizes, num_ranks, placement, optimizer="sgd", rows=100, unique=None):
    return plan_placements(
        [TableSize(f"t{i}", size, 8, unique) for i, size in enumerate(sizes)],
        RankShare(num_ranks, rows, RowBytes(optimizer)),
        budget_bytes=None,
        wanted=placement,
    )


def predicted(tables, train, **options):
    told = {"rows": 100, "slice_rows": 100, "loader": LOADER, "batches": 6, "on_gpu": False}
    told |= options
    return rank_memory(train, tables, told.pop("probe", SMALL), **told)


def term(memory, name):
    return next(term for term in memory.terms if term.name == name)


def size_of(tensors):
    return sum(tensor.nbytes for tensor in tensors)


@pytest.mark.parametrize("optimizer", KINDS)
@pytest.mark.parametrize("num_ranks", [1, 2, 3])
@pytest.mark.parametrize("placement", ["replicated", "row_wise"])
def test_tables_and_their_state_are_those_of_the_collection(placement, num_ranks, optimizer):
    sizes = (17, 40, 3)
    memory = predicted(placed(sizes, num_ranks, placement, optimizer), job().train)
    columns = [TableColumn(f"t{i}", size, 8) for i, size in enumerate(sizes)]
    largest = [0, 0]
    for rank in range(num_ranks):
        tables = EmbeddingCollection(
            columns, placements=[placement] * 3, peers=Peers(rank, num_ranks)
        )
        state = SparseOptimizer(tables, optimizer).state_dict()
        del state["num_steps"]
        largest[0] = max(largest[0], size_of(tables.weights))
        largest[1] = max(largest[1], size_of(state.values()))
    rounding = 3 * 8 * 4 * (placement == "row_wise")  # each table may begin on any rank
    weights = term(memory, "table weights").host_bytes
    assert largest[0] <= weights <= largest[0] + rounding
    planned = sum(term.host_bytes for term in memory.terms if term.name == "table state")
    assert largest[1] <= planned <= largest[1] + 2 * rounding


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_averages_are_planned_with_the_copy_of_the_weights_while_rows_are_scored(dtype):
    sizes = [TableSize(f"t{i}", size, 8) for i, size in enumerate((17, 40, 3))]
    share = RankShare(1, 100, RowBytes("sgd", dtype.itemsize, averaged=True))
    plan = plan_placements(sizes, share, budget_bytes=None, wanted="replicated")
    memory = predicted(plan, job(ema=0.9).train)
    columns = [TableColumn(one.name, one.rows, 8) for one in sizes]
    tables = EmbeddingCollection(columns, dtype=dtype)
    optimizer = SparseOptimizer(tables, "sgd", averaging=Averaging(0.9))
    state = optimizer.state_dict()
    del state["num_steps"]
    assert term(memory, "table state").host_bytes == size_of(state.values())
    with optimizer.averaged():
        copies = size_of(weight.data for weight in tables.weights)
    dense = 2 * 4 * SMALL.dense_values  # the gaps, and the weights that the averages replace
    assert term(memory, "averages").host_bytes == copies + dense


@pytest.mark.parametrize("optimizer", KINDS)
@pytest.mark.parametrize("num_ranks", [1, 2, 3])
@pytest.mark.parametrize("placement", ["replicated", "row_wise"])
def test_a_checkpoints_copy_is_what_the_largest_rank_writes(placement, num_ranks, optimizer):
    sizes = (400_017, 40, 3)  # small tensors are one rank's
    tables = placed(sizes, num_ranks, placement, optimizer)
    columns = [TableColumn(f"t{i}", size, 8) for i, size in enumerate(sizes)]
    written = []
    for rank in range(num_ranks):
        collection = EmbeddingCollection(
            columns, placements=[placement] * 3, peers=Peers(rank, num_ranks)
        )
        state = {f"w.{k}": v for k, v in canonical_weights(collection).items()}
        memory = canonical_state(SparseOptimizer(collection, optimizer))
        held = local_rows_of(state | {f"m.{k}": v for k, v in memory.items()})
        written.append(sum(part.num_bytes for part in rows_to_write(held, rank, num_ranks)))
    assert copy_bytes(tables, 0) == pytest.approx(max(written), rel=1e-3)
    for copies in (False, True):
        names = [t.name for t in predicted(tables, job().train, copies=copies).terms]
        assert ("checkpoint copy" in names) == copies


@pytest.mark.parametrize("optimizer", KINDS)
def test_dense_parameters_take_what_their_vectors_and_optimizer_take(optimizer):
    spec = job("dlrm", optimizer)
    model = build_model(SCHEMA, spec.model, seed=0)
    values = sum(p.numel() for p in model.dense.parameters())
    dense = DenseTraining(model.dense, spec.train)
    dense.step(0.1)
    vectors = [dense.optimizer.vector, dense.optimizer.vector.grad]
    state = [
        value
        for of_one in dense.optimizer.torch_optimizer.state.values()
        for value in of_one.values()
        if isinstance(value, torch.Tensor) and value.numel() > 1
    ]
    # Each parameter begins at a multiple of 16 values.
    assert dense_bytes(values, optimizer) == pytest.approx(size_of(vectors + state), rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mlp", "dlrm"])
def test_a_large_slice_takes_what_small_ones_foretell(kind):
    spec = job(kind)
    found = probe_memory(spec, SCHEMA)
    model = build_model(SCHEMA, spec.model, seed=0)
    dense = DenseTraining(model.dense, spec.train)
    assert found.embedding_bytes_per_row == 26 * 8 * 4
    assert found.dense_values == sum(p.numel() for p in model.dense.parameters())
    assert found.process_bytes > 10**8
    for rows in (9_000, 20_000):
        real = _most_of_a_slice(dense, model, rows)
        assert found.slice_bytes(rows) == pytest.approx(real, rel=0.01)
        assert found.scoring_bytes(rows) == pytest.approx(_most_of_scoring(model, rows), rel=0.01)
    assert found.embedding_bytes_per_row < found.scoring_bytes_per_row < found.bytes_per_row


@pytest.mark.slow
def test_other_ways_to_train_are_probed():
    usual = probe_memory(job(), SCHEMA)
    for settings in ({"precision": "bf16"}, {"micro_batches": 4}):
        other = probe_memory(job(**settings), SCHEMA)
        assert (other.bytes_per_row == usual.bytes_per_row) == ("micro_batches" in settings)
        assert other.embedding_bytes_per_row == usual.embedding_bytes_per_row


@pytest.mark.slow
def test_the_probe_has_labels_and_weights_of_all_tasks():
    tasks = {"a": {"target": "label"}, "b": {"target": "I1", "kind": "regression", "weight": "I2"}}
    spec = parse_spec({"data": {"train": "nowhere"}, "model": {"kind": "mlp", "tasks": tasks}})
    assert probe_memory(spec, with_targets(SCHEMA, spec)).bytes_per_row > 0


@pytest.mark.slow
def test_drawn_negatives_are_probed():
    def probed(**options):
        section = {"kind": "sasrec_retrieval", "embedding_dim": 4, "max_length": 3, **options}
        spec = parse_spec({"data": {"train": "nowhere"}, "model": section})
        return probe_memory(spec, EVENT_SCHEMA.remove(["seen_shop", "shop"]))

    plain, drawn = probed(), probed(negatives="uniform", num_negatives=16)
    assert drawn.embedding_bytes_per_row == plain.embedding_bytes_per_row + 16 * 4 * 4
    assert drawn.bytes_per_row > plain.bytes_per_row


@pytest.mark.slow
def test_lists_that_the_model_does_not_use_are_probed():
    # None of the lists is of the user or the item.
    section = {"kind": "two_tower", "tower": [4], "task": "retrieval"}
    spec = parse_spec({"data": {"train": "nowhere"}, "model": section})
    schema = EVENT_SCHEMA.remove(["seen_dwell", "seen_time"])
    assert probe_memory(spec, schema).bytes_per_row > 0


def test_a_route_of_one_rank_takes_what_its_tensors_take():
    columns = [TableColumn("a", 40, 8), TableColumn("b", 400, 8)]
    tables = EmbeddingCollection(columns)
    ids = torch.randint(40, (300, 2), dtype=torch.int32)
    (route,) = tables.route(ids).stores
    numbers = route.inverse.nbytes
    distinct = route.num_distinct
    plan = placed((40, 400), 1, "replicated", rows=300, unique=distinct / 2)
    # Keys, and the distinct ids from which they were made, in half the bytes.
    real = numbers + route.rows.keys.nbytes
    assert real <= route_bytes(plan, 2, 300) <= real + 8 * distinct


@given(unique=st.integers(1, 50), num_ranks=st.integers(2, 4))
def test_spread_tables_exchange_less_where_there_are_many_ranks(unique, num_ranks):
    of = {
        placement: exchanged_bytes(placed((1000,), num_ranks, placement, unique=unique))
        for placement in ("replicated", "row_wise")
    }
    row_bytes = 8 * 4
    # Rows, own sums, everybody's sums, and their total.
    assert of["replicated"] == row_bytes * (2 + 2 * num_ranks) * unique
    assert of["row_wise"] == row_bytes * 5 * unique
    # Averages: the updated rows before and after, and their difference.
    averaged = exchanged_bytes(placed((1000,), num_ranks, "row_wise", unique=unique), averaged=True)
    assert averaged == row_bytes * (5 + 3) * unique


def test_terms_sum_to_totals_and_micro_batches_save_activations():
    tables = placed((1000, 50), 1, "replicated")
    whole = predicted(tables, job().train)
    sliced = predicted(tables, job().train, slice_rows=25)
    assert whole.device_bytes == 0
    assert whole.host_bytes == sum(term.host_bytes for term in whole.terms)
    assert whole.to_json()["host_bytes"] == whole.host_bytes
    step = ("embeddings and their gradient", "activations")
    assert sum(term(whole, name).host_bytes for name in step) == SMALL.slice_bytes(100)
    assert sum(term(sliced, name).host_bytes for name in step) == SMALL.slice_bytes(25)
    assert sliced.host_bytes < whole.host_bytes
    assert term(whole, "batches").host_bytes == 6 * 16_000


def test_rows_that_are_scored_whole_count_where_they_are_more_than_a_slice():
    tables = placed((1000, 50), 1, "replicated")
    probe = replace(SMALL, scoring_bytes_per_row=100)
    options = {"slice_rows": 25, "probe": probe}
    trained = predicted(tables, job().train, **options)
    scored = predicted(tables, job().train, **options, scores=True)
    step = ("embeddings and their gradient", "activations")
    assert [sum(term(one, name).host_bytes for name in step) for one in (trained, scored)] == [
        SMALL.slice_bytes(25),
        100 * 100,
    ]
    few = {**options, "slice_rows": 100}
    assert predicted(tables, job().train, **few, scores=True) == predicted(
        tables, job().train, **few
    )


def test_on_a_gpu_the_step_is_on_the_device_and_the_loader_on_the_host():
    tables = placed((1000, 50), 2, "row_wise", "adam")
    memory = predicted(tables, job().train, on_gpu=True)
    weights = term(memory, "table weights")
    assert (weights.host_bytes, weights.device_bytes) == (0, 1050 // 2 * 32)
    assert term(memory, "table state").device_bytes == 2 * weights.device_bytes
    assert term(memory, "process").device_bytes == 0
    assert term(memory, "batches").host_bytes == 6 * 16_000
    assert term(memory, "batches").device_bytes == 2 * 16_000
    assert "allocator" not in [term.name for term in memory.terms]


def test_each_binary_target_has_copies_of_the_bins_of_its_metrics_on_a_gpu():
    tables = placed((1000, 50), 1, "replicated")
    none, three = (
        predicted(tables, job().train, on_gpu=True, binary_targets=number) for number in (0, 3)
    )
    copies = 2 * 16 * 2**20  # of training and of validation
    assert three.device_bytes - none.device_bytes == 3 * copies


def test_a_graph_keeps_its_memory_beside_steps_and_validations():
    tables = placed((1000, 50), 1, "replicated")
    eager = predicted(tables, job().train, on_gpu=True)
    recorded = predicted(tables, job().train, on_gpu=True, recorded=True)
    one_step = term(eager, "activations"), term(eager, "embeddings and their gradient")
    grown = recorded.device_bytes - eager.device_bytes
    assert grown == sum(part.device_bytes for part in one_step)
    assert recorded.host_bytes == eager.host_bytes

"""Models of events against copies of the papers, row by row, in float64; and their laws."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from event_rows import SCHEMA, event_batch, list_column
from onnx_files import graph_logits
from torch.utils._python_dispatch import TorchDispatchMode

from distrain.errors import ModelError, SchemaError, SpecError
from distrain.jobs.spec import MlpSpec, TrainSpec, parse_spec
from distrain.jobs.spec.targets import with_targets
from distrain.loader.batch import Ragged
from distrain.models import Embeddings, InputBlock, build_model, load_model
from distrain.models.blocks import Filter, MLPBlock, TargetAttention
from distrain.models.embeddings import EmbeddingCollection
from distrain.models.export import ScoringModel, export_program, write_export
from distrain.models.saved_model import save_model
from distrain.models.shapes import Flat
from distrain.schema import ColumnSchema, Schema, Tags
from distrain.train.planning.memory_probe import probe_memory
from distrain.train.step.graphed_step import GraphedStep
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import PhaseClock

STAY = ColumnSchema("price", "float32", (Tags.TARGET, Tags.REGRESSION))
L = 3  # events of a row at most


def spec_of(kind, **options):
    model = {"kind": kind, "embedding_dim": 4, "max_length": L, "hidden": [5], **options}
    return parse_spec({"data": {"train": "t"}, "model": model}).model


def build(spec, schema=SCHEMA, dtype=torch.float64, **options):
    tables = partial(EmbeddingCollection, dtype=dtype)
    model = build_model(schema, spec, seed=1, make_tables=tables, **options)
    model.dense.to(dtype)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():  # away from neutral values
        for name, values in model.dense.state_dict().items():
            if values.is_floating_point():
                noise = torch.rand(values.shape, generator=generator, dtype=dtype)
                values += noise * (0.5 if "running_var" in name else 0.2)
    return model


def rows_of_events(model, batch):
    """Of each row: the target's fields, those of its newest events, and what else these have."""
    table = model.embeddings.table
    for row in range(batch.num_rows):
        low, high = batch.lists["seen_item"].offsets[row : row + 2].tolist()
        low = max(low, high - L)

        def of(name, low=low, high=high):
            return batch.lists[name].values[low:high]

        target = [table(name)[int(batch[name][row])] for name in ("shop", "item")]
        events = [table(f"seen_{name}")[of(f"seen_{name}").long()] for name in ("shop", "item")]
        others = [table("seen_act")[of("seen_act").long()], of("seen_dwell")[:, None]]
        yield torch.cat(target), torch.cat(events, 1), torch.cat(others, 1), of("seen_time")


def linear(layer, x):
    return x @ layer.weight.T + (0 if layer.bias is None else layer.bias)


def columns_of(model, batch, row):
    """A row's embeddings and numbers, side by side."""
    table = model.embeddings.table
    words = batch.lists["words"]
    own = words.values[words.offsets[row] : words.offsets[row + 1]].long()
    pooled = table("words")[own].mean(0) if len(own) else torch.zeros(4, dtype=torch.float64)
    flat = [table(name)[int(batch[name][row])] for name in ("user", "item", "shop")]
    return torch.cat([*flat, pooled, batch.continuous[row]])


def mlp_of(block, x, activation):
    for number, layer in enumerate(block.layers):
        if isinstance(layer, torch.nn.Linear):
            x = linear(layer, x)
            if number < len(block.layers) - 1 or not block.no_activation_last_layer:
                x = activation(x, block.layers[number + 1])
    return x


def logit_of(model, top, x, activation):
    return linear(model.task.logit, mlp_of(top, x, activation))


def relu(x, _):
    return x.clamp(min=0)


def dice(x, layer):
    """Of running statistics, as in evaluation."""
    norm = layer.norm
    p = 1 / (1 + torch.exp(-(x - norm.running_mean) / (norm.running_var + 1e-8).sqrt()))
    return p * x + (1 - p) * layer.slope * x


def with_others(block, events, others, seconds):
    return events + linear(block.extra, torch.cat([others, torch.log10(1 + seconds)[:, None]], 1))


def din(model, batch, activation=dice):
    beside, top = model.dense.body
    attention = beside["1"]
    for row, (q, events, others, seconds) in enumerate(rows_of_events(model, batch)):
        pooled = torch.zeros_like(q)
        for k in with_others(attention, events, others, seconds):
            weight = mlp_of(attention.weigh, torch.cat([q, k, q - k, q * k]), activation)
            pooled = pooled + weight * k
        x = torch.cat([columns_of(model, batch, row), pooled])
        yield logit_of(model, top, x, activation)


def normed(layer, x):
    x = x - x.mean(1, keepdim=True)
    x = x / ((x**2).mean(1, keepdim=True) + 1e-5).sqrt()
    return x if layer.weight is None else x * layer.weight + layer.bias


def attended(layer, x, sees):
    """Each token's mean of what it sees, in each head by the softmax of scaled dot products."""
    query, key, value = linear(layer.qkv, x).chunk(3, 1)
    dim = x.shape[1] // layer.heads
    found = torch.zeros_like(x)
    for i in range(len(x)):
        for head in range(layer.heads):
            at = slice(head * dim, (head + 1) * dim)
            seen = [j for j in range(len(x)) if sees(i, j)]
            weights = torch.stack([query[i, at] @ key[j, at] / dim**0.5 for j in seen]).exp()
            for j, weight in zip(seen, weights / weights.sum(), strict=True):
                found[i, at] += weight * value[j, at]
    return linear(layer.joined, found)


def leaky(x, _=None):
    return torch.where(x > 0, x, 0.01 * x)


def bst(model, batch):
    beside, top = model.dense.body
    block = beside["1"]
    for row, (q, *seen) in enumerate(rows_of_events(model, batch)):
        events = with_others(block, *seen).flip(0)
        x = torch.cat([q[None], events])
        x = x + block.positions[: len(x)]
        for layer in block.layers:
            x = normed(layer.norms[0], x + attended(layer, x, lambda i, j: True))
            x = normed(layer.norms[1], x + linear(layer.feed[2], leaky(linear(layer.feed[0], x))))
        missing = torch.zeros(L + 1 - len(x), x.shape[1], dtype=x.dtype)
        flat = torch.cat([x, missing]).flatten()
        yield logit_of(model, top, torch.cat([columns_of(model, batch, row), flat]), leaky)


def sasrec(model, batch):
    beside, top = model.dense.body
    block = beside["1"]
    for row, (q, *seen) in enumerate(rows_of_events(model, batch)):
        x, state = with_others(block, *seen), torch.zeros_like(q)
        x = x + block.positions[: len(x)].flip(0)
        for layer in block.layers if len(x) else ():
            x = x + attended(layer, normed(layer.norms[0], x), lambda i, j: j <= i)
            inner = relu(linear(layer.feed[0], normed(layer.norms[1], x)), None)
            x = x + linear(layer.feed[2], inner)
        if len(x):
            state = normed(block.norm, x)[-1]
        beside_row = torch.cat([columns_of(model, batch, row), state, state * q])
        yield logit_of(model, top, beside_row, relu)


def silu(x):
    return x / (1 + torch.exp(-x))


def hstu(model, batch):
    """Oldest first, the target last, as in the paper."""
    beside, top = model.dense.body
    block = beside["1"]
    for row, (q, events, others, seconds) in enumerate(rows_of_events(model, batch)):
        x = torch.cat([events + linear(block.extra, others), q[None]])
        ages, n = [*seconds.tolist(), 0.0], len(x)
        for layer in block.units:
            u, v, query, key = silu(linear(layer.uvqk, normed(layer.norms[0], x))).chunk(4, 1)
            found, dim = torch.zeros_like(x), x.shape[1] // layer.heads
            for i in range(n):
                for j in range(i + 1):
                    bucket = min(63, int(math.log(max(1.0, abs(ages[i] - ages[j]))) / 0.301))
                    bias = layer.of_place[i - j] + layer.of_time[bucket]
                    for head in range(layer.heads):
                        at = slice(head * dim, (head + 1) * dim)
                        found[i, at] += silu(query[i, at] @ key[j, at] + bias) / n * v[j, at]
            x = x + linear(layer.out, normed(layer.norms[1], found) * u)
        yield logit_of(model, top, torch.cat([columns_of(model, batch, row), x[-1]]), relu)


COPIES = {
    "din": (spec_of("din", attention=[6]), din),
    "din without dice": (
        spec_of("din", attention=[], activation="relu"),
        partial(din, activation=relu),
    ),
    "bst": (spec_of("bst", heads=2, layers=2), bst),
    "hstu": (spec_of("hstu", heads=2, layers=3), hstu),
    "sasrec": (spec_of("sasrec", heads=2, layers=2), sasrec),
}
SPECS = {name: spec for name, (spec, _) in COPIES.items()}


@pytest.fixture(params=SPECS)
def spec(request):
    return SPECS[request.param]


@torch.no_grad()
@pytest.mark.parametrize("name", COPIES)
def test_logits_equal_a_copy_of_the_paper_in_float64(name):
    spec, copy = COPIES[name]
    model = build(spec).eval()
    batch = event_batch(40, dtype=torch.float64)
    assert batch.lists["seen_item"].lengths.min() == 0
    assert batch.lists["seen_item"].lengths.max() > L
    expected = torch.cat(list(copy(model, batch)))
    torch.testing.assert_close(model(batch), expected, rtol=0, atol=1e-9)
    assert expected.std() > 1e-3
    for nothing in (event_batch(0, dtype=torch.float64), event_batch(4, 0, 0, torch.float64)):
        assert model(nothing).isfinite().all()


def train(spec, steps=4):
    model = build_model(SCHEMA, spec, seed=5)
    step = TrainStep(model, TrainSpec(optimizer={"kind": "adam", "lr": 0.01}), 1)
    clock = PhaseClock()
    for number in range(steps):
        batch = event_batch([30, 0, 1, 20][number % 4], seed=number, most=[6, 3, 0, 2][number % 4])
        step(batch, max(1, batch.num_rows), 0.01, clock)
    return model


def tensors_of(model):
    return {**model.dense.state_dict(), **model.embeddings.state_dict()}


def test_the_same_seed_gives_the_same_bits(spec):
    once, again = (tensors_of(train(spec)) for _ in range(2))
    before = tensors_of(build_model(SCHEMA, spec, seed=5))
    assert all(torch.equal(values, again[name]) for name, values in once.items())
    changed = [name for name, values in once.items() if not torch.equal(values, before[name])]
    assert {name for name, p in before.items() if p.is_floating_point()} <= set(changed)


def loss_and_gradients(model, batch):
    model.dense.zero_grad()
    loss = model(batch).square().sum()
    loss.backward()
    return loss.item(), [p.grad.clone() for p in model.dense.parameters()]


@pytest.mark.parametrize("kind", ["bst", "sasrec", "hstu"])
def test_groups_of_rows_and_blocks_of_queries_change_nothing(kind, monkeypatch):
    model = build(spec_of(kind, heads=2, layers=2, max_length=40)).eval()
    batch = event_batch(20, most=20, dtype=torch.float64, longest=50)
    loss, gradients = loss_and_gradients(model, batch)
    monkeypatch.setattr("distrain.models.blocks.event_sequences._FEW_PLACES", 20)
    monkeypatch.setattr("distrain.models.blocks.hstu._MOST_WEIGHTS", 150)
    again, others = loss_and_gradients(model, batch)
    assert again == pytest.approx(loss, rel=1e-12)
    torch.testing.assert_close(others, gradients, rtol=1e-9, atol=1e-11)


class LargestResult(TorchDispatchMode):
    """Keeps the size of the largest result of an operation."""

    num_bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        results = result if isinstance(result, list | tuple) else [result]
        sizes = [one.untyped_storage().nbytes() for one in results if torch.is_tensor(one)]
        self.num_bytes = max([self.num_bytes, *sizes])
        return result


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["din", "bst", "sasrec", "hstu"])
def test_memory_follows_all_events_and_not_the_longest_row(kind, monkeypatch):
    monkeypatch.setattr("distrain.models.blocks.event_sequences._FEW_PLACES", 100)
    monkeypatch.setattr("distrain.models.blocks.hstu._MOST_WEIGHTS", 10_000)
    options = {} if kind == "din" else {"layers": 2}
    model = build_model(SCHEMA, spec_of(kind, max_length=1000, **options), seed=0)
    bytes_per_event = []
    for longest in (20, 1000):
        batch, kept = event_batch(300, most=20, longest=longest), {}

        def keep(tensor, kept=kept):
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with LargestResult() as largest:
            with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
                loss = model(batch).sum()
            loss.backward()
        num_events = len(batch.lists["seen_item"].values)
        bytes_per_event.append(np.array([largest.num_bytes, sum(kept.values())]) / num_events)
    few, many = bytes_per_event
    assert (many < 1.5 * few).all()


def test_events_may_be_of_items_alone(spec):
    """Without times and other fields there is no layer for them, and other lists are pooled."""
    alone = SCHEMA.remove(["seen_shop", "seen_act", "seen_dwell", "seen_time", "words"])
    model = build_model(alone, spec, seed=1)
    assert model.dense.body.blocks[0]["1"].extra is None
    batch = event_batch(20)
    batch = replace(batch, lists={"seen_item": batch.lists["seen_item"]})
    logits = model(batch)
    logits.sum().backward()
    assert all(p.grad is not None for p in model.dense.parameters())


def inputs_of(model, batch):
    names = (*model.inputs.list_names, *model.inputs.number_names)
    lists = [batch.lists[name] for name in names]
    parts = [part for column in lists for part in (column.values, column.lengths)]
    parts = [part if part.is_floating_point() else part.long() for part in parts]
    return (batch.categorical.long(), batch.continuous, *parts)


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("name", [pytest.param("din", marks=pytest.mark.release), "hstu"])
def test_exported_models_score_alike(name, tmp_path):
    spec = SPECS[name]
    model = build(spec, dtype=torch.float32).eval()
    program = export_program(ScoringModel(model)).module()
    save_model(tmp_path / "model", model, spec, SCHEMA)
    write_export(tmp_path / "out", load_model(tmp_path / "model"), "onnx")
    for rows, most in ((30, 6), (1, 6), (2, 2), (4, 0), (0, 0)):
        batch = event_batch(rows, seed=rows, most=most)
        expected, given = model(batch), inputs_of(model, batch)
        torch.testing.assert_close(program(*given), expected)
        logits = graph_logits(tmp_path / "out", given)
        np.testing.assert_allclose(logits, expected.numpy(), rtol=1e-4, atol=1e-5)


def event_inputs():
    sequences = dict.fromkeys(("seen_shop", "seen_item", "seen_act"), "sequence")
    return InputBlock(SCHEMA, Embeddings(4, combiners=sequences, max_length=L))


def test_values_that_do_not_fit_events_are_refused(wording):
    batch = event_batch(5, dtype=torch.float64)
    short = Ragged(batch.lists["seen_item"].values[:-1], batch.lists["seen_item"].offsets.clone())
    short.offsets[-1] -= 1
    model, inputs = build(SPECS["din"]), event_inputs()
    tables = [table.table_name for table in model.embeddings.tables]
    assert tables == ["user", "item", "shop", "seen_act", "words"]  # some are shared
    lists = {**batch.lists, "seen_item": short}
    wording.refused(SchemaError, lambda: model(replace(batch, lists=lists)))
    wording.refused(
        ModelError,
        lambda: inputs.connect(MLPBlock([3])),
        lambda: inputs.connect(TargetAttention("bought", {"seen_item": "item"})),
    )
    assert inputs.connect(Filter(), MLPBlock([3])).output_shape == Flat(3)


def test_targets_are_found_by_domain_or_named_or_refused(wording):
    domain = replace(SCHEMA["seen_item"], properties={"event": "seen"})
    lonely = SCHEMA.remove(["seen_shop"]).with_columns(domain)
    named = build(spec_of("din", targets={"seen_item": "item"}), lonely)
    assert named.dense.body.blocks[0]["1"].targets == {"seen_item": "item"}
    shown = {"properties": {"domain": "goods"}, "tags": (Tags.CATEGORICAL,), "cardinality": 20}
    two = (ColumnSchema("first", "int32", **shown), ColumnSchema("second", "int32", **shown))
    goods = list_column("seen_item", Tags.CATEGORICAL, "goods", cardinality=20)
    several = Schema((SCHEMA["clicked"], goods, *two))
    assert build(spec_of("din", targets={"seen_item": "second"}), several)
    pooled = list_column("labels", Tags.CATEGORICAL, "goods", event="labels", cardinality=20)
    beside = SCHEMA.with_columns(pooled, *two)
    wording.refused(
        ModelError,
        lambda: build(spec_of("din"), lonely),
        lambda: build(spec_of("din", targets={"seen_item": "itme"}), lonely),
        lambda: build(spec_of("din"), several),
        lambda: build(spec_of("din"), beside),
    )
    (watched,) = build(spec_of("din", targets={"seen_item": "item"}), beside).inputs.shape.events
    assert watched.name == "seen"


def test_a_model_without_events_leaves_their_numbers_out_and_refuses_those_of_no_event():
    model = build_model(SCHEMA, MlpSpec(), seed=0)
    batch = event_batch(9)
    dwell = batch.lists["seen_dwell"]
    others = batch.lists | {"seen_dwell": replace(dwell, values=dwell.values + 1)}
    assert torch.equal(model(batch), model(replace(batch, lists=others)))
    alone = list_column("seen_dwell", Tags.CONTINUOUS, event="seen_dwell")
    with pytest.raises(SchemaError, match="seen_dwell"):
        build_model(SCHEMA.with_columns(alone), MlpSpec(), seed=0)


@pytest.mark.slow
def test_a_plan_counts_as_many_events_as_there_may_be():
    job = {"data": {"train": "t"}, "model": SPECS["sasrec"].model_dump()}
    few, many = (
        probe_memory(parse_spec({**job, "model": {**job["model"], "max_length": most}}), SCHEMA)
        for most in (4, 40)
    )
    flat, sequences = 4, 3
    assert few.embedding_bytes_per_row == 4 * 4 * (flat + 4 * sequences)
    assert many.embedding_bytes_per_row == 4 * 4 * (flat + 40 * sequences)
    assert many.bytes_per_row > 5 * few.bytes_per_row
    assert many.scoring_bytes_per_row > 5 * few.scoring_bytes_per_row


def test_several_tasks_share_the_events():
    tasks = {"click": {"target": "clicked"}, "stay": {"kind": "regression", "target": "price"}}
    job = {"data": {"train": "t"}, "model": {"kind": "hstu", "tasks": tasks, "sharing": "mmoe"}}
    spec = parse_spec(job)
    schema = with_targets(SCHEMA.remove(["price"]).with_columns(STAY), spec)
    batch = replace(event_batch(10), continuous=torch.zeros(10, 0), continuous_names=())
    scores = build_model(schema, spec.model, seed=0).scores(batch)
    assert [score.shape for score in scores] == [(10,), (10,)]


def test_graphed_steps_are_refused(wording):
    model = build_model(SCHEMA, SPECS["din"], seed=0)
    wording.refused(
        SpecError,
        lambda: GraphedStep(model, TrainSpec(cuda_graph=True), 1, 10, make_graph=object),
    )

"""Every model of the zoo against its formula, written out naively, on the model's own weights."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings, strategies as st

from distrain.errors import ModelError
from distrain.jobs.spec import DcnSpec, DcnV2Spec, DeepFmSpec, DlrmSpec, MlpSpec, WideDeepSpec
from distrain.jobs.spec.models.interactions import (
    AutoIntSpec,
    FinalMlpSpec,
    MaskNetSpec,
    XDeepFmSpec,
)
from distrain.jobs.spec.models.kinds import CrossSpec, DlrmCrossSpec, GdcnSpec, TabularSpec
from distrain.models import build_model
from distrain.models.blocks.hashed_cross import HashedCross

CROSSES = (CrossSpec(columns=("c1", "c0"), num_bins=7), CrossSpec(columns=("c0", "c1", "c2")))
EPS = 1e-5


def embedding(model, batch, name, part=""):
    table = model.embeddings.table(f"{part}/{name}" if part else name)
    return table[batch[name].long()]


def all_flat(model, batch):
    """Embeddings by width, then by column, then the continuous columns."""
    columns = [c for c in model.embeddings.columns if not c.name.startswith("wide/")]
    columns.sort(key=lambda c: c.dim)
    return torch.cat([*(embedding(model, batch, c.name) for c in columns), batch.continuous], dim=1)


def linear(layer, x):
    out = x @ layer.weight.T
    return out if layer.bias is None else out + layer.bias


def mlp(layers, x, last_is_linear=False):
    linears = [layer for layer in layers if isinstance(layer, torch.nn.Linear)]
    for number, layer in enumerate(linears):
        x = linear(layer, x)
        if not (last_is_linear and number == len(linears) - 1):
            x = x.clamp(min=0)
    return x


def wide(model, batch, crosses=(), columns=()):
    """One weight for each id and bin, added up row by row."""
    logits = []
    for row in range(batch.num_rows):
        logit = torch.zeros(())
        for name in columns:
            logit = logit + model.embeddings.table(f"wide/{name}")[int(batch[name][row]), 0]
        for cross in crosses:
            a, *factors = HashedCross(cross.columns, cross.num_bins).coefficients
            for factor, name in zip(factors, cross.columns, strict=True):
                a += factor * int(batch[name][row])
            name = "wide/" + "_X_".join(cross.columns)
            logit = logit + model.embeddings.table(name)[a % (2**31 - 1) % cross.num_bins, 0]
        logits.append(logit)
    return torch.stack(logits) if logits else torch.zeros(0)


def of_continuous(body, batch):
    """The linear model's weights of the continuous columns."""
    (layer,) = body["continuous"].blocks[1].layers
    return (batch.continuous * layer.weight[0]).sum(1)


def naive_crosses(cross, x0):
    x = x0
    for layer in cross.layers:
        if cross.version == "v1":
            x = x0 * (x @ layer.weight.weight[0])[:, None] + layer.bias + x
        elif cross.version == "gated":
            gate = 1 / (1 + (-linear(layer.gate, x)).exp())
            x = x0 * linear(layer.up, x) * gate + x
        else:
            down = x if layer.down is None else x @ layer.down.weight.T
            x = x0 * (down @ layer.up.weight.T + layer.up.bias) + x
    return x


def naive_crosses_and_mlp(model, batch, _):
    x, body, task = all_flat(model, batch), model.dense.body, model.task
    if hasattr(body, "branches"):
        both = [naive_crosses(body["cross"], x), mlp(body["deep"].layers, x)]
        return linear(task.logit, torch.cat(both, dim=1))[:, 0]
    cross, deep = body
    return linear(task.logit, mlp(deep.layers, naive_crosses(cross, x)))[:, 0]


def naive_deepfm(model, batch, _):
    body, names = model.dense.body, batch.categorical_names
    vectors = [embedding(model, batch, name) for name in names]
    pairs = sum((vectors[i] * vectors[j]).sum(1) for i in range(len(names)) for j in range(i))
    deep = mlp(body["deep"].blocks[1].layers, all_flat(model, batch), last_is_linear=True)[:, 0]
    first = wide(model, batch, columns=names)
    if batch.continuous_names:
        first = first + of_continuous(body["linear"], batch)
    return first + pairs + deep


def naive_wide_deep(model, batch, spec):
    body, names = model.dense.body, batch.categorical_names
    deep = mlp(body["deep"].blocks[1].layers, all_flat(model, batch), last_is_linear=True)[:, 0]
    first = wide(model, batch, spec.crosses, names)
    if batch.continuous_names:
        first = first + of_continuous(body["wide"], batch)
    return first + deep


def naive_mlp(model, batch, _):
    return linear(model.task.logit, mlp(model.dense.body.layers, all_flat(model, batch)))[:, 0]


def dlrm_top(dlrm, model, batch):
    vectors = [embedding(model, batch, name) for name in batch.categorical_names]
    deep = []
    if batch.continuous_names:
        bottom = mlp(dlrm.bottom.layers, batch.continuous)
        deep = [bottom if dlrm.projection is None else linear(dlrm.projection, bottom)]
    vectors = deep + vectors
    pairs = [(vectors[i] * vectors[j]).sum(1) for i in range(len(vectors)) for j in range(i)]
    return mlp(dlrm.top.layers, torch.cat([*deep, torch.stack(pairs, dim=1)], dim=1))


def naive_dlrm(model, batch, _):
    return linear(model.task.logit, dlrm_top(model.dense.body, model, batch))[:, 0]


def naive_dlrm_cross(model, batch, spec):
    _, dlrm, logit = model.dense.body["deep"].blocks
    top = linear(logit.layers[0], dlrm_top(dlrm, model, batch))[:, 0]
    return top + wide(model, batch, spec.crosses)


def normed(norm, x, training):
    mean, var = norm.running_mean, norm.running_var
    if training:
        mean, var = x.mean(0), ((x - x.mean(0)) ** 2).mean(0)
    return (x - mean) / (var + EPS).sqrt() * norm.weight + norm.bias


def naive_tabular(model, batch, training):
    branches, layers = model.dense.body
    columns = sorted(model.embeddings.columns, key=lambda c: c.dim)
    parts = [embedding(model, batch, c.name) for c in columns]
    if batch.continuous_names:
        parts.append(normed(branches["continuous"].norm, batch.continuous, training))
    x = torch.cat(parts, dim=1)
    modules = iter(layers.layers)
    for layer in modules:
        assert isinstance(layer, torch.nn.Linear)
        assert layer.bias is None
        assert isinstance(next(modules), torch.nn.ReLU)
        x = normed(next(modules), (x @ layer.weight.T).clamp(min=0), training)
    out = linear(model.task.logit, x)
    return out[:, 1] - out[:, 0] if model.task.outputs == 2 else out[:, 0]


def layer_normed(norm, x):
    mean = x.mean(-1, keepdim=True)
    var = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / (var + EPS).sqrt() * norm.weight + norm.bias


def mask(block, x):
    first, _, second = block.mask
    return linear(second, linear(first, x).clamp(min=0))


def naive_masknet(model, batch, _):
    masks, deep = model.dense.body
    every = all_flat(model, batch)
    columns = sorted(model.embeddings.columns, key=lambda c: c.dim)
    dims = sorted({c.dim for c in columns})
    normed = []
    for norm, dim in zip(masks.norms, dims, strict=True):
        alike = [c.name for c in columns if c.dim == dim]
        for place, name in enumerate(alike):
            own = SimpleNamespace(weight=norm.weight[place], bias=norm.bias[place])
            normed.append(layer_normed(own, embedding(model, batch, name)))
    x, outputs = torch.cat([*normed, batch.continuous], dim=1), []
    for block in masks.blocks:
        layer, norm, _ = block.hidden
        outputs.append(layer_normed(norm, linear(layer, mask(block, every) * x)).clamp(min=0))
        if masks.structure == "serial":
            x = outputs[-1]
    above = outputs[-1] if masks.structure == "serial" else torch.cat(outputs, dim=1)
    return linear(model.task.logit, mlp(deep.layers, above))[:, 0]


def fields(block, model, batch):
    vectors = [embedding(model, batch, name) for name in batch.categorical_names]
    numbers = range(len(batch.continuous_names))
    return [*vectors, *(batch.continuous[:, n, None] * block.of_numbers[n] for n in numbers)]


def naive_autoint(model, batch, _):
    body = model.dense.body
    both = hasattr(body, "branches")
    as_vectors, attention = body["attention"].blocks if both else body
    vectors = fields(as_vectors, model, batch)
    for layer in attention.layers:
        q, k, v, beside = layer.weight.chunk(4)
        wide = attention.width // attention.heads
        outputs = []
        for one in vectors:
            heads = []
            for h in range(attention.heads):
                of_head = slice(h * wide, (h + 1) * wide)
                scores = [((one @ q[of_head].T) * (o @ k[of_head].T)).sum(1) for o in vectors]
                weights = torch.stack(scores).softmax(0)
                values = torch.stack([o @ v[of_head].T for o in vectors])
                heads.append((weights[:, :, None] * values).sum(0))
            outputs.append((torch.cat(heads, dim=1) + one @ beside.T).clamp(min=0))
        vectors = outputs
    parts = [torch.cat(vectors, dim=1)]
    if both:
        parts.append(mlp(body["deep"].layers, all_flat(model, batch)))
    return linear(model.task.logit, torch.cat(parts, dim=1))[:, 0]


def naive_xdeepfm(model, batch, _):
    body = model.dense.body
    _, as_vectors, cin, logit = body["cin"].blocks
    first = maps = fields(as_vectors, model, batch)
    sums = []
    for layer, count in zip(cin.layers, cin.maps, strict=True):
        weight = layer.weight.view(count, len(maps), len(first))
        maps = [
            sum(weight[h, i, j] * a * b for i, a in enumerate(maps) for j, b in enumerate(first))
            for h in range(count)
        ]
        sums += [one.sum(1) for one in maps]
    deep = mlp(body["deep"].blocks[1].layers, all_flat(model, batch), last_is_linear=True)[:, 0]
    wide_part = wide(model, batch, columns=batch.categorical_names)
    if batch.continuous_names:
        wide_part = wide_part + of_continuous(body["linear"], batch)
    return wide_part + linear(logit.layers[0], torch.stack(sums, dim=1))[:, 0] + deep


def naive_finalmlp(model, batch, _):
    streams, fusion = model.dense.body
    x, vectors = all_flat(model, batch), []
    for name in ("first", "second"):
        gate, deep = streams[name].blocks
        context = embedding(model, batch, "c1") if gate.context else gate.learnt
        gates = mlp(gate.gates.layers, context, last_is_linear=True)
        vectors.append(mlp(deep.layers, x * 2 / (1 + (-gates).exp())))
    one, two = (vector.chunk(fusion.heads, dim=1) for vector in vectors)
    logit = linear(fusion.linear, torch.cat(vectors, dim=1))[:, 0]
    for a, weight, b in zip(one, fusion.products, two, strict=True):
        logit = logit + ((a @ weight) * b).sum(1)
    return logit


some_dim, width = st.none() | st.integers(1, 20), st.integers(1, 9)
few_layers = st.integers(1, 3)
widths = st.lists(width, max_size=3).map(tuple)
structure = st.sampled_from(["stacked", "parallel"])
crossing = {"embedding_dim": some_dim, "cross_depth": few_layers, "hidden": widths}
FORMULAS = {
    "mlp": (st.builds(MlpSpec, embedding_dim=some_dim, hidden=widths), naive_mlp),
    "dlrm": (st.builds(DlrmSpec, embedding_dim=width, bottom=widths, top=widths), naive_dlrm),
    "dlrm_cross": (
        st.builds(DlrmCrossSpec, embedding_dim=width, bottom=widths, top=widths,
                  crosses=st.just(CROSSES)),
        naive_dlrm_cross,
    ),
    "dcn": (st.builds(DcnSpec, structure=structure, **crossing), naive_crosses_and_mlp),
    "dcn_v2": (
        st.builds(DcnV2Spec, structure=structure, low_rank=st.none() | st.integers(1, 4),
                  **crossing),
        naive_crosses_and_mlp,
    ),
    "gdcn": (st.builds(GdcnSpec, structure=structure, **crossing), naive_crosses_and_mlp),
    "masknet": (
        st.builds(MaskNetSpec, embedding_dim=some_dim, hidden=widths,
                  masks=st.lists(width, min_size=1, max_size=3).map(tuple),
                  reduction=st.sampled_from([0.4, 2.0]),
                  structure=st.sampled_from(["serial", "parallel"])),
        naive_masknet,
    ),
    "autoint": (
        few_layers.flatmap(
            lambda heads: st.builds(AutoIntSpec, embedding_dim=width, layers=few_layers,
                                    heads=st.just(heads), width=st.just(4 * heads), hidden=widths)
        ),
        naive_autoint,
    ),
    "xdeepfm": (
        st.builds(XDeepFmSpec, embedding_dim=width, hidden=widths,
                  maps=st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)),
        naive_xdeepfm,
    ),
    "finalmlp": (
        few_layers.flatmap(
            lambda heads: st.builds(FinalMlpSpec, embedding_dim=some_dim, heads=st.just(heads),
                                    gates=st.lists(width, max_size=1).map(tuple),
                                    first_context=st.sampled_from([(), ("c1",)]),
                                    first=widths.map(lambda hidden: (*hidden, 2 * heads)),
                                    second=st.just((3 * heads,)))
        ),
        naive_finalmlp,
    ),
    "deepfm": (st.builds(DeepFmSpec, embedding_dim=width, hidden=widths), naive_deepfm),
    "wide_deep": (
        st.builds(WideDeepSpec, embedding_dim=some_dim, hidden=widths,
                  crosses=st.sampled_from([(), CROSSES[:1], CROSSES])),
        naive_wide_deep,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMULAS)
@settings(deadline=None, max_examples=20)
@given(data=st.data(), columns=st.integers(3, 5), numbers=st.integers(0, 3), rows=st.integers(0, 6))
def test_logits_equal_the_formula(schema_and_batch, name, data, columns, numbers, rows):
    specs, naive = FORMULAS[name]
    schema, batch = schema_and_batch(columns, numbers, rows)
    spec = data.draw(specs)
    model = build_model(schema, spec, seed=1)
    with torch.no_grad():
        for parameter in model.dense.parameters():  # biases of 0 would hide much
            parameter.add_(torch.randn(parameter.shape) * 0.1)
        logits = model(batch)
        assert logits.shape == (batch.num_rows,)
        torch.testing.assert_close(logits, naive(model, batch, spec))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("num_continuous", [0, 3])
def test_tabular(schema_and_batch, training, outputs, num_continuous):
    schema, batch = schema_and_batch(4, num_continuous, 50)
    model = build_model(schema, TabularSpec(hidden=(9, 6), outputs=outputs), seed=1)
    with torch.no_grad():
        for name, values in model.dense.state_dict().items():
            if values.is_floating_point():
                noise = 0.3 * torch.rand_like(values)
                values.add_(noise if "running_var" in name else noise - 0.15)
        model.train(training)
        expected = naive_tabular(model, batch, training)
        torch.testing.assert_close(model(batch), expected, rtol=1e-4, atol=1e-4)


def test_dropout_of_tabular_is_on_embeddings_and_after_the_norms(small_schema):
    spec = TabularSpec(hidden=(9, 6), dropout=0.2, embedding_dropout=0.1)
    branches, layers = build_model(small_schema(3, 2), spec, seed=1).dense.body
    assert branches["embeddings"].blocks[1].drop.p == 0.1
    kinds = [type(layer).__name__ for layer in layers.layers]
    assert kinds == ["Linear", "ReLU", "BatchNorm", "Dropout"] * 2


def test_tables_of_the_wide_part_have_width_1_and_names_of_their_own(small_schema):
    model = build_model(small_schema(3, 1), WideDeepSpec(embedding_dim=4, crosses=CROSSES), seed=0)
    told = {column.name: (column.cardinality, column.dim) for column in model.embeddings.columns}
    assert told == {
        "c0": (5, 4), "c1": (12, 4), "c2": (19, 4),
        "wide/c0": (5, 1), "wide/c1": (12, 1), "wide/c2": (19, 1),
        "wide/c1_X_c0": (7, 1), "wide/c0_X_c1_X_c2": (10_000, 1),
    }  # fmt: skip


def test_models_that_do_not_fit_together_are_refused(small_schema, wording):
    same = (CROSSES[0], CrossSpec(columns=("c1", "c0"), num_bins=9))
    wording.refused(
        ModelError,
        lambda: build_model(small_schema(3, 1), WideDeepSpec(crosses=same), seed=0),
        lambda: build_model(small_schema(3, 1), FinalMlpSpec(heads=3), seed=0),
    )

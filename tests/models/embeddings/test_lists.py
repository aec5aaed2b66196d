"""Columns of lists against nn.EmbeddingBag, torch's optimizers and naive loops."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings, strategies as st
from kernel_cases import by_column, take_step
from ragged_rows import draw_rows_of_ids, ragged, rows_of
from torch import nn

from distrain.loader.batch import Ragged
from distrain.models.embeddings import EmbeddingCollection, SparseOptimizer, TableColumn

COLUMNS = [
    TableColumn("tags", 30, 4, "mean"),
    TableColumn("user", 40, 4),
    TableColumn("words", 9, 4, "sum"),
    TableColumn("shop", 11, 8),
    TableColumn("only", 1, 8, "mean"),
    TableColumn("alone", 6, 2, "sum"),
]
FLAT = [column for column in COLUMNS if column.combiner is None]
LISTS = [column for column in COLUMNS if column.combiner is not None]
WIDTH = sum(column.dim for column in COLUMNS)
LR = 0.1


def draw_batch(num_rows, generator, most=4):
    """Ids `[rows, flat columns]`, int32, and list columns by name."""
    ids = [torch.randint(0, c.cardinality, (num_rows,), generator=generator) for c in FLAT]
    lists = {
        c.name: ragged(draw_rows_of_ids(num_rows, c.cardinality, generator, most)) for c in LISTS
    }
    return torch.stack(ids).int().T, lists


def batches(dtype):
    """Batches and factors of the loss; one has no rows, one only empty lists."""
    generator = torch.Generator().manual_seed(0)
    for num_rows, most in ((30, 4), (31, 7), (0, 4), (25, 0), (1, 2), (33, 4)):
        ids, lists = draw_batch(num_rows, generator, most)
        yield ids, lists, torch.randn(num_rows, WIDTH, generator=generator, dtype=dtype)


def new_tables(dtype=torch.float32, columns=COLUMNS):
    return EmbeddingCollection(columns, generator=torch.Generator().manual_seed(1), dtype=dtype)


def loss_of(vectors, factors):
    joined = torch.cat(vectors, dim=1)
    return (joined * factors).sum() + (joined**2).sum()


def one_step(tables, optimizer, ids, lists, factors):
    take_step(tables, optimizer, lambda found: loss_of([*found.values()], factors), ids, lists)


def test_lookup_equals_embedding_bags_bitwise():
    tables = new_tables()
    for ids, lists, _ in batches(torch.float32):
        flat = iter(ids.T)
        found = by_column(tables, tables(ids, lists))
        for column in COLUMNS:
            weight = tables.table(column.name)
            if column.combiner is None:
                expected = weight[next(flat).long()]
            else:
                bag = nn.EmbeddingBag.from_pretrained(
                    weight, mode=column.combiner, include_last_offset=True
                )
                expected = bag(lists[column.name].values, lists[column.name].offsets)
            assert torch.equal(found[column.name], expected)


def share_of_an_id(combiner, count):
    """What each id of a row counts, in the formulas of TensorFlow's embedding_lookup_sparse."""
    return {"sum": 1.0, "mean": 1 / max(1, count), "sqrtn": 1 / max(1, count) ** 0.5}[combiner]


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_one_sgd_step_in_float32_has_the_bits_of_gradients_added_in_the_order_of_ids(combiner):
    """nn.Embedding on the lists' ids adds in that order, and so must we."""
    tables = new_tables(columns=[TableColumn("tags", 20, 8, combiner)])
    generator = torch.Generator().manual_seed(2)
    tags = ragged(draw_rows_of_ids(200, 20, generator))
    grad = torch.randn(200, 8, generator=generator)
    plain = nn.Embedding(20, 8, _weight=tables.table("tags").clone())
    scale = torch.tensor([share_of_an_id(combiner, n) for n in tags.lengths.tolist()])
    per_id = (grad * scale[:, None]).repeat_interleave(tags.lengths.long(), dim=0)
    plain(tags.values).backward(per_id)
    torch.optim.SGD(plain.parameters(), lr=LR).step()
    sgd_step(tables, tags, grad)
    assert torch.equal(tables.table("tags"), plain.weight)


def sgd_step(tables, tags, grad):
    route = tables.route(torch.zeros(len(grad), 0, dtype=torch.int32), {"tags": tags})
    sums = tables.collect(route, [grad.unsqueeze(1)])
    SparseOptimizer(tables, "sgd").apply(tables.exchange(route, sums), LR)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 12), st.lists(st.integers(0, 12), max_size=4), st.integers(0, 99))
def test_parts_of_a_batch_give_the_bits_of_the_whole(num_rows, cuts, seed):
    tables = new_tables()
    generator = torch.Generator().manual_seed(seed)
    ids, lists = draw_batch(num_rows, generator)
    route = tables.route(ids, lists)
    rows = tables.fetch(route)
    whole = tables.expand(route, rows)
    grads = [torch.randn(*values.shape, generator=generator) for values in whole]
    expected = tables.collect(route, grads)
    bounds = [0, *sorted(min(cut, num_rows) for cut in cuts), num_rows]
    sums = None
    for part in map(slice, bounds, bounds[1:]):
        for values, of_all in zip(tables.expand(route, rows, part), whole, strict=True):
            assert torch.equal(values, of_all[part])
        sums = tables.collect(route, [grad[part] for grad in grads], part, sums)
    assert all(torch.equal(*pair) for pair in zip(sums, expected, strict=True))


def test_empty_lists_move_nothing():
    tables = new_tables(columns=LISTS)
    optimizer = SparseOptimizer(tables, "adam")
    full = {c.name: ragged([[0]] * 5) for c in LISTS}
    factors = torch.ones(5, sum(c.dim for c in LISTS))
    one_step(tables, optimizer, torch.zeros(5, 0, dtype=torch.int32), full, factors)
    before = [weight.clone() for weight in tables.weights]
    for num_rows in (0, 5):
        no_ids = torch.zeros(num_rows, 0, dtype=torch.int32)
        lists = {c.name: ragged([[]] * num_rows) for c in LISTS}
        assert all((values == 0).all() for values in tables(no_ids, lists))
        one_step(tables, optimizer, no_ids, lists, factors[:num_rows])
    assert all(torch.equal(*pair) for pair in zip(before, tables.weights, strict=True))


def test_pooled_values_of_bfloat16_are_added_in_float32():
    tables = new_tables(torch.bfloat16)
    ids, lists = draw_batch(20, torch.Generator().manual_seed(4))
    found = by_column(tables, tables(ids, lists))
    for column in LISTS[1:]:
        table = tables.table(column.name).float()
        sums = torch.stack([table[row].sum(0) for row in rows_of(lists[column.name])])
        if column.combiner == "sum":
            torch.testing.assert_close(found[column.name], sums)


def test_types_and_lists_of_others_do_not_matter():
    tables = new_tables()
    ids, lists = draw_batch(9, torch.Generator().manual_seed(5))
    wide = {name: Ragged(r.values.long(), r.offsets.long()) for name, r in lists.items()}
    wide["another"] = ragged([[1_000_000]] * 9)
    for ours, same in zip(tables(ids, lists), tables(ids.long(), wide), strict=True):
        assert torch.equal(ours, same)


def test_lists_that_do_not_fit_the_batch_are_refused(wording):
    tables = EmbeddingCollection([TableColumn("a", 5, 2, "sum")])
    ids = torch.zeros(3, 0, dtype=torch.int32)
    wording.refused(
        ValueError,
        lambda: tables.route(ids, {"a": ragged([[1]])}),
        lambda: tables.route(ids, {"b": ragged([[1]] * 3)}),
    )


EVENTS = [
    TableColumn("seen", 20, 4, "sequence", table="item"),
    TableColumn("item", 20, 4),
    TableColumn("shops", 6, 3, "sequence"),
]


def summed(tables, embedded, lists):
    """The sums of each row's embeddings, added by hand, in the order of `by_column`."""
    group, items, shops = embedded[1], embedded[2], embedded[3]
    assert tables.groups == ((2,), (0, 1))
    assert embedded[0].shape[1] == 0

    def sums(values, name):
        rows = torch.arange(len(lists[name].offsets) - 1).repeat_interleave(lists[name].lengths)
        return values.new_zeros(len(group), values.shape[1]).index_add(0, rows, values)

    return [sums(items, "seen"), group[:, 0], sums(shops, "shops")]


@pytest.mark.parametrize("cuts", [1, 3])
def test_sequences_summed_by_hand_equal_pooled_lists_in_float64(cuts):
    pooled = [
        TableColumn(c.name, c.cardinality, c.dim, c.combiner and "sum", c.table) for c in EVENTS
    ]
    ours, theirs = new_tables(torch.float64, EVENTS), new_tables(torch.float64, pooled)
    optimizers = SparseOptimizer(ours, "adam"), SparseOptimizer(theirs, "adam")
    generator = torch.Generator().manual_seed(5)
    for num_rows, most in ((30, 5), (0, 3), (20, 0), (1, 2), (25, 4)):
        ids = torch.randint(0, 20, (num_rows, 1), generator=generator, dtype=torch.int32)
        lists = {
            "seen": ragged(draw_rows_of_ids(num_rows, 20, generator, most)),
            "shops": ragged(draw_rows_of_ids(num_rows, 6, generator, most)),
        }
        factors = torch.randn(num_rows, 11, generator=generator, dtype=torch.float64)
        one_step(theirs, optimizers[1], ids, lists, factors)
        route, sums = ours.route(ids, lists), None
        bounds = [num_rows * i // cuts for i in range(cuts + 1)]
        for low, high in pairwise(bounds):
            part = slice(low, high)
            few = {name: column.part(part) for name, column in lists.items()}
            embedded = ours.expand(route, ours.fetch(route), part)
            loss_of(summed(ours, embedded, few), factors[part]).backward()
            sums = ours.collect(route, [leaf.grad for leaf in embedded], part, sums)
        optimizers[0].apply(ours.exchange(route, sums), LR)
    for column in EVENTS:
        torch.testing.assert_close(
            ours.table(column.name), theirs.table(column.name), rtol=0, atol=1e-12
        )

"""Two-level tables on two to eight real gloo ranks, in groups of every size that divides them."""

from functools import cache
from pathlib import Path

import pytest
import torch
from gloo_ranks import load_script, ran

from distrain.embeddings import EmbeddingCollection, Peers
from distrain.errors import InputError

SCRIPT = Path(__file__).with_name("two_level_rank.py")
rank_side = load_script(SCRIPT)
GANGS = [(ranks, size) for ranks, sizes in rank_side.SIZES.items() for size in sizes]
BETWEEN = [(ranks, size) for ranks, size in GANGS if 1 < size < ranks]


@pytest.fixture(scope="module")
def gangs(tmp_path_factory):
    """What each rank of a gang ended with."""
    return cache(ran(SCRIPT, tmp_path_factory.mktemp("levels")).of)


def assert_same_bits(one, other):
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(("num_ranks", "size"), GANGS)
def test_an_exchange_is_what_loops_over_ranks_and_groups_say(gangs, num_ranks, size):
    for rank in gangs(num_ranks):
        for store in rank["exchange", size]:
            assert store["keys"] == store["expected"]
            assert torch.equal(store["grads"], store["sums"])


@pytest.mark.parametrize("kind", rank_side.DTYPES)
@pytest.mark.parametrize(("num_ranks", "size"), GANGS)
def test_every_copy_has_the_same_bits_and_the_curve_of_other_placements(
    gangs, num_ranks, size, kind
):
    first, *others = (rank[size, kind] for rank in gangs(num_ranks))
    for other in others:
        assert_same_bits(first, other)
    flat = gangs(num_ranks)[0]["replicated", kind]
    if size in (1, num_ranks):
        assert_same_bits(first, flat)
    elif kind != "sgd":  # whose weights are in bfloat16
        for name, values in first.items():
            torch.testing.assert_close(values, flat[name], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(first["losses"], flat["losses"], rtol=1e-3, atol=0)


@pytest.mark.parametrize(("num_ranks", "size"), BETWEEN)
def test_a_second_run_has_the_same_bits_also_beside_other_placements(gangs, num_ranks, size):
    for rank in gangs(num_ranks):
        alone, mixed = rank[size, "adam"], rank["mixed", size]
        # The two widths whose tables are all of two levels.
        for name in ("weights.0", "weights.2", "0.exp_avg", "2.exp_avg_sq"):
            assert torch.equal(alone[name], mixed[name])


def test_groups_that_ranks_cannot_be_put_into_are_refused():
    with pytest.raises(ValueError, match="6 ranks cannot be put into groups of 4"):
        Peers(0, 6).in_groups(4)
    with pytest.raises(InputError, match="need to know the groups"):
        EmbeddingCollection(rank_side.COLUMNS, placements=["two_level"] * 6, peers=Peers(0, 4))


def test_a_rank_alone_holds_everything():
    tables = EmbeddingCollection(rank_side.COLUMNS, placements=["two_level"] * 6)
    assert [store.placement for store in tables.stores] == ["replicated"] * 3


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_each_group_holds_each_row_once(size):
    held = {}
    for rank in range(6):
        peers = Peers(rank, 6).in_groups(size)
        tables = EmbeddingCollection(
            rank_side.COLUMNS,
            placements=["two_level"] * 6,
            peers=peers,
            generator=torch.Generator().manual_seed(2),
        )
        store, weight = tables.stores[1], tables.weights[1].data
        keys = store.canonical_keys(torch.arange(len(weight)))
        held.setdefault(rank // size, []).append((keys, weight))
    alone = EmbeddingCollection(rank_side.COLUMNS, generator=torch.Generator().manual_seed(2))
    for parts in held.values():
        keys = torch.cat([keys for keys, _ in parts])
        assert sorted(keys.tolist()) == list(range(101 + 3 + 40))
        whole = alone.weights[1].data
        assert all(torch.equal(whole[keys], weight) for keys, weight in parts)

"""Steps of six real gloo ranks: one process's curve, and the same bits again.

There are more ranks than cores, than rows of some tables, and than rows of some batches. Row counts
are odd, lists may be empty, and one batch has the same ids everywhere.
"""

from functools import cache
from pathlib import Path

import pytest
import torch
from gloo_ranks import on_ranks
from loaded_scripts import load_script
from torch_checks import one_torch_thread

from distrain.models.embeddings.row_owners import key_at

pytestmark = pytest.mark.slow

rank_side = load_script(Path(__file__).with_name("crowd_ranks.py"))


@pytest.fixture(scope="module", params=rank_side.NUM_RANKS)
def ranks(request):
    """What each rank of a gang ended with."""
    return on_ranks(request.param, rank_side.results)


@pytest.fixture(scope="module")
def alone():
    """What one process that trains on the rows of so many ranks ends with."""

    @cache
    def of(name, num_ranks):
        with one_torch_thread():
            return rank_side.train(name, 0, 1, shared_by=num_ranks)

    return of


def assert_same_bits(one, other):
    for part in ("losses", "logits", "dense", "tables"):
        assert len(one[part]) == len(other[part])
        assert all(map(torch.equal, one[part], other[part])), part


def whole_tables(ends):
    """Each store's weight over all ranks."""
    for number, sharers in enumerate(ends[0]["sharers"]):
        every = [end["tables"][number] for end in ends]
        parts = every[:sharers]
        for rank, part in enumerate(every):
            assert torch.equal(parts[rank % sharers], part)
        whole = parts[0].new_full((sum(map(len, parts)), parts[0].shape[1]), torch.nan)
        for rank, part in enumerate(parts):
            whole[key_at(torch.arange(len(part)), rank, len(parts))] = part
        yield whole


def tables_of(ends, name):
    """Each table over all ranks, by name, whatever the stores are."""
    placement, _ = rank_side.CASES[name]
    tables = rank_side.new_tables(placement, 0, len(ends))
    weights = list(whole_tables(ends))
    found = {}
    for column in tables.tables:
        number, keys = tables.keys_of_table(column.name)
        found[column.table_name] = weights[number][keys]
    return found


@pytest.mark.parametrize("name", rank_side.CASES)
def test_a_second_run_has_the_same_bits(ranks, name):
    for rank in ranks:
        assert_same_bits(*rank[name])


@pytest.mark.parametrize("name", rank_side.CASES)
def test_ranks_follow_the_curve_of_one_process(ranks, alone, name):
    ends = [rank[name][0] for rank in ranks]
    expected_end = alone(name, len(ranks))
    close = {"rtol": 0, "atol": 1e-11}
    losses = torch.stack([end["losses"] for end in ends]).sum(0)
    torch.testing.assert_close(losses, expected_end["losses"], **close)
    for step, expected in enumerate(expected_end["logits"]):
        torch.testing.assert_close(torch.cat([end["logits"][step] for end in ends]), expected)
    for end in ends:
        for ours, expected in zip(end["dense"], ends[0]["dense"], strict=True):
            assert torch.equal(ours, expected)
    for ours, expected in zip(ends[0]["dense"], expected_end["dense"], strict=True):
        torch.testing.assert_close(ours, expected, **close)


@pytest.mark.parametrize("name", rank_side.CASES)
def test_tables_end_as_those_of_one_process(ranks, alone, name):
    ours = tables_of([rank[name][0] for rank in ranks], name)
    for table, expected in tables_of([alone(name, len(ranks))], name).items():
        torch.testing.assert_close(ours[table], expected, rtol=0, atol=1e-11)


def test_placements_have_the_same_bits(ranks):
    ours = [rank["replicated"][0] for rank in ranks]
    theirs = [rank["row_wise"][0] for rank in ranks]
    for one, two in zip(ours, theirs, strict=True):
        assert torch.equal(one["losses"], two["losses"])
        assert all(map(torch.equal, one["dense"], two["dense"]))
    assert all(map(torch.equal, whole_tables(ours), whole_tables(theirs)))

"""Steps of two and three real gloo ranks against each other, and against one process."""

from pathlib import Path

import pytest
import torch
from gloo_ranks import on_ranks
from loaded_scripts import load_script
from torch_checks import one_thread as one_thread

from distrain.models.embeddings.row_owners import key_at

rank_side = load_script(Path(__file__).with_name("step_rank.py"))
OF_ROW_WISE_TABLES = [name for name, case in rank_side.CASES.items() if case[1] == "row_wise"]
IN_DOUBLE = [name for name, case in rank_side.CASES.items() if case[0] == torch.float64]


@pytest.fixture(scope="module", params=rank_side.SHARES)
def ranks(request):
    """What each rank of a gang ended with."""
    return on_ranks(request.param, rank_side.results)


def whole_tables(ranks, name):
    """The tables' weights over all ranks."""
    parts = [rank[name]["tables"] for rank in ranks]
    if name not in OF_ROW_WISE_TABLES:
        return parts[0]
    whole = []
    for stores in zip(*parts, strict=True):
        rows = torch.zeros(sum(map(len, stores)), stores[0].shape[1], dtype=stores[0].dtype)
        for rank, own in enumerate(stores):
            rows[key_at(torch.arange(len(own)), rank, len(ranks))] = own
        whole.append(rows)
    return whole


@pytest.mark.parametrize("name", rank_side.CASES)
def test_ranks_agree_bitwise(ranks, name):
    for other in ranks[1:]:
        assert all(map(torch.equal, ranks[0][name]["dense"], other[name]["dense"]))
        if name not in OF_ROW_WISE_TABLES:
            assert all(map(torch.equal, ranks[0][name]["tables"], other[name]["tables"]))


@pytest.mark.parametrize("name", IN_DOUBLE)
def test_ranks_equal_one_process(ranks, name):
    alone = rank_side.train_case(name, shared_by=len(ranks))
    close = {"rtol": 0, "atol": 1e-11}
    for ours, expected in zip(ranks[0][name]["dense"], alone["dense"], strict=True):
        torch.testing.assert_close(ours, expected, **close)
    for ours, expected in zip(whole_tables(ranks, name), alone["tables"], strict=True):
        torch.testing.assert_close(ours, expected, **close)
    for step, expected in enumerate(alone["logits"]):
        ours = torch.cat([rank[name]["logits"][step] for rank in ranks])
        torch.testing.assert_close(ours, expected, **close)
    for step, expected in enumerate(alone["losses"]):
        torch.testing.assert_close(sum(r[name]["losses"][step] for r in ranks), expected, **close)


@pytest.mark.parametrize("kind", ["sgd", "adagrad"])
# Two terms have one sum in any order; an all-reduce of three adds in an order of its own.
@pytest.mark.parametrize("ranks", [2], indirect=True)
def test_ranks_equal_one_process_with_a_slice_for_each_bitwise(ranks, one_thread, kind):
    alone = rank_side.train_distinct(kind, slices=len(ranks))
    for part in ("dense", "tables"):
        for ours, expected in zip(ranks[0][f"distinct {kind}"][part], alone[part], strict=True):
            assert torch.equal(ours, expected), part

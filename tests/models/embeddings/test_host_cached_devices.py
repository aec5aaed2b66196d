"""Host-cached tables of a rank on a GPU: what lies beside the batch, and what travels."""

from dataclasses import replace

import pytest
import torch
from torch import distributed as dist

from distrain.models.embeddings import EmbeddingCollection, Peers, TableColumn
from distrain.models.embeddings.canonical_state import canonical_weights

COLUMNS = [TableColumn("a", 7, 4), TableColumn("b", 5, 4)]
OTHER = torch.device("meta")  # any but the host


def test_sums_of_gradients_lie_beside_the_batch():
    tables = EmbeddingCollection(COLUMNS, placements=["host_cached"] * 2)
    route = tables.route(torch.tensor([[1, 2], [3, 2]], dtype=torch.int32))
    moved = [replace(own, inverse=own.inverse.to(OTHER)) for own in route.stores]
    (sums,) = tables.collect(replace(route, stores=tuple(moved)), [None])
    assert sums.device == OTHER
    assert tables.weights[0].device.type == "cpu"


def test_rows_on_the_host_travel_from_the_backends_device(monkeypatch):
    peers, seen = Peers(0, 2), []
    tables = EmbeddingCollection(COLUMNS, placements=["host_cached"] * 2, peers=peers)
    monkeypatch.setattr(Peers, "device", OTHER)
    monkeypatch.setattr(
        Peers, "gather_rows_on_rank_0", lambda _, rows, lengths: seen.append(rows.device)
    )
    canonical_weights(tables)["weights.0"].read(slice(0, 5))
    assert seen == [OTHER]


@pytest.mark.parametrize(("backend", "device"), [("nccl", "cuda:3"), ("gloo", "cpu")])
def test_what_travels_by_nccl_lies_on_the_gpu(monkeypatch, backend, device):
    monkeypatch.setattr(dist, "get_backend", lambda *_: backend)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    assert Peers(0, 2).device == torch.device(device)
    assert Peers().device == torch.device("cpu")

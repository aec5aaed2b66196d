"""Tables that several columns share are saved once, and load in any placement on any ranks."""

from types import SimpleNamespace

import pytest
import torch
from checkpoint_states import fill, read_all, same_values, save_together, some_content

from distrain.models.embeddings import EmbeddingCollection, Peers, SparseOptimizer, TableColumn
from distrain.train.checkpoint import CheckpointDir, TrainingState

# Columns "a" and "e" look up one table.
COLUMNS = [
    TableColumn("a", 300, 4, table="things"),
    TableColumn("b", 3, 4),
    TableColumn("c", 29, 2),
    TableColumn("d", 1, 2),
    TableColumn("e", 300, 4, "mean", table="things"),
]
GANGS = [
    (1, ["replicated"] * 5),
    (2, ["row_wise"] * 5),
    (3, ["row_wise", "replicated", "host_cached", "host_cached", "row_wise"]),
]


def state_of(words, peers=None, columns=COLUMNS):
    tables = EmbeddingCollection(columns, placements=words, peers=peers)
    dense = torch.nn.Linear(3, 2)
    # All that a training's state is made of.
    model = SimpleNamespace(embeddings=tables, dense=dense)
    optimizer = torch.optim.Adam(dense.parameters(), lr=0.1)
    return TrainingState(model, SparseOptimizer(tables, "adam"), optimizer)


def states_of(gang, content=None):
    num_ranks, words = gang
    states = [state_of(words, Peers(rank, num_ranks)) for rank in range(num_ranks)]
    for state in states if content else ():
        fill(state, content)
    return states


@pytest.mark.parametrize("saving", GANGS)
@pytest.mark.parametrize("loading", GANGS)
def test_the_same_bits(tmp_path, saving, loading):
    place = CheckpointDir(str(tmp_path))
    content = some_content(state_of(GANGS[0][1]), seed=4)
    # Widths 2 (c, d) and 4 (a with e, b).
    shapes = {name: tuple(content[name].shape) for name in content if "weights" in name}
    assert sorted(shapes.values()) == [(30, 2), (303, 4)]
    told, reports = save_together(place, states_of(saving, content))
    assert told == [True] * saving[0], reports
    loaders = states_of(loading)
    read_all(place, place.list()[0].name, loaders)
    for state, wanted in zip(loaders, states_of(loading, content), strict=True):
        assert same_values(state, wanted)

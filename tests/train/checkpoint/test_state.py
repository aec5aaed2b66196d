"""What a training's state is, and what it refuses."""

import pytest
import torch
from checkpoint_states import raw_values, save_together
from click_models import model_over

from distrain.errors import DataError
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.embeddings import EmbeddingCollection, Peers, SparseOptimizer, TableColumn
from distrain.train.checkpoint import CheckpointDir, TrainingState, load_newest

COLUMNS = [TableColumn("a", 6, 4), TableColumn("b", 9, 4, "sum"), TableColumn("c", 4, 4)]


def state_of(columns, kind="adam", seed=0):
    generator = torch.Generator().manual_seed(seed)
    tables = EmbeddingCollection(columns, generator=generator)
    model = model_over(tables, MLPBlock([3]))
    optimizer = torch.optim.Adagrad(model.dense.parameters(), lr=0.1)
    return TrainingState(model, SparseOptimizer(tables, kind), optimizer)


@pytest.fixture
def place(tmp_path):
    return CheckpointDir(str(tmp_path / "checkpoints"))


def refused(place, state):
    before = raw_values(state)
    with pytest.raises(DataError) as caught:
        load_newest(place, state, Peers())
    assert all(torch.equal(a, b) for a, b in zip(before, raw_values(state), strict=True))
    assert len(place.list()) == 1, "it is not damaged"
    return str(caught.value)


@pytest.mark.parametrize(
    "columns",
    [
        [COLUMNS[2], COLUMNS[1], COLUMNS[0]],
        [COLUMNS[0], TableColumn("b", 9, 4, "mean"), COLUMNS[2]],
        [TableColumn("z", 6, 4), *COLUMNS[1:]],
    ],
    ids=["order", "combiner", "name"],
)
def test_tables_of_the_same_shape_that_mean_something_else_are_refused(place, columns):
    save_together(place, [state_of(COLUMNS)])
    assert "tables differ from the model's" in refused(place, state_of(columns))


def test_another_kind_of_optimizer_is_told(place):
    save_together(place, [state_of(COLUMNS, "adagrad")])
    text = refused(place, state_of(COLUMNS, "adam"))
    assert "sparse_optimizer.0.exp_avg is missing, this training needs F32 [19, 4]" in text
    assert "sparse_optimizer.0.sum is F32 [19, 4], this training needs no such tensor" in text


def test_rows_lie_in_the_order_of_the_columns_lists_or_not(place):
    state = state_of(COLUMNS)
    tables = [state.model.embeddings.table(column.name) for column in COLUMNS]
    canonical = state.tensors()["embeddings.weights.0"]
    assert torch.equal(canonical.read(slice(0, 19)), torch.cat(tables))
    save_together(place, [state], values={"loader": {"epoch": 1}})
    other = state_of(COLUMNS, seed=1)
    loaded = load_newest(place, other, Peers())
    assert loaded.values == loaded.entry.values == {"loader": {"epoch": 1}}
    for column in COLUMNS:
        assert torch.equal(
            other.model.embeddings.table(column.name), state.model.embeddings.table(column.name)
        )


def test_the_caller_may_refuse_before_anything_is_changed(place, wording):
    def accept(entry):
        raise DataError(f"no step {entry.step}, please: {entry.values['seed']}")

    save_together(place, [state_of(COLUMNS)], step=4, values={"seed": 9})
    state = state_of(COLUMNS, seed=1)
    before = raw_values(state)
    wording.refused(DataError, lambda: load_newest(place, state, Peers(), accept=accept))
    assert all(torch.equal(a, b) for a, b in zip(before, raw_values(state), strict=True))


def test_without_a_checkpoint_nothing_is_changed(place):
    state = state_of(COLUMNS)
    before = raw_values(state)
    loaded = load_newest(place, state, Peers())
    assert (loaded.entry, loaded.touched) == (None, False)
    assert all(torch.equal(a, b) for a, b in zip(before, raw_values(state), strict=True))

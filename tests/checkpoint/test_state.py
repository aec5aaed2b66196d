"""A training's state on one rank; `test_any_ranks.py` has the gangs."""

import pytest
import torch

from distrain.checkpoint import TrainingState
from distrain.embeddings import EmbeddingCollection, SparseOptimizer, TableColumn
from distrain.errors import DataError
from distrain.models import ClickModel
from distrain.models.mlp import MlpDense

COLUMNS = [TableColumn("a", 6, 4), TableColumn("b", 9, 4, "sum"), TableColumn("c", 4, 4)]


def state_of(columns, kind="adam", seed=0):
    generator = torch.Generator().manual_seed(seed)
    tables = EmbeddingCollection(columns, generator=generator)
    model = ClickModel(tables, MlpDense(12, 0, (3,)), [])
    optimizer = torch.optim.Adagrad(model.dense.parameters(), lr=0.1)
    return TrainingState(model, SparseOptimizer(tables, kind), optimizer)


@pytest.mark.parametrize(
    "columns",
    [
        [COLUMNS[2], COLUMNS[1], COLUMNS[0]],
        [COLUMNS[0], TableColumn("b", 9, 4, "mean"), COLUMNS[2]],
        [TableColumn("z", 6, 4), *COLUMNS[1:]],
    ],
    ids=["order", "combiner", "name"],
)
def test_tables_of_the_same_shape_that_mean_something_else_are_refused(tmp_path, columns):
    state_of(COLUMNS).save(tmp_path / "state")
    with pytest.raises(DataError, match="tables are not the model's"):
        state_of(columns).load(tmp_path / "state")


def test_another_kind_of_optimizer_is_told(tmp_path):
    state_of(COLUMNS, "adagrad").save(tmp_path / "state")
    with pytest.raises(DataError) as caught:
        state_of(COLUMNS, "adam").load(tmp_path / "state")
    text = str(caught.value)
    assert "sparse_optimizer.0.exp_avg is missing, this training needs F32 [19, 4]" in text
    assert "sparse_optimizer.0.sum is F32 [19, 4], this training needs no such tensor" in text


def test_rows_lie_in_the_order_of_the_columns_lists_or_not(tmp_path):
    from safetensors.torch import load_file

    state = state_of(COLUMNS)
    state.save(tmp_path / "state", {"loader": {"epoch": 1}})
    saved = load_file(tmp_path / "state" / "tensors.safetensors")
    tables = [state.model.embeddings.table(column.name) for column in COLUMNS]
    assert torch.equal(saved["embeddings.weights.0"], torch.cat(tables))
    other = state_of(COLUMNS, seed=1)
    assert other.load(tmp_path / "state") == {"loader": {"epoch": 1}}
    for column in COLUMNS:
        assert torch.equal(
            other.model.embeddings.table(column.name), state.model.embeddings.table(column.name)
        )

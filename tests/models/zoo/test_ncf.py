"""NeuMF against its formula row by row, its file, and what it refuses."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from distrain.errors import ModelError
from distrain.jobs.spec.models.kinds import NcfSpec
from distrain.loader.batch import Batch
from distrain.models import build_model
from distrain.schema import ColumnSchema, Schema, Tags

SCHEMA = Schema(
    (
        ColumnSchema("liked", "float32", (Tags.TARGET,)),
        ColumnSchema("movie", "int32", (Tags.CATEGORICAL, Tags.ITEM_ID), 6),
        ColumnSchema("hour", "int32", (Tags.CATEGORICAL,), 5),
        ColumnSchema("who", "int32", (Tags.CATEGORICAL, Tags.USER_ID), 9),
        ColumnSchema("clock", "float32", (Tags.CONTINUOUS, Tags.USER)),
    )
)


def some_batch(rows=8):
    draw = torch.Generator().manual_seed(1)
    ids = [torch.randint(n, (rows,), generator=draw, dtype=torch.int32) for n in (6, 5, 9)]
    numbers = torch.randn(rows, 1, generator=draw)
    labels = (torch.arange(rows) % 2).float()
    return Batch(torch.stack(ids, 1), numbers, labels, ("movie", "hour", "who"), ("clock",))


def naive_logits(model, batch):
    """NeuMF's equations 12, row by row; the embeddings in schema order."""
    table = {n: model.embeddings.table(n).detach().numpy() for n in model.embeddings.names}
    hidden = [m for m in model.dense.body["deep"].modules() if isinstance(m, torch.nn.Linear)]
    last = model.dense.task.logit
    logits = []
    for movie, _, who in batch.categorical.tolist():
        product = table["mf/movie"][movie] * table["mf/who"][who]
        x = np.concatenate([table["movie"][movie], table["who"][who]])
        for layer in hidden:
            x = np.maximum(0, layer.weight.detach().numpy() @ x + layer.bias.detach().numpy())
        both = np.concatenate([product, x])
        logits.append(float(last.weight.detach().numpy()[0] @ both + last.bias.detach().numpy()[0]))
    return logits


@pytest.mark.parametrize(("mf_dim", "dim"), [(3, 5), (4, 4), (7, 2)])
def test_equals_the_formula(mf_dim, dim):
    model = build_model(SCHEMA, NcfSpec(mf_dim=mf_dim, embedding_dim=dim, hidden=(6, 3)), seed=2)
    batch = some_batch()
    with torch.no_grad():
        # Tables begin near 0, where products vanish.
        for weight in model.embeddings.weights:
            weight.uniform_(-1, 1)
        np.testing.assert_allclose(model(batch), naive_logits(model, batch), atol=1e-5)
    assert set(model.embeddings.names) == {"mf/movie", "mf/who", "movie", "who"}
    assert model(batch.part(slice(0, 0))).shape == (0,)


def test_what_the_tags_do_not_tell_is_asked_for(wording):
    two = SCHEMA.with_columns(replace(SCHEMA["hour"], tags=(Tags.CATEGORICAL, Tags.ITEM_ID)))
    wording.refused(
        ModelError,
        lambda: build_model(SCHEMA.remove(["who"]), NcfSpec(), seed=0),
        lambda: build_model(two, NcfSpec(), seed=0),
    )

"""A Merlin schema file drives models as it is: built, run forwards and backwards on rows of it.

Only where tables are allocated are cardinalities cut, which would take gigabytes otherwise.
"""

from dataclasses import replace
from functools import partial

import pytest
import torch

from distrain.errors import ModelError, SchemaError
from distrain.jobs.spec import DlrmSpec, MlpSpec
from distrain.jobs.spec.models.kinds import NcfSpec, TwoTowerSpec
from distrain.loader.batch import Batch, Ragged
from distrain.models import build_model
from distrain.models.build import blueprint_of
from distrain.schema import Schema, Tags

MOST_IDS, ROWS = 500, 6
# Name, and the models that its tags are enough for.
EVERY = ("mlp", "dlrm", "two_tower", "ncf")
FILES = {
    "models__advertising_criteo_transformed.pbtxt": ("mlp", "dlrm"),
    "models__ecommerce_aliccp_raw.pbtxt": EVERY,
    "models__ecommerce_aliccp_transformed.pbtxt": EVERY,
    "models__ecommerce_booking_transformed.pbtxt": ("mlp", "dlrm", "two_tower"),  # items in lists
    "models__ecommerce_transactions.pbtxt": EVERY,
    "models__entertainment_movielens_1m.pbtxt": EVERY,
    "models__entertainment_movielens_1m-raw_ratings.pbtxt": ("mlp", "dlrm"),  # both ids are items'
    "models__entertainment_movielens_25m.pbtxt": EVERY,
    "models__entertainment_tenrec_video.pbtxt": EVERY,
    "models__ecommerce_small.schema.json": EVERY,
    "models__testing.schema.json": EVERY,
}
LISTS_OF_NUMBERS = (
    "t4r__ecom_rees46.pbtxt",
    "t4r__ecom_yoochoose.pbtxt",
    "t4r__tests_data_seq_schema.pbtxt",
)
UNTAGGED = "t4r__tests_schema.pbtxt"
SPECS = {
    "mlp": MlpSpec(embedding_dim=None, hidden=(8,)),
    "dlrm": DlrmSpec(embedding_dim=4, bottom=(8,), top=(8,)),
    "two_tower": TwoTowerSpec(embedding_dim=4, tower=(8,)),
    "ncf": NcfSpec(mf_dim=4, embedding_dim=4, hidden=(8,)),
}


@pytest.fixture
def folder(shared_data):
    return shared_data / "merlin_schemas"


def smaller(schema):
    """The same with few ids, so that tables fit."""
    columns = [
        replace(c, cardinality=c.cardinality and min(c.cardinality, MOST_IDS)) for c in schema
    ]
    return Schema(tuple(columns))


def rows_of(schema, seed=0):
    """A batch as the loader would give it."""
    draw = torch.Generator().manual_seed(seed)
    features = schema.remove_by_tag(Tags.TARGET)
    flat, lists = [], {}
    for column in features.categorical:
        if not column.holds_lists:
            ids = torch.randint(column.cardinality, (ROWS,), generator=draw, dtype=torch.int32)
            flat.append((column.name, ids))
            continue
        least, most = column.value_count or (0, 3)
        lengths = torch.randint(least or 0, min(most or 4, 5) + 1, (ROWS,), generator=draw)
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]).int()
        total = int(offsets[-1])
        values = torch.randint(column.cardinality, (total,), generator=draw, dtype=torch.int32)
        lists[column.name] = Ragged(values, offsets)
    names = tuple(name for name, _ in flat)
    ids = torch.stack([ids for _, ids in flat], 1)
    numbers = torch.randn(ROWS, len(features.continuous), generator=draw)
    targets = schema.select_by_tag(Tags.TARGET).names
    labels = torch.randint(2, (ROWS, max(1, len(targets))), generator=draw).float()
    return Batch(
        ids, numbers, labels[:, 0], names, features.continuous.names, labels, targets, lists=lists
    )


@pytest.mark.parametrize("name", FILES)
def test_models_learn_from_rows_of_the_schema(folder, name):
    whole = Schema.load(folder / name)
    schema = smaller(whole)
    for kind in EVERY:
        if kind not in FILES[name]:
            with pytest.raises(ModelError):
                build_model(schema, SPECS[kind], seed=0)
            continue
        # The file as it is: every size follows, though no memory is taken for its tables.
        blueprint_of(whole, SPECS[kind]).check()
        model, batch = build_model(schema, SPECS[kind], seed=0), rows_of(schema)
        tables = model.embeddings
        route = tables.route(*model.table_ids(batch))
        leaves = tables.expand(route, tables.fetch(route))
        output = model.dense(leaves, batch.continuous)
        assert torch.equal(model.task.logits(output), model(batch)), kind
        model.task.loss(output, batch).backward()
        assert any(leaf.grad.abs().sum() > 0 for leaf in leaves), kind


def test_schemas_of_lists_of_numbers_or_without_tags_are_refused(folder, wording):
    for name in (*LISTS_OF_NUMBERS, UNTAGGED):
        schema = smaller(Schema.load(folder / name))
        wording.refused(SchemaError, partial(build_model, schema, SPECS["mlp"], seed=0))


def test_every_file_is_tried(folder):
    found = {path.name for path in folder.iterdir() if path.suffix in (".pbtxt", ".json")}
    assert found == {*FILES, *LISTS_OF_NUMBERS, UNTAGGED}

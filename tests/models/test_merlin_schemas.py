"""A Merlin schema file describes models as it is: every size follows from it."""

from contextlib import nullcontext
from functools import partial

import pytest

from distrain.errors import ModelError, SchemaError
from distrain.jobs.spec import DlrmSpec, MlpSpec
from distrain.jobs.spec.models.kinds import NcfSpec, TwoTowerSpec
from distrain.models.build import blueprint_of
from distrain.schema import Schema

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


@pytest.mark.parametrize("name", FILES)
def test_models_are_made_of_the_schema(folder, name):
    schema = Schema.load(folder / name)
    for kind in EVERY:
        with nullcontext() if kind in FILES[name] else pytest.raises(ModelError):
            blueprint_of(schema, SPECS[kind]).check()


def test_schemas_of_lists_of_numbers_or_without_tags_are_refused(folder, wording):
    for name in (*LISTS_OF_NUMBERS, UNTAGGED):
        schema = Schema.load(folder / name)
        wording.refused(SchemaError, partial(blueprint_of, schema, SPECS["mlp"]))

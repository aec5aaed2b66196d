"""Every real Merlin schema file: what it says, and that it survives both formats."""

import pytest

from distrain.schema import Schema

# Name, columns, columns with an embedding width, lists: the counts of the files' own listing.
FILES = [
    ("models__advertising_criteo_transformed.pbtxt", 40, 26, 0),
    ("models__ecommerce_aliccp_raw.pbtxt", 25, 23, 0),
    ("models__ecommerce_aliccp_transformed.pbtxt", 27, 23, 0),
    ("models__ecommerce_booking_transformed.pbtxt", 11, 10, 7),
    ("models__ecommerce_transactions.pbtxt", 4, 3, 0),
    ("models__entertainment_movielens_1m.pbtxt", 16, 8, 1),
    ("models__entertainment_movielens_1m-raw_ratings.pbtxt", 4, 4, 0),
    ("models__entertainment_movielens_25m.pbtxt", 8, 3, 1),
    ("models__entertainment_tenrec_video.pbtxt", 10, 5, 0),
    ("models__ecommerce_small.schema.json", 25, 23, 0),
    ("models__testing.schema.json", 11, 0, 1),
    ("t4r__ecom_rees46.pbtxt", 12, 0, 12),
    ("t4r__ecom_yoochoose.pbtxt", 7, 0, 7),
    ("t4r__tests_data_seq_schema.pbtxt", 22, 0, 14),
    ("t4r__tests_schema.pbtxt", 18, 0, 8),
]


@pytest.fixture
def folder(shared_data):
    return shared_data / "merlin_schemas"


def test_every_file_is_listed_here(folder):
    found = {p.name for p in folder.iterdir() if p.suffix in (".pbtxt", ".json")}
    assert found == {name for name, *_ in FILES}


@pytest.mark.parametrize(("name", "columns", "embedded", "lists"), FILES)
def test_counts(folder, name, columns, embedded, lists, caplog):
    schema = Schema.load(folder / name)
    assert len(schema) == columns
    assert sum(column.embedding_dim is not None for column in schema) == embedded
    assert sum(column.is_list for column in schema) == lists
    assert not caplog.records  # nothing was left out


@pytest.mark.parametrize("ending", ["pbtxt", "json"])
@pytest.mark.parametrize("name", [name for name, *_ in FILES])
def test_round_trip(folder, name, ending, tmp_path):
    schema = Schema.load(folder / name)
    copy = tmp_path / f"schema.{ending}"
    schema.save(copy)
    assert Schema.load(copy) == schema
    assert '"distrain"' not in copy.read_text()  # Merlin's own fields say it all
    assert Schema.from_json(schema.to_json()) == schema


def test_lists_and_shared_domains(folder):
    booking = Schema.load(folder / "models__ecommerce_booking_transformed.pbtxt")
    city = booking["city_id"]
    assert (city.is_list, city.is_ragged, city.value_count) == (True, True, (4, 48))
    assert booking["session_id"].properties["domain"] == "utrip_id"
    assert "domain" not in city.properties  # its own
    assert (booking["session_id"].domain, city.domain) == ("utrip_id", city.name)
    taxi = Schema.load(folder / "t4r__tests_schema.pbtxt")
    assert taxi["payment_type"].dtype == "string"
    assert taxi["payment_type"].properties["string_domain"][:2] == ["Cash", "Credit Card"]
    assert taxi["fare"].properties == {"presence": {"min_fraction": 1.0, "min_count": 1}}
    assert (taxi["fare"].is_list, taxi["fare"].is_ragged) == (True, False)

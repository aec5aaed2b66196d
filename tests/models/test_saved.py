"""Saving and loading models."""

import json

import pytest
import torch

from distrain.errors import DataError, OutputError, SchemaError
from distrain.models import build_model, load_model, save_model
from distrain.spec import DlrmSpec, MlpSpec


@pytest.fixture
def saved(tmp_path, small_schema):
    """The folder of a small saved model."""
    schema, spec = small_schema(), DlrmSpec(embedding_dim=4, bottom=(3,), top=(5,))
    save_model(tmp_path / "model", build_model(schema, spec, seed=1), spec, schema)
    return tmp_path / "model"


def edit(folder, **changes):
    file = folder / "model.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.mark.parametrize(
    "spec", [MlpSpec(), MlpSpec(embedding_dim=None, hidden=(7,)), DlrmSpec()], ids=str
)
def test_round_trip_gives_bitwise_equal_logits(tmp_path, schema_and_batch, spec):
    schema, batch = schema_and_batch(3, 2, 20)
    model = build_model(schema, spec, seed=5)
    save_model(tmp_path / "model", model, spec, schema)
    loaded = load_model(tmp_path / "model")
    assert torch.equal(loaded.model(batch), model(batch))
    assert loaded.spec == spec
    assert loaded.schema == schema
    assert loaded.model.continuous_names == model.continuous_names
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model"]


def test_targets_of_models_without_named_tasks_are_binary_whatever_their_tag(
    tmp_path, schema_and_batch
):
    schema, batch = schema_and_batch(3, 2, 20)
    model = build_model(schema, MlpSpec(), seed=5)
    save_model(tmp_path / "model", model, MlpSpec(), schema)
    document = json.loads((tmp_path / "model" / "model.json").read_text())
    del document["model"]["tasks"], document["model"]["sharing"]
    (target,) = [c for c in document["schema"]["columns"] if "target" in c["tags"]]
    target["tags"] = ["target", "regression"]
    edit(tmp_path / "model", **document)
    assert torch.equal(load_model(tmp_path / "model").model(batch), model(batch))


def test_an_existing_model_is_replaced_only_on_request(saved, small_schema):
    schema, spec = small_schema(), MlpSpec()
    model = build_model(schema, spec, seed=2)
    with pytest.raises(OutputError, match="exists already"):
        save_model(saved, model, spec, schema)
    save_model(saved, model, spec, schema, replace=True)
    assert load_model(saved).spec == spec


def test_missing_folder_and_files(saved):
    with pytest.raises(DataError, match="no such saved model"):
        load_model(saved.with_name("nosuch"))
    for name in ("weights.safetensors", "model.json"):
        (saved / name).rename(saved / "away")
        with pytest.raises(DataError, match=f"lacks {name}"):
            load_model(saved)
        (saved / "away").rename(saved / name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ("[1]", "not the description of a saved model"),
        ('{"format": 1, "model": {}}', "not the description of a saved model"),
        ('{"format": 3, "model": {}, "schema": {}}', "saved in format 3"),
        ('{"format": 2, "model": {}, "schema": {}}', "an ensemble of no models"),
        ('{"format": 1, "model": {"kind": "x"}, "schema": {}}', "model section is unusable"),
        ('{"format": 1, "model": {"kind": "mlp", "top": [1]}, "schema": {}}', "model.json"),
    ],
)
def test_damaged_descriptions(saved, text, message):
    (saved / "model.json").write_text(text)
    with pytest.raises(DataError, match=r"model\.json") as caught:
        load_model(saved)
    assert message in str(caught.value)


def test_damaged_schema(saved):
    edit(saved, schema={"columns": [{"name": "a", "colour": "red"}]})
    with pytest.raises(SchemaError, match="colour"):
        load_model(saved)


@pytest.mark.parametrize("keep", [0, 5, 200, -1])
def test_truncated_weights(saved, keep):
    file = saved / "weights.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(DataError, match="damaged") as caught:
        load_model(saved)
    assert caught.value.where == {"file": str(file)}


def test_pickles_are_not_read(saved):
    torch.save({"weights": torch.ones(3)}, saved / "weights.safetensors")
    with pytest.raises(DataError, match="damaged"):
        load_model(saved)


def test_weights_of_another_schema_name_both_shapes(saved, small_schema):
    edit(saved, schema=small_schema(num_categorical=4).to_json())
    with pytest.raises(DataError) as caught:
        load_model(saved)
    text = str(caught.value)
    assert "embeddings.weights.0 is (36, 4), the schema and model section need (62, 4)" in text
    name = "dense.body.top.layers.0.weight"
    assert f"{name} is (5, 10), the schema and model section need (5, 14)" in text


def test_weights_of_another_model_name_what_is_missing(saved):
    edit(saved, model={"kind": "mlp", "embedding_dim": 4, "hidden": [3]})
    with pytest.raises(DataError) as caught:
        load_model(saved)
    assert "dense.body.layers.0.weight is missing" in str(caught.value)
    assert "need no such tensor" in str(caught.value)

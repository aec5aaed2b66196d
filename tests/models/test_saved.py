"""Saving and loading models."""

import io

import pytest
import torch

from distrain.errors import DataError, OutputError
from distrain.jobs.spec import DlrmSpec, MlpSpec
from distrain.models import build_model, load_model
from distrain.models.saved_model import save_model


@pytest.fixture
def saved(tmp_path, small_schema):
    """The folder of a small saved model."""
    schema, spec = small_schema(), DlrmSpec(embedding_dim=4, bottom=(3,), top=(5,))
    save_model(tmp_path / "model", build_model(schema, spec, seed=1), spec, schema)
    return tmp_path / "model"


def test_an_existing_model_is_replaced_only_on_request(saved, small_schema):
    schema, spec = small_schema(), MlpSpec()
    model = build_model(schema, spec, seed=2)
    with pytest.raises(OutputError):
        save_model(saved, model, spec, schema)
    save_model(saved, model, spec, schema, replace=True)
    assert load_model(saved).spec == spec


def test_missing_folders_and_files_are_refused(saved, wording):
    wording.refused(DataError, lambda: load_model(saved.with_name("nosuch")))
    for name in ("weights.safetensors", "model.json"):
        (saved / name).rename(saved / "away")
        wording.refused(DataError, lambda: load_model(saved))
        (saved / "away").rename(saved / name)


def test_weights_that_are_cut_or_a_pickle_are_refused(saved):
    file = saved / "weights.safetensors"
    content = file.read_bytes()
    header = b'{"a":' * 200_000 + b"1" + b"}" * 200_000
    pickle = io.BytesIO()
    torch.save({"weights": torch.ones(3)}, pickle)
    for damaged in (
        *(content[:keep] for keep in (0, 5, 200, -1)),
        len(header).to_bytes(8, "little") + header,
        pickle.getvalue(),
    ):
        file.write_bytes(damaged)
        with pytest.raises(DataError) as caught:
            load_model(saved)
        assert caught.value.where == {"file": str(file)}

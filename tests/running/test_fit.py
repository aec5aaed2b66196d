"""`distrain.fit`: whole runs from Python, with a model of the caller's own."""

import json

import pytest
from small_jobs import make_spec, small_document

import distrain
from distrain.errors import SpecError
from distrain.models import Blueprint, Embeddings, InputBlock, load_model
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.custom import PACKAGES_VARIABLE
from distrain.models.heads.binary import BinaryClassificationTask

INLINE = {"resources": {"backend": "inline", "num_ranks": 1, "device": "cpu"}}


def tiny(schema, width=4):
    inputs = InputBlock(schema, Embeddings(width))
    return Blueprint(inputs, MLPBlock([width], "tanh"), BinaryClassificationTask())


def test_a_spec_is_trained_inline(prepared, tmp_path):
    document = small_document(prepared) | INLINE
    run = distrain.fit(document, run_dir=tmp_path / "run")
    assert run.summary.state == "succeeded"
    assert run.summary.steps == 20
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["steps"] == 20
    assert run.load_model().spec.kind == "mlp"


def test_any_function_may_make_the_model_inline(prepared, tmp_path):
    document = {k: v for k, v in (small_document(prepared) | INLINE).items() if k != "model"}

    def near(schema, width):
        return tiny(schema, width)

    run = distrain.fit(document, model_fn=near, options={"width": 3}, run_dir=tmp_path / "run")
    assert run.summary.state == "succeeded"
    assert run.load_model().model.dense.body.widths == (3,)
    with pytest.raises(SpecError, match="may not be imported"):
        load_model(tmp_path / "run" / "model")


@pytest.mark.slow
def test_workers_import_the_function_where_their_operator_allows_it(
    prepared, tmp_path, monkeypatch
):
    (tmp_path / "our_models.py").write_text(
        "from distrain.models import *\n"
        "from distrain.models.blocks.mlp import MLPBlock\n"
        "from distrain.models.heads.binary import BinaryClassificationTask\n"
        "def tiny(schema, width):\n"
        "    inputs = InputBlock(schema, Embeddings(width))\n"
        "    return Blueprint(inputs, MLPBlock([width]), BinaryClassificationTask())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    import our_models

    spec = make_spec(prepared)
    with pytest.raises(distrain.DistrainError, match="may not be imported"):
        distrain.fit(spec, model_fn=our_models.tiny, options={"width": 3}, run_dir=tmp_path / "no")
    monkeypatch.setenv(PACKAGES_VARIABLE, "our_models")
    run = distrain.fit(
        spec, model_fn=our_models.tiny, options={"width": 3}, run_dir=tmp_path / "yes"
    )
    assert run.summary.state == "succeeded"
    assert run.load_model().model.dense.body.widths == (3,)

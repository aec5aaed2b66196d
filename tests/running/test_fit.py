"""`distrain.fit`: whole runs from Python, with a model of the caller's own."""

import json

import pytest
from small_jobs import make_spec, small_document

import distrain
from distrain.errors import SpecError
from distrain.models import Blueprint, Embeddings, InputBlock, load_model
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.custom import PACKAGES_VARIABLE
from distrain.models.heads.tasks import BinaryClassificationTask

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


class Broken:
    def open(self, facts):
        raise ConnectionError("nobody there")


def test_sinks_get_what_the_run_records_and_cannot_harm_it(prepared, tmp_path, caplog):
    pytest.importorskip("tensorboard", reason="the extra 'tensorboard' is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    document = small_document(prepared) | INLINE
    with caplog.at_level("INFO", "distrain"):
        run = distrain.fit(document, run_dir=tmp_path / "run", sinks=["tensorboard", Broken()])
    assert run.summary.state == "succeeded"
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    told = [(r["step"], pytest.approx(r["loss"])) for r in records if r["split"] == "train"]
    assert [(point.step, point.value) for point in events.Scalars("train/loss")] == told
    (lost,) = [text for text in caplog.messages if "entries were lost" in text]
    assert "sink Broken: " in lost
    assert "nobody there" in lost


def test_a_sink_that_is_none_is_refused_before_anything_is_read(tmp_path):
    with pytest.raises(distrain.DistrainError, match="no sink 'wandb'"):
        distrain.fit(
            {"data": {"train": "nowhere"}, "model": {"kind": "mlp"}},
            run_dir=tmp_path / "run",
            sinks=["wandb"],
        )
    assert not (tmp_path / "run").exists()


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
        "from distrain.models.heads.tasks import BinaryClassificationTask\n"
        "def tiny(schema, width):\n"
        "    inputs = InputBlock(schema, Embeddings(width))\n"
        "    return Blueprint(inputs, MLPBlock([width]), BinaryClassificationTask())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    import our_models  # type: ignore[import-not-found]

    spec = make_spec(prepared)
    with pytest.raises(distrain.DistrainError, match="may not be imported"):
        distrain.fit(spec, model_fn=our_models.tiny, options={"width": 3}, run_dir=tmp_path / "no")
    monkeypatch.setenv(PACKAGES_VARIABLE, "our_models")
    run = distrain.fit(
        spec, model_fn=our_models.tiny, options={"width": 3}, run_dir=tmp_path / "yes"
    )
    assert run.summary.state == "succeeded"
    assert run.load_model().model.dense.body.widths == (3,)

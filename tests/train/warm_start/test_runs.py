"""Tomorrow's job starts from today's model: whole runs."""

import json
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
import torch
from small_jobs import CARDINALITIES, make_spec, small_document, write_prepared

import distrain
from distrain.errors import SpecError
from distrain.jobs.spec import parse_spec
from distrain.launch.job_checks import JobChecks
from distrain.launch.reporting import LoggedProgress
from distrain.launch.resuming import find_run
from distrain.launch.run import RunRequest, train
from distrain.models import load_model
from distrain.models.heads.multitask import name_by_task
from distrain.prep.vocabulary import Vocabulary
from distrain.schema.criteo import CATEGORICAL

pytestmark = pytest.mark.usefixtures("undrawn")

INLINE = "resources={backend: inline, num_ranks: 1, device: cpu}"
SHORT = "train={global_batch_size: 500, max_steps: 3, log_every_steps: 5}"
# In fp32 a step of this size changes no weight: what a run ends with is what it began with.
STILL = "train.optimizer={kind: sgd, lr: 1.0e-30}"


@pytest.fixture(scope="module")
def today(tmp_path_factory):
    """Prepared data with vocabularies, as `distrain prep` leaves them."""
    root = write_prepared(tmp_path_factory.mktemp("today") / "data")
    write_vocabularies(root, values_of(0))
    return root


@pytest.fixture(scope="module")
def model_run(today, tmp_path_factory):
    """A run on that data."""
    root = tmp_path_factory.mktemp("runs") / "today"
    overrides = [INLINE, SHORT, "checkpoint={every_steps: 2, every_s: null}"]
    distrain.fit(parse_spec(small_document(today), overrides), run_dir=root)
    return root


def values_of(day):
    """The values of each column's ids: most of them seen on every day, in another order on each."""
    rng = np.random.default_rng(day)
    return {
        name: (rng.permutation(rows - 3 + 2)[: rows - 3] + 1000).tolist()
        for name, rows in CARDINALITIES.items()
        if rows > 3
    }


def write_vocabularies(root, values):
    folder = root / "workflow" / "categories"
    folder.mkdir(parents=True, exist_ok=True)
    for name, own in values.items():
        counts = pa.array([1] * len(own), pa.int64())
        Vocabulary(pa.array(own, pa.int64()), counts).save(folder, name)


def begin(data, root, source, *overrides):
    spec = parse_spec(
        small_document(data), [INLINE, SHORT, STILL, f"train.init_from={source}", *overrides]
    )
    return distrain.fit(spec, run_dir=root).summary


def tables_of(run):
    saved = load_model(run / "model").model
    tables = {name: saved.embeddings.table(name) for name in CATEGORICAL}
    return tables, saved.dense.state_dict()


@pytest.mark.parametrize("source", ["", "checkpoints/step-0000000003-a1"])
def test_a_run_begins_with_what_another_ended_with(today, model_run, tmp_path, source):
    summary = begin(today, tmp_path / "run", model_run / source, "train.seed=5")
    tables, dense = tables_of(tmp_path / "run")
    wanted_tables, wanted_dense = tables_of(model_run)
    assert all(torch.equal(tables[name], wanted_tables[name]) for name in CATEGORICAL)
    assert all(torch.equal(dense[name], wanted_dense[name]) for name in wanted_dense)
    told = summary.warm_start
    assert told["step"] == 3
    assert told["tables"]["C5"]["by"] == "id"
    assert told["tables"]["C5"]["matched"] == CARDINALITIES["C5"]
    assert told["left"] == []
    document = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert document["warm_start"]["path"].startswith(str(model_run))


def test_another_share_of_negatives_is_a_problem(today, tmp_path, wording):
    some, path = "data.negatives=0.5", tmp_path / "some" / "checkpoints"
    spec = parse_spec(small_document(today), [INLINE, SHORT, some, "checkpoint.at_end=true"])
    distrain.fit(spec, run_dir=tmp_path / "some")
    wording.refused(SpecError, lambda: begin(today, tmp_path / "all", path))
    summary = begin(today, tmp_path / "lax", path, "train.init_strict=false")
    assert [text.partition(":")[0] for text in summary.warm_start["left"]] == [
        "data.negatives was 0.5 and is 1"
    ]
    assert begin(today, tmp_path / "same", path, some).warm_start["left"] == []


def test_a_resumed_run_keeps_its_own_weights(today, model_run, tmp_path):
    overrides = (INLINE, SHORT, f"train.init_from={model_run}")
    spec = parse_spec(small_document(today), overrides)
    distrain.fit(spec, run_dir=tmp_path / "run")
    before, _ = tables_of(tmp_path / "run")
    job_id, spec, resumed = find_run(tmp_path / "run", ["train.max_steps=4", STILL])
    spec = spec.model_copy(
        update={"train": spec.train.model_copy(update={"init_from": str(tmp_path / "gone")})}
    )
    with pytest.raises(SpecError, match="optimizer"):  # the spec that it was trained with
        train(RunRequest(spec, tmp_path / "run", job_id, resumed=resumed), LoggedProgress())
    job_id, spec, resumed = find_run(
        tmp_path / "run", ["train.max_steps=4", f"train.init_from={tmp_path / 'gone'}"]
    )
    summary = train(RunRequest(spec, tmp_path / "run", job_id, resumed=resumed), LoggedProgress())
    assert (summary.steps, summary.attempts) == (4, 2)
    assert summary.warm_start["path"] == str(model_run / "model"), "of the first attempt"
    after, _ = tables_of(tmp_path / "run")
    moved = {name: (before[name] != after[name]).any(dim=1).float().mean() for name in CATEGORICAL}
    assert moved["C26"] < 0.9, "rows that were not looked up are those that it had"


@pytest.mark.slow
@pytest.mark.release
def test_tasks_are_resumed_and_taken_over_by_their_names(today, tmp_path):
    tasks = {"first": {"target": "label"}, "other": {"target": "I1", "kind": "regression"}}
    document = small_document(today) | {
        "model": {"kind": "mlp", "embedding_dim": 4, "hidden": [8], "tasks": tasks}
    }
    spec = parse_spec(document, [INLINE, SHORT, "train.max_steps=2"])
    distrain.fit(parse_spec(document, [INLINE, SHORT]), run_dir=tmp_path / "whole")
    distrain.fit(spec, run_dir=tmp_path / "run")
    job_id, spec, resumed = find_run(tmp_path / "run", ["train.max_steps=3"])
    train(RunRequest(spec, tmp_path / "run", job_id, resumed=resumed), LoggedProgress())
    document["model"]["tasks"] = dict(reversed(tasks.items()))
    begun = parse_spec(document, [INLINE, SHORT, STILL, f"train.init_from={tmp_path / 'run'}"])
    assert distrain.fit(begun, run_dir=tmp_path / "begun").summary.warm_start["left"] == []
    by_task = []
    for name in ("whole", "run", "begun"):
        model = load_model(tmp_path / name / "model").model
        dense = model.dense.state_dict(prefix="dense.")
        by_task.append({name_by_task(model.task, key): value for key, value in dense.items()})
    whole, *others = by_task
    assert any(".first." in name for name in whole)
    for other in others:
        assert other.keys() == whole.keys()
        assert all(torch.equal(other[name], value) for name, value in whole.items())


WIDER = "model={kind: mlp, embedding_dim: 4, hidden: [8]}"


def test_all_that_does_not_fit_is_told_before_a_run_begins(today, model_run, tmp_path):
    with pytest.raises(SpecError) as caught:
        begin(today, tmp_path / "run", model_run, WIDER, "model.embedding_dim=2")
    told = str(caught.value)
    assert told.count("its embeddings had the width 4 and have 2") == len(CATEGORICAL)
    assert "dense.body" in told
    assert "train.init_strict" in told
    assert not (tmp_path / "run").exists()


def test_not_strict_takes_what_fits(today, model_run, tmp_path):
    summary = begin(today, tmp_path / "run", model_run, WIDER, "train.init_strict=false")
    assert any(text.startswith("dense.") for text in summary.warm_start["left"])
    tables, _ = tables_of(tmp_path / "run")
    wanted, _ = tables_of(model_run)
    assert all(torch.equal(tables[name], wanted[name]) for name in CATEGORICAL)


def test_what_is_no_weights_is_told_by_the_preflight(today, tmp_path, wording):
    for source in (tmp_path / "nowhere", today):
        spec = make_spec(today, f"train.init_from={source}")
        wording.refused(SpecError, partial(JobChecks(spec).run))


def test_a_run_without_a_model_names_its_checkpoints(today, model_run, tmp_path, wording):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "spec.yaml").write_text((model_run / "spec.yaml").read_text())
    caught = wording.refused(
        SpecError, lambda: JobChecks(make_spec(today, f"train.init_from={tmp_path / 'run'}")).run()
    )
    assert str(tmp_path / "run" / "checkpoints") in caught.hint

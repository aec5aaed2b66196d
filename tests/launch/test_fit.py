"""`distrain.fit`: whole runs from Python, with a model of the caller's own."""

import json
import logging
import os
import random
import re
import signal
import sys
import threading
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from small_jobs import make_spec, small_document

import distrain
from distrain import Dataset, Loader
from distrain.errors import ClusterError, JobError, SpecError
from distrain.jobs.job_view import JobView, Record
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.states import JobState
from distrain.launch.notebook import NotebookProgress, default_progress
from distrain.launch.reporting import LoggedProgress
from distrain.metrics import Metric
from distrain.models import Blueprint, Embeddings, InputBlock
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.custom import PACKAGES_VARIABLE
from distrain.models.heads.tasks import BinaryClassificationTask

pytestmark = pytest.mark.usefixtures("undrawn")

INLINE = {"resources": {"backend": "inline", "num_ranks": 1, "device": "cpu"}}


def tiny(schema, width=4):
    inputs = InputBlock(schema, Embeddings(width))
    return Blueprint(inputs, MLPBlock([width], "tanh"), BinaryClassificationTask())


@pytest.fixture(scope="module")
def run(prepared, tmp_path_factory):
    """A run that only tests look at which leave it as it is."""
    return distrain.fit(
        small_document(prepared) | INLINE,
        run_dir=tmp_path_factory.mktemp("runs") / "run",
        overrides={"train.max_steps": 10, "checkpoint.keep": 1},
    )


def test_a_run_has_its_history_as_a_table_and_scores_other_rows(run, prepared, tmp_path):
    assert (run.summary.state, run.summary.steps) == ("succeeded", 10)
    assert json.loads((run.run_dir / "summary.json").read_text())["steps"] == 10
    assert {path.name for path in run.run_dir.iterdir()} == {
        "run.json", "spec.yaml", "records", "summary.json", "checkpoints", "model", "tables.zip",
    }  # fmt: skip
    assert {path.name for path in (run.run_dir / "model").iterdir()} == {
        "weights.safetensors", "model.json", "schema.pbtxt",
    }  # fmt: skip
    assert run.summary.rows == run.history["rows"][:2].sum() == 10 * 200
    assert run.load_model().spec.kind == "mlp"
    with pytest.raises(distrain.DistrainError):
        distrain.Run(tmp_path)
    history = run.history
    assert history["split"].tolist() == ["train", "train", "valid"]
    assert history["step"].tolist() == [5, 10, 10]
    assert history.loc[2, "auc"] == run.summary.auc
    assert history.loc[0, "lr"] == 0.02
    found = run.evaluate(prepared / "valid")
    assert found.rows == 3_500
    assert found.auc == pytest.approx(run.summary.auc, abs=2 * run.summary.auc_bound)
    some = pq.read_table(prepared / "valid").to_pandas().iloc[[7, 3]]
    assert run.predict(some).index.tolist() == [7, 3]
    named = some.assign(row_number=[90, 91], file="mine")
    kept = run.predict(named, keep=["row_number", "file"])
    assert kept[["row_number", "file"]].equals(named[["row_number", "file"]])
    with pytest.raises(distrain.DistrainError):
        run.predict(some, keep=["nothing"])
    again = distrain.Run(run.run_dir)
    assert (repr(again), again.summary) == (repr(run), run.summary)


class Accuracy(Metric):
    rows = right = 0

    def update(self, logits, labels):
        self.rows += len(labels)
        self.right += int(((logits > 0) == (labels > 0.5)).sum())

    def merge(self, other):
        self.rows, self.right = self.rows + other.rows, self.right + other.right

    def compute(self):
        return self.right / self.rows


def made(method, body):
    """`Accuracy` with another method."""
    return type("Accuracy", (Accuracy,), {method: body})


def keeps_an_array(self, logits, labels):
    self.rows, self.seen = 1, labels


class Careless(Metric):
    """Changes what it is given, and computes no number."""

    def update(self, logits, labels):
        logits.fill(0)
        labels.fill(1)

    def merge(self, other):
        pass

    def compute(self):
        return float("nan")


@pytest.mark.slow
def test_scores_reported_after_a_refit_are_those_of_the_validation_that_chose_it(
    prepared, tmp_path
):
    lines = []
    run = distrain.fit(
        small_document(prepared) | INLINE,
        overrides={
            "train.refit": True,
            "train.epochs": 2,
            "train.log_every_steps": 1,
            "evaluate.every_steps": 6,
            "checkpoint.keep_best": "log_loss",
        },
        run_dir=tmp_path / "run",
        progress=LoggedProgress(lines.append),
    )
    first = run.summary.refit["step"]
    history = run.history
    assert history["is_refit"].tolist() == (history["step"] > first).tolist()
    assert history["is_refit"].any()
    last_step = next(line for line in reversed(lines) if line.startswith("step "))
    assert "AUC" not in last_step
    scored = [line for line in lines if f"AUC {run.summary.auc:.4f}" in line]
    assert scored[-1] == lines[-2]


def test_metrics_of_ones_own_are_in_the_records_and_cannot_harm_each_other(prepared, tmp_path):
    run = distrain.fit(
        small_document(prepared) | INLINE,
        overrides={"train.max_steps": np.int64(4), "evaluate.every_steps": 2},
        run_dir=tmp_path / "run",
        metrics={"careless": Careless, "accuracy": Accuracy},
    )
    values = [record.own["accuracy"] for record in run.records if record.split == "valid"]
    assert len(values) == 2
    assert run.history["accuracy"].dropna().tolist() == values
    assert run.records[-1].own["careless"] is None
    saved, labels, right = run.load_model(), [], 0
    with Loader(Dataset(prepared / "valid", saved.schema), batch_size=500) as loader:
        for batch in loader:
            labels += batch.label.tolist()
            with torch.no_grad():
                right += int(((saved.model(batch) > 0) == (batch.label > 0.5)).sum())
    assert values[-1] == right / len(labels)


def fails_on_the_third_batch(self, logits, labels):
    self.rows += 1
    if self.rows == 3:
        raise ValueError("three")


def test_what_cannot_serve_is_refused_before_the_first_step(prepared, tmp_path, wording):
    document, root = small_document(prepared) | INLINE, tmp_path / "run"
    for arguments in (
        {"metrics": {"mine": len}},
        {"metrics": {"mine": dict}},
        {"metrics": {"mine": made("update", keeps_an_array)}},
        {"metrics": {"mine": made("compute", lambda self: "high")}},
        {"metrics": {"mine": made("merge", lambda self: None)}},
        {"metrics": {"rows": Accuracy}},
        {"metrics": {"one": Accuracy, "two": made("compute", len)}},
        {"overrides": {"data.train": {1}}},
        {"overrides": ["train.epochs=3"]},
        {"model_fn": tiny},
        {"metrics": {"recall_at_10": Accuracy}},
    ):
        with pytest.raises(SpecError) as refused:
            distrain.fit(document, run_dir=root, **arguments)
        wording(re.sub(r"\.py:\d+", ".py:LINE", str(refused.value)))
        assert not root.exists(), arguments
    with pytest.raises(distrain.DistrainError):
        distrain.fit(document, run_dir=root, options={"width": 3})


def test_an_error_of_a_metric_in_training_names_the_metric_and_its_line(prepared, tmp_path):
    with pytest.raises(JobError) as failed:
        distrain.fit(
            small_document(prepared) | INLINE,
            run_dir=tmp_path / "run",
            overrides={"train.max_steps": 2},
            metrics={"mine": made("update", fails_on_the_third_batch)},
        )
    assert "'mine'" in str(failed.value)
    assert "in fails_on_the_third_batch" in str(failed.value)


def test_a_run_is_resumed_or_replaced(prepared, tmp_path):
    document, root = small_document(prepared) | INLINE, tmp_path / "run"
    short = {"train.max_steps": 4}
    first = distrain.fit(document, overrides=short, run_dir=root)
    for data, arguments in ((document, {"run_dir": root}), (None, {"resume": first})):
        with pytest.raises(distrain.DistrainError):
            distrain.fit(data, **arguments)
    with pytest.raises(SpecError):
        distrain.fit(resume=first, model_fn=tiny, overrides={"train.max_steps": 20})
    longer = distrain.fit(resume=first, overrides={"train.max_steps": 6})
    assert (longer.summary.steps, longer.summary.attempts) == (6, 2)
    bad = {"data.train": str(tmp_path / "nowhere")}
    with pytest.raises(distrain.DistrainError):
        distrain.fit(document, overrides=bad, run_dir=root, overwrite=True)
    assert distrain.Run(root).summary == longer.summary, "a job that cannot start replaces nothing"
    window = RunPaths(root).window_model(1)
    window.mkdir(parents=True)
    new = distrain.fit(document, overrides=short, run_dir=root, overwrite=True)
    assert not window.exists(), "models of the old run's windows go with it"
    assert (new.summary.steps, new.summary.attempts) == (4, 1)
    assert new.summary.job_id != first.summary.job_id


def test_a_callback_sees_each_record_and_its_error_ends_the_job(prepared, tmp_path):
    seen = []

    class Pruned(Exception):
        pass

    def prune(record):
        seen.append((record.split, record.step))
        if record.step == 10:
            raise Pruned

    document = small_document(prepared) | INLINE
    with pytest.raises(Pruned):
        distrain.fit(document, run_dir=tmp_path / "run", callbacks=[prune])
    assert seen == [("train", 5), ("train", 10)]
    assert not (tmp_path / "run" / "model").exists()


@pytest.mark.parametrize("scheduler", [7, "nowhere://127.0.0.1:1"])
def test_what_is_no_cluster_is_refused_in_words(prepared, tmp_path, scheduler):
    with pytest.raises(ClusterError) as refused:
        distrain.fit(small_document(prepared), run_dir=tmp_path / "run", scheduler=scheduler)
    assert str(scheduler) in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_a_model_that_only_this_process_has_is_told_of_before_it_trains(prepared, tmp_path, caplog):
    document = {k: v for k, v in small_document(prepared).items() if k != "model"}
    code = "def own(schema):\n    raise RuntimeError('called')\n"
    namespace = {"__name__": "__main__"}
    exec(code, namespace)
    own = namespace["own"]
    with pytest.raises(SpecError):
        distrain.fit(document, model_fn=own, run_dir=tmp_path / "run")
    with caplog.at_level("INFO", "distrain"), pytest.raises(SpecError, match="called"):
        distrain.fit(document | INLINE, model_fn=own, run_dir=tmp_path / "run")
    assert "evaluate, predict and export" in " ".join(caplog.text.split())


def process_state():
    """All of this process that training may touch, as values that compare."""
    handled = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
    return {
        "random": random.getstate(),
        "NumPy": [
            part if isinstance(part, str | int | float) else part.tolist()
            for part in np.random.get_state()
        ],
        "torch": torch.get_rng_state().tolist(),
        "seed": torch.initial_seed(),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "fills": torch.utils.deterministic.fill_uninitialized_memory,  # type: ignore[attr-defined]
        "matmul": torch.get_float32_matmul_precision(),
        "gradients": torch.is_grad_enabled(),
        # torch notes there, once a process, where its compiler keeps files.
        "environment": {k: v for k, v in os.environ.items() if k != "TORCHINDUCTOR_CACHE_DIR"},
        "signals": [signal.getsignal(number) for number in handled],
        "folder": os.getcwd(),
        "log handlers": list(logging.getLogger().handlers),
        "own threads": sorted(t.name for t in threading.enumerate() if not t.daemon),
    }


class Interrupting(LoggedProgress):
    def show(self, view):
        if view.progress:
            raise KeyboardInterrupt


def test_inline_training_leaves_the_process_of_its_caller_as_it_was(prepared, tmp_path):
    """Its bits do not depend on that process, and its caller's draws not on it."""
    document = small_document(prepared) | INLINE
    threads = torch.get_num_threads()
    weights = []
    try:
        for trial in range(2):
            random.seed(trial), np.random.seed(trial), torch.manual_seed(trial)
            torch.set_num_threads(2 + trial)
            before = process_state()
            run = distrain.fit(document, run_dir=tmp_path / str(trial))
            assert process_state() == before
            weights.append(run.load_model().model.state_dict())

        before = process_state()
        diverging = {"train": {"max_steps": 5, "optimizer": {"kind": "sgd", "lr": 1e30}}}
        with pytest.raises(JobError):
            distrain.fit(document | diverging, run_dir=tmp_path / "diverging")
        assert process_state() == before
        with pytest.raises(KeyboardInterrupt):
            distrain.fit(document, run_dir=tmp_path / "stopped", progress=Interrupting())
        assert process_state() == before
    finally:
        torch.set_num_threads(threads)
    first, second = weights
    assert all(torch.equal(first[name], second[name]) for name in first)


class Finalised:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)


class InterruptedInFinaliser(LoggedProgress):
    def show(self, view):
        if view.progress:
            Finalised()
            threading.Event().wait(60)


def test_an_interrupt_that_a_finaliser_swallows_ends_training_all_the_same(prepared, tmp_path):
    document = small_document(prepared) | INLINE
    with pytest.raises(KeyboardInterrupt):
        distrain.fit(document, run_dir=tmp_path / "run", progress=InterruptedInFinaliser())
    assert not (tmp_path / "run" / "model").exists()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


class Broken:
    def open(self, facts):
        raise ConnectionError("nobody there")


def test_a_sink_that_fails_costs_its_own_entries_alone(prepared, tmp_path, caplog):
    document = small_document(prepared) | INLINE
    hardly = {"train.max_steps": 1, "train.optimizer": {"kind": "sgd", "lr": 1e-6}}
    with caplog.at_level("INFO", "distrain"):
        run = distrain.fit(document, run_dir=tmp_path / "r", overrides=hardly, sinks=[Broken()])
    assert run.summary.state == "succeeded"
    assert any("Broken" in text and "nobody there" in text for text in caplog.messages)
    # The model is worse than a constant, of which the run's end warns.
    assert run.summary.normalised_entropy > 1
    warning = f"{run.summary.normalised_entropy:.5f}"
    assert any(text.startswith("warning: ") and warning in text for text in caplog.messages)


def test_any_function_may_make_the_model_inline(prepared, tmp_path):
    document = {k: v for k, v in (small_document(prepared) | INLINE).items() if k != "model"}
    del document["name"]

    def near(schema, width):
        return tiny(schema, width)

    near.__module__ = "__main__"  # as in a notebook
    root, few = tmp_path / "mine", {"train.max_steps": 4}
    run = distrain.fit(document, overrides=few, model_fn=near, options={"width": 3}, run_dir=root)
    assert run.summary.job_id.startswith("mine-"), "a job without a name is called as its folder"
    assert run.load_model().model.dense.body.widths == (3,)
    with pytest.raises(SpecError) as refused:
        distrain.Run(root).load_model()
    assert "distrain.Run(run_dir, model_fn=...)" in refused.value.hint
    assert distrain.Run(root, model_fn=near).load_model().model.dense.body.widths == (3,)
    longer = distrain.fit(resume=run, overrides={"train.max_steps": 6})
    assert (longer.summary.steps, longer.model_fn) == (6, near)


@pytest.mark.slow
def test_a_clients_cluster_trains_with_callbacks_and_metrics_and_stays(
    prepared, tmp_path, monkeypatch
):
    """Two runs: one to its end, and one that a callback ends, whose workers are free again."""
    from distributed import Client, LocalCluster

    (tmp_path / "our_metrics.py").write_text(
        "from distrain.metrics import Metric\n"
        "class Rows(Metric):\n"
        "    rows = 0\n"
        "    def update(self, logits, labels):\n"
        "        self.rows += len(labels)\n"
        "    def merge(self, other):\n"
        "        self.rows += other.rows\n"
        "    def compute(self):\n"
        "        return float(self.rows)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv(PACKAGES_VARIABLE, "our_metrics")
    import our_metrics  # type: ignore[import-not-found]

    def stop(record):
        raise KeyError("enough")

    workers = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    spec, seen = make_spec(prepared), {"seen": our_metrics.Rows}
    with LocalCluster(host="127.0.0.1", **workers) as cluster, Client(cluster) as client:
        with pytest.raises(KeyError, match="enough"):
            distrain.fit(spec, run_dir=tmp_path / "a", scheduler=cluster, callbacks=[stop])
        run = distrain.fit(spec, run_dir=tmp_path / "b", scheduler=client, metrics=seen)
        assert client.status == "running"
    assert run.history["seen"].dropna().tolist() == [3_500.0]
    assert run.summary.num_ranks == 2


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

    spec = {k: v for k, v in small_document(prepared).items() if k != "model"}
    with pytest.raises(distrain.DistrainError):
        distrain.fit(spec, model_fn=our_models.tiny, options={"width": 3}, run_dir=tmp_path / "no")
    monkeypatch.setenv(PACKAGES_VARIABLE, "our_models")
    run = distrain.fit(
        spec, model_fn=our_models.tiny, options={"width": 3}, run_dir=tmp_path / "yes"
    )
    assert run.summary.state == "succeeded"
    assert run.load_model().model.dense.body.widths == (3,)


def test_a_notebook_shows_what_a_job_waits_for_and_no_markup_of_others(monkeypatch):
    display = pytest.importorskip("IPython.display", reason="the extra 'dev' is not installed")
    shown = Mock()
    monkeypatch.setattr(display, "display", lambda html, **_: (shown.update(html), shown)[1])
    progress = NotebookProgress()
    why = "needs 4 workers, the cluster has <2>"
    progress.show(JobView("a-1", "a", JobState.PENDING, 1, 4, why_pending=why))
    waits = shown.update.call_args.args[0].data
    assert "the cluster has &lt;2&gt;" in waits
    assert "<img" not in waits
    records = tuple(
        Record("train", 0, step, 5, 5, 1.0, 9.0, 1 / step, 0.9, 0.75, 1e-4) for step in (5, 10)
    )
    progress.show(JobView("a-1", "a", JobState.SUCCEEDED, 1, 4, num_steps=10, progress=records))
    ended = shown.update.call_args.args[0].data
    assert '<progress value="10" max="10">' in ended
    assert ended.count("data:image/svg+xml") == 1


def test_elsewhere_progress_is_lines_on_a_terminal_or_in_the_log(monkeypatch, caplog, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    default_progress().say("on a terminal")
    assert capsys.readouterr().err == "on a terminal\n"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    with caplog.at_level("INFO", "distrain"):
        default_progress().say("in the log")
    assert caplog.messages == ["in the log"]
    assert capsys.readouterr().err == ""


def test_a_resumed_run_shows_no_other_validation_as_that_of_its_model():
    lines = []
    reporter = LoggedProgress(lines.append)
    later = Record("valid", 0, 120, 10, 100, 1.0, None, 0.5, None, 0.75, None)
    ended = JobView(
        *("a", "a", JobState.SUCCEEDED, 2, 1),
        progress=(later,),
        refit={"step": 120, "num_steps": 160},
        model_step=40,
    )
    reporter.show(ended)
    assert [line for line in lines if "before the refit" in line] == []
    reporter.show(replace(ended, model_step=120))
    assert any("step 120, before the refit" in line for line in lines)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"label": "y"}, "target="),
        ({"epochs": 3}, "train.epochs"),
        ({"lr": 3}, "train.optimizer.lr"),
        ({"optimizer": "adam"}, "train.optimizer.kind"),
        ({"kind": "dlrm"}, "model="),
        ({"nonsense": 3}, "nonsense"),
    ],
)
def test_an_argument_of_another_name_is_a_type_error_with_the_own_name(given, meant):
    with pytest.raises(TypeError, match=meant):
        distrain.fit("rows.csv", **given)


@pytest.mark.parametrize("is_configured", [False, True])
def test_progress_is_printed_unless_logging_is_configured(
    monkeypatch, capsys, caplog, is_configured
):
    caplog.set_level("INFO", logger="distrain")
    monkeypatch.setattr(logging.Logger, "hasHandlers", lambda _: is_configured)
    default_progress().say("inferring the columns")
    assert (capsys.readouterr().err == "", caplog.messages == []) == (
        is_configured,
        not is_configured,
    )

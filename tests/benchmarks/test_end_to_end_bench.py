"""The benchmark from parquet to a trained model: its rows, jobs, figures and what it watches."""

import json
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from benchmarks.end_to_end_bench import notebooks, result, rows, syncs, watching
from distrain.jobs.events import EvaluationDone, RankFinished, StepsDone, TrainingStarted
from distrain.jobs.spec import parse_spec
from distrain.metrics import BinaryMetrics

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
MADE = {"rows": 50_000_000, "valid_rows": 5, "table_rows": 9, "bayes_auc": 0.8, "size_bytes": 7}


def test_files_hold_the_rows_that_were_asked_for_and_no_group_twice(tmp_path):
    full = 16 * 65_536
    files = rows.files_of(tmp_path, "train", 2 * full + 20_000)
    assert [file.rows for file in files] == [full, full, 20_000]
    assert [file.first_group for file in files] == [0, 16, 32]
    (tmp_path / "train").mkdir()
    size = rows.write_file(files[2], scale=0.001)
    written = pq.ParquetFile(files[2].path)
    assert written.metadata.num_rows == 20_000
    assert size == files[2].path.stat().st_size
    schema = rows.write_schema(tmp_path, 0.001)
    table = written.read()
    for column in schema.categorical:
        assert table[column.name].to_numpy().min() >= 0
        assert table[column.name].to_numpy().max() < column.cardinality
    assert all(not field.nullable for field in table.schema)
    assert 0.01 < table["label"].to_numpy().mean() < 0.06
    assert rows.bayes_auc(files[2], 0.001) > 0.7


def test_all_jobs_are_ones_that_distrain_takes():
    made = rows.Made(Path("/data"), **MADE)
    for device in ("cuda", "cpu"):
        for way in notebooks.ways(device, quick=False):
            for notebook in notebooks.NOTEBOOKS:
                spec = parse_spec(notebooks.job_document(notebook, way, made, device, 3))
                assert spec.evaluate.every_steps == -(-made.rows // notebook.batch_rows)
                graphs = {"graph": True, "default": "auto"}
                told = False if device == "cuda" else "auto"
                assert spec.train.cuda_graph == graphs.get(way.name.split(",")[0], told)
                assert spec.train.compile == way.name.startswith("compiled")
                assert spec.train.precision in way.name or way.name == "default"
    without = notebooks.Way("another", needs=("json", "no_such_package"))
    assert without.lacks == ["no_such_package"]
    names = {notebook.source for notebook in notebooks.NOTEBOOKS}
    assert len(names) == 2


def steps_done(step, **seconds):
    device = {"data_wait": seconds["data_wait"] / 10}
    return StepsDone(0, 0, step, 0.0, seconds, {}, 0.1, device_seconds=device)


def evaluation(step):
    metrics = BinaryMetrics()
    logits, labels = torch.tensor([2.0, -1.0, 1.0]).numpy(), torch.tensor([1, 0, 0]).numpy()
    metrics.update(logits, labels)
    return EvaluationDone(0, 0, step, 0.0, metrics.to_json())


def watched(monkeypatch, trace=None):
    """What a watcher makes of two epochs of two reports, each of which takes a second."""
    now = iter(range(100))
    monkeypatch.setattr("time.perf_counter", lambda: float(next(now)))
    watcher = watching.Watcher(2, cuda=False, trace=trace)
    watcher.take(TrainingStarted(0, 8, 40, 80, 9, "arrow"))
    for step in (2, 4):
        watcher.take(steps_done(step, data_wait=0.5, forward_backward=0.25))
        torch.ones(3).add_(1)
    watcher.take(evaluation(4))
    for step in (6, 8):
        watcher.take(steps_done(step, data_wait=0.25, forward_backward=0.5))
    watcher.take(evaluation(8))
    watcher.take(RankFinished(0, 8, 80, 9.0, {}, 0.5, {}, {}, {"data_wait": 0.1}, {}))
    return watcher


def run_of(watcher, notebook):
    account = {
        "epochs": watcher.epochs,
        "device_seconds": watcher.finished.device_seconds,
        "host_syncs_per_step": 0.0,
    }
    return result.Run(notebook, "eager, fp32", account, wall_s=20.0)


def test_epochs_are_told_apart_and_counted_as_each_notebook_counts(monkeypatch):
    watcher = watched(monkeypatch)
    assert [epoch["rows"] for epoch in watcher.epochs] == [40, 40]
    last = watcher.epochs[-1]
    assert (last["valid_rows"], last["auc"]) == (3, 1.0)
    assert last["average_precision"] == pytest.approx(1.0)
    assert last["phases_s"]["host"] == {"data_wait": 0.5, "forward_backward": 1.0}
    assert (last["train_s"], last["whole_s"]) == (2.0, 3.0)
    tensorflow, fastai = (run_of(watcher, n) for n in notebooks.NOTEBOOKS)
    assert tensorflow.rows_per_s == 40 / 2.0
    assert fastai.rows_per_s == (40 + 3) / 3.0
    # The GPU's clock: the host waits for rows while the GPU still works.
    assert fastai.waiting_share == pytest.approx(0.05 / 2.0)


def test_a_profile_of_some_steps_is_written(monkeypatch, tmp_path):
    trace = tmp_path / "slowest.json.gz"
    watched(monkeypatch, trace)
    assert trace.read_bytes()[:2] == b"\x1f\x8b"
    table = (tmp_path / "slowest.md").read_text()
    assert "2 steps" in table
    assert "| what | calls a step | ms a step | share |" in table


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_goals_are_met_on_a_gpu_only(monkeypatch, device):
    run = run_of(watched(monkeypatch), notebooks.NOTEBOOKS[0])
    figures = result.figures([run], device)
    assert figures["tensorflow_rows_per_s"]["met"] is False
    assert figures["tensorflow_waiting_share"]["met"] is (device == "cuda")
    assert figures["tensorflow_host_syncs_per_step"]["met"] is (device == "cuda")
    assert figures["fastai_rows_per_s"]["why"] == ("not measured" if device == "cuda" else "no GPU")


class Trainer:
    def _one_step(self, waits):
        waits()


def test_waits_are_told_apart_by_who_waits(monkeypatch):
    def set_mode(mode):  # as torch does, at its first call
        if mode == "warn":
            warnings.warn("Synchronization debug mode ... all synchronizing", stacklevel=1)

    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", set_mode)
    monkeypatch.setattr(syncs, "STEP", (Path(__file__).name, "_one_step"))
    counter = syncs.SyncCounter()

    def wait():
        warnings.warn("called a synchronizing CUDA operation", stacklevel=1)

    wait_beside = threading.Thread(target=wait)
    counter.begin()
    for _ in range(3):
        Trainer()._one_step(wait)
    wait()
    warnings.warn("something else", stacklevel=1)
    wait_beside.start()
    wait_beside.join()
    counter.end()
    assert counter.of_steps.total() == 3
    assert counter.of_reports.total() == 1
    assert counter.of_others.total() == 1


@pytest.mark.slow
def test_the_whole_script_on_a_cpu(tmp_path):
    script = [sys.executable, BENCHMARKS / "end_to_end.py", "--quick", "--device", "cpu"]
    done = subprocess.run(
        [*script, "--rows", "70000", "--only", "tensorflow", "--out", tmp_path],
        capture_output=True,
        text=True,
        check=True,
    )
    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["met"], last["why"], last["failed"]) == (False, "no GPU", {})
    assert last["figures"]["tensorflow_rows_per_s"]["value"] > 0
    (run,) = json.loads((tmp_path / "end_to_end.json").read_text())["runs"]
    assert [epoch["rows"] for epoch in run["epochs"]] == [70_000, 70_000]
    assert run["model_bytes"] > 0
    assert (tmp_path / "slowest.md").exists()

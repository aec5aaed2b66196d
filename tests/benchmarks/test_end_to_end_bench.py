"""What `end_to_end.py` needs on a GPU at the first try: its jobs, and who waits for the device."""

import threading
import warnings
from pathlib import Path

import torch

from benchmarks.end_to_end_bench import notebooks, rows, syncs
from distrain.jobs.spec import parse_spec

MADE = {"rows": 50_000_000, "valid_rows": 5, "table_rows": 9, "bayes_auc": 0.8, "size_bytes": 7}


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

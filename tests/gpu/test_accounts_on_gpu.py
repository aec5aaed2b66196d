"""What a GPU's time and memory went to."""

import json
from pathlib import Path

import pytest
import torch
from small_jobs import make_spec

from distrain.jobs.events import PHASES
from distrain.jobs.job_view import JobView
from distrain.jobs.run_paths import RunPaths
from distrain.launch.inline import run_inline
from distrain.launch.job_handle import raise_for_state
from distrain.runs.attempts import read_records
from distrain.runs.finish_run import finish_run
from distrain.train.timing.phases import PhaseClock, device_clock

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no NVIDIA GPU"),
]


def train(prepared: Path, root: Path) -> JobView:
    spec = make_spec(
        prepared,
        "resources={backend: inline, num_ranks: 1, device: cuda}",
        "train={global_batch_size: 500, epochs: 2, log_every_steps: 5, cuda_graph: false}",
    )
    view = run_inline(spec, root, "job", lambda _: None)
    raise_for_state(view)
    finish_run(RunPaths(root), view, 1)
    return view


def test_a_run_tells_the_gpus_time_and_memory(prepared: Path, tmp_path: Path) -> None:
    view = train(prepared, tmp_path / "run")
    (seconds,) = view.rank_device_seconds
    assert set(seconds) <= set(PHASES)
    assert min(seconds[name] for name in ("forward_backward", "exchange", "optimizer")) > 0
    # Spans of one stream do not overlap, and the host began before them.
    assert sum(seconds.values()) <= 1.05 * sum(view.rank_seconds[0].values())
    assert view.rank_peak_memory[0]["device_bytes"] > 0
    lines = [json.dumps(one.to_json()) for one in read_records(RunPaths(tmp_path / "run"))]
    windows = [json.loads(line)["device_seconds"] for line in lines]
    told = sum((window or {}).get("optimizer", 0.0) for window in windows)
    assert 0 < told <= seconds["optimizer"] + 1e-6


def test_a_phase_lasts_as_long_as_the_gpu_works_on_it() -> None:
    device = torch.device("cuda", 0)
    clock = PhaseClock(device_clock(device))
    matrix = torch.randn(4096, 4096, device=device)
    torch.cuda.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    with clock.phase("forward_backward"):
        for _ in range(20):
            matrix = matrix @ matrix
    end.record()
    told = clock.device_lap(wait=True)
    end.synchronize()
    assert told["forward_backward"] == pytest.approx(begin.elapsed_time(end) / 1000, rel=0.05)

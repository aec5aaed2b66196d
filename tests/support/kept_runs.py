"""Run directories as commands leave them, without training."""

from distrain.jobs.events import PHASES
from distrain.jobs.spec import parse_spec
from distrain.jobs.states import JobState
from distrain.jobs.view import Checkpoints, JobView, Record, Restart
from distrain.runs.recorder import open_run

LOST = Restart(1, "RankDied", "rank 1 was killed by <SIGKILL>\nits last words: none", 60, 12.0)
RELIABILITY = {"predicted": [0.1, 0.3, 0.6], "observed": [0.12, 0.28, 0.7], "rows": [400, 400, 200]}


def spec_of(**train):
    return parse_spec(
        {"data": {"train": "day_0", "valid": "day_1"}, "model": {"kind": "mlp"}, "name": "clicks",
         "train": train, "resources": {"num_ranks": 2}}
    )  # fmt: skip


def record_of(step, split="train"):
    train = split == "train"
    seconds = {**dict.fromkeys(PHASES, 0.0), "data_wait": 1.0, "forward_backward": 3.0}
    seconds["checkpoint"] = 0.5 if step % 40 == 0 else 0.0
    return Record(
        split, 0, step, 1000, 100 * step, step / 2, 250.0 if train else None, 0.7 - step / 1000,
        0.9, 0.6 + step / 1000, 1e-3, (20.0, 30.0) if train else (), seconds if train else None,
        0.1 if train else None, reliability=None if train else RELIABILITY,
    )  # fmt: skip


def records_of(steps=100):
    train = [record_of(step) for step in range(10, steps + 1, 10)]
    return [*train, record_of(steps, "valid")]


def view_of(state=JobState.SUCCEEDED, records=(), **fields):
    return JobView("clicks-1", "clicks", state, 2, 2, progress=tuple(records), **fields)


def finished_view(records):
    rank = {"data_wait": 10.0, "forward_backward": 30.0, "evaluate": 2.0}
    return view_of(
        records=records,
        restarts=(LOST,),
        checkpoints=Checkpoints(3, 100, "runs/a/checkpoints/step-100"),
        parameters=12,
        reader="arrow: ordinary parquet",
        rank_seconds=(rank, rank),
        rank_stall_pct=(20.0, 30.0),
        rank_peak_memory=({"host_bytes": 2**30, "device_bytes": 0},) * 2,
        rank_places=(
            {"host": "alpha", "device": "cuda:0", "hardware": "GPU X"},
            {"host": "beta", "device": "cuda:1", "hardware": "GPU Y"},
        ),
    )


def keep_run(root, view, spec=None, job_id="clicks-1"):
    """Write the run directory of a job that ended; of one that still runs, without its end."""
    with open_run(root, spec or spec_of(), job_id) as recorder:
        recorder.add(view)
        if view.state.is_final:
            recorder.finish(view)
    return root

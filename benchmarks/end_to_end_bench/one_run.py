"""Runs one training in its own process: `python -m benchmarks.end_to_end_bench.one_run JSON`.

It calls `distrain.train.rank.process.run_rank`, the complete work of a rank: `backend: inline`
calls it in the caller's process, and a rank's process calls it under Dask. So the measurement needs
no Dask, and it reads the rank's own events, from which average precision is computed.
"""

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BEGAN_S = time.perf_counter()


def main() -> None:
    from benchmarks.end_to_end_bench.watching import Watcher
    from distrain.jobs.assignment import Assignment, World
    from distrain.jobs.run_paths import RunPaths
    from distrain.jobs.spec import parse_spec
    from distrain.train.rank.process import run_rank

    asked = json.loads(sys.argv[1])
    spec = parse_spec(asked["document"])
    cuda = asked["document"]["resources"]["device"] == "cuda"
    trace = Path(asked["trace"]) if asked["trace"] else None
    watcher = Watcher(asked["windows"], cuda, trace)
    run_dir = Path(tempfile.mkdtemp(dir=asked["folder"]))
    document = spec.model_dump(mode="json")
    try:
        run_rank(Assignment("bench", 1, World(), document, str(run_dir)), watcher.take)
        if watcher.failed is not None:
            print(json.dumps({"failed": watcher.failed.message}))
            return
        model_bytes = size_bytes(RunPaths(run_dir).model)
    finally:
        shutil.rmtree(run_dir, ignore_errors=True)
    print(json.dumps(account(watcher) | {"model_bytes": model_bytes}))


def size_bytes(folder: Path) -> int:
    """Return the total size of the files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def account(watcher: Any) -> dict[str, Any]:
    """Return the figures of a successful run, as JSON values."""
    done, counter = watcher.finished, watcher.counter
    steps = watcher.counted_steps
    return {
        "hardware": watcher.hardware,
        "reader": watcher.reader,
        "epochs": watcher.epochs,
        "imports_and_set_up_s": watcher.started_s - BEGAN_S,
        "set_up_s": done.setup_s,
        "all_s": watcher.ended_s - BEGAN_S,
        "seconds": dict(done.seconds),
        "device_seconds": dict(done.device_seconds),
        "loader": dict(done.loader),
        "peak_memory": dict(done.peak_memory),
        "counted_steps": steps,
        "host_syncs_per_step": counter.of_steps.total() / steps if steps else None,
        "host_syncs": {
            "of_steps": dict(counter.of_steps),
            "of_reports": dict(counter.of_reports),
            "of_other_threads": dict(counter.of_others),
        },
    }


if __name__ == "__main__":
    main()

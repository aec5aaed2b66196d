"""Run every GPU test and benchmark on this machine, and write a report.

    python benchmarks/gpu.py --out DIR [--minutes N] [--full] [--only REGEX] [--rehearse]

It needs no network. The stages, in this order, in N minutes (10):

  machine     versions, GPU, driver, host; rates of copies, of transfers to and from the GPU, and of
              matrix products
  tests       all tests marked `gpu`, a process per file, up to six at a time
  experiments possible improvements against the code as it is; only with `--only experiment`
  benchmarks  step.py in parts, end_to_end.py, loader.py, with `--quick` (`--full`: without it)
  again       failed tests again, each in its own process

Each stage has a time limit that leaves later stages their minimum. Stages that do not fit are
skipped, and the report lists them. DIR gets `gpu.json` (everything), `gpu.md` (readable), plots,
and the files that benchmarks write. The report is rewritten after each stage, so an interrupted run
keeps all finished stages. `--only` runs the stages whose names match, for a run in several pieces.

`--rehearse` does the same with tiny sizes on a CPU, to check that everything works; the report
marks its figures as not measured on a GPU. For a machine without a network, see
`benchmarks/gpu_bench/prepare.py`.

Exit codes: 0: all stages that began ran, and no test failed; 1: something failed or was stopped;
69: torch cannot use a GPU, or a package is missing. Missed goals are reported and do not change the
exit code: see `met` in the last line.
"""

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

if __name__ == "__main__":  # modules are found from the repository's root, not from this folder
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.gpu_bench.run import Runner
from benchmarks.gpu_bench.software import (
    NEEDED,
    OPTIONAL,
    driver,
    host,
    missing,
    versions,
)
from benchmarks.gpu_bench.stages import WITHOUT_GPU, Stage, stages

ROOT = Path(__file__).resolve().parent.parent

UNAVAILABLE = 69
USUAL = "^(?!experiment)"
LOOK_S = 180


def main() -> None:
    began_s = time.monotonic()
    options = parsed()
    signal.signal(signal.SIGTERM, leave)
    absent = missing(NEEDED)
    if absent:
        refuse(
            f"Missing packages: {', '.join(absent.values())}.",
            "docs/gpu-check.md says how to install them, also without a network.",
        )
    torch = look(options.rehearse)
    if not (options.rehearse or torch["available"]):
        refuse(
            f"No GPU that torch can use. Looked for: torch {torch['torch']} built for CUDA "
            f'({torch["cuda"] or "it is not"}), a GPU in it ("{torch["why_not"]}"), '
            f"nvidia-smi ({len(driver()['nvidia_smi'])} GPUs).",
            "On a machine with a GPU: `distrain doctor`, then this command again. "
            "Without one: python benchmarks/gpu.py --rehearse --out DIR",
        )
    todo = chosen(options)
    known = document(options, torch)
    Runner(ROOT, options.out, known, began_s, 60 * options.minutes).work(todo)
    told = known["conclusion"]
    print(json.dumps(told))
    sys.exit(1 if told["failed_stages"] else 0)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", metavar="DIR", type=Path, required=True, help="folder of the report"
    )
    parser.add_argument(
        "--minutes", metavar="N", type=float, default=10.0, help="time limit of the whole run"
    )
    parser.add_argument("--full", action="store_true", help="run the benchmarks without --quick")
    parser.add_argument("--only", metavar="REGEX", default=USUAL, help="stages that match")
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes, on a CPU")
    options = parser.parse_args()
    if options.minutes <= 0:
        parser.error(f"--minutes {options.minutes:g} is not above 0")
    if options.full and options.rehearse:
        parser.error("--full and --rehearse exclude each other")
    return options


def leave(number: int, frame: FrameType | None) -> None:
    """Exit on a signal in a way that runs `finally` blocks, which end started processes."""
    sys.exit(128 + number)


def refuse(what: str, hint: str) -> NoReturn:
    """Print why the run is impossible and what to do, and exit."""
    print(f"{what}\n{hint}", file=sys.stderr)
    sys.exit(UNAVAILABLE)


def look(rehearse: bool) -> dict[str, Any]:
    """Return what torch knows about the GPUs, from a separate process that releases them."""
    probe = ROOT / "benchmarks" / "gpu_bench" / "probe.py"
    command = [sys.executable, str(probe), "look"]
    environment = os.environ | (dict(WITHOUT_GPU) if rehearse else {})
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LOOK_S, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        refuse(
            f"torch did not look for a GPU within {LOOK_S} s.",
            "The driver may hang: see `nvidia-smi`.",
        )
    if done.returncode:
        refuse(f"torch cannot be used:\n{done.stderr[-2000:]}", "Install it again.")
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def chosen(options: argparse.Namespace) -> list[Stage]:
    """Return the stages that match `--only`."""
    made = stages(ROOT, options.rehearse, options.full, options.minutes)
    found = [stage for stage in made if re.search(options.only, stage.name)]
    if not found:
        names = ", ".join(stage.name for stage in made)
        sys.exit(f"--only {options.only!r} matches none of the stages: {names}")
    return found


def document(options: argparse.Namespace, torch: dict[str, Any]) -> dict[str, Any]:
    """Return the report before the first stage: options, versions, host and driver."""
    return {
        "benchmark": "gpu",
        "rehearsal": options.rehearse,
        "note": "a rehearsal on a CPU: no figure of a GPU" if options.rehearse else "",
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["python", *sys.argv]),
        "minutes": options.minutes,
        "finished": False,
        "versions": versions(),
        "missing": missing(OPTIONAL),
        "host": host(ROOT),
        "driver": driver(),
        "torch": torch,
        "stages": [],
    }


if __name__ == "__main__":
    main()

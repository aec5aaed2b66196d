"""Checks a job spec with `distrain plan`, in a process that a Dask worker starts.

The check opens files and imports packages that the spec names, so it must run neither in the
scheduler nor in the worker's own process. Meanwhile, the worker can run ranks.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from distributed import get_worker, secede

MOST_OUTPUT_BYTES = 4 * 2**20
_LAST_WORDS_BYTES = 4000
_POLL_S = 0.1

# The process's program. It is killed when the worker ends, and has a lower priority than ranks.
_PROGRAM = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the worker has ended")
os.nice(10)
from distrain.cli.main import main
main(["plan", "spec.json", "--json", "--scheduler", sys.argv[2]])
"""


def check_spec(spec_text: str, limit_s: float) -> dict[str, Any]:
    """Return the output of `distrain plan --json` for a spec; called as a Dask task.

    `spec_text` is the spec as JSON. If the check does not end within `limit_s`, prints too much or
    no result, or its task is released, the result has only the key `could_not_check`, with the
    reason.
    """
    worker = get_worker()
    key = worker.get_current_task()
    secede()  # ranks must not wait for this check

    def is_wanted() -> bool:
        task = worker.state.tasks.get(key)
        return task is not None and task.state in ("executing", "long-running")

    with TemporaryDirectory(prefix="distrain-check-") as name:
        folder = Path(name)
        (folder / "spec.json").write_text(spec_text)
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, str(os.getpid()), worker.scheduler.address],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
            try:
                why = _wait(process, folder, limit_s, is_wanted)
            finally:
                _kill(process)
        return {"could_not_check": why} if why else _answer(folder, process.returncode)


def _wait(
    process: "subprocess.Popen[bytes]", folder: Path, limit_s: float, is_wanted: Callable[[], bool]
) -> str:
    """Wait for the process; return "" when it has ended, or why it should be killed."""
    until_s = time.monotonic() + limit_s
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_S)
            return ""
        if time.monotonic() > until_s:
            return (
                f"the check did not end within {limit_s:g} s: does the storage of its files answer?"
            )
        if sum((folder / name).stat().st_size for name in ("out", "err")) > MOST_OUTPUT_BYTES:
            return f"the check printed more than {MOST_OUTPUT_BYTES:,} bytes"
        if not is_wanted():
            return "the check's result is no longer needed"


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _answer(folder: Path, exit_code: int) -> dict[str, Any]:
    with suppress(IndexError, ValueError):
        document = json.loads((folder / "out").read_bytes().splitlines()[-1])
        if isinstance(document, dict):
            return document
    error_text = (folder / "err").read_bytes()[-_LAST_WORDS_BYTES:].decode(errors="replace").strip()
    return {"could_not_check": f"the check ended with exit code {exit_code}: {error_text or '-'}"}

"""Checks a job spec with `distrain plan`, in a process that a Dask worker starts.

The check opens files and imports packages that the spec names, so it must run neither in the
scheduler nor in the worker's own process. Meanwhile, the worker can run ranks.
"""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from distributed import get_worker, secede

_LAST_WORDS_BYTES = 4000

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
    """Return the fields of a `Preflight` for a spec; called as a Dask task.

    They are in the output of `distrain plan --json`, beside others. `spec_text` is the spec as
    JSON. If the check does not end within `limit_s`, or prints no result, there is only `error`,
    the reason.
    """
    address = get_worker().scheduler.address
    secede()  # ranks must not wait for this check
    command = [sys.executable, "-P", "-c", _PROGRAM, str(os.getpid()), address]
    with TemporaryDirectory(prefix="distrain-check-") as folder:
        (Path(folder) / "spec.json").write_text(spec_text)
        try:
            ended = subprocess.run(
                command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit_s
            )
        except subprocess.TimeoutExpired:
            why = f"the check did not end within {limit_s:g} s"
            return {"error": f"{why}: does the storage of its files answer?"}
    with suppress(IndexError, ValueError):
        document = json.loads(ended.stdout.splitlines()[-1])
        if isinstance(document, dict):
            return {**document, "state": "failed" if document.get("errors") else "passed"}
    words = ended.stderr[-_LAST_WORDS_BYTES:].decode(errors="replace").strip() or "-"
    return {"error": f"the check ended with exit code {ended.returncode}: {words}"}
